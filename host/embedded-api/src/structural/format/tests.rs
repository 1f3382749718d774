use super::*;

#[test]
fn a_text_has_a_format_or_not() {
    let cases = [
        ("email", "a@example.dev", true),
        ("email", "nobody", false),
        ("email", "A B <a@example.dev>", true),
        ("byte", "YQ==", true),
        ("byte", "***", false),
        ("hostname", "a.example.dev", true),
        ("hostname", "under_score", false),
        ("mac", "00:11:22:33:44:55", true),
        ("mac", "zz", false),
        ("uri", "http://example.dev/x", true),
        ("uri", "/path", true),
        ("uri", "no uri", false),
        ("ipv4", "10.0.0.1", true),
        ("ipv4", "10.0.0.256", false),
        ("ipv4", "::1", false),
        ("ipv6", "::1", true),
        ("ipv6", "10.0.0.1", false),
        ("cidr", "10.0.0.0/16", true),
        ("cidr", "10.0.0.0", false),
        ("cidr", "10.0.0.0/33", false),
        ("uuid", "2f1a9c1e-0000-4000-8000-0123456789ab", true),
        ("uuid4", "2f1a9c1e-0000-3000-8000-0123456789ab", false),
        ("uuid", "x", false),
        ("date", "2024-02-29", true),
        ("date", "2023-02-29", false),
        ("date-time", "2024-02-29T10:00:00Z", true),
        ("date-time", "2024-02-29T10:00:00.5+01:00", true),
        ("date-time", "2024-02-29T25:00:00Z", false),
        ("date-time", "yesterday", false),
        ("duration", "1h30m", true),
        ("duration", "1.5s", true),
        ("duration", "2 days", true),
        ("duration", "5 apples", false),
        ("duration", "x", false),
        ("isbn", "0321751043", true),
        ("isbn", "978-0321751041", true),
        ("isbn", "978-0321751042", false),
        ("creditcard", "4111 1111 1111 1111", true),
        ("creditcard", "4111 1111 1111 1112", false),
        ("ssn", "111-22-3333", true),
        ("hexcolor", "#FFFFFF", true),
        ("hexcolor", "#GG", false),
        ("rgbcolor", "rgb(255,0,10)", true),
        ("rgbcolor", "rgb(256,0,10)", false),
        ("password", "anything", true),
        ("k8s-short-name", "a-b", true),
        ("k8s-short-name", "a.b", false),
        ("k8s-long-name", "a.b", true),
        ("bsonobjectid", "507f1f77bcf86cd799439011", true),
        ("bsonobjectid", "507f", false),
    ];
    for (format, text, expected) in cases {
        assert!(is_known_format("string", format), "{format}");
        assert_eq!(matches(format, text), expected, "{format} {text}");
    }
}

#[test]
fn formats_that_nobody_knows_are_found_everywhere() {
    let schema = serde_json::json!({"properties": {
        "a": {"type": "string", "format": "made-up"},
        "b": {"type": "integer", "format": "int32"},
        "c": {"type": "array", "items": {"type": "number", "format": "int64"}},
        "d": {"type": "object", "additionalProperties": {"type": "string", "format": "quantity"}},
        "e": {"x-kubernetes-int-or-string": true, "format": "int-or-string"},
    }});
    assert_eq!(unrecognized_formats(&schema), ["made-up", "quantity"]);
}

#[test]
fn an_unknown_format_checks_nothing() {
    for (kind, format) in [("string", "quantity"), ("string", "int32"), ("integer", "quantity")] {
        let schema = serde_json::json!({"type": kind, "format": format});
        assert_eq!(of_schema(schema.as_object().unwrap()), None, "{kind} {format}");
    }
}
