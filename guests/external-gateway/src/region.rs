//! The subjects of the certificates of a region's clients.

use std::collections::BTreeMap;

use mortise_sdk::{Error, Host, kubernetes::ConfigMap};
use serde::Deserialize;

use crate::{
    api::ExternalGateway,
    status::{Fault, reason},
};

/// The key in a `ConfigMap` with several keys.
const KEY: &str = "regions.yaml";
/// The field that is read of `ConfigMap`s.
pub(crate) const FIELDS: [&str; 1] = ["data"];

#[derive(Deserialize)]
struct Regions {
    regions: Option<Vec<Region>>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Region {
    name: Option<String>,
    subjects: Option<Vec<String>>,
}

/// Returns the subjects of the region that an ExternalGateway names, as Envoy writes subjects.
pub(crate) fn subjects(
    gateway: &ExternalGateway,
    host: &Host,
) -> Result<Result<Vec<String>, Fault>, Error> {
    let (namespace, name) = (gateway.namespace(), &gateway.spec.regions_config_map);
    let title = format!("{namespace}/{name}");
    let Some(map) = host.get::<ConfigMap>(Some(namespace), name, &FIELDS)? else {
        let message = format!("RegionsConfigMap {title} not found");
        return Ok(Err(Fault::new(reason::REGIONS_NOT_FOUND, message)));
    };
    Ok(text(&map.data, &title).and_then(|text| of_region(text, &gateway.spec.region, &title)))
}

fn text<'a>(data: &'a BTreeMap<String, String>, title: &str) -> Result<&'a str, Fault> {
    let only = if data.len() == 1 { data.values().next() } else { data.get(KEY) };
    match only {
        Some(text) => Ok(text),
        None if data.is_empty() => {
            Err(Fault::new(reason::REGIONS_INVALID, format!("ConfigMap {title} is empty")))
        }
        None => {
            let keys: Vec<&str> = data.keys().map(String::as_str).collect();
            let keys = keys.join(" ");
            let message =
                format!("ConfigMap {title} has keys [{keys}]; expected a single key or \"{KEY}\"");
            Err(Fault::new(reason::REGIONS_AMBIGUOUS, message))
        }
    }
}

fn of_region(text: &str, region: &str, title: &str) -> Result<Vec<String>, Fault> {
    let parsed: Result<Option<Regions>, _> = serde_saphyr::from_str(text);
    let regions = parsed.map_err(|error| {
        let message = format!("failed to parse regions YAML in ConfigMap {title}: {error}");
        Fault::new(reason::REGIONS_INVALID, message)
    })?;
    let regions = regions.and_then(|regions| regions.regions).unwrap_or_default();
    if regions.is_empty() {
        let message = format!("no regions found in ConfigMap {title}");
        return Err(Fault::new(reason::REGIONS_INVALID, message));
    }
    let wanted = region.to_lowercase();
    let is_it = |of: &Region| of.name.as_deref().unwrap_or_default().to_lowercase() == wanted;
    // Of several regions with one name, the last counts.
    let Some(found) = regions.into_iter().rfind(is_it) else {
        let message = format!("region {region:?} not defined in ConfigMap {title}");
        return Err(Fault::new(reason::REGION_NOT_FOUND, message));
    };
    let subjects = found.subjects.unwrap_or_default();
    if subjects.is_empty() {
        let message = format!("region {region:?} in ConfigMap {title} has no certificate subjects");
        return Err(Fault::new(reason::REGION_EMPTY, message));
    }
    Ok(subjects.iter().map(|subject| reversed(subject)).collect())
}

/// Returns a subject in Envoy's order, from the most specific part to the root.
fn reversed(subject: &str) -> String {
    let parts: Vec<&str> = subject.rsplit(", ").collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Outcome<'a> = Result<&'a [&'a str], (&'a str, &'a str)>;

    fn check(text: &str, region: &str, expected: Outcome<'_>) {
        let found = of_region(text, region, "n/r");
        match (&found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
            (Err(fault), Err((reason, begin))) => {
                assert_eq!(fault.reason, reason, "{text}");
                assert!(fault.message.starts_with(begin), "{text}: {}", fault.message);
            }
            (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn subjects_are_those_of_the_region_in_envoys_order() {
        let text = "regions:\n\
            - {name: EU10, ips: [1.1.1.1], subjects: [\"C=DE, O=A, CN=a/b\", \"CN=x,O=Y\"]}\n\
            - {name: us10, subjects: [CN=u]}\n\
            - {name: none, subjects: []}\n\
            - {name: US10, more: 1, subjects: [CN=last]}\n";
        check(text, "eu10", Ok(&["CN=a/b,O=A,C=DE", "CN=x,O=Y"]));
        check(text, "us10", Ok(&["CN=last"]));
        let missing = r#"region "us99" not defined in ConfigMap n/r"#;
        check(text, "us99", Err(("RegionNotFound", missing)));
        let empty = r#"region "None" in ConfigMap n/r has no certificate subjects"#;
        check(text, "None", Err(("RegionHasNoSubjects", empty)));
    }

    #[test]
    fn broken_regions_are_told() {
        let none = "no regions found in ConfigMap n/r";
        let broken = "failed to parse regions YAML in ConfigMap n/r: ";
        let cases = [
            ("", none),
            ("other: 1", none),
            ("regions:", none),
            ("regions: []", none),
            ("this is not: valid: yaml: :", broken),
            ("regions: {}", broken),
            ("regions: [{name: a, subjects: {}}]", broken),
        ];
        for (text, begin) in cases {
            check(text, "eu10", Err(("RegionsConfigMapInvalid", begin)));
        }
    }

    #[test]
    fn the_text_has_a_key_of_its_own_or_is_alone() {
        let of = |keys: &[&str]| {
            let data = keys.iter().map(|key| ((*key).to_owned(), format!("of {key}"))).collect();
            let found = text(&data, "n/r").map(str::to_owned);
            found.map_err(|fault| (fault.reason, fault.message))
        };
        assert_eq!(of(&["x"]).unwrap(), "of x");
        assert_eq!(of(&["x", "regions.yaml"]).unwrap(), "of regions.yaml");
        let empty = ("RegionsConfigMapInvalid", "ConfigMap n/r is empty".to_owned());
        assert_eq!(of(&[]), Err(empty));
        let message = r#"ConfigMap n/r has keys [a b]; expected a single key or "regions.yaml""#;
        assert_eq!(of(&["b", "a"]), Err(("RegionsConfigMapKeyAmbiguous", message.to_owned())));
    }
}
