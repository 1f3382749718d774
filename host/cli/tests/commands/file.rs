//! Guests with a mortise.toml: their command here adds a version to a component that is built
//! already.

use std::{fs, path::PathBuf};

use mortise::guest::Guest;

use crate::{dev::Dev, mortise, root};

const MANIFEST: &str = "component = 'made/copy.wasm'\nbuild = ['sh', 'make', 'made/copy.wasm']\nwatch = ['version', 'make']\n\
                        examples = 'examples'\ncases = 'cases'\n";
/// A custom section with the version follows the component.
const MAKE: &str = "set -e\ngrep -q '^[0-9]' version || { echo 'a version is a digit' >&2; exit 1; }\nmkdir -p made\n\
                    { cat base.wasm; printf '\\000\\003\\001v'; head -c 1 version; } > made/draft\nmv made/draft \"$1\"\n";

/// A guest's folder, removed at the end.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let secret_copy = Guest::open(&root().join("guests/secret-copy")).unwrap();
        fs::copy(secret_copy.build().unwrap(), folder.path("base.wasm")).unwrap();
        let link = |from: PathBuf, to: &str| {
            let from = from.canonicalize().unwrap();
            std::os::unix::fs::symlink(from, folder.path(to)).unwrap();
        };
        link(secret_copy.examples.unwrap(), "examples");
        link(secret_copy.cases, "cases");
        let crds = root().join("crds/copy.mortise.dev").canonicalize().unwrap();
        folder.save("mortise.toml", &format!("{MANIFEST}crds = ['{}']\n", crds.display()));
        folder.save("make", MAKE);
        folder.save("version", "1\n");
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn save(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Runs a command on this folder; returns its exit code and all that it prints.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = mortise();
        command.args(arguments.iter().map(|argument| match *argument {
            "." => self.0.path().to_str().unwrap().to_owned(),
            other => other.to_owned(),
        }));
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }
}

#[test]
fn every_command_takes_a_folder_with_a_mortise_toml() {
    let folder = Folder::new();
    let examples = folder.path("examples").display().to_string();
    let cases: [(&[&str], &str); 4] = [
        (&["test", ".", "--filter", "deleted"], "1 passed, 0 failed"),
        (&["simulate", "--module", ".", "--objects", &examples], "0 failed"),
        (&["inspect", "."], "secret-copy"),
        (&["bench", ".", "--objects", &examples, "--seconds", "1"], "calls/s"),
    ];
    for (arguments, expected) in cases {
        let (code, text) = folder.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}

#[test]
fn dev_runs_the_build_command_on_save_and_swaps_the_module() {
    let folder = Folder::new();
    let dev = Dev::start(&[folder.0.path().to_str().unwrap(), "--plain"]);
    dev.line("create Secret v1 shop/registry");
    folder.save("version", "2\n");
    dev.line("took over from");
    folder.save("version", "no\n");
    let failed = dev.line("the former version keeps running");
    assert!(failed.contains("is not built: `sh make made/copy.wasm` failed"), "{failed}");
    folder.save("make", &MAKE.replace("^[0-9]", "^n"));
    dev.line("took over from");
    assert!(dev.interrupt().success());
}

#[test]
fn a_manifest_that_is_wrong_is_one_line() {
    let folder = Folder::new();
    let manifest = folder.path("mortise.toml").display().to_string();
    let cases = [
        ("", "missing field `component`"),
        (
            "component = 'a'\nexample = 'b'\n",
            "line 2: unknown field `example`, expected one of `component`",
        ),
        (
            "component = 'a'\nbuild = ['no-such-tool', 'a']\n",
            "cannot run `no-such-tool`, which builds",
        ),
        ("component = 'a'\nbuild = ['false']\n", "is not built: `false` failed"),
        ("component = 'a'\nbuild = ['true']\n", "`true` has made no `"),
        ("component = 'a'\n", "make it, or name its command with `build`"),
        ("component = 'a'\nbuild = ['true']\nwatch = ['gone']\n", "`true` has made no `"),
    ];
    for (text, expected) in cases {
        folder.save("mortise.toml", text);
        let (code, said) = folder.run(&["test", "."]);
        assert_eq!(code, Some(1), "{text}: {said}");
        assert!(said.starts_with("error: ") && said.contains(expected), "{text}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    fs::remove_file(&manifest).unwrap();
    let (_, said) = folder.run(&["test", "."]);
    assert!(said.contains("holds neither a Cargo.toml nor a mortise.toml"), "{said}");
}
