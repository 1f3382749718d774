#![expect(clippy::needless_pass_by_value, reason = "so that cases read as JSON")]
#![expect(clippy::too_many_lines, reason = "a flat table")]

use serde_json::{Value, json};

use super::*;

/// Returns a schema with this `spec`.
fn spec(schema: Value) -> CustomSchema {
    CustomSchema::compile(&json!({"type": "object", "properties": {"spec": schema}}))
}

fn faults(schema: &CustomSchema, object: &Value, old: Option<&Value>) -> Vec<String> {
    let write = Write { object, old, status: false };
    schema
        .validate(write, Vec::new(), Vec::new(), &mut Vec::new())
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn created(schema: &CustomSchema, spec: Value) -> Vec<String> {
    faults(
        schema,
        &json!({"apiVersion": "e/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec}),
        None,
    )
}

#[test]
fn single_values_are_checked() {
    let schema = spec(json!({"type": "object", "properties": {
        "enum": {"type": "string", "enum": ["a", "b"]},
        "pattern": {"type": "string", "pattern": "^[a-z]+$"},
        "min": {"type": "integer", "minimum": 1, "maximum": 5},
        "num": {"type": "number", "exclusiveMinimum": true, "minimum": 0},
        "mult": {"type": "integer", "multipleOf": 5},
        "len": {"type": "string", "minLength": 2, "maxLength": 4},
        "items": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
        "props": {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1, "maxProperties": 1},
        "port": {"x-kubernetes-int-or-string": true},
        "email": {"type": "string", "format": "email"},
        "int64": {"type": "integer", "format": "int64"},
        "ints": {"type": "object", "additionalProperties": {"type": "integer"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}));
    let cases = [
        (
            json!({"enum": "c"}),
            "spec.enum: Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (
            json!({"pattern": "ABC"}),
            "spec.pattern: Invalid value: \"ABC\": spec.pattern in body should match '^[a-z]+$'",
        ),
        (
            json!({"min": 0}),
            "spec.min: Invalid value: 0: spec.min in body should be greater than or equal to 1",
        ),
        (
            json!({"min": 6}),
            "spec.min: Invalid value: 6: spec.min in body should be less than or equal to 5",
        ),
        (
            json!({"num": 0}),
            "spec.num: Invalid value: 0: spec.num in body should be greater than 0",
        ),
        (
            json!({"mult": 7}),
            "spec.mult: Invalid value: 7: spec.mult in body should be a multiple of 5",
        ),
        (
            json!({"len": "x"}),
            "spec.len: Invalid value: \"x\": spec.len in body should be at least 2 chars long",
        ),
        (json!({"len": "xxxxx"}), "spec.len: Too long: may not be more than 4 bytes"),
        (
            json!({"items": []}),
            "spec.items: Invalid value: 0: spec.items in body should have at least 1 items",
        ),
        (json!({"items": ["a", "b", "c"]}), "spec.items: Too many: 3: must have at most 2 items"),
        (
            json!({"props": {"a": "1", "b": "2"}}),
            "spec.props: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"props": {}}),
            "spec.props: Invalid value: 0: spec.props in body should have at least 1 properties",
        ),
        (
            json!({"port": 1.5}),
            "spec.port: Invalid value: \"number\": spec.port in body must be of type integer,string: \"number\"",
        ),
        (
            json!({"port": true}),
            "spec.port: Invalid value: \"boolean\": spec.port in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"email": "nobody"}),
            "spec.email: Invalid value: \"nobody\": spec.email in body must be of type email: \"nobody\"",
        ),
        (
            json!({"int64": 1.5}),
            "spec.int64: Invalid value: \"float64\": spec.int64 in body must be of type int64: \"float64\"",
        ),
        (
            json!({"ints": {"x.y": "z"}}),
            "spec.ints.x.y: Invalid value: \"string\": spec.ints.x.y in body must be of type integer: \"string\"",
        ),
        (
            json!({"items": [null]}),
            "spec.items[0]: Invalid value: \"null\": spec.items[0] in body must be of type string: \"null\"",
        ),
        (
            json!([]),
            "spec: Invalid value: \"array\": spec in body must be of type object: \"array\"",
        ),
    ];
    for (value, text) in cases {
        assert_eq!(created(&schema, value.clone()), [text], "{value}");
    }
    let fine = json!({"enum": "a", "pattern": "abc", "min": 1, "num": 0.5, "mult": 10, "len": "äöüß", "items": ["a"], "props": {"a": "1"},
        "port": "http", "int64": 9_007_199_254_740_993_i64, "free": {"a": null, "b": [1]}});
    assert_eq!(created(&schema, fine), [""; 0]);
    assert_eq!(created(&schema, json!({"port": 5})), [""; 0]);
}

#[test]
fn missing_required_fields_are_refused() {
    let schema = CustomSchema::compile(
        &json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object",
        "required": ["a"], "properties": {"a": {"type": "string"}, "l": {"type": "array", "items": {"type": "object",
            "required": ["n", "v"], "properties": {"n": {"type": "string"}, "v": {"type": "string"}}}}}}}}),
    );
    assert_eq!(faults(&schema, &json!({}), None), ["spec: Required value"]);
    assert_eq!(created(&schema, json!({})), ["spec.a: Required value"]);
    assert_eq!(
        created(&schema, json!({"a": "", "l": [{"n": "1", "v": "1"}, {}]})),
        ["spec.l[1].n: Required value", "spec.l[1].v: Required value"]
    );
}

#[test]
fn junctors_say_which_alternatives_fail() {
    let schema = spec(json!({"type": "object", "properties": {
        "a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string", "not": {"enum": ["x"]}},
        "d": {"type": "string", "allOf": [{"minLength": 2}, {"pattern": "^a"}]},
        "q": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^[0-9]+%?$"},
    }, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}));
    assert_eq!(created(&schema, json!({"a": "1", "q": 7})), [""; 0]);
    assert_eq!(
        created(&schema, json!({})),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found none valid",
            "spec.a: Required value"
        ]
    );
    assert_eq!(
        created(&schema, json!({"a": "1", "b": "2"})),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid alternatives"
        ]
    );
    assert_eq!(
        created(&schema, json!({"a": "1", "c": "x"})),
        ["<nil>: Invalid value: \"\": \"spec.c\" must not validate the schema (not)"]
    );
    assert_eq!(
        created(&schema, json!({"a": "1", "d": "b"})),
        [
            "spec.d: Invalid value: \"b\": spec.d in body should be at least 2 chars long",
            "spec.d: Invalid value: \"b\": spec.d in body should match '^a'",
            "<nil>: Invalid value: \"\": \"spec.d\" must validate all the schemas (allOf). None validated"
        ]
    );
    assert_eq!(
        created(&schema, json!({"a": "1", "q": "x"})),
        ["spec.q: Invalid value: \"x\": spec.q in body should match '^[0-9]+%?$'"]
    );
}

#[test]
fn unique_lists_have_no_duplicates() {
    let schema = spec(json!({"type": "object", "properties": {
        "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n", "p"], "items": {"type": "object",
            "properties": {"n": {"type": "string"}, "p": {"type": "integer"}}, "required": ["n", "p"]}},
    }}));
    assert_eq!(
        created(&schema, json!({"s": ["x", "y", "x", "x"]})),
        ["spec.s[2]: Duplicate value: \"x\""]
    );
    assert_eq!(
        created(
            &schema,
            json!({"m": [{"n": "a", "p": 1}, {"n": "a", "p": 2}, {"n": "a", "p": 1}]})
        ),
        ["spec.m[2]: Duplicate value: {\"n\":\"a\",\"p\":1}"]
    );
    let bad = json!({"spec": {"s": ["x", "x"]}});
    assert_eq!(faults(&schema, &bad, Some(&bad)), [""; 0], "what was so before may stay");
}

#[test]
fn faults_that_were_there_before_may_stay() {
    let schema = spec(json!({"type": "object", "properties": {
        "x": {"type": "string", "maxLength": 3}, "y": {"type": "string"},
        "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "items": {"type": "object",
            "properties": {"n": {"type": "string"}, "v": {"type": "integer", "minimum": 1}}}},
    }}));
    let old = json!({"spec": {"x": "long text", "m": [{"n": "a", "v": 0}]}});
    let other = json!({"spec": {"x": "long text", "y": "new", "m": [{"n": "b", "v": 1}, {"n": "a", "v": 0}]}});
    assert_eq!(faults(&schema, &other, Some(&old)), [""; 0]);
    let changed = json!({"spec": {"x": "also long"}});
    assert_eq!(
        faults(&schema, &changed, Some(&old)),
        ["spec.x: Too long: may not be more than 3 bytes"]
    );
    let changed = json!({"spec": {"m": [{"n": "a", "v": -1}]}});
    assert_eq!(
        faults(&schema, &changed, Some(&old)),
        [
            "spec.m[0].v: Invalid value: -1: spec.m[0].v in body should be greater than or equal to 1"
        ]
    );
}

#[test]
fn items_of_a_list_without_keys_are_not_matched_with_old_ones() {
    let items = json!({"type": "array", "items": {"type": "object", "properties": {
        "x": {"type": "string", "pattern": "^[a-z]*$"},
        "y": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'OLD'"}]},
    }}});
    let with_type = |kind: &str| {
        let mut list = items.clone();
        list["x-kubernetes-list-type"] = json!(kind);
        list
    };
    let schema = spec(json!({"type": "object", "properties": {
        "l": items, "atomic": with_type("atomic"), "z": {"type": "string"},
        "outer": {"type": "array", "items": {"type": "array", "items": {"type": "string", "pattern": "^.$"}}},
    }}));
    let (bad, old_rule, good) = (json!({"x": "BAD"}), json!({"y": "OLD"}), json!({"x": "ok"}));
    let pattern = |place: &str| {
        format!(
            "spec.{place}.x: Invalid value: \"BAD\": spec.{place}.x in body should match '^[a-z]*$'"
        )
    };
    let rule = |place: &str| {
        format!("spec.{place}.y: Invalid value: \"string\": failed rule: self != 'OLD'")
    };
    let long =
        "spec.outer[0][0]: Invalid value: \"ab\": spec.outer[0][0] in body should match '^.$'"
            .to_owned();
    let cases = [
        (json!({"l": [bad]}), json!({"l": [bad], "z": "1"}), vec![]),
        (json!({"l": [bad]}), json!({"l": [bad, good]}), vec![pattern("l[0]")]),
        (json!({"l": [good, bad]}), json!({"l": [bad]}), vec![pattern("l[0]")]),
        (json!({"l": [bad, good]}), json!({"l": [bad, {"x": "other"}]}), vec![pattern("l[0]")]),
        (json!({"atomic": [bad]}), json!({"atomic": [bad, good]}), vec![pattern("atomic[0]")]),
        (json!({"l": [old_rule]}), json!({"l": [old_rule], "z": "1"}), vec![]),
        (json!({"l": [old_rule]}), json!({"l": [old_rule, good]}), vec![rule("l[0]")]),
        (
            json!({"atomic": [old_rule]}),
            json!({"atomic": [good, old_rule]}),
            vec![rule("atomic[1]")],
        ),
        (json!({"outer": [["ab"]]}), json!({"outer": [["ab"]], "z": "1"}), vec![]),
        (json!({"outer": [["ab"]]}), json!({"outer": [["ab"], []]}), vec![long]),
    ];
    for (old, new, expected) in cases {
        let (old, new) = (json!({"spec": old}), json!({"spec": new}));
        assert_eq!(faults(&schema, &new, Some(&old)), expected, "{old} {new}");
    }
}

#[test]
fn a_status_write_validates_only_the_status() {
    let schema = CustomSchema::compile(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["a"]},
        "status": {"type": "object", "required": ["s"], "properties": {"p": {"type": "string"}, "s": {"type": "string"}}},
    }}));
    let object = json!({"spec": {}, "status": {"p": 1}});
    let write = Write { object: &object, old: None, status: true };
    let texts: Vec<String> = schema
        .validate(write, Vec::new(), Vec::new(), &mut Vec::new())
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        texts,
        [
            "status.p: Invalid value: \"integer\": p in body must be of type string: \"integer\"",
            "status.s: Required value"
        ]
    );
}

#[test]
fn unknown_fields_are_dropped_and_told() {
    let schema = spec(json!({"type": "object", "properties": {
        "x": {"type": "string"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "mixed": {"type": "object", "properties": {"known": {"type": "object", "properties": {"k": {"type": "string"}}}},
            "x-kubernetes-preserve-unknown-fields": true},
        "l": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "string"}}}},
        "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "r": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    }}));
    let mut object = json!({"apiVersion": "e/v1", "kind": "W", "metadata": {"bogus": "stays"}, "extra": {"top": 1}, "spec": {
        "x": "1", "y": "2", "free": {"any": [1, {"b": null}]}, "mixed": {"known": {"k": "1", "gone": 1}, "other": {"q": 1}},
        "l": [{"n": "1", "m": "2"}], "m": {"k/with.dots": {"a": "1", "gone": 2}}, "r": {"metadata": {"name": "a", "odd": 1}, "data": 1}}});
    assert_eq!(
        schema.prune(&mut object),
        [
            "extra",
            "spec.l[0].m",
            "spec.m.k/with.dots.gone",
            "spec.mixed.known.gone",
            "spec.y",
            "spec.r.metadata.odd"
        ]
    );
    assert_eq!(
        object,
        json!({"apiVersion": "e/v1", "kind": "W", "metadata": {"bogus": "stays"}, "spec": {
            "x": "1", "free": {"any": [1, {"b": null}]}, "mixed": {"known": {"k": "1"}, "other": {"q": 1}}, "l": [{"n": "1"}],
            "m": {"k/with.dots": {"a": "1"}}, "r": {"metadata": {"name": "a"}, "data": 1}}})
    );
}

#[test]
fn defaults_fill_absent_fields() {
    let schema = spec(json!({"type": "object", "properties": {
        "s": {"type": "string", "default": "ds"}, "n": {"type": "integer", "default": 3},
        "o": {"type": "object", "properties": {"p": {"type": "string", "default": "dp"}}},
        "od": {"type": "object", "default": {"q": "dq"}, "properties": {"p": {"type": "string", "default": "dp"}, "q": {"type": "string"}}},
        "l": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "integer", "default": 1}}}},
        "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"p": {"type": "integer", "default": 2}}}},
        "nd": {"type": "string", "nullable": true, "default": "x"},
    }}));
    let cases = [
        (json!({}), json!({"n": 3, "nd": "x", "od": {"p": "dp", "q": "dq"}, "s": "ds"})),
        (
            json!({"o": {}, "l": [{}, {"p": 5}], "m": {"k": {}}, "s": "own", "n": null, "nd": null, "od": {}}),
            json!({"l": [{"p": 1}, {"p": 5}], "m": {"k": {"p": 2}}, "n": 3, "nd": null, "o": {"p": "dp"}, "od": {"p": "dp"}, "s": "own"}),
        ),
    ];
    for (given, filled) in cases {
        let mut object = json!({"spec": given});
        schema.default(&mut object);
        assert_eq!(object, json!({"spec": filled}));
    }
}

#[test]
fn null_goes_where_it_is_not_allowed() {
    let schema = spec(json!({"type": "object", "properties": {
        "n": {"type": "string", "nullable": true}, "s": {"type": "string"}, "ln": {"type": "array", "items": {"type": "string", "nullable": true}},
        "o": {"type": "object", "properties": {"x": {"type": "string"}}},
    }}));
    let mut object = json!({"spec": {"n": null, "s": null, "ln": [null, "x"], "o": {"x": null}}});
    schema.drop_nulls(&mut object);
    assert_eq!(object, json!({"spec": {"n": null, "ln": [null, "x"], "o": {}}}));
    assert_eq!(faults(&schema, &object, None), [""; 0]);
}

#[test]
fn embedded_resources_need_a_kind() {
    let schema = spec(
        json!({"type": "object", "properties": {"r": {"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true}}}),
    );
    assert_eq!(
        created(&schema, json!({"r": {"metadata": {"labels": {"a": "-"}}}})).len(),
        3,
        "no API version, no kind, a label that is none"
    );
    assert_eq!(
        created(&schema, json!({"r": {"apiVersion": "v1", "kind": "Pod", "spec": {}}})),
        [""; 0]
    );
}

#[test]
fn floats_without_fraction_are_integers() {
    let mut value =
        serde_json::from_str(r#"{"a":2.0,"b":[1e2,0.5],"c":9223372036854775808.0}"#).unwrap();
    integral_floats(&mut value);
    assert_eq!(value.to_string(), r#"{"a":2,"b":[100,0.5],"c":9.223372036854776e+18}"#);
}

#[test]
fn patterns_match_and_are_refused_as_in_go() {
    let cases = [
        (
            r"^([a-zA-Z0-9][a-zA-Z0-9-_]*\.)*[a-zA-Z0-9]*[a-zA-Z0-9-_]*[[a-zA-Z0-9]+$",
            "a.example.dev",
            true,
        ),
        (r"^[0-9a-z-_]+(\/[0-9a-z-_]+|(\.[0-9a-z-_]+)*)$", "ns/gateway", true),
        (
            r"^((\/([A-Za-z0-9-._~!$&'()+,;=:@]|%[0-9a-fA-F]{2})*)|(\/\{\*{1,2}\}))+$|^\/\*$",
            "/a/{**}/b",
            true,
        ),
        (
            r"^((\/([A-Za-z0-9-._~!$&'()+,;=:@]|%[0-9a-fA-F]{2})*)|(\/\{\*{1,2}\}))+$|^\/\*$",
            "/a*",
            false,
        ),
        (r"^\d+$", "٣", false),
        (r"^\w\s\S$", "a b", true),
        (r"^{a}$", "{a}", true),
        (r"^[[:alpha:]]+$", "ab", true),
        (r"^[&&]$", "&", true),
        (r"^\Qa.b\E$", "axb", false),
        (r"^\<\_$", "<_", true),
        (r"^\p{L}\pN[\p{Greek}]$", "ä1α", true),
        (r"^\x{41}\x42(?i)c(?P<name>d)(?:e)??$", "ABCd", true),
        (r"^a{2,3}?{$", "aa{", true),
        (r"^[\p{Lu}\p{Nd}_]+$", "Ä9_", true),
        (r"^\P{Han}\p{^Han}\P{^Han}$", "aa漢", true),
        (r"^[\P{^L}]$", "1", false),
        (r"^\p{Old_Italic}?\p{Thai}\p{Any}$", "ก!", true),
        (r"^[[:^digit:][:upper:]*+]+$", "a*+", true),
        (r"^(a{10}){0}(b{100}){10}?c*$", &"b".repeat(1000), true),
        (r"^(?<name>[\]\-a-c])[a-]$", "]-", true),
        (r"^a{01}$", "a{01}", true),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(compile_pattern(pattern).unwrap().is_match(text), expected, "{pattern} {text}");
    }
    let cases = [
        ("[a", "error parsing regexp: missing closing ]: `[a`"),
        ("(a", "error parsing regexp: missing closing ): `(a`"),
        ("a)", "error parsing regexp: unexpected ): `a)`"),
        ("*a", "error parsing regexp: missing argument to repetition operator: `*`"),
        ("a\\", "error parsing regexp: trailing backslash at end of expression: ``"),
        ("(?=a)", "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"),
        ("a++", "error parsing regexp: invalid nested repetition operator: `++`"),
        ("a*?{2}", "error parsing regexp: invalid nested repetition operator: `*?{2}`"),
        ("a{1001}", "error parsing regexp: invalid repeat count: `{1001}`"),
        ("a|?", "error parsing regexp: missing argument to repetition operator: `?`"),
        (r"\C", r"error parsing regexp: invalid escape sequence: `\C`"),
        (r"\1", r"error parsing regexp: invalid escape sequence: `\1`"),
        (r"\Z", r"error parsing regexp: invalid escape sequence: `\Z`"),
        (r"[\b]", r"error parsing regexp: invalid escape sequence: `\b`"),
        (r"[a-\d]", r"error parsing regexp: invalid escape sequence: `\d`"),
        (r"a\p{Foo}+", r"error parsing regexp: invalid character class range: `\p{Foo}`"),
        (r"\p{greek}", r"error parsing regexp: invalid character class range: `\p{greek}`"),
        (r"\p{Grek}", r"error parsing regexp: invalid character class range: `\p{Grek}`"),
        (r"\p{Letter}", r"error parsing regexp: invalid character class range: `\p{Letter}`"),
        (
            r"\p{Alphabetic}",
            r"error parsing regexp: invalid character class range: `\p{Alphabetic}`",
        ),
        (r"\p{sc=Greek}", r"error parsing regexp: invalid character class range: `\p{sc=Greek}`"),
        (r"[\pX]", r"error parsing regexp: invalid character class range: `\pX`"),
        (r"\p{L", r"error parsing regexp: invalid character class range: `\p{L`"),
        ("[b-a]", "error parsing regexp: invalid character class range: `b-a`"),
        ("[[:foo:]]", "error parsing regexp: invalid character class range: `[:foo:]`"),
        ("a**", "error parsing regexp: invalid nested repetition operator: `**`"),
        ("(ab){2}{3}", "error parsing regexp: invalid nested repetition operator: `{2}{3}`"),
        ("a{2}*?", "error parsing regexp: invalid nested repetition operator: `{2}*?`"),
        ("a{3,2}", "error parsing regexp: invalid repeat count: `{3,2}`"),
        ("(a{100}b{3}){11}?c", "error parsing regexp: invalid repeat count: `{11}?`"),
        ("(((a{2}){10}){10}){10,}", "error parsing regexp: invalid repeat count: `{10,}`"),
        ("(?<=a)b", "error parsing regexp: invalid named capture: `(?<=a)b`"),
        ("(?P<a b>c)", "error parsing regexp: invalid named capture: `(?P<a b>`"),
        ("(?x)a", "error parsing regexp: invalid or unsupported Perl syntax: `(?x`"),
        ("a(?!b)", "error parsing regexp: invalid or unsupported Perl syntax: `(?!`"),
    ];
    for (pattern, text) in cases {
        assert_eq!(compile_pattern(pattern).unwrap_err(), text);
    }
}

#[test]
fn validation_rules_are_evaluated_and_report_path_and_message() {
    let schema = spec(json!({"type": "object", "properties": {
        "min": {"type": "integer"}, "max": {"type": "integer"}, "kind": {"type": "string"},
        "name": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [{"rule": "self.startsWith('a')"}]},
    }, "x-kubernetes-validations": [
        {"rule": "self.min <= self.max", "message": "min must not be above max"},
        {"rule": "self.max < 100", "messageExpression": "self.max < 150 ? 'max is a little high' : 'max is far too high'"},
        {"rule": "self.kind != 'bad'", "reason": "FieldValueForbidden", "fieldPath": ".kind", "message": "bad is no kind"},
        {"rule": "!has(self.kind) || self.kind != 'dup'", "reason": "FieldValueDuplicate", "message": "dup"},
    ]}));
    let cases = [
        (
            json!({"min": 2, "max": 1, "kind": "x"}),
            vec!["spec: Invalid value: \"object\": min must not be above max"],
        ),
        (
            json!({"min": 1, "max": 100, "kind": "x"}),
            vec!["spec: Invalid value: \"object\": max is a little high"],
        ),
        (json!({"min": 1, "max": 2, "kind": "bad"}), vec!["spec.kind: Forbidden: bad is no kind"]),
        (json!({"min": 1, "max": 2, "kind": "dup"}), vec!["spec: Duplicate value: \"object\""]),
        (
            json!({"min": 1, "max": 2, "kind": "x", "name": "bcd"}),
            vec!["spec.name: Invalid value: \"string\": failed rule: self.startsWith('a')"],
        ),
        (
            json!({"min": 500, "max": 200, "kind": "bad"}),
            vec![
                "spec: Invalid value: \"object\": min must not be above max",
                "spec: Invalid value: \"object\": max is far too high",
                "spec.kind: Forbidden: bad is no kind",
            ],
        ),
        (
            json!({"min": 1, "max": 2}),
            vec![
                "spec: Invalid value: \"object\": no such key: kind evaluating rule: bad is no kind",
            ],
        ),
        (
            json!({"min": "a", "max": 2}),
            vec![
                "spec.min: Invalid value: \"string\": spec.min in body must be of type integer: \"string\"",
                "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
                 correct the existing errors to complete validation",
            ],
        ),
        (json!({"min": 1, "max": 2, "kind": "x", "name": "abc"}), vec![]),
    ];
    for (value, texts) in cases {
        assert_eq!(created(&schema, value.clone()), texts, "{value}");
    }
}

#[test]
fn rules_at_the_root_see_the_name() {
    let schema = CustomSchema::compile(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"x": {"type": "string"}}},
        "status": {"type": "object", "properties": {"p": {"type": "string"}}},
    }, "x-kubernetes-validations": [
        {"rule": "self.metadata.name.startsWith('w-')", "message": "names begin with w-"},
        {"rule": "!has(self.status) || !has(self.status.p) || self.status.p == self.spec.x", "message": "status follows spec"},
    ]}));
    let object = json!({"metadata": {"name": "a"}, "spec": {"x": "1"}});
    assert_eq!(
        faults(&schema, &object, None),
        ["<nil>: Invalid value: \"object\": names begin with w-"]
    );
    let object = json!({"metadata": {"name": "w-a"}, "spec": {"x": "1"}, "status": {"p": "2"}});
    let write = Write { object: &object, old: None, status: true };
    assert_eq!(
        schema
            .validate(write, Vec::new(), Vec::new(), &mut Vec::new())
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["<nil>: Invalid value: \"object\": status follows spec"]
    );
}

#[test]
fn rules_about_changes_compare_with_the_old_value() {
    let schema = spec(json!({"type": "object", "properties": {
        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}]},
        "grow": {"type": "integer", "x-kubernetes-validations": [
            {"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": true, "message": "grow only grows"},
            {"rule": "oldSelf.hasValue() || self < 10", "optionalOldSelf": true, "message": "begin below 10"},
            {"rule": "oldSelf.optMap(o, o * 3 > self).orValue(true)", "optionalOldSelf": true, "message": "slowly"},
        ]},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"},
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "the set is immutable"}]},
        "short": {"type": "string", "x-kubernetes-validations": [{"rule": "size(self) < 3", "message": "too long"}]},
    }}));
    let of = |spec: Value| json!({"spec": spec});
    let old = of(json!({"fixed": "x", "grow": 5, "set": ["a", "b"], "short": "was long"}));
    let cases = [
        (
            None,
            json!({"fixed": "x", "grow": 11}),
            vec!["spec.grow: Invalid value: \"integer\": begin below 10"],
        ),
        (
            Some(&old),
            json!({"fixed": "y"}),
            vec!["spec.fixed: Invalid value: \"string\": fixed is immutable"],
        ),
        (
            Some(&old),
            json!({"grow": 4}),
            vec!["spec.grow: Invalid value: \"integer\": grow only grows"],
        ),
        (Some(&old), json!({"grow": 20}), vec!["spec.grow: Invalid value: \"integer\": slowly"]),
        (Some(&old), json!({"set": ["b", "a"]}), vec![]),
        (
            Some(&old),
            json!({"set": ["b"]}),
            vec!["spec.set: Invalid value: \"array\": the set is immutable"],
        ),
        (Some(&old), json!({"short": "was long"}), vec![]),
        (
            Some(&old),
            json!({"short": "is long"}),
            vec!["spec.short: Invalid value: \"string\": too long"],
        ),
    ];
    for (old, new, texts) in cases {
        assert_eq!(faults(&schema, &of(new.clone()), old), texts, "{new}");
    }
    let mut doubts = Vec::new();
    let write = Write { object: &old, old: Some(&old), status: false };
    assert_eq!(schema.validate(write, Vec::new(), Vec::new(), &mut doubts), []);
    assert_eq!(doubts, ["spec.short: Invalid value: \"string\": too long"]);
}

#[test]
fn rules_see_values_as_the_schema_says() {
    let schema = |kind: Value, rule: &str| {
        let mut kind = kind;
        kind["x-kubernetes-validations"] = json!([{"rule": rule, "message": "no"}]);
        spec(kind)
    };
    let port = json!({"x-kubernetes-int-or-string": true});
    let time = json!({"type": "string", "format": "date-time"});
    let texts = || json!({"type": "array", "items": {"type": "string"}});
    let numbers = || json!({"type": "object", "additionalProperties": {"type": "integer"}});
    let names = json!({"type": "object", "properties": {"namespace": {"type": "string"}, "a-b": {"type": "string"}, "x.y/z": {"type": "string"}}});
    let cases = [
        (port.clone(), "type(self) == int ? self > 0 : self.matches('^[0-9]+%$')", json!(5), true),
        (
            port.clone(),
            "type(self) == int ? self > 0 : self.matches('^[0-9]+%$')",
            json!("5%"),
            true,
        ),
        (port, "type(self) == int ? self > 0 : self.matches('^[0-9]+%$')", json!("x"), false),
        (
            time.clone(),
            "self > timestamp('2024-01-01T00:00:00Z')",
            json!("2024-06-01T00:00:00Z"),
            true,
        ),
        (time, "self.getFullYear() == 2023", json!("2024-06-01T00:00:00Z"), false),
        (
            json!({"type": "string", "format": "duration"}),
            "self < duration('1h')",
            json!("59m59s"),
            true,
        ),
        (json!({"type": "number"}), "self * 2.0 == 4.0", json!(2), true),
        (json!({"type": "string", "format": "byte"}), "size(self) == 1", json!("YQ=="), true),
        (
            names.clone(),
            "self.__namespace__ == 'n' && self.a__dash__b == 'b'",
            json!({"namespace": "n", "a-b": "b"}),
            true,
        ),
        (names.clone(), "self.x__dot__y__slash__z == 'z'", json!({"x.y/z": "z"}), true),
        (names, "self.?a__dash__b.orValue('none') == 'none'", json!({}), true),
        (numbers(), "self.all(k, self[k] > 0)", json!({"a.b": 1, "if": 0}), false),
        (texts(), "self.exists_one(x, x.lowerAscii() == 'a')", json!(["A", "b"]), true),
        (texts(), "self.all(i, v, i == 0 || v != 'a')", json!(["a", "b"]), true),
        (texts(), "self.all(i, v, i == 0 || v != 'a')", json!(["b", "a"]), false),
        (texts(), "self.existsOne(i, v, v == 'a')", json!(["a", "a"]), false),
        (texts(), "self.transformList(i, v, i > 0, v + 'x') == ['bx']", json!(["a", "b"]), true),
        (numbers(), "self.exists(k, v, k == 'a' && v == 1)", json!({"a": 1, "b": 2}), true),
        (numbers(), "self.transformMap(k, v, v + 1)['a'] == 2", json!({"a": 1}), true),
        (
            numbers(),
            "self.transformMapEntry(k, v, v > 1, {'x': k})['x'] == 'b'",
            json!({"a": 1, "b": 2}),
            true,
        ),
        (texts(), "self.isSorted() && self.join(',') == 'a,b'", json!(["a", "b"]), true),
        (
            json!({"type": "string"}),
            "isURL(self) && url(self).getHost() == 'a.b'",
            json!("https://a.b/c"),
            true,
        ),
        (
            json!({"type": "string"}),
            "quantity(self).isLessThan(quantity('1Gi'))",
            json!("500Mi"),
            true,
        ),
        (json!({"type": "string"}), "size(self) == 3 && self.size() == 3", json!("äöü"), true),
        (json!({"type": "string"}), "string(duration('60s')) == self", json!("60s"), true),
        (
            json!({"type": "string"}),
            "string(timestamp('2024-01-01T00:00:00Z')) == self",
            json!("2024-01-01T00:00:00Z"),
            true,
        ),
        (
            json!({"type": "string"}),
            "string(ip(self)) == self && string(true) == 'true' && string(1) == '1'",
            json!("10.0.0.1"),
            true,
        ),
        (
            json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "string"}}}}}}),
            "self.?l[0].n.orValue('d') == 'a' && !self.?l[1].n.hasValue()",
            json!({"l": [{"n": "a"}]}),
            true,
        ),
        (
            json!({"type": "string"}),
            "isIP(self) && ip(self).family() == 4",
            json!("10.0.0.1"),
            true,
        ),
    ];
    for (kind, rule, value, fine) in cases {
        let faults = created(&schema(kind, rule), value.clone());
        assert_eq!(faults.is_empty(), fine, "{rule} {value}: {faults:?}");
    }
}

#[test]
fn rules_that_fail_say_why() {
    let schema = spec(
        json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"}}, "p": {"x-kubernetes-int-or-string": true}},
        "x-kubernetes-validations": [{"rule": "self.l[1] > 0"}, {"rule": "self.l[0] / 0 > 0", "message": "m"}, {"rule": "self.p > 3"}]}),
    );
    assert_eq!(
        created(&schema, json!({"l": [1], "p": "x"})),
        [
            "spec: Invalid value: \"object\": index out of bounds: 1 evaluating rule: self.l[1] > 0",
            "spec: Invalid value: \"object\": division by zero evaluating rule: m",
            "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a supported operator, function or macro \
             signature for rule: self.p > 3",
        ]
    );
}

/// The parts of the schema of an `APIRule` that have rules, with the size of a usual object.
fn api_rule_schema() -> Value {
    let host = r"self.matches('^(?:\\*\\.(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\\.)+[a-z0-9]{2,63}|(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)(?:(?:\\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*(?:\\.[a-z0-9]{2,63}))?)$')";
    let gateway =
        "self.matches('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$')";
    let one = "((has(self.extAuth)?1:0)+(has(self.jwt)?1:0)+((has(self.noAuth)&&self.noAuth==true)?1:0))==1";
    let path = r"^((\/([A-Za-z0-9-._~!$&'()+,;=:@]|%[0-9a-fA-F]{2})*)|(\/\{\*{1,2}\}))+$|^\/\*$";
    let jwt = json!({"type": "object", "properties": {"authentications": {"type": "array", "items": {"type": "object",
        "required": ["issuer", "jwksUri"], "properties": {"issuer": {"type": "string"}, "jwksUri": {"type": "string"}}}}}});
    json!({"type": "object", "required": ["hosts", "rules"], "properties": {
        "hosts": {"type": "array", "minItems": 1, "maxItems": 1, "items": {"type": "string", "maxLength": 255, "x-kubernetes-validations": [
            {"rule": host, "message": "Host must be a name"}]}},
        "gateway": {"type": "string", "maxLength": 127, "x-kubernetes-validations": [
            {"rule": gateway, "message": "Gateway must be in the namespace/name format"}]},
        "rules": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["methods", "path"], "properties": {
            "path": {"type": "string", "pattern": path}, "noAuth": {"type": "boolean"}, "jwt": jwt,
            "extAuth": {"type": "object", "properties": {"authorizers": {"type": "array", "items": {"type": "string"}}}},
            "methods": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["GET", "HEAD", "POST"]}},
        }, "x-kubernetes-validations": [{"rule": one, "message": "One of the following fields must be set: noAuth, jwt, extAuth"}]}},
    }})
}

#[test]
fn an_api_rule_is_checked() {
    let whole = json!({"type": "object", "properties": {"spec": api_rule_schema()}});
    assert_eq!(check(&whole, &FieldPath::new("s"), true), []);
    let schema = spec(api_rule_schema());
    let rule = json!({"path": "/a/{**}", "methods": ["GET"], "noAuth": true});
    let fine = json!({"hosts": ["a.example.dev"], "gateway": "ns/gateway", "rules": [rule, {"path": "/*", "methods": ["POST"], "noAuth": false,
        "jwt": {"authentications": [{"issuer": "https://i", "jwksUri": "https://i/keys"}]}}]});
    assert_eq!(created(&schema, fine), [""; 0]);
    let cases = [
        (
            json!({"hosts": ["A.b"], "rules": [rule]}),
            "spec.hosts[0]: Invalid value: \"string\": Host must be a name",
        ),
        (
            json!({"hosts": ["a.dev"], "gateway": "a", "rules": [rule]}),
            "spec.gateway: Invalid value: \"string\": Gateway must be in the namespace/name format",
        ),
        (
            json!({"hosts": ["abc"], "rules": [rule, {"path": "/", "methods": ["GET"], "noAuth": true, "jwt": {}}]}),
            "spec.rules[1]: Invalid value: \"object\": One of the following fields must be set: noAuth, jwt, extAuth",
        ),
        (
            json!({"hosts": ["*.local.dev"], "rules": [{"path": "/", "methods": ["GET"]}]}),
            "spec.rules[0]: Invalid value: \"object\": One of the following fields must be set: noAuth, jwt, extAuth",
        ),
    ];
    for (spec, text) in cases {
        assert_eq!(created(&schema, spec), [text]);
    }
}
