//! Programs that some tests need and not every machine has.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    io::{self, Write as _},
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

/// The variable that makes missing programs a failure: their names, with commas between, or `required` for all. `.ci/run` sets
/// it: nobody reads there what passes.
pub const VARIABLE: &str = "MORTISE_TOOLS";
const ALL: &str = "required";

/// Whether a program is on the PATH. If not, its tests pass without having run, and that is said once to standard error, past
/// what the test harness keeps to itself.
///
/// # Panics
///
/// The program is missing, and [`VARIABLE`] requires it.
pub fn is_there(program: &str, tests: &str) -> bool {
    let is_there = find(program, &env::var_os("PATH").unwrap_or_default()).is_some();
    if !is_there {
        say(program, &missing(program, tests));
    }
    is_there
}

/// Says, once, what a program is missing for.
///
/// # Panics
///
/// [`VARIABLE`] requires the program.
pub fn say(program: &str, line: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let variable = env::var(VARIABLE).unwrap_or_default();
    assert!(!requires(&variable, program), "{line}; with {VARIABLE}={variable} that is a failure");
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(line.to_owned()) {
        // Where standard error is gone there is nobody to tell.
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
    fn what_is_missing_is_named() {
        let line = "kubectl is not on the PATH: the tests of it::kubectl not run";
        assert_eq!(missing("kubectl", "the tests of it::kubectl"), line);
    }
}
