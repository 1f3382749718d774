use serde_json::json;

use super::*;
use crate::structural::rule;

fn cost(schema: &serde_json::Value, source: &str) -> u64 {
    estimate(&rule::parse_plain(source).unwrap(), &Node::compile(schema), false)
}

#[test]
fn costs_follow_sizes() {
    let list =
        json!({"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 25}});
    let number = json!({"type": "integer"});
    let text = json!({"type": "string", "maxLength": 25});
    let cases = [
        (&number, "self > 50 && self < 100", 4),
        (&number, "self == 5", 1),
        (&text, "self == 'abcdefghijk'", 3),
        (&text, "self.startsWith('abc')", 2),
        (&text, "self.matches('[a-z]+')", 11 * 2 + 1),
        (&text, "self.contains('abc')", 10 + 1),
        (&text, "size(self) < 5", 3),
        (&list, "self.all(x, true)", 1 + 1 + 10 * (2 + 1)),
        (&list, "self.all(x, x == 'abcdefghijk')", 1 + 1 + 10 * (2 + 1 + 1 + 2)),
        (
            &list,
            "self.all(x, self.exists_one(y, x == y))",
            1 + 1 + 10 * (2 + 1 + 1 + 2 + 10 * (12 + 2)),
        ),
        (&list, "'a' in self", 10 + 1),
        (&list, "self.map(x, x).size() > 3", 1 + 10 + 1 + 10 * 13 + 2),
    ];
    for (schema, source, expected) in cases {
        assert_eq!(cost(schema, source), expected, "{source}");
    }
}

#[test]
fn what_is_unbounded_is_bounded_by_the_request() {
    let list = json!({"type": "array", "items": {"type": "string"}});
    assert!(cost(&list, "self.all(x, self.all(y, x == y))") > 100 * MAX_RULE_COST);
    assert_eq!(cost(&list, "size(self) > 0"), 3);
    assert_eq!(cardinality(&Node::compile(&json!({"type": "integer"})), false), 1_572_864);
    let object = json!({"type": "object", "required": ["methods", "path"], "properties": {"path": {"type": "string"},
        "methods": {"type": "array", "items": {"type": "string"}}}});
    assert_eq!(cardinality(&Node::compile(&object), false), 120_989);
}

#[test]
fn an_excess_is_told_roughly() {
    let cases =
        [(10_500_000, "1.050000x"), (20_000_000, "2.0x"), (2_000_000_000, "more than 100x")];
    for (cost, factor) in cases {
        assert!(
            excess("estimated rule cost", cost, MAX_RULE_COST)
                .contains(&format!("by factor of {factor} (try"))
        );
    }
}
