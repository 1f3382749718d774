use serde_json::json;

use super::*;

fn yaml(text: &str) -> Result<Vec<Value>, Error> {
    let objects = parse(Path::new("a.yaml"), text)?;
    Ok(objects.into_iter().map(|object| object.value).collect())
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
fn yaml_is_read_as_kubectl_reads_it() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {mode: \"0400\"}}\n\
                spec: {mode: 0400, no: 1, 010: 08, text: '010'}\n";
    let object = yaml(text).unwrap().remove(0);
    assert_eq!(object["spec"], json!({"mode": 256, "false": 1, "8": 8, "text": "010"}));
    assert_eq!(object["metadata"]["annotations"], json!({"mode": "0400"}));
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
fn a_document_that_is_no_object_is_refused_with_the_reason() {
    let cases = [
        ("kind: ConfigMap\nmetadata: {name: a}\n", "needs `apiVersion` and `kind`"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n", "ConfigMap v1 needs `metadata.name`"),
        ("hidden\n", "an object is expected, found a text"),
    ];
    for (text, message) in cases {
        let error = yaml(text).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("document 1"), "{text}: {error}");
        assert!(!error.contains("hidden"), "the document may be a token: {error}");
    }
}

#[test]
fn a_folder_without_objects_and_one_that_is_absent_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(load(folder.path()), Err(Error::Empty { .. })));
    assert!(matches!(load(&folder.path().join("absent")), Err(Error::Unreadable { .. })));
}

#[test]
fn nested_folders_are_read_except_hidden_ones() {
    let folder = tempfile::tempdir().unwrap();
    let file = |path: &str, name: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = format!(
            "---\n# first\n---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\n"
        );
        std::fs::write(path, text).unwrap();
    };
    file("b.yaml", "right-here");
    file("a/deep/x.yml", "deep");
    file(".git/x.yaml", "hidden");
    file("readme.md", "no-object");
    let objects = open(folder.path()).unwrap();
    let places: Vec<_> = objects
        .iter()
        .map(|object| (object.file.strip_prefix(folder.path()).unwrap(), object.document))
        .collect();
    let document = objects[0].document;
    assert_eq!(places, [(Path::new("a/deep/x.yml"), document), (Path::new("b.yaml"), document)]);
    assert_eq!(objects[0].value["metadata"]["name"], json!("deep"));
}

#[test]
fn a_configuration_is_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        load_config(&path)
    };
    assert_eq!(load("a: 1\n").unwrap(), *json!({"a": 1}).as_object().unwrap());
    assert_eq!(load("# nothing\n").unwrap(), Map::new());
    for (text, found) in [("- a\n", "a list"), ("word\n", "a text"), ("3\n", "a number")] {
        let error = load(text).unwrap_err().to_string();
        assert!(error.contains("config.yaml") && error.contains(found), "{error}");
    }
    let error = load("a: 1\n---\nb: 2\n").unwrap_err().to_string();
    assert!(error.contains("one document"), "{error}");
}
