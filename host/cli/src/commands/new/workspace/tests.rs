use super::*;

fn document(text: &str) -> DocumentMut {
    text.parse().unwrap()
}

#[test]
fn a_member_is_added_in_the_form_of_the_others() {
    let cases = [
        ("[workspace]\n", "[workspace]\nmembers = [\"a/new\"]\n"),
        ("[workspace]\nmembers = []\n", "[workspace]\nmembers = [\"a/new\"]\n"),
        (
            "# why\n[workspace]\nmembers = [\"one\", \"two\"] # all\n\n[profile.dev]\ndebug = 1\n",
            "# why\n[workspace]\nmembers = [\"one\", \"two\", \"a/new\"] # all\n\n[profile.dev]\ndebug = 1\n",
        ),
        (
            "[workspace]\nmembers = [\n  # the first\n  \"one\",\n  # the second\n  \"two\",\n]\n",
            "[workspace]\nmembers = [\n  # the first\n  \"one\",\n  # the second\n  \"two\",\n  \"a/new\",\n]\n",
        ),
        (
            "[workspace]\nmembers = [\n  \"one\", # ours\n]\n",
            "[workspace]\nmembers = [\n  \"one\", # ours\n  \"a/new\",\n]\n",
        ),
        (
            "[workspace]\nmembers = [\n\t\"one\"\n]\n",
            "[workspace]\nmembers = [\n\t\"one\",\n\t\"a/new\"\n]\n",
        ),
    ];
    for (before, after) in cases {
        assert_eq!(with_member(document(before), "a/new").unwrap(), after);
    }
    assert_eq!(with_member(document("[workspace]\nmembers = 3\n"), "a"), None);
}

/// A workspace with one member; `rest` is the content of its `[workspace]`.
fn workspace(rest: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let member = root.path().join("guests/one");
    fs::create_dir_all(member.join("src")).unwrap();
    fs::write(member.join("src/lib.rs"), "").unwrap();
    fs::write(member.join("Cargo.toml"), package("one")).unwrap();
    fs::write(root.path().join("Cargo.toml"), format!("[workspace]\nresolver = \"3\"\n{rest}\n"))
        .unwrap();
    root
}

fn package(name: &str) -> String {
    format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n")
}

#[test]
fn a_member_by_a_pattern_needs_no_line() {
    for (rest, added) in [("members = [\"guests/*\"]", false), ("members = [\"guests/one\"]", true)]
    {
        let root = workspace(rest);
        let folder = root.path().join("guests/two");
        let around = Workspace::around(&folder).unwrap().unwrap();
        around.check_free("two").unwrap();
        fs::create_dir_all(folder.join("src")).unwrap();
        fs::write(folder.join("src/lib.rs"), "").unwrap();
        fs::write(folder.join("Cargo.toml"), package("two")).unwrap();
        let before = fs::read_to_string(&around.manifest).unwrap();
        assert_eq!(around.add(&folder).unwrap(), added, "{rest}");
        let after = fs::read_to_string(&around.manifest).unwrap();
        assert_eq!(after != before, added, "{after}");
        assert_eq!(around.packages().unwrap().len(), 2, "{after}");
    }
}

#[test]
fn a_name_of_a_member_is_taken() {
    let root = workspace("members = [\"guests/*\"]");
    let around = Workspace::around(&root.path().join("elsewhere/one")).unwrap().unwrap();
    let error = around.check_free("one").unwrap_err().to_string();
    assert!(error.ends_with("has a member `one` already: choose another name"), "{error}");
    around.check_free("two").unwrap();
}

#[test]
fn a_folder_that_a_workspace_excludes_is_outside_of_it() {
    let root = workspace("members = [\"guests/*\"]\nexclude = [\"apart\"]");
    assert!(Workspace::around(&root.path().join("apart/new")).unwrap().is_none());
    assert!(Workspace::around(&root.path().join("other/new")).unwrap().is_some());
}
