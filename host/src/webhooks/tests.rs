use super::*;

#[test]
fn paths_name_a_processor_or_a_hook() {
    let alias: Alias = "/convert=/convert/kyma-system/api-rule".parse().unwrap();
    let paths = Paths::new(vec![alias.clone()]).unwrap();
    let of = |path: &str| paths.resolve(path).map(|path| format!("{path:?}")).ok();
    let expected = r#"Convert { namespace: "kyma-system", name: "api-rule" }"#;
    assert_eq!(of("/convert").as_deref(), Some(expected));
    assert_eq!(of("/convert/kyma-system/api-rule").as_deref(), Some(expected));
    assert!(of("/admit/a/b/c").is_some());
    for path in ["/", "/convert/a", "/convert/a/b/c", "/admit/a/b", "/convert/A/b", "/convert/a/.."]
    {
        let error = paths.resolve(path).unwrap_err();
        assert_eq!(error.status, StatusCode::NOT_FOUND, "{path}");
        assert!(error.message.contains("/admit/NAMESPACE/PROCESSOR/HOOK"), "{}", error.message);
    }
    assert!(Paths::new(vec![alias.clone(), alias]).unwrap_err().contains("given twice"));
    for text in ["/a", "a=/convert/a/b", "/a=/b", "/a?b=/convert/a/b"] {
        let error = text.parse::<Alias>().unwrap_err();
        assert!(error.contains("OLD=NEW is expected"), "{text}: {error}");
    }
    assert!(
        "/convert/c/d=/convert/a/b".parse::<Alias>().unwrap_err().contains("of the host itself")
    );
}

#[test]
fn the_caller_says_how_long_it_waits() {
    let of = |query: Option<&str>| timeout(query).map_err(|error| error.message);
    assert_eq!(of(None), Ok(DEFAULT_TIMEOUT));
    assert_eq!(of(Some("timeout=10s")), Ok(Duration::from_secs(10)));
    assert_eq!(of(Some("a=b&timeout=1500ms")), Ok(Duration::from_millis(1500)));
    assert_eq!(of(Some("timeout=1h0m0s")), Ok(DEFAULT_TIMEOUT), "no longer than any hook may take");
    for text in ["timeout=", "timeout=-1s", "timeout=x"] {
        assert!(of(Some(text)).unwrap_err().contains("a duration such as `10s`"), "{text}");
    }
}

#[test]
fn a_request_that_comes_too_early_is_to_be_repeated() {
    let early = Refused::new(StatusCode::TOO_MANY_REQUESTS, String::new());
    assert_eq!(response(Err(early)).headers()[header::RETRY_AFTER], "1");
    let bad = response(Err(Refused::bad(String::new())));
    assert!(!bad.headers().contains_key(header::RETRY_AFTER));
}
