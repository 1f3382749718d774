use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn requirements_are_joined_by_and() {
    let web = labels(&[("app", "web"), ("tier", "front"), ("n", "5"), ("empty", "")]);
    let cases = [
        ("", true),
        ("app=web", true),
        ("app==web,tier=front", true),
        ("app=web,tier=back", false),
        ("app!=web", false),
        ("none!=x", true),
        ("app in (x, web)", true),
        ("tier notin (front)", false),
        ("none notin (front)", true),
        ("app", true),
        ("!app", false),
        ("!none", true),
        ("n>4,n<6", true),
        ("n>5", false),
        ("app>4", false),
        ("empty=", true),
        ("empty in ()", true),
        ("empty in (a,)", true),
        ("in in (x)", false),
        ("in", false),
    ];
    for (text, matches) in cases {
        assert_eq!(LabelSelector::parse(text).unwrap().matches(&web), matches, "{text}");
    }
}

#[test]
fn a_malformed_label_selector_is_refused_with_the_reason() {
    let cases = [
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("app in x", "unable to parse requirement: found 'x' expected: '('"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("app=bad!value", "found '!', expected: ',' or 'end of string'"),
        (
            "bad key=x",
            "unable to parse requirement: found 'key', expected: in, notin, =, ==, !=, gt, lt",
        ),
        ("a,", "found '', expected: identifier after ','"),
        ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
    ];
    for (text, message) in cases {
        assert_eq!(LabelSelector::parse(text).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn keys_and_values_must_be_labels() {
    let fault = LabelSelector::parse("-a=b").unwrap_err().to_string();
    assert!(
        fault.starts_with(
            "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must"
        ),
        "{fault}"
    );
    let fault = LabelSelector::parse("a=-b").unwrap_err().to_string();
    assert!(fault.contains("values[0][a]: Invalid value: \"-b\": a valid label"), "{fault}");
}

#[test]
fn selectors_of_objects_are_shown_as_text() {
    let selector = LabelSelector::from_value(&serde_json::json!({
        "matchLabels": {"b": "1", "a": "2"},
        "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["y", "x"]}, {"key": "d", "operator": "Exists"}],
    }));
    assert_eq!(selector.to_string(), "a=2,b=1,c notin (x,y),d");
    assert_eq!(selector.equalities().collect::<Vec<_>>(), [("a", "2"), ("b", "1")]);
}

#[test]
fn fields_are_compared_as_texts() {
    let selector = parse_fields("metadata.name=a,status.phase!=Running").unwrap();
    assert_eq!(selector.name(), Some("a"));
    let field = |phase: &'static str| {
        move |name: &str| if name == "metadata.name" { "a".to_owned() } else { phase.to_owned() }
    };
    assert!(selector.matches(field("Pending")));
    assert!(!selector.matches(field("Running")));
    assert_eq!(parse_fields("a=b\\,c").unwrap().terms()[0].value, "b,c");
    let fault = parse_fields("metadata.name").unwrap_err().to_string();
    assert_eq!(fault, "invalid selector: 'metadata.name'; can't understand 'metadata.name'");
}
