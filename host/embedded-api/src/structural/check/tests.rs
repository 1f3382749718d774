use serde_json::json;

use super::*;

fn faults(schema: &Value) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": schema}}}});
    let place = FieldPath::new("s");
    let prefix = "s.properties[spec].properties[x]";
    check(&schema, &place, false)
        .iter()
        .map(|error| error.to_string().replace(prefix, "x"))
        .collect()
}

#[test]
fn a_schema_must_be_structural() {
    let cases = [
        (json!({"type": "array"}), vec!["x.items: Required value: must be specified"]),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
            vec![
                "x.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            vec![
                "x.anyOf[0].type: Forbidden: must be empty to be structural",
                "x.anyOf[1].type: Forbidden: must be empty to be structural",
                "x.type: Required value: must not be empty for specified object fields",
            ],
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            vec![],
        ),
        (
            json!({"type": "array", "items": {}}),
            vec!["x.items.type: Required value: must not be empty for specified array items"],
        ),
        (
            json!({"type": "string", "pattern": "[a"}),
            vec![
                "x.pattern: Invalid value: \"[a\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ]: `[a`",
            ],
        ),
        (
            json!({"type": "text"}),
            vec![
                "x.type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ],
        ),
        (
            json!({"type": "string", "$ref": "#/a"}),
            vec!["x.$ref: Forbidden: $ref is not supported"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            vec![
                "x.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ],
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            vec![
                "x.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ],
        ),
        (
            json!({"x-kubernetes-preserve-unknown-fields": false}),
            vec![
                "x.type: Required value: must not be empty for specified object fields",
                "x.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ],
        ),
    ];
    for (schema, texts) in cases {
        assert_eq!(faults(&schema), texts, "{schema}");
    }
}

#[test]
fn the_root_is_an_object_whose_metadata_is_known() {
    let place = FieldPath::new("s");
    let texts = |schema: Value| {
        check(&schema, &place, false).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        texts(json!({"type": "string"})),
        ["s.type: Invalid value: \"string\": must be object at the root"]
    );
    assert_eq!(
        texts(
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}})
        ),
        [
            "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
        ]
    );
    assert_eq!(
        texts(
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string"}}}}})
        ),
        [""; 0]
    );
    assert_eq!(
        texts(
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "anyOf": [{"properties": {"a": {"minLength": 1}}}]})
        ),
        ["s.properties[a]: Required value: because it is defined in s.anyOf[0].properties[a]"]
    );
    assert_eq!(
        texts(json!({"type": "object", "additionalProperties": {"type": "string"}})),
        ["s.additionalProperties: Forbidden: must not be used at the root"]
    );
}

#[test]
fn beside_a_status_the_root_says_little() {
    let place = FieldPath::new("s");
    let errors = check(&json!({"type": "object", "oneOf": [{"required": ["a"]}]}), &place, true);
    let text = errors.first().map(ToString::to_string).unwrap_or_default();
    assert!(
        text.starts_with("s: Invalid value: {\"ID\":\"\",\"Schema\":\"\",\"Ref\":null"),
        "{text}"
    );
    assert!(text.ends_with(
        "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems \
         MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are \
         allowed at the root of the schema if the status subresource is enabled"
    ));
    assert_eq!(check(&json!({"type": "object", "required": ["a"]}), &place, true), []);
}

#[test]
fn lists_and_maps_are_said_to_be_merged_as_they_can() {
    let item = |more: Value| {
        let mut schema = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}}});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    let cases = [
        (item(json!({})), vec![]),
        (
            item(json!({"items": {"type": "object", "properties": {"n": {"type": "string"}}}})),
            vec![
                "x.items.properties[n].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ],
        ),
        (
            item(json!({"x-kubernetes-list-map-keys": ["o"]})),
            vec![
                "x.x-kubernetes-list-map-keys: Invalid value: [\"o\"]: entries must all be names of item properties",
            ],
        ),
        (
            item(json!({"x-kubernetes-list-map-keys": []})),
            vec![
                "x.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ],
        ),
        (
            item(json!({"x-kubernetes-list-type": "bag"})),
            vec![
                "x.x-kubernetes-list-type: Unsupported value: \"bag\": supported values: \"atomic\", \"set\", \"map\"",
                "x.x-kubernetes-list-type: Invalid value: \"bag\": must be map if x-kubernetes-list-map-keys is non-empty",
            ],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
            vec![
                "x.items.x-kubernetes-map-type: Invalid value: \"null\": must be atomic as item of a list with x-kubernetes-list-type=set",
            ],
        ),
        (
            json!({"type": "string", "x-kubernetes-list-type": "set"}),
            vec![
                "x.type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified",
            ],
        ),
        (
            json!({"type": "object", "x-kubernetes-map-type": "odd"}),
            vec![
                "x.x-kubernetes-map-type: Unsupported value: \"odd\": supported values: \"atomic\", \"granular\"",
            ],
        ),
    ];
    for (schema, texts) in cases {
        assert_eq!(faults(&schema), texts, "{schema}");
    }
}

#[test]
fn defaults_must_be_acceptable() {
    let cases = [
        (json!({"type": "string", "default": "a"}), vec![]),
        (
            json!({"type": "string", "default": 1}),
            vec![
                "x.default: Invalid value: \"integer\":  in body must be of type string: \"integer\"",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}}),
            vec!["x.default: Invalid value: {\"b\":1}: must not have unknown fields"],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "default": {}}),
            vec!["x.default.a: Required value"],
        ),
        (
            json!({"type": "integer", "default": 0, "x-kubernetes-validations": [{"rule": "self > 0"}]}),
            vec!["x.default: Invalid value: \"integer\": failed rule: self > 0"],
        ),
    ];
    for (schema, texts) in cases {
        assert_eq!(faults(&schema), texts, "{schema}");
    }
    let place = FieldPath::new("s");
    let schema =
        json!({"type": "object", "properties": {"kind": {"type": "string", "default": "K"}}});
    let errors: Vec<String> =
        check(&schema, &place, false).iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        ["s.properties[kind].default: Forbidden: must not be set in top-level kind"]
    );
}

#[test]
fn rules_are_written_as_they_must_be() {
    let rule = |rule: Value| json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": [rule]});
    let cases = [
        (
            rule(json!({"rule": " "})),
            vec!["x.x-kubernetes-validations[0].rule: Required value: rule is not specified"],
        ),
        (
            rule(json!({"rule": "true", "message": "a\nb"})),
            vec![
                "x.x-kubernetes-validations[0].message: Invalid value: \"a\\nb\": message must not contain line breaks",
            ],
        ),
        (
            rule(json!({"rule": "true\n&& true"})),
            vec![
                "x.x-kubernetes-validations[0].message: Required value: message must be specified if rule contains line breaks",
            ],
        ),
        (
            rule(json!({"rule": "Foo{a: 1} == Foo{}"})),
            vec![
                "x.x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"Foo{a: 1} == Foo{}\",\"Message\":\"\",\
                 \"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: \
                 ERROR: <input>:1:4: undeclared reference to 'Foo' (in container '')\n | Foo{a: 1} == Foo{}\n | ...^",
            ],
        ),
        (
            rule(json!({"rule": "true", "reason": "Odd"})),
            vec![
                "x.x-kubernetes-validations[0].reason: Unsupported value: \"Odd\": supported values: \"FieldValueDuplicate\", \
                  \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
            ],
        ),
        (
            rule(json!({"rule": "true", "fieldPath": ".b"})),
            vec![
                "x.x-kubernetes-validations[0].fieldPath: Invalid value: \".b\": fieldPath must be a valid path: does not refer to a valid field",
            ],
        ),
        (
            rule(json!({"rule": "true", "optionalOldSelf": true})),
            vec![
                "x.x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
            ],
        ),
        (
            json!({"type": "array", "maxItems": 10, "items": rule(json!({"rule": "self.a == oldSelf.a"}))}),
            vec![
                "x.items.x-kubernetes-validations[0].rule: Invalid value: \"self.a == oldSelf.a\": oldSelf cannot be used on the \
                  uncorrelatable portion of the schema within x",
            ],
        ),
    ];
    for (schema, texts) in cases {
        assert_eq!(faults(&schema), texts, "{schema}");
    }
}
