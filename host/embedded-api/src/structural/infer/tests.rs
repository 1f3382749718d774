use serde_json::json;

use super::*;
use crate::structural::rule;

fn of(source: &str, wanted: Wanted) -> Option<String> {
    let schema = json!({"type": "object", "properties": {
        "s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"}, "p": {"x-kubernetes-int-or-string": true},
        "l": {"type": "array", "items": {"type": "string"}}, "o": {"type": "object", "properties": {"a-b": {"type": "string"}}},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}}, "t": {"type": "string", "format": "date-time"},
        "free": {"x-kubernetes-preserve-unknown-fields": true},
    }});
    let node = Node::compile(&schema);
    let subject = Subject { node: &node, resource: true, optional_old: source.contains("oldSelf") };
    fault(source, &rule::parse_plain(source).unwrap(), subject, wanted)
}

#[test]
fn expressions_that_can_be_evaluated_have_no_error() {
    for source in [
        "self.i > 1 && self.s == 'a' || !self.b",
        "self.l.all(x, x.startsWith('a')) && self.l.exists_one(x, x == 'b') && self.l.map(x, size(x)).sum() > 3",
        "self.l.filter(x, x != 'a').size() < 3 && self.l.map(x, x != 'a', x + 'b')[0] == 'bb'",
        "self.m.all(k, self.m[k] > 0) && 'a' in self.m && 's' in self.l",
        "has(self.o.a__dash__b) ? self.o.a__dash__b == 'x' : true",
        "self.metadata.name.size() < 20 && self.kind == 'K' && self.apiVersion == 'v1'",
        "type(self.p) == int ? self.p > 0 : self.p.matches('^[0-9]+%$')",
        "self.t > timestamp('2024-01-01T00:00:00Z') && self.t - self.t < duration('1h')",
        "self.?s.orValue('x') == 'y' && self.?o.a__dash__b.hasValue()",
        "oldSelf.optMap(o, o.i <= self.i).orValue(true)",
        "self.n * 2.0 > 1.0 && self.i < 2.5",
        "sets.contains(self.l, ['a']) && isURL(self.s) && url(self.s).getHost() == 'x'",
        "((has(self.o)?1:0)+(has(self.l)?1:0)+((has(self.b)&&self.b==true)?1:0))==1",
        "self.l == oldSelf.value().l && quantity(self.s).isLessThan(quantity('1Gi'))",
        "!format.dns1123Label().validate(self.s).hasValue()",
        "self.l.all(i, v, i == 0 || v != 'a') && self.m.exists(k, v, k == 'a' && v > 1)",
        "self.l.transformList(i, v, i > 0, v + 'x').size() < 3 && self.l.existsOne(i, v, v == 'a')",
        "self.m.transformMap(k, v, v + 1)['a'] == 2 && self.m.transformMapEntry(k, v, {k: v}).size() == 1",
    ] {
        assert_eq!(of(source, Wanted::Bool), None, "{source}");
    }
    assert_eq!(of("'at most %d'.format([self.i])", Wanted::Text), None);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn an_expression_that_cannot_be_evaluated_is_refused_with_its_place() {
    let cases = [
        (
            "self.y > 1",
            "compilation failed: ERROR: <input>:1:5: undefined field 'y'\n | self.y > 1\n | ....^",
        ),
        (
            "self.i > 1 && has(self.o.x)",
            "compilation failed: ERROR: <input>:1:18: undefined field 'x'\n | self.i > 1 && has(self.o.x)\n | .................^",
        ),
        (
            "self.free.x == 1",
            "compilation failed: ERROR: <input>:1:5: undefined field 'free'\n | self.free.x == 1\n | ....^",
        ),
        (
            "other == 1",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'other' (in container '')\n | other == 1\n | ^",
        ),
        (
            "self.s == 1",
            "compilation failed: ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(string, int)'\n | self.s == 1\n | .......^",
        ),
        (
            "self.i.startsWith('a')",
            "compilation failed: ERROR: <input>:1:18: found no matching overload for 'startsWith' applied to 'int.(string)'\n | self.i.startsWith('a')\n | .................^",
        ),
        (
            "nothing(self)",
            "compilation failed: ERROR: <input>:1:8: undeclared reference to 'nothing' (in container '')\n | nothing(self)\n | .......^",
        ),
        (
            "self.s.x == 1",
            "compilation failed: ERROR: <input>:1:7: type 'string' does not support field selection\n | self.s.x == 1\n | ......^",
        ),
        (
            "self.metadata.labels == 'a'",
            "compilation failed: ERROR: <input>:1:14: undefined field 'labels'\n | self.metadata.labels == 'a'\n | .............^",
        ),
        (
            "self.l.all(x, x > 1)",
            "compilation failed: ERROR: <input>:1:17: found no matching overload for '_>_' applied to '(string, int)'\n | self.l.all(x, x > 1)\n | ................^",
        ),
        (
            "self.y == 1 || self.z == 2",
            "compilation failed: ERROR: <input>:1:5: undefined field 'y'\n | self.y == 1 || self.z == 2\n | ....^\n\
             ERROR: <input>:1:20: undefined field 'z'\n | self.y == 1 || self.z == 2\n | ...................^",
        ),
        (
            "self.s.matches(')')",
            "compilation failed: ERROR: <input>:1:16: invalid matches argument\n | self.s.matches(')')\n | ...............^",
        ),
        (
            "self.t < timestamp('now')",
            "compilation failed: ERROR: <input>:1:20: invalid timestamp argument\n | self.t < timestamp('now')\n | ...................^",
        ),
        (
            "self.l == self.l.distinct()",
            "compilation failed: ERROR: <input>:1:26: undeclared reference to 'distinct' (in container '')\n | self.l == self.l.distinct()\n | .........................^",
        ),
        (
            "self.m.all(k, v, v == k)",
            "compilation failed: ERROR: <input>:1:20: found no matching overload for '_==_' applied to '(int, string)'\n | self.m.all(k, v, v == k)\n | ...................^",
        ),
        ("self.i", "cel expression must evaluate to a bool"),
        ("self.p", "cel expression must evaluate to a bool"),
    ];
    for (source, text) in cases {
        assert_eq!(of(source, Wanted::Bool).as_deref(), Some(text), "{source}");
    }
    assert_eq!(
        of("self.i", Wanted::Text).as_deref(),
        Some("messageExpression must evaluate to a string")
    );
}
