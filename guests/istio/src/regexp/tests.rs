use super::*;

#[test]
fn expressions_of_go_are_accepted() {
    for expression in [
        "",
        "a.*",
        ".*upstream_rq.*",
        "^listener\\.(http|tcp)[^.]+$",
        "(?i)a|(?P<name>b)|(?<other>c)|(?s-m:d)|",
        "a{",
        "a{,5}",
        "a{1",
        "a{01}",
        "{1",
        "a{2}?",
        "a{2,}",
        "a{2,3}b*?",
        "[]a]",
        "[^]a]",
        "[a-]",
        "[-a]",
        "[[:alpha:][:^digit:]_]",
        "[\\d\\pL\\-x]",
        "[[a]",
        "[a&&b]",
        "[a-b-c]",
        "[--a]",
        "[\\w-a]",
        "[]-a]",
        "[a-]]",
        "(?P<a>.)(?P<a>.)",
        "[\\x{41}-\\x5a]",
        "\\pN\\p{Greek}\\P{^Lu}",
        "\\Q.*(\\E+",
        "\\Q",
        "\\101\\0\\.\\_\\%",
        "\\A\\bx\\B\\z",
        "(a{10}){100}",
        "()*",
        "(|a)*",
        "^*",
        "a||b",
        "ä+",
        "x*(?i)y",
        "x*(?i)*",
        "(?)",
        "^*\\b*",
        "(a*){1000}",
        "x{2}{",
        "x*\\Q\\E*",
        "((a{1000}){0}){1000}",
        "((a{1000}){0,0}){1000}",
    ] {
        assert_eq!(check(expression), Ok(()), "{expression}");
    }
}

#[test]
fn other_expressions_are_refused_with_gos_messages() {
    let cases = [
        ("a(", "missing closing ): `a(`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("x[", "missing closing ]: `[`"),
        ("[]", "missing closing ]: `[]`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|+", "missing argument to repetition operator: `+`"),
        ("(?:*)", "missing argument to repetition operator: `*`"),
        ("{1}", "missing argument to repetition operator: `{1}`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a*?+", "invalid nested repetition operator: `*?+`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("(a{100}){11}", "invalid repeat count: `{11}`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[a--]", "invalid character class range: `a--`"),
        ("[a-\\d]", "invalid escape sequence: `\\d`"),
        ("[[:what:]]", "invalid character class range: `[:what:]`"),
        ("\\p{What}", "invalid character class range: `\\p{What}`"),
        ("\\pX", "invalid character class range: `\\pX`"),
        ("\\p{L", "invalid character class range: `\\p{L`"),
        ("\\", "trailing backslash at end of expression: ``"),
        ("\\8", "invalid escape sequence: `\\8`"),
        ("\\1", "invalid escape sequence: `\\1`"),
        ("\\q", "invalid escape sequence: `\\q`"),
        ("\\C", "invalid escape sequence: `\\C`"),
        ("\\x{110000}", "invalid escape sequence: `\\x{110000`"),
        ("\\xag", "invalid escape sequence: `\\xag`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?<=a)", "invalid named capture: `(?<=a)`"),
        ("(?i-)a", "invalid or unsupported Perl syntax: `(?i-)`"),
        ("(?P<a", "invalid named capture: `(?P<a`"),
        ("(?P<>a)", "invalid named capture: `(?P<>`"),
        ("(?i)*", "missing argument to repetition operator: `*`"),
        ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
        ("(?P=a)", "invalid or unsupported Perl syntax: `(?P`"),
        ("\\Q\\E*", "missing argument to repetition operator: `*`"),
        ("(a{0,1000}){2}", "invalid repeat count: `{2}`"),
        ("((a{1000}){0,}){2}", "invalid repeat count: `{2}`"),
        ("x*\\Q\\E**", "invalid nested repetition operator: `**`"),
        ("\\p{Letter}", "invalid character class range: `\\p{Letter}`"),
    ];
    for (expression, expected) in cases {
        let expected = format!("error parsing regexp: {expected}");
        assert_eq!(check(expression), Err(expected), "{expression}");
    }
}

#[test]
fn hostile_expressions_are_judged_in_bounded_space() {
    assert!(check(&"(".repeat(100_000)).is_err());
    assert_eq!(check(&("(".repeat(999) + &")".repeat(999))), Ok(()));
    assert!(check(&("(".repeat(1000) + &")".repeat(1000))).is_err());
    assert_eq!(check(&"a*".repeat(100_000)), Ok(()));
}
