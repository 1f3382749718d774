//! Programs that some tests need and not every machine has.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    io::{self, Write as _},
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

/// The environment variable that makes missing programs a failure: their names, separated by
/// commas, or `required` for all. `.ci/run` sets it, because nobody reads the output of passing
/// tests there.
pub const VARIABLE: &str = "MORTISE_TOOLS";
const ALL: &str = "required";

/// Returns whether a program is on the PATH. If not, its tests pass without having run, and one
/// line says so on standard error, even if the test harness captures output.
///
/// # Panics
///
/// Panics if the program is missing and [`VARIABLE`] requires it.
pub fn is_there(program: &str, tests: &str) -> bool {
    let is_there = find(program, &env::var_os("PATH").unwrap_or_default()).is_some();
    if !is_there {
        say(program, &missing(program, tests));
    }
    is_there
}

/// Prints once that a program is missing, and for what.
///
/// # Panics
///
/// Panics if [`VARIABLE`] requires the program.
pub fn say(program: &str, line: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let variable = env::var(VARIABLE).unwrap_or_default();
    assert!(!requires(&variable, program), "{line}; with {VARIABLE}={variable} that is a failure");
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(line.to_owned()) {
        // Without standard error the line cannot be shown to anyone.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

fn requires(variable: &str, program: &str) -> bool {
    variable.split(',').any(|required| required == ALL || required == program)
}

fn missing(program: &str, tests: &str) -> String {
    format!("{program} is not on the PATH: {tests} not run")
}

fn find(program: &str, path: &OsStr) -> Option<PathBuf> {
    env::split_paths(path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_any_folder_of_the_path() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("there"), "").unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        let path = env::join_paths(["/nonexistent".as_ref(), folder.path()]).unwrap();
        assert_eq!(find("there", &path), Some(folder.path().join("there")));
        assert_eq!(find("folder", &path), None);
        assert_eq!(find("absent", &path), None);
    }

    #[test]
    fn a_program_is_required_by_name_or_with_all() {
        let cases = [
            ("", false),
            ("kubectl", false),
            ("required", true),
            ("go", true),
            ("kubectl,go", true),
        ];
        for (variable, expected) in cases {
            assert_eq!(requires(variable, "go"), expected, "{variable}");
        }
    }

    #[test]
    fn a_missing_program_is_named_with_its_tests() {
        let line = "kubectl is not on the PATH: the tests of it::kubectl not run";
        assert_eq!(missing("kubectl", "the tests of it::kubectl"), line);
    }
}
