//! The systems outside of the cluster that a processor declares: what a Processor has to grant, and
//! reads that hold what the host would otherwise keep from the processor.

use std::{fmt::Write as _, time::Duration};

use mortise_core::{
    contract::{Description, OutboundRule, Selection, display_kind, hooks::Hooks},
    path::{Fields, Path},
};
use serde::Serialize;

use super::{Selected, in_seconds};
use crate::{egress::Grant, print};

/// The annotation that holds a whole object as it was last applied, its credentials among the rest.
const LAST_APPLIED: &str =
    r#"metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]"#;

/// A system outside of the cluster that a processor may call.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutboundEntry {
    /// The scheme, the host and, if need be, the port.
    pub origin: String,
    /// The methods, in upper case.
    pub methods: Vec<&'static str>,
    /// The objects that hold what calls are authenticated with; the fields are those of the values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<Selected>,
    /// The time in which nothing is sent after an answer of 429 that names no time.
    #[serde(rename = "pauseSeconds", serialize_with = "in_seconds")]
    pub pause: Duration,
}

// === impl OutboundEntry ===

impl OutboundEntry {
    pub(super) fn of(rule: &OutboundRule) -> Self {
        Self {
            origin: rule.origin.clone(),
            methods: rule.methods.iter_names().map(|(name, _)| name).collect(),
            credentials: rule.credentials.iter().map(Selected::of).collect(),
            pause: Duration::from_millis(rule.pause),
        }
    }

    /// Returns a line for each request that this rule allows: its origin with a method, or with a
    /// credential.
    pub(in crate::commands) fn lines(&self) -> impl Iterator<Item = String> {
        let method = |method: &&str| format!("{method} {}", self.origin);
        let credential = |of: &Selected| format!("{} with {}", self.origin, of.as_credential());
        let credentials = self.credentials.iter().map(credential);
        self.methods.iter().map(method).chain(credentials)
    }
}

/// Returns the block of a Processor's spec that grants what is declared, indented as below `spec:`.
pub(super) fn block(grants: &[Grant]) -> String {
    /// The part of a spec, for its order of keys.
    #[derive(Serialize)]
    struct Spec<'a> {
        egress: &'a [Grant],
    }

    let mut text = String::new();
    for line in print::yaml(&Spec { egress: grants }).lines() {
        let _ = writeln!(text, "  {line}");
    }
    text
}

/// Returns a warning for each declared read or hook that gives a credential to the processor, which
/// needs no more than the credential's place.
pub(super) fn warnings(description: &Description, hooks: &Hooks) -> Vec<String> {
    let credentials: Vec<&Selection> = description.credentials().collect();
    let (reconcilers, reads, _writes) = description.declared();
    let reconciled = reconcilers.iter().enumerate();
    let reconciled = reconciled.map(|(at, one)| (format!("reconcilers[{at}].of"), &one.of));
    let read = reads.iter().enumerate().map(|(at, of)| (format!("reads[{at}]"), of));
    let mut warnings = Vec::new();
    for (place, read) in reconciled.chain(read) {
        let held = credentials.iter().filter(|of| overlap(read, of)).find_map(|of| held(read, of));
        if let Some(field) = held {
            warnings.push(format!(
                "{place} holds a credential: `{field}` of {}; read named fields without it",
                display_kind(&read.kind)
            ));
        }
    }
    for (place, group, kind) in hooked(hooks) {
        let is_held = |of: &&&Selection| *of.kind.group == *group && *of.kind.kind == *kind;
        if let Some(held) = credentials.iter().find(is_held) {
            let (of, fields) = (display_kind(&held.kind), held.fields.join("`, `"));
            warnings.push(format!(
                "{place} gets whole objects of {of}, credentials included: `{fields}`"
            ));
        }
    }
    warnings
}

/// Returns the places at which the processor gets whole objects, with their groups and kinds.
fn hooked(hooks: &Hooks) -> impl Iterator<Item = (String, &str, &str)> {
    let converted = hooks.conversions.iter().enumerate();
    let converted = converted.map(|(at, of)| (format!("conversions[{at}]"), &*of.group, &*of.kind));
    let admitted = hooks.admission.iter().enumerate();
    converted.chain(admitted.map(|(at, hook)| {
        let kind = &hook.of.kind;
        (format!("hooks[{at}]"), &*kind.group, &*kind.kind)
    }))
}

/// Returns whether an object may be in both selections. Labels are no bound: they change.
fn overlap(one: &Selection, other: &Selection) -> bool {
    let meet = |one: &Option<String>, other: &Option<String>| {
        one.as_ref().zip(other.as_ref()).is_none_or(|(one, other)| one == other)
    };
    let same = |one: &str, other: &str| one == other || one == "*" || other == "*";
    // The same objects are served in each version.
    same(&one.kind.group, &other.kind.group)
        && same(&one.kind.kind, &other.kind.kind)
        && same(&one.kind.cluster, &other.kind.cluster)
        && meet(&one.namespace, &other.namespace)
        && meet(&one.name, &other.name)
}

/// Returns the field of a credential that a read holds, or holds a part of, if any.
fn held(read: &Selection, credential: &Selection) -> Option<String> {
    // Texts that are no paths are refused when the processor is loaded.
    let fields = Fields::parse(&read.fields).ok()?;
    let values = credential.fields.iter().map(String::as_str);
    values.chain([LAST_APPLIED]).find_map(|field| {
        let path: Path = field.parse().ok()?;
        let is_held = fields.covers(&path) || fields.paths().any(|read| path.covers(read));
        is_held.then(|| field.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use mortise_core::{
        contract::{Methods, hooks::Converted},
        fixture::{all, description},
    };

    use super::*;

    /// A selection of these fields.
    fn fields(kind: &str, fields: &[&str]) -> Selection {
        let fields = fields.iter().map(|field| (*field).to_owned()).collect();
        Selection { fields, ..all(kind) }
    }

    fn reading(reads: Vec<Selection>, credentials: Vec<Selection>) -> Description {
        let rule = OutboundRule {
            origin: "https://api.example.com".into(),
            methods: Methods::GET | Methods::POST,
            credentials,
            pause: 0,
        };
        let of = fields("Rule", &["spec"]);
        Description { reads, outbound: vec![rule], ..description(of, vec![]) }
    }

    #[test]
    fn a_read_that_holds_a_credential_is_warned_of() {
        let token = || vec![fields("Account", &["spec.token"])];
        let named = r#"metadata.annotations["example.com/a"]"#;
        let cases: [(&str, Vec<Selection>, Option<&str>); 8] = [
            ("other fields", vec![fields("Account", &["spec.url", named])], None),
            ("another kind", vec![fields("Shop", &["spec"])], None),
            ("the field", vec![fields("Account", &["spec.token"])], Some("`spec.token`")),
            ("above the field", vec![fields("Account", &["spec"])], Some("`spec.token`")),
            ("below the field", vec![fields("Account", &["spec.token.a"])], Some("`spec.token`")),
            ("whole objects", vec![all("Account")], Some("`spec.token`")),
            (
                "all annotations",
                vec![fields("Account", &["metadata.annotations"])],
                Some("last-applied"),
            ),
            ("all metadata", vec![fields("Account", &["metadata"])], Some("last-applied")),
        ];
        for (case, reads, expected) in cases {
            let warnings = warnings(&reading(reads, token()), &Hooks::default());
            assert_eq!(warnings.len(), usize::from(expected.is_some()), "{case}: {warnings:?}");
            for (warning, expected) in warnings.iter().zip(expected) {
                assert!(warning.starts_with("reads[0] holds a credential: "), "{case}: {warning}");
                assert!(warning.contains(expected), "{case}: {warning}");
            }
        }
    }

    #[test]
    fn selections_that_cannot_meet_are_not_warned_of() {
        let within = |namespace: &str, name: Option<&str>| Selection {
            namespace: Some(namespace.into()),
            name: name.map(Into::into),
            ..fields("Account", &["spec.token"])
        };
        let cases = [
            (within("a", None), within("b", None), false),
            (within("a", Some("x")), within("a", Some("y")), false),
            (within("a", Some("x")), within("a", None), true),
            (within("a", None), fields("Account", &["spec.token"]), true),
        ];
        for (read, credential, expected) in cases {
            let case = format!("{read:?} {credential:?}");
            let warned =
                !warnings(&reading(vec![read], vec![credential]), &Hooks::default()).is_empty();
            assert_eq!(warned, expected, "{case}");
        }
        // What is reconciled is read, too.
        let mut description = reading(vec![], vec![fields("Rule", &["spec.token"])]);
        assert!(warnings(&description, &Hooks::default())[0].starts_with("reconcilers[0].of "));
        description.outbound.clear();
        assert!(warnings(&description, &Hooks::default()).is_empty());
    }

    #[test]
    fn a_hook_that_gets_a_credential_is_warned_of() {
        let token = vec![fields("Account", &["spec.token"])];
        let description = reading(vec![], token);
        let hooks = |kind: &str| {
            let kind = kind.to_owned();
            let group = description.outbound[0].credentials[0].kind.group.clone();
            let of = Converted { group, kind, versions: vec!["v1".into(), "v2".into()] };
            Hooks { conversions: vec![of], admission: vec![] }
        };
        let warned = warnings(&description, &hooks("Account"));
        let of = display_kind(&all("Account").kind);
        let expected =
            "conversions[0] gets whole objects of KIND, credentials included: `spec.token`";
        assert_eq!(warned, [expected.replace("KIND", &of)]);
        assert!(warnings(&description, &hooks("Shop")).is_empty());
    }

    #[test]
    fn a_rule_is_a_line_for_each_method_and_each_credential() {
        let of = Selection { labels: "app=a".into(), ..fields("Account", &["spec.token"]) };
        let description = reading(vec![], vec![of]);
        let entry = OutboundEntry::of(&description.outbound[0]);
        let lines: Vec<String> = entry.lines().collect();
        let kind = display_kind(&all("Account").kind);
        let expected = [
            "GET https://api.example.com".to_owned(),
            "POST https://api.example.com".to_owned(),
            format!("https://api.example.com with spec.token of {kind} (everywhere, app=a)"),
        ];
        assert_eq!(lines, expected);
    }
}
