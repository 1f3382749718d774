use serde_json::json;

use super::*;

fn yaml(text: &str) -> Result<Vec<Value>, Error> {
    parse(Path::new("a.yaml"), text)
}

#[test]
fn documents_and_lists_become_objects_in_their_order() {
    let text = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n# nothing\n---\napiVersion: v1\nkind: List\n\
                items:\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n";
    let objects = yaml(text).unwrap();
    let names: Vec<_> = objects.iter().map(|object| object["metadata"]["name"].clone()).collect();
    assert_eq!(names, [json!("a"), json!("b")]);
}

#[test]
fn a_json_list_becomes_objects() {
    let text = r#"[{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}}]"#;
    assert_eq!(parse(Path::new("a.json"), text).unwrap().len(), 1);
}

#[test]
fn a_fault_names_file_document_line_and_column() {
    let text =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: [\n";
    let Err(Error::Syntax { path, document, line, column, .. }) = yaml(text) else {
        panic!("it parsed")
    };
    assert_eq!((path.as_path(), document), (Path::new("a.yaml"), 2));
    assert!(line >= 6 && column >= 1, "line {line}, column {column}");
}

#[test]
fn what_is_no_object_is_refused_with_what_is_missing() {
    let cases = [
        ("kind: ConfigMap\nmetadata: {name: a}\n", "needs `apiVersion` and `kind`"),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n",
            "ConfigMap of v1 needs `metadata.name`",
        ),
        ("just text\n", "an object is expected"),
    ];
    for (text, message) in cases {
        let error = yaml(text).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("document 1"), "{text}: {error}");
    }
}

#[test]
fn a_folder_without_objects_and_one_that_is_absent_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(load(folder.path()), Err(Error::Empty { .. })));
    assert!(matches!(load(&folder.path().join("absent")), Err(Error::Unreadable { .. })));
}
