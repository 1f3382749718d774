use serde_json::json;

use super::LabelSelector;

fn parse(text: &str) -> LabelSelector {
    LabelSelector::parse(text).unwrap()
}

#[test]
fn a_selector_selects_as_kubectl_does() {
    let object =
        json!({"metadata": {"labels": {"app": "web", "tier": "", "example.com/a.b": "x"}}});
    let cases = [
        ("", true),
        ("app", true),
        ("!app", false),
        ("!none", true),
        ("app=web", true),
        ("app == web", true),
        ("app=web2", false),
        ("app!=web", false),
        ("none!=web", true),
        ("app in (db, web)", true),
        ("app in(db)", false),
        ("app notin (db)", true),
        ("none notin (db)", true),
        ("none in (db)", false),
        ("tier=", true),
        ("tier in (a,)", true),
        (" app = web , example.com/a.b=x,!y", true),
        ("app=web,tier=a", false),
    ];
    for (selector, selects) in cases {
        assert_eq!(parse(selector).matches_object(&object), selects, "{selector}");
    }
}

#[test]
fn a_text_that_is_no_selector_is_refused() {
    let cases = [
        ("a=b=c", "`,` was expected before `=c`"),
        ("a b", "after `a` one of `=`, `==`, `!=`, `in`, `notin` or `,` was expected"),
        ("a>1", "after `a` one of `=`, `==`, `!=`, `in`, `notin` or `,` was expected"),
        ("a,", "a label was expected after the last `,`"),
        (",a", "a label was expected"),
        ("a in b", "`(` was expected"),
        ("a in (b", "`)` was expected"),
        ("a in ()", "the list of values is empty"),
        ("!", "a label was expected"),
    ];
    for (selector, problem) in cases {
        assert_eq!(LabelSelector::parse(selector).unwrap_err().problem, problem, "{selector}");
    }
}

#[test]
fn a_selector_covers_those_that_ask_for_no_less() {
    let cases = [
        ("", "a=b", true),
        ("a=b", "", false),
        ("a=b", "c=d,a=b", true),
        ("a", "a=b", true),
        ("a in (b,c)", "a=b", true),
        ("a=b", "a in (b,c)", false),
        ("a!=b", "a=c", true),
        ("a!=b", "!a", true),
        ("a notin (b)", "a notin (b,c)", true),
        ("a notin (b,c)", "a!=b", false),
    ];
    for (outer, inner, covers) in cases {
        assert_eq!(parse(outer).covers(&parse(inner)), covers, "{outer} {inner}");
    }
}
