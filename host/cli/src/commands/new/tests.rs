use mortise_core::contract::Kind;
use subject::Origin;

use super::*;

fn subject(group: &str, version: &str, kind: &str, plural: &str, origin: Origin) -> Subject {
    let kind = Kind::home(group, version, kind);
    Subject { kind, plural: plural.into(), origin }
}

fn greeting() -> Subject {
    subject("example.com", "v1", "Greeting", "greetings", Origin::Own)
}

fn sdk() -> Sdk {
    Sdk::Version("0.1.0")
}

/// Returns all paths in a folder, with the text of each file.
fn tree(folder: &Path) -> Vec<(PathBuf, Option<String>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.push((path.clone(), None));
            found.extend(tree(&path));
        } else {
            found.push((path.clone(), Some(fs::read_to_string(&path).unwrap())));
        }
    }
    found.sort();
    found
}

/// Returns a folder, and a subfolder of it that is in no workspace, wherever the folder is.
fn outside() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("Cargo.toml"), "[workspace]\nexclude = [\"outside\"]\n").unwrap();
    let outside = root.path().join("outside");
    fs::create_dir(&outside).unwrap();
    (root, outside)
}

#[test]
fn names_are_those_of_crates_and_processors() {
    for name in ["greeter", "my-guest", "a1-2b", &"a".repeat(63)] {
        assert_eq!(checked_name(name).unwrap(), name);
    }
    for name in [
        "",
        "Greeter",
        "my_guest",
        "1st",
        "-a",
        "a-",
        "a.b",
        "a/b",
        "fn",
        "test",
        "gast\u{e9}",
        &"a".repeat(64),
    ] {
        let error = checked_name(name).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{name}` is no name for a guest")), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[tokio::test]
async fn a_kind_is_of_kubernetes_or_ones_own() {
    let built_in = |namespaced| Origin::BuiltIn { namespaced };
    let cases = [
        (None, subject("example.com", "v1", "MyGuest", "myguests", Origin::Own)),
        (Some("example.com/v1/Greeting"), greeting()),
        (
            Some("a.b/v1alpha1/Policy"),
            subject("a.b", "v1alpha1", "Policy", "policies", Origin::Own),
        ),
        (Some("v1/ConfigMap"), subject("", "v1", "ConfigMap", "configmaps", built_in(true))),
        (Some("v1/Namespace"), subject("", "v1", "Namespace", "namespaces", built_in(false))),
        (
            Some("apps/v1/Deployment"),
            subject("apps", "v1", "Deployment", "deployments", built_in(true)),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(Subject::of("my-guest", text).await.unwrap(), expected, "{text:?}");
    }
}

#[tokio::test]
async fn a_kind_that_is_none_is_refused_with_an_example() {
    for text in [
        "",
        "Greeting",
        "example.com/Greeting/v1",
        "example.com/v1/greeting",
        "/v1/Greeting",
        "a/b/c/D",
        "example.com//Greeting",
        "Example.com/v1/Greeting",
        "example.com/v1/",
        "example.com/v1/Gree-ting",
        ".com/v1/Greeting",
    ] {
        let error = Subject::of("x", Some(text)).await.unwrap_err().to_string();
        let expected =
            format!("`{text}` is no kind: write GROUP/VERSION/KIND, as `example.com/v1/Greeting`");
        assert!(error.starts_with(&expected), "{error}");
    }
    let cases = [
        (
            "apps/v1/Deploymnt",
            "Kubernetes has no kind `apps/v1/Deploymnt`; a kind of your own has a group like `example.com`",
        ),
        (
            "apps/v1beta1/Deployment",
            "has no kind `apps/v1beta1/Deployment`, but `apps/v1/Deployment`;",
        ),
        ("v2/Pod", "has no kind `v2/Pod`, but `v1/Pod`;"),
        ("storage.k8s.io/v1/Greeting", "has no kind `storage.k8s.io/v1/Greeting`;"),
    ];
    for (text, expected) in cases {
        let error = Subject::of("x", Some(text)).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_folder_that_is_there_stays_as_it_is() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("greeter");
    fs::create_dir(&folder).unwrap();
    let before = tree(parent.path());
    let error = make("greeter", &greeting(), &folder, &sdk()).unwrap_err();
    assert!(matches!(&error, Error::FolderTaken { folder: named } if *named == folder), "{error}");
    assert_eq!(tree(parent.path()), before);
}

#[test]
fn a_parent_that_is_no_folder_is_named() {
    let (root, parent) = outside();
    fs::write(parent.join("file"), "").unwrap();
    let before = tree(root.path());
    for place in ["file/greeter", "none/greeter"] {
        let folder = parent.join(place);
        let error = make("greeter", &greeting(), &folder, &sdk()).unwrap_err();
        assert!(matches!(&error, Error::Unwritable { path, .. } if *path == folder), "{error}");
        assert_eq!(tree(root.path()), before);
    }
}

/// The parent's mode does not stop root, so the obstacle is a folder in the place of a file.
#[test]
fn a_failed_write_leaves_no_files_behind() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("greeter");
    let files = [("a".into(), "text".to_owned()), ("a/b".into(), "text".to_owned())].into();
    let error = put(&folder, &files).unwrap_err();
    assert!(
        matches!(&error, Error::Unwritable { path, .. } if path.ends_with("greeter/a/b")),
        "{error}"
    );
    assert_eq!(tree(parent.path()), []);
}

#[test]
fn outside_of_a_workspace_it_is_one_of_its_own() {
    let (_root, parent) = outside();
    let folder = parent.join("greeter");
    let made = make("greeter", &greeting(), &folder, &sdk()).unwrap();
    assert_eq!(made, Made { workspace: None, added: false, sdk: sdk() });
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for line in
        ["name = \"greeter\"", "mortise-sdk = \"0.1.0\"", "[workspace]", "crds = [\"crds\"]"]
    {
        assert!(manifest.lines().any(|other| other == line), "{line}: {manifest}");
    }
    let text = describe("greeter", &greeting(), Path::new("greeter"), &made.describe());
    let expected = "made `greeter` in greeter: it reconciles Greeting example.com/v1\nit is a workspace of its own\n\
                    it depends on mortise-sdk by version: 0.1.0\nnext: mortise dev greeter\n";
    assert_eq!(text, expected);
}

#[test]
fn a_workspace_that_is_broken_is_named_and_nothing_is_written() {
    let parent = tempfile::tempdir().unwrap();
    let manifest = parent.path().join("Cargo.toml");
    for text in ["[workspace", "[workspace]\nmembers = [\"none\"]\n", "[workspace]\nmembers = 3\n"]
    {
        fs::write(&manifest, text).unwrap();
        let before = tree(parent.path());
        let error = make("greeter", &greeting(), &parent.path().join("greeter"), &sdk());
        let error = error.unwrap_err();
        assert!(
            matches!(&error, Error::Workspace { workspace, .. } if *workspace == manifest),
            "{error}"
        );
        assert_eq!(tree(parent.path()), before);
    }
}
