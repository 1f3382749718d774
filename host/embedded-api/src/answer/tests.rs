use super::*;

#[test]
fn the_first_form_that_can_be_had_is_taken() {
    let whole = Accept::default();
    let table = Accept { form: Form::Table, ..whole };
    let beta = Accept { form: Form::Metadata, beta: true, ..whole };
    let cases = [
        (None, Some(whole)),
        (Some("*/*"), Some(whole)),
        (Some("application/xml, application/json"), Some(whole)),
        (Some("application/vnd.kubernetes.protobuf,application/json"), Some(whole)),
        (Some("application/vnd.kubernetes.protobuf"), None),
        (Some("text/html"), None),
        (Some("application/yaml"), Some(Accept { yaml: true, ..whole })),
        (Some("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"), Some(table)),
        (Some("application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io"), Some(beta)),
        (Some("application/json;as=Bogus;v=v1;g=meta.k8s.io,application/json"), Some(whole)),
        (Some("application/json;as=Bogus;v=v1;g=meta.k8s.io"), None),
        (Some("application/yaml;q=0.5,application/json"), Some(whole)),
    ];
    for (header, expected) in cases {
        assert_eq!(Accept::negotiate(header).ok(), expected, "{header:?}");
    }
}

#[test]
fn warnings_are_quoted_and_come_once() {
    let mut response = respond(200, "application/json", Body::empty());
    warn(&mut response, &["unknown field \"a\"".to_owned(), "b".to_owned(), "b".to_owned()]);
    let texts: Vec<&str> =
        response.headers().get_all(WARNING).iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(texts, [r#"299 - "unknown field \"a\"""#, r#"299 - "b""#]);
}

#[test]
fn tables_and_metadata_become_those_of_v1beta1() {
    let partial = |version: &str| json!({"kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}")});
    let whole = json!({"kind": "Widget", "apiVersion": "v1"});
    let all = |version: &str| {
        let rows = json!([{"object": partial(version)}, {"object": whole}, {"object": null}]);
        json!([
            partial(version),
            {"apiVersion": format!("meta.k8s.io/{version}"), "items": [partial(version)]},
            {"apiVersion": format!("meta.k8s.io/{version}"), "rows": rows},
        ])
    };
    let mut shown = all("v1");
    shown.as_array_mut().unwrap().iter_mut().for_each(to_beta);
    assert_eq!(shown, all("v1beta1"));
}
