/** Lines of the sources in a stack of the bundle that runs. */

/** The sources and, for each line of the bundle, their lines by column; set by the build. */
type Lines = { sources: string[]; lines: [column: number, source: number, line: number][][] };

/** Returns the places of a stack that are in the processor's sources, innermost first. */
export function located(stack: string): string[] {
  const map = (globalThis as { mortiseLines?: Lines }).mortiseLines;
  const places: string[] = [];
  for (const frame of stack.split("\n")) {
    const [, name = "", line, column] = /^(.*)@.*?:(\d+):(\d+)$/.exec(frame) ?? [];
    const segments = map?.lines[Number(line) - 1] ?? [];
    const found = segments.filter(([start]) => start < Number(column)).pop();
    if (map !== undefined && found !== undefined) {
      const place = `${map.sources[found[1]]}:${found[2]}`;
      places.push(name === "" ? place : `${place}, in ${name.replace(/\/?<$/, "")}`);
    }
  }
  return places;
}
