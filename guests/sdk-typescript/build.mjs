// Builds a component from a TypeScript module: `node build.mjs MODULE COMPONENT`, in the guest's
// folder.
//
// The tools come from the guest's package-lock.json, by `npm ci`, into `node_modules`: again only
// when that file has changed. Without arguments nothing but that is done. `mortise-sdk` in an
// import is the module beside this file.

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { SourceMap } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
/** The oldest Node that the tools run on. */
const OLDEST_NODE = 20;
const TYPESCRIPT = ["--noEmit", "--pretty", String(process.stderr.isTTY === true)];
// In a checkout of mortise the contract is the one that the host is built from; a guest of its own
// has a copy.
const CONTRACT = [join(HERE, "wit"), join(HERE, "../../wit")].find(existsSync);

const [module, component] = process.argv.slice(2);
if (Number(process.versions.node.split(".")[0]) < OLDEST_NODE) {
  console.error(`Node ${process.versions.node} is too old: ${OLDEST_NODE} or later is required`);
  process.exit(1);
}
install();
if (module !== undefined) {
  run(process.execPath, [resolve("node_modules/typescript/bin/tsc"), ...TYPESCRIPT]);
  const bundle = resolve(".build/bundle.js");
  await bundled(module, bundle);
  await componentized(bundle, resolve(component));
}

/** Installs the tools, unless those of this lock file are there. */
function install() {
  const stamp = "node_modules/.mortise-installed";
  const wanted = createHash("sha256").update(readFileSync("package-lock.json")).digest("hex");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) {
    return;
  }
  console.error(`installing the tools of ${resolve("package-lock.json")}`);
  run("npm", ["ci", "--no-audit", "--no-fund", "--loglevel", "error"]);
  writeFileSync(stamp, wanted);
}

/** Writes one module that holds all others, and in it the lines that it was made of. */
async function bundled(source, path) {
  const { default: esbuild } = await installed("esbuild/lib/main.js");
  const built = await esbuild.build({
    entryPoints: [source],
    outfile: path,
    bundle: true,
    format: "esm",
    target: "es2022",
    sourcemap: "external",
    external: ["mortise:*"],
    alias: { "mortise-sdk": join(HERE, "src/index.ts") },
    write: false,
    logLevel: "silent",
  });
  const text = (ending) => built.outputFiles.find((file) => file.path.endsWith(ending)).text;
  const code = text(".js");
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(
    path,
    `${code}\nglobalThis.mortiseLines = ${lines(code, JSON.parse(text(".map")))};\n`,
  );
}

/**
 * Returns the sources' lines of each line of the bundle as JSON: `mortiseLines` in src/lines.ts.
 */
function lines(code, map) {
  const own = map.sources
    .map((source) => resolve(".build", source))
    .map((path) => (path.startsWith(HERE) ? undefined : path.slice(process.cwd().length + 1)));
  const entries = new SourceMap(map);
  const table = code.split("\n").map((text, line) => {
    const found = [];
    for (let column = 0; column < text.length; column += 1) {
      const entry = entries.findEntry(line, column);
      const source = map.sources.indexOf(entry.originalSource);
      const last = found.at(-1);
      if (own[source] === undefined || entry.generatedLine !== line) {
        continue;
      }
      const original = entry.originalLine + 1;
      if (last === undefined || last[1] !== source || last[2] !== original) {
        found.push([column, source, original]);
      }
    }
    return found;
  });
  return JSON.stringify({ sources: own.map((source) => source ?? ""), lines: table });
}

async function componentized(source, path) {
  const { componentize } = await installed("@bytecodealliance/componentize-js/src/componentize.js");
  const made = await componentize({
    sourcePath: source,
    witPath: resolve(CONTRACT),
    worldName: "processor",
    // A processor has no network.
    disableFeatures: ["http", "fetch-event"],
  });
  mkdirSync(dirname(path), { recursive: true });
  // Whoever looks at the component never sees half of it.
  writeFileSync(`${path}.draft`, made.component);
  renameSync(`${path}.draft`, path);
}

/** Imports a module of a tool. */
function installed(path) {
  return import(pathToFileURL(resolve("node_modules", path)));
}

function run(program, args) {
  const { status, error } = spawnSync(program, args, { stdio: ["ignore", 2, 2] });
  if (error !== undefined || status !== 0) {
    console.error(
      error === undefined ? `${program} failed` : `cannot run ${program}: ${error.message}`,
    );
    process.exit(1);
  }
}
