//! Bounds on descriptions.

use super::{
    DESCRIPTION, ENTRY, FIELDS, FINALIZERS, GRANT_ENTRIES, GRANT_TEXT, GRANTED_RIGHTS, GRANTS,
    NAME, OUTBOUND, OUTBOUND_CREDENTIALS, PATH, READS, RECONCILERS, SELECTOR, VERSION, WRITES,
    read::selection_size, text,
};
use crate::contract::{
    Description, GrantedRule, Kind, OutboundRule, Reconciler, Selection, origin::Origin,
};

/// The wildcard for any kind, group or resource.
const WILDCARD: &str = "*";

/// Refuses a description with more entries, or longer texts, than the host keeps. The message names
/// the place and the bound.
pub fn check(of: &Description) -> Result<(), String> {
    let Description { name, version, reconcilers, reads, writes, grants, outbound, config_schema } =
        of;
    if !text::is_label(name) {
        return Err(wrong("name", name, &label()));
    }
    if version.len() > VERSION || semver::Version::parse(version).is_err() {
        let accepted = format!(
            "a version is semantic, such as `1.2.3-rc.1+build`, with at most {VERSION} bytes"
        );
        return Err(wrong("version", version, &accepted));
    }
    check_count("reconcilers", reconcilers.len(), RECONCILERS)?;
    check_count("reads", reads.len(), READS)?;
    check_count("writes", writes.len(), WRITES)?;
    check_count("grants", grants.len(), GRANTS)?;
    for (index, reconciler) in reconcilers.iter().enumerate() {
        check_reconciler(&format!("reconcilers[{index}]"), reconciler)?;
    }
    for (index, read) in reads.iter().enumerate() {
        check_selection(&format!("reads[{index}]"), read)?;
    }
    for (index, rule) in writes.iter().enumerate() {
        check_selection(&format!("writes[{index}].of"), &rule.of)?;
        check_paths(&format!("writes[{index}].fields"), rule.fields.iter())?;
    }
    check_grants(grants)?;
    check_outbound(outbound)?;
    let size = size(of);
    if size > DESCRIPTION {
        let schema = config_schema.as_ref().map_or(0, String::len);
        return Err(format!(
            "the description has {size} bytes, {schema} of them in `config-schema`; at most {DESCRIPTION} are accepted, each entry of a list \
             counted with {ENTRY} more"
        ));
    }
    Ok(())
}

fn check_reconciler(place: &str, of: &Reconciler) -> Result<(), String> {
    if !text::is_label(&of.name) {
        return Err(wrong(&format!("{place}.name"), &of.name, &label()));
    }
    check_count(&format!("{place}.finalizers"), of.finalizers.len(), FINALIZERS)?;
    if let Some(bad) = of.finalizers.iter().find(|name| !text::is_finalizer(name)) {
        let accepted = "a finalizer is named `<domain>/<name>`: a DNS subdomain, and at most 63 letters, digits, `-`, `_` and `.`";
        return Err(wrong(&format!("{place}.finalizers"), bad, accepted));
    }
    check_selection(&format!("{place}.of"), &of.of)
}

fn check_outbound(rules: &[OutboundRule]) -> Result<(), String> {
    check_count("outbound", rules.len(), OUTBOUND)?;
    for (index, rule) in rules.iter().enumerate() {
        let place = format!("outbound[{index}].origin");
        if let Err(reason) = rule.origin.parse::<Origin>() {
            return Err(format!("`{place}`: {reason}"));
        }
        let place = format!("outbound[{index}].credentials");
        check_count(&place, rule.credentials.len(), OUTBOUND_CREDENTIALS)?;
        for (index, of) in rule.credentials.iter().enumerate() {
            check_selection(&format!("{place}[{index}]"), of)?;
            if of.fields.is_empty() {
                let accepted = "a credential names the fields of its values, such as `data.token`";
                return Err(format!("`{place}[{index}].fields` is empty: {accepted}"));
            }
        }
    }
    Ok(())
}

fn check_selection(place: &str, of: &Selection) -> Result<(), String> {
    let cluster = &of.kind.cluster;
    if &**cluster != WILDCARD && !text::is_cluster(cluster) {
        let accepted =
            "a cluster is \"\", `namespace/name/key` of a Secret with a kubeconfig, or `*`";
        return Err(wrong(&format!("{place}.cluster"), cluster, accepted));
    }
    check_kind(place, &of.kind)?;
    check_namespace(place, of)?;
    if let Some(name) = of.name.as_ref().filter(|text| !text::is_name(text)) {
        return Err(wrong(&format!("{place}.name"), name, text::NAME_FORM));
    }
    check_labels(place, of)?;
    check_paths(&format!("{place}.fields"), of.fields.iter())?;
    check_paths(&format!("{place}.matching"), of.matching.iter().map(|(path, _)| path))
}

pub(super) fn check_namespace(place: &str, of: &Selection) -> Result<(), String> {
    match of.namespace.as_ref().filter(|text| !text::is_label(text)) {
        Some(namespace) => {
            let accepted = "a namespace is a DNS label of at most 63 bytes, or none";
            Err(wrong(&format!("{place}.namespace"), namespace, accepted))
        }
        None => Ok(()),
    }
}

pub(super) fn check_labels(place: &str, of: &Selection) -> Result<(), String> {
    if of.labels.len() <= SELECTOR {
        return Ok(());
    }
    let accepted = format!("a label selector has at most {SELECTOR} bytes");
    Err(wrong(&format!("{place}.labels"), &of.labels, &accepted))
}

/// Refuses parts of a kind that are neither `*` nor named by Kubernetes' rules. Empty versions and
/// kinds are refused by the grant.
pub(super) fn check_kind(place: &str, of: &Kind) -> Result<(), String> {
    let Kind { cluster: _, group, version, kind } = of;
    let parts = [
        ("group", group, text::is_group(group), "a DNS subdomain, \"\" or `*`"),
        ("version", version, version.is_empty() || text::is_version(version), "such as `v1`"),
        ("kind", kind, kind.is_empty() || text::is_kind_name(kind), "such as `ConfigMap`, or `*`"),
    ];
    match parts.iter().find(|(_, text, is_right, _)| !is_right && *text != WILDCARD) {
        Some((part, text, _, accepted)) => {
            Err(wrong(&format!("{place}.kind.{part}"), text, accepted))
        }
        None => Ok(()),
    }
}

/// Refuses granted rules that the API server would not accept in a role, and more single rights
/// than the host asks about.
fn check_grants(rules: &[GrantedRule]) -> Result<(), String> {
    let mut rights = 0_usize;
    for (index, rule) in rules.iter().enumerate() {
        check_grant(&format!("grants[{index}]"), rule)?;
        // The lists are bounded, so the product of four lengths cannot overflow.
        let places =
            rule.api_groups.len() * rule.resources.len() * rule.resource_names.len().max(1);
        rights += rule.verbs.len() * (places + rule.non_resource_urls.len());
    }
    if rights > GRANTED_RIGHTS {
        return Err(format!(
            "`grants` have {rights} single rights together, each verb on each resource and name; at most {GRANTED_RIGHTS} are accepted"
        ));
    }
    Ok(())
}

/// A list of a granted rule: its name, its entries, the check of an entry, and the accepted form in
/// words.
type GrantList<'a> = (&'a str, &'a [String], fn(&str) -> bool, &'a str);

fn check_grant(place: &str, rule: &GrantedRule) -> Result<(), String> {
    let GrantedRule { api_groups, resources, resource_names, verbs, non_resource_urls } = rule;
    let lists: [GrantList<'_>; 5] = [
        (
            "api-groups",
            api_groups,
            |text| text == WILDCARD || text::is_group(text),
            "\"\", `*`, or a DNS subdomain",
        ),
        ("resources", resources, is_resource, "such as `pods`, `pods/log`, `*/scale` or `*`"),
        ("resource-names", resource_names, is_grant_text, "the name of an object"),
        ("verbs", verbs, is_grant_text, "such as `get`, or `*`"),
        ("non-resource-urls", non_resource_urls, is_url, "such as `/metrics`, `/healthz/*` or `*`"),
    ];
    for (list, texts, is_right, accepted) in lists {
        let place = format!("{place}.{list}");
        check_count(&place, texts.len(), GRANT_ENTRIES)?;
        let is_wrong = |text: &&String| text.len() > GRANT_TEXT || !is_right(text);
        if let Some(bad) = texts.iter().find(is_wrong) {
            let accepted = format!("{accepted}, at most {GRANT_TEXT} bytes");
            return Err(wrong(&place, bad, &accepted));
        }
    }
    let of_resources = !api_groups.is_empty() && !resources.is_empty();
    let of_urls = !non_resource_urls.is_empty();
    let has_nothing_else =
        api_groups.is_empty() && resources.is_empty() && resource_names.is_empty();
    if verbs.is_empty() || !(of_resources && !of_urls || of_urls && has_nothing_else) {
        return Err(format!(
            "`{place}`: a rule has verbs, and either groups and resources or URLs that are no resources"
        ));
    }
    Ok(())
}

fn is_grant_text(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

fn is_resource(text: &str) -> bool {
    let is_part = |part: &str| part == WILDCARD || text::is_subdomain(part);
    let (resource, below) = text.split_once('/').unwrap_or((text, WILDCARD));
    is_part(resource) && is_part(below)
}

fn is_url(text: &str) -> bool {
    let start = text.strip_suffix('*').unwrap_or(text);
    is_grant_text(text) && !start.contains('*') && (text == WILDCARD || text.starts_with('/'))
}

fn check_paths<'a>(
    place: &str,
    paths: impl ExactSizeIterator<Item = &'a String>,
) -> Result<(), String> {
    check_count(place, paths.len(), FIELDS)?;
    for path in paths {
        if path.len() > PATH {
            return Err(wrong(place, path, &format!("a path has at most {PATH} bytes")));
        }
    }
    Ok(())
}

pub(super) fn check_count(place: &str, count: usize, most: usize) -> Result<(), String> {
    if count <= most {
        return Ok(());
    }
    Err(format!("`{place}` has {count} entries, at most {most} are accepted"))
}

pub(super) fn wrong(place: &str, found: &str, accepted: &str) -> String {
    format!("`{place}`: {}: {accepted}", text::quoted(found))
}

pub(super) fn label() -> String {
    format!("a name is a DNS label: at most {NAME} lower-case letters, digits and `-`")
}

fn size(of: &Description) -> usize {
    let Description { name, version, reconcilers, reads, writes, grants, outbound, config_schema } =
        of;
    let outbound = outbound.iter().map(|rule| {
        let credentials = rule.credentials.iter().map(|of| ENTRY + selection_size(of));
        ENTRY + rule.origin.len() + credentials.sum::<usize>()
    });
    let reconcilers = reconcilers.iter().map(|of_one| {
        let finalizers = of_one.finalizers.iter().map(|name| ENTRY + name.len());
        ENTRY + of_one.name.len() + selection_size(&of_one.of) + finalizers.sum::<usize>()
    });
    let reads = reads.iter().map(|read| ENTRY + selection_size(read));
    let writes = writes.iter().map(|rule| {
        let fields = rule.fields.iter().map(|field| ENTRY + field.len());
        ENTRY + selection_size(&rule.of) + fields.sum::<usize>()
    });
    let grants = grants.iter().map(|rule| {
        let lists = [
            &rule.api_groups,
            &rule.resources,
            &rule.resource_names,
            &rule.verbs,
            &rule.non_resource_urls,
        ];
        let texts = lists.into_iter().flatten().map(|text| ENTRY + text.len());
        ENTRY + texts.sum::<usize>()
    });
    let texts = name.len() + version.len() + config_schema.as_ref().map_or(0, String::len);
    let declared = reads.sum::<usize>() + writes.sum::<usize>() + grants.sum::<usize>();
    let declared = declared + outbound.sum::<usize>();
    texts + reconcilers.sum::<usize>() + declared
}
