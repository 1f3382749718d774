use std::time::Duration;

use super::*;

fn file(folder: &Path, path: &str, text: &str) -> PathBuf {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

/// A guest in a workspace, with one dependency in the workspace and one beside it.
fn workspace(folder: &Path) -> Guest {
    let package = |path: &str, name: &str, more: &str| {
        let begin = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\n");
        file(folder, &format!("{path}/Cargo.toml"), &format!("{begin}{more}"));
        file(folder, &format!("{path}/src/lib.rs"), "");
    };
    file(folder, "all/Cargo.toml", "[workspace]\nmembers = [\"guest\", \"sdk\", \"other\"]\n");
    let needs = "[lib]\ncrate-type = [\"cdylib\"]\n[dependencies]\nsdk = { path = \"../sdk\" }\n";
    let only_tests = "[dev-dependencies]\nother = { path = \"../other\" }\n";
    package("all/guest", "guest", &format!("{needs}{only_tests}"));
    package("all/sdk", "sdk", "[dependencies]\nbeside = { path = \"../../beside\" }\n");
    package("all/other", "other", "");
    package("beside", "beside", "[workspace]\n");
    Guest::open(&folder.join("all/guest")).unwrap()
}

#[test]
fn only_the_build_inputs_of_a_guest_affect_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let sources = Sources::of(&workspace(&folder)).unwrap();
    let cases = [
        ("all/guest/src/lib.rs", true),
        ("all/guest/Cargo.toml", true),
        ("all/sdk/src/new/file.rs", true),
        ("beside/src/lib.rs", true),
        ("all/Cargo.lock", true),
        ("all/other/src/lib.rs", false),
        ("all/target/release/guest.wasm", false),
        ("all/notes.md", false),
        ("all/guest/src/.lib.rs.swp", false),
        ("all/guest/src/lib.rs~", false),
    ];
    for (path, expected) in cases {
        assert_eq!(sources.affects(&folder.join(path)), expected, "{path}");
    }
}

#[test]
fn target_folders_of_cargo_are_not_watched() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let guest = workspace(&folder);
    file(&folder, "all/guest/target/x", "");
    let mut sources = Sources::of(&guest).unwrap();
    sources.targets.insert(folder.join("all/guest/target"));
    let plan = sources.plan();
    assert!(plan.contains(&(folder.join("all/guest/src"), true)), "{plan:?}");
    assert!(plan.contains(&(folder.join("all"), false)), "{plan:?}");
    assert!(!plan.iter().any(|(path, _)| path.ends_with("target")), "{plan:?}");
}

#[tokio::test]
async fn a_saved_file_is_noticed_and_one_that_is_read_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let sources = Sources::of(&workspace(&folder)).unwrap();
    let mut changes = Changes::new().unwrap();
    changes.watch(&sources).unwrap();
    std::fs::read(folder.join("all/guest/src/lib.rs")).unwrap();
    let saved = file(&folder, "all/sdk/src/lib.rs", "// new");
    let seen = tokio::time::timeout(Duration::from_secs(10), changes.next()).await.unwrap();
    assert_eq!(seen, BTreeSet::from([saved]));
}
