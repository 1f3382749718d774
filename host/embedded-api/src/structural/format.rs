//! The text formats of Kubernetes.

#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use regex::Regex;
use serde_json::{Map, Value};

use crate::name;

/// The formats that the API server 1.34 validates, without the dashes of the names.
const KNOWN: [&str; 25] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
];
const LONG_NAME: &str = "k8slongname";

/// Returns whether a format of a type (empty if there is none) is validated.
pub(crate) fn is_known_format(kind: &str, format: &str) -> bool {
    match kind {
        "" | "string" => {
            let plain = format.replace('-', "");
            plain == LONG_NAME || KNOWN.contains(&plain.as_str())
        }
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// Returns the formats of texts in a schema that are not validated, sorted by name. Kubernetes
/// tells of those of texts only.
pub(crate) fn unrecognized_formats(schema: &Value) -> Vec<String> {
    let mut found = std::collections::BTreeSet::new();
    collect(schema, &mut found);
    found.into_iter().collect()
}

fn collect(schema: &Value, found: &mut std::collections::BTreeSet<String>) {
    let Some(schema) = schema.as_object() else { return };
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    if let Some(format) =
        schema.get("format").and_then(Value::as_str).filter(|format| !format.is_empty())
        && kind == "string"
        && !is_known_format(kind, format)
    {
        found.insert(format.to_owned());
    }
    for key in ["items", "additionalProperties", "not"] {
        schema.get(key).into_iter().for_each(|below| collect(below, found));
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        schema
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .for_each(|below| collect(below, found));
    }
    schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .for_each(|(_, below)| collect(below, found));
}

/// Returns the format of a place of a schema, if it is validated there.
pub(super) fn of_schema(schema: &Map<String, Value>) -> Option<&str> {
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    schema.get("format").and_then(Value::as_str).filter(|format| is_known_format(kind, format))
}

/// Returns whether a text has a format; true for formats of numbers.
pub(super) fn matches(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "uri" => is_uri(text),
        "email" => is_email(text),
        "hostname" => {
            HOSTNAME.is_match(text)
                && text.len() <= 255
                && text.split('.').all(|label| label.len() <= 63)
        }
        "ipv4" => text.contains('.') && is_address(text),
        "ipv6" => text.contains(':') && is_address(text),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => UUID.is_match(text),
        "uuid3" => UUID3.is_match(text),
        "uuid4" => UUID4.is_match(text),
        "uuid5" => UUID5.is_match(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "ssn" => SOCIAL_SECURITY.is_match(text),
        "hexcolor" => HEX_COLOR.is_match(text),
        "rgbcolor" => is_rgb(text),
        "byte" => BASE64.is_match(text),
        "date" => is_date(text),
        "datetime" => is_date_time(text),
        "duration" => is_duration(text),
        "k8sshortname" => name::is_label(text).is_empty(),
        LONG_NAME => name::is_subdomain(text).is_empty(),
        _ => true,
    }
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is written here, and tested")
}

static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)",
        r"|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}",
        r"([a-zA-Z0-9\p{S}\p{L}])(-?[a-zA-Z0-9\p{S}\p{L}]){1,62})$"
    ))
});
static UUID: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)^[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$"));
static UUID3: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$")
});
static UUID4: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$")
});
static UUID5: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$")
});
static CREDIT_CARD: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}",
        r"|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}|6[27][0-9]{14})$"
    ))
});
static SOCIAL_SECURITY: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static HEX_COLOR: LazyLock<Regex> = LazyLock::new(|| regex(r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^rgb\(\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*\)$"));
static BASE64: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")
});
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$")
});
static GO_DURATION: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"));
static WORD_DURATION: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^\s*(?:[0-9]+\s*[A-Za-zµ]+\s*)+$"));
static DURATION_PART: LazyLock<Regex> = LazyLock::new(|| regex(r"[0-9]+\s*([A-Za-zµ]+)"));
static ATOM: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u{80}-\u{10ffff}-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u{80}-\u{10ffff}-]+)*$",
    )
});

fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let plain = !bits.is_empty()
        && bits.bytes().all(|byte| byte.is_ascii_digit())
        && (bits == "0" || !bits.starts_with('0'));
    let Some(bits) = bits.parse::<u8>().ok().filter(|_| plain) else { return false };
    let most = if address.parse::<Ipv4Addr>().is_ok() {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    bits <= most
}

fn is_mac(text: &str) -> bool {
    let parts = |separator: char, width: usize, counts: [usize; 3]| {
        let groups: Vec<&str> = text.split(separator).collect();
        counts.contains(&groups.len())
            && groups.iter().all(|group| {
                group.len() == width && group.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
    };
    parts(':', 2, [6, 8, 20]) || parts('-', 2, [6, 8, 20]) || parts('.', 4, [3, 4, 10])
}

/// Returns whether Go accepts a text as the URI of a request: with a scheme, or beginning with a
/// slash.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(char::is_control) || !percents_are_escapes(text) {
        return false;
    }
    let scheme_end = text
        .find(|character: char| !(character.is_ascii_alphanumeric() || "+-.".contains(character)));
    let scheme = match scheme_end {
        Some(at) if text.get(at..).is_some_and(|rest| rest.starts_with(':')) => {
            text.get(..at).unwrap_or_default()
        }
        _ => "",
    };
    if scheme.is_empty() {
        return text.starts_with('/') && is_authority(text);
    }
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.get(scheme.len() + 1..).is_some_and(is_authority)
}

/// Returns whether the host after `//`, if there is one, is valid.
fn is_authority(rest: &str) -> bool {
    let Some(after) = rest.strip_prefix("//") else { return true };
    let authority = after.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = match host.rfind(']') {
        Some(end) => host.get(end + 1..).unwrap_or_default(),
        None => host.rfind(':').map_or("", |at| host.get(at..).unwrap_or_default()),
    };
    let port_fits = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    port_fits
        && host.starts_with('[') == host.contains(']')
        && !host.contains([' ', '"', '<', '>', '\\', '^', '`', '{', '|', '}'])
}

fn percents_are_escapes(text: &str) -> bool {
    let path = text.split('?').next().unwrap_or_default();
    path.split('%')
        .skip(1)
        .all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns whether a text is an email address, alone or as `Name <address>`.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.strip_suffix('>') {
        Some(open) => match open.rsplit_once('<') {
            Some((name, address))
                if !name.contains(['<', '>', '@', ',']) || name.trim().starts_with('"') =>
            {
                address
            }
            _ => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (quoted || ATOM.is_match(local))
        && (ATOM.is_match(domain) || (domain.starts_with('[') && domain.ends_with(']')))
}

fn digits(text: &str) -> impl DoubleEndedIterator<Item = u32> {
    text.chars().filter_map(|character| character.to_digit(10))
}

fn without_separators(text: &str) -> String {
    text.chars().filter(|character| !matches!(character, ' ' | '-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let plain = without_separators(text);
    let (Some(body), Some(last)) = (plain.get(..9), plain.get(9..)) else { return false };
    let check = match last {
        "X" => 10,
        other if other.len() == 1 => other.parse().unwrap_or(99),
        _ => return false,
    };
    let sum: u32 = digits(body).zip(1..).map(|(digit, weight)| digit * weight).sum();
    digits(body).count() == 9 && check <= 10 && (sum + 10 * check).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let plain = without_separators(text);
    let sum: u32 =
        digits(&plain).zip([1, 3].into_iter().cycle()).map(|(digit, weight)| digit * weight).sum();
    plain.len() == 13 && digits(&plain).count() == 13 && sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let plain: String = text.chars().filter(char::is_ascii_digit).collect();
    let sum: u32 = digits(&plain)
        .rev()
        .zip([1, 2].into_iter().cycle())
        .map(|(digit, weight)| if digit * weight > 9 { digit * weight - 9 } else { digit * weight })
        .sum();
    CREDIT_CARD.is_match(&plain) && sum.is_multiple_of(10)
}

fn is_rgb(text: &str) -> bool {
    RGB.captures(text).is_some_and(|found| {
        found
            .iter()
            .skip(1)
            .flatten()
            .all(|part| part.as_str().parse::<u32>().is_ok_and(|value| value <= 255))
    })
}

fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date)
        && TIME.captures(time).is_some_and(|found| {
            let part = |index: usize| found.get(index).map_or("", |part| part.as_str());
            part(1) <= "23" && part(2) <= "59" && part(3) <= "59"
        })
}

/// Returns whether a text is a duration of Go, or one written with words: `2 days`.
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 12] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk", "min"];
    const BEGINNINGS: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    if GO_DURATION.is_match(text) {
        return true;
    }
    WORD_DURATION.is_match(text)
        && DURATION_PART.captures_iter(text).any(|part| {
            let unit = part.get(1).map_or("", |unit| unit.as_str()).to_lowercase();
            UNITS.contains(&unit.as_str())
                || BEGINNINGS.iter().any(|beginning| unit.starts_with(beginning))
        })
}
