use super::*;

#[test]
fn a_query_is_read_as_it_was_meant() {
    let cases = [
        ("plain", "a", "a"),
        ("an escape", "a%2Fb%3ac", "a/b:c"),
        ("a plus", "a+b", "a b"),
        ("no escape", "%", "%"),
        ("half an escape", "a%2", "a%2"),
        ("a sign", "%+1", "% 1"),
        ("two bytes", "%C3%A9", "é"),
    ];
    for (case, given, meant) in cases {
        assert_eq!(decoded(given), meant, "{case}");
    }
}

#[test]
fn parameters_that_are_not_known_are_refused_with_those_that_are() {
    let query = Query::of(Some("key=a%2Fb:c&failed"), &["key", "failed"]).ok().unwrap();
    assert_eq!(query.get("failed"), Some(""));
    assert_eq!(query.key().unwrap().unwrap().to_string(), "a/b:c");
    let (status, message) = Query::of(Some("kee=a"), &["key", "failed"]).err().unwrap();
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(message, "`kee` is not known here; there is: `key`, `failed`");
    let query = Query::of(Some("key=a"), &["key"]).ok().unwrap();
    assert!(query.key().unwrap_err().1.contains("PROCESSOR/RECONCILER:NAMESPACE/NAME"));
}
