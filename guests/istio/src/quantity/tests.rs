use super::*;

#[test]
fn quantities_are_written_in_canonical_form() {
    let cases = [
        ("0", "0"),
        ("00", "0"),
        ("0Gi", "0"),
        ("2000m", "2"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.", "1"),
        ("1000", "1k"),
        ("100000m", "100"),
        ("1234", "1234"),
        ("1024Mi", "1Gi"),
        ("2Gi", "2Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1023", "1023"),
        ("1Ki", "1Ki"),
        ("1.0001Ki", "1024102400u"),
        ("196608Ki", "192Mi"),
        ("10G", "10G"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("12e4", "120e3"),
        ("1e0", "1"),
        ("1E", "1E"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("0.00000000000000000000000000000001", "1n"),
        ("-1500m", "-1500m"),
        ("+3", "3"),
        ("100E", "9223372036854775807"),
        ("1e999999", "9223372036854775807"),
        ("99999999999999999999999999999999999999", "9223372036854775807"),
        ("16Ei", "9223372036854775807"),
    ];
    for (text, expected) in cases {
        assert_eq!(
            Quantity::parse(text).map(|quantity| quantity.to_string()).as_deref(),
            Ok(expected),
            "{text}"
        );
    }
}

#[test]
fn other_texts_are_refused() {
    for text in ["", "abc", "1.2.3", "1 Gi", "1Gb", "1e+3x", "µ"] {
        assert_eq!(Quantity::parse(text).unwrap_err(), Error::Form, "{text}");
    }
    for text in ["1Mk", "1mm", "1e", "1E+", "1Gi3", "1ki"] {
        assert_eq!(Quantity::parse(text).unwrap_err(), Error::Suffix, "{text}");
    }
}

#[test]
fn equality_and_order_are_those_of_the_amounts() {
    let read = |text| Quantity::parse(text).unwrap();
    assert_eq!(read("1"), read("1000m"));
    assert_eq!(read("1Gi"), read("1024Mi"));
    assert!(read("4999m") < Quantity::of(5) && read("5") >= Quantity::of(5));
    assert!(read("10G") < read("10Gi"));
    let sum = Quantity::ZERO.plus(read("1Gi")).plus(read("24Mi"));
    assert_eq!(sum.to_string(), "1048Mi");
}
