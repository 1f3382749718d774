use serde_json::json;

use super::*;

fn guest(mortise: &Value) -> Result<Guest, Error> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = folder.join("Cargo.toml");
    Guest::from_metadata(
        folder,
        &json!({"packages": [
            {"name": "other", "manifest_path": "/nowhere/Cargo.toml"},
            {"name": "mine", "manifest_path": manifest, "metadata": {"mortise": mortise}, "targets": [
                {"name": "mine", "crate_types": ["cdylib", "rlib"]},
            ]},
        ]}),
    )
}

#[test]
fn folders_are_relative_to_the_cargo_toml() {
    let guest = guest(&json!({"crds": ["../crds/a"], "examples": "examples"})).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!((guest.package.as_str(), guest.crds), ("mine", vec![folder.join("../crds/a")]));
    assert_eq!(guest.examples, Some(folder.join("examples")));
}

#[test]
fn clusters_are_folders_with_names_of_secrets() {
    let clusters = json!({
        "shop/provider/kubeconfig": "provider",
        "shop/other/kubeconfig": {"objects": "other", "namespace": "team"},
    });
    let run = json!(["cargo", "run"]);
    let guest = guest(&json!({"dev": {"clusters": clusters, "companion": {"run": run}}})).unwrap();
    assert_eq!(guest.companion, ["cargo", "run"]);
    let [other, provider] = guest.clusters.as_slice() else { panic!("two") };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!((&provider.objects, &*provider.namespace), (&folder.join("provider"), "default"));
    assert_eq!((&other.objects, &*other.namespace), (&folder.join("other"), "team"));
    assert_eq!(provider.secret(), Some(("shop", "provider", "kubeconfig")));
}

#[test]
fn a_field_of_another_shape_is_named() {
    let cases = [
        (json!({"crds": "a"}), "crds` in"),
        (json!({"examples": ["a"]}), "examples` in"),
        (json!({"dev": {"clusters": {"provider": "provider"}}}), "dev` in"),
        (json!({"dev": {"cluster": {}}}), "dev` in"),
        (json!({"dev": {"companion": {"run": "cargo run"}}}), "dev` in"),
        (json!({"dev": {"companion": {}}}), "dev` in"),
    ];
    for (mortise, named) in cases {
        let error = guest(&mortise).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn limits_and_libraries_are_read() {
    let library = json!({
        "interface": "a:b/c@1.0.0", "path": "made/c.wasm", "build": ["make", "c"],
        "watch": ["c"], "limits": {"memory": "256Mi"},
    });
    let guest = guest(&json!({"limits": {"deadline": "30s"}, "libraries": [library]})).unwrap();
    let default = Limits::default();
    assert_eq!(guest.limits.deadline, std::time::Duration::from_secs(30));
    assert_eq!(guest.limits.memory, default.memory);
    let [library] = guest.libraries.as_slice() else { panic!("one") };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(library.component.path, folder.join("made/c.wasm"));
    assert_eq!(library.component.watch, [folder.join("c")]);
    assert_eq!((library.limits.memory, library.limits.deadline), (256 << 20, default.deadline));
}

#[test]
fn limits_and_libraries_of_another_shape_are_named() {
    let of = |library: Value| json!({"libraries": [library]});
    let cases = [
        (json!({"limits": {"memory": "a"}}), "limits.memory is `a`; 1Mi to 4Gi is accepted"),
        (json!({"limits": {"time": "5s"}}), "limits` in"),
        (of(json!({"path": "c.wasm"})), "must be tables of `interface`"),
        (of(json!({"interface": "a:b/c", "path": "c", "build": "make c"})), "`build` (a program"),
        (
            of(json!({"interface": "a:b/c", "path": "c", "limits": {"deadline": "0s"}})),
            "libraries[a:b/c].deadline is `0s`; 1ms to 10m is accepted",
        ),
    ];
    for (mortise, named) in cases {
        let error = guest(&mortise).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn a_folder_without_a_package_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Guest::open(folder.path()), Err(Error::NoPackage { .. })));
}

#[test]
fn a_folder_with_two_manifests_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["Cargo.toml", file::NAME] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    assert!(matches!(Guest::open(folder.path()), Err(Error::Both { .. })));
}

#[test]
fn the_component_is_found_among_cargos_messages() {
    let line = r#"{"reason":"compiler-artifact","target":{"name":"api_rule"},"filenames":["/t/a.rlib","/t/a.wasm"]}"#;
    assert_eq!(component_of(line, "api_rule"), Some(PathBuf::from("/t/a.wasm")));
    assert_eq!(component_of(line, "other"), None);
    assert_eq!(component_of("no json", "api-rule"), None);
}

#[test]
fn a_package_that_becomes_no_component_is_refused_before_it_is_built() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let metadata = json!({"packages": [{
        "name": "mine",
        "manifest_path": folder.join("Cargo.toml"),
        "targets": [{"name": "mine", "crate_types": ["lib"]}],
    }]});
    let error = Guest::from_metadata(folder, &metadata).unwrap_err().to_string();
    assert!(error.contains("`mine`") && error.contains("cdylib"), "{error}");
}
