use std::os::unix::fs::PermissionsExt as _;

use mortise_core::fixture::{all, fields};

use super::*;

fn api() -> EmbeddedApi {
    EmbeddedApi::new(mortise_embedded_api::Options::default())
}

fn given(value: Value) -> Object {
    Object { file: Path::new("a.yaml").into(), document: 1, value }
}

fn config_map(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop", "uid": "given", "labels": {"yes": "no", "n": "0x1F"},
            "managedFields": [{"manager": "mortise/x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {"f:k": {}}}}]},
        "data": {"k": "several\nlines\n\n", "tab": "\ta: 1 # no", "null": "~", "date": "2024-01-01", "empty": "", "quote": "'\"\\"},
    })
}

fn secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shop"}, "data": {"k": "aGlkZGVu"}})
}

/// Returns all objects without their resource versions, which differ each time.
fn objects(api: &EmbeddedApi) -> Vec<Value> {
    let mut objects = api.objects();
    for object in &mut objects {
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    }
    objects
}

#[test]
fn saved_objects_are_restored_by_loading_them() {
    let folder = tempfile::tempdir().unwrap();
    let first = api();
    load(&first, vec![given(secret()), given(config_map("a")), given(config_map("b"))]).unwrap();
    prepare(folder.path()).unwrap();
    let note = save(&first, folder.path(), &Secrets::Shown).unwrap();
    assert!(note.contains("objects saved") && !note.contains("Secrets"), "{note}");

    let second = api();
    load(&second, files::open(folder.path()).unwrap()).unwrap();
    assert_eq!(objects(&second), objects(&first));
}

#[test]
fn secret_values_are_saved_only_if_they_may_be_shown() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("new/state");
    prepare(&place).unwrap();
    let api = api();
    api.serve_untyped("g", "v1", "Auth", "auths", true);
    let auth = |name: &str, spec: Value| {
        let metadata = json!({"name": name, "namespace": "shop"});
        given(json!({"apiVersion": "g/v1", "kind": "Auth", "metadata": metadata, "spec": spec}))
    };
    let token = auth("a", json!({"token": "hidden"}));
    load(&api, vec![given(secret()), token, auth("b", json!({"server": "shown"}))]).unwrap();
    let declared = fields(all("Auth"), &["spec.token"]);

    let note = save(&api, &place, &Secrets::new(false, [declared.clone()])).unwrap();
    assert!(note.contains("2 with values of Secrets") && note.contains("--show-secrets"), "{note}");
    assert!(!place.join("secret.yaml").exists());
    let saved = std::fs::read_to_string(place.join("auth.g.yaml")).unwrap();
    assert!(saved.contains("shown") && !saved.contains("hidden"), "{saved}");

    save(&api, &place, &Secrets::new(true, [declared])).unwrap();
    let saved = std::fs::read_to_string(place.join("auth.g.yaml")).unwrap();
    assert!(saved.contains("hidden") && place.join("secret.yaml").exists(), "{saved}");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&place), mode(&place.join("secret.yaml"))), (0o700, 0o600));
}

#[test]
fn a_folder_is_saved_into_again_and_one_of_others_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let first = api();
    load(&first, vec![given(config_map("a"))]).unwrap();
    save(&first, folder.path(), &Secrets::new(false, [])).unwrap();
    prepare(folder.path()).unwrap();
    save(&api(), folder.path(), &Secrets::new(false, [])).unwrap();
    assert!(!folder.path().join("configmap.yaml").exists(), "there is none any more");

    std::fs::write(folder.path().join("mine.yaml"), "a: 1\n").unwrap();
    let error = prepare(folder.path()).unwrap_err().to_string();
    assert!(error.contains("mine.yaml") && error.contains("--save"), "{error}");
}

#[test]
fn an_object_that_its_schema_refuses_is_named_with_file_and_field() {
    let wrong = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": 3}});
    let error = format!("{:#}", load(&api(), vec![given(wrong)]).unwrap_err());
    assert!(error.contains("`a.yaml`, document 1") && error.contains("data"), "{error}");
}
