//! The systems outside of the cluster that a description declares, and the credentials for them.

use std::{sync::Arc, time::Duration};

use super::{Grant, Invalid, Readable, accepted, hidden::Hidden, malformed, numbered};
use crate::{
    contract::{
        self, Description, Kind, Methods, ObjectRef, Selection, display_kind,
        origin::{Origin, Target},
    },
    path::{Fields, Path},
};

/// The labels, which decide whether a Processor grants a credential.
const LABELS: &str = "metadata.labels";
/// The annotation into which `kubectl apply` copies whole objects.
const LAST_APPLIED: &str =
    "metadata.annotations[\"kubectl.kubernetes.io/last-applied-configuration\"]";

/// A declared system outside of the cluster, parsed.
#[derive(Debug)]
pub(crate) struct OutboundRule {
    origin: Origin,
    methods: Methods,
    pub(crate) pause: Duration,
    pub(super) credentials: Vec<Arc<Readable>>,
}

// === impl OutboundRule ===

impl OutboundRule {
    fn parse(place: &str, of: &contract::OutboundRule) -> Result<Self, Invalid> {
        let contract::OutboundRule { origin, methods, credentials, pause } = of;
        let parsed = origin.parse::<Origin>();
        let parsed =
            parsed.map_err(|error: String| malformed(format!("{place}.origin"), origin, &error))?;
        let list = format!("{place}.credentials");
        let credentials =
            numbered(&list, credentials).map(|(place, of)| holder(&place, of).map(Arc::new));
        Ok(Self {
            origin: parsed,
            methods: *methods,
            pause: Duration::from_millis(*pause),
            credentials: credentials.collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether a value of an object is a declared credential, judged by the object's names.
    pub(crate) fn may_use(&self, of: &ObjectRef, at: &Path) -> bool {
        self.holders(of, at).next().is_some()
    }

    /// Returns the declared selections that may hold an object and name the field.
    pub(crate) fn holders(
        &self,
        of: &ObjectRef,
        at: &Path,
    ) -> impl Iterator<Item = &Arc<Readable>> {
        self.credentials.iter().filter(|held| held.of.could_hold(of) && held.fields.covers(at))
    }

    /// Describes the credentials that rules declare.
    pub(crate) fn accepted(rules: &[&Self]) -> String {
        let all = rules.iter().flat_map(|rule| &rule.credentials);
        accepted(
            "credentials for this origin",
            all.map(|of| format!("`{}` of {}", of.fields, of.of)),
        )
    }
}

/// Parses a selection of objects that hold credentials.
fn holder(place: &str, of: &Selection) -> Result<Readable, Invalid> {
    if of.kind.has_wildcard() || !of.kind.cluster.is_empty() {
        let reason = "credentials are in objects of one kind in the home cluster";
        return Err(malformed(format!("{place}.kind"), &display_kind(&of.kind), reason));
    }
    if of.fields.is_empty() {
        let reason = "a credential names the fields of its values";
        return Err(malformed(format!("{place}.fields"), "", reason));
    }
    Ok(Readable::parse(place, of)?.keeping(&[LABELS]))
}

// === impl Grant ===

impl Grant {
    /// Parses the outbound rules. The objects with credentials are watched; they can be read as far
    /// as they are declared in `reads` only.
    pub(super) fn parse_outbound(&mut self, description: &Description) -> Result<(), Invalid> {
        for (place, rule) in numbered("outbound", &description.outbound) {
            let rule = OutboundRule::parse(&place, rule)?;
            for of in &rule.credentials {
                self.want(&of.of.kind, (of.scope.clone(), of.wanted()));
            }
            self.outbound.push(rule);
        }
        self.hidden = Hidden::of(&self.outbound, LAST_APPLIED);
        self.hidden.check(description)?;
        let (reconcilers, reads, _) = description.declared();
        let reconciled = numbered("reconcilers", reconcilers);
        let reconciled = reconciled.map(|(place, one)| (format!("{place}.of"), &one.of));
        for (place, of) in reconciled.chain(numbered("reads", reads)) {
            self.check_read(&place, of)?;
        }
        Ok(())
    }

    /// Refuses a read of the copy of a credential that `kubectl apply` leaves in an annotation.
    fn check_read(&self, place: &str, of: &Selection) -> Result<(), Invalid> {
        let (true, Ok(path)) = (self.hidden.is_in(&of.kind), LAST_APPLIED.parse::<Path>()) else {
            return Ok(());
        };
        let fields = Fields::parse(&of.fields);
        if !fields.is_ok_and(|fields| fields.covers(&path)) {
            return Ok(());
        }
        let reason = "objects of this kind hold credentials, of which an annotation may have a copy: name the fields that are read, of `metadata` as \
                      `metadata.labels`, and each annotation by its name";
        Err(malformed(format!("{place}.fields"), &of.fields.join(", "), reason))
    }

    /// Returns whether any call to the outside is declared.
    pub(crate) fn calls_out(&self) -> bool {
        !self.outbound.is_empty()
    }

    /// Returns the rules that declare a call. Fails if there are none.
    pub(crate) fn may_call(
        &self,
        method: Methods,
        target: &Target,
    ) -> Result<Vec<&OutboundRule>, String> {
        let of_origin = || self.outbound.iter().filter(|rule| rule.origin.holds(target));
        let fitting: Vec<_> = of_origin().filter(|rule| rule.methods.contains(method)).collect();
        if !fitting.is_empty() {
            return Ok(fitting);
        }
        let (what, origin) = (names(method).collect::<String>(), target.origin());
        let accepted = if of_origin().next().is_some() {
            let methods = of_origin().flat_map(|rule| names(rule.methods));
            accepted("methods of this origin", methods.map(str::to_owned))
        } else {
            accepted("origins", self.outbound.iter().map(|rule| format!("`{}`", rule.origin)))
        };
        Err(format!("{what} to `{origin}` is not declared; {accepted}"))
    }

    /// Returns the field of a credential of such objects that the steps `[key=value]` of a path
    /// would compare with a text, if any.
    pub(crate) fn compared_credential(&self, kind: &Kind, path: &Path) -> Option<&Path> {
        self.hidden.compared(kind, path)
    }

    /// Fails for a path of objects, shown as `of`, whose steps `[key=value]` compare a credential.
    pub(crate) fn check_compared(
        &self,
        kind: &Kind,
        path: &Path,
        of: impl FnOnce() -> String,
    ) -> Result<(), String> {
        match self.compared_credential(kind, path) {
            None => Ok(()),
            Some(hidden) => Err(format!(
                "`{path}` of {} compares the credential `{hidden}`; steps with other keys are accepted",
                of()
            )),
        }
    }

    /// Returns the field of a credential of such objects by which a condition on a path would
    /// select, if any.
    pub(crate) fn selected_credential(&self, kind: &Kind, path: &Path) -> Option<&Path> {
        self.hidden.selected(kind, path)
    }

    /// Returns whether objects of a kind may hold declared credentials.
    pub(crate) fn holds_credentials(&self, kind: &Kind) -> bool {
        self.hidden.is_in(kind)
    }

    /// Returns the declared selections of objects with credentials.
    pub(super) fn credentials(&self) -> impl Iterator<Item = &Arc<Readable>> {
        self.outbound.iter().flat_map(|rule| &rule.credentials)
    }
}

fn names(methods: Methods) -> impl Iterator<Item = &'static str> {
    methods.iter_names().map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{all, description, fields, kind, labelled, v1, whole};

    fn rule(credentials: Vec<Selection>) -> contract::OutboundRule {
        let origin = "https://*.api.example.com".to_owned();
        contract::OutboundRule { origin, methods: Methods::GET, credentials, pause: 5 }
    }

    fn with(rule: contract::OutboundRule, reads: Vec<Selection>) -> Result<Grant, Invalid> {
        let outbound = vec![rule];
        Grant::new(&Description { outbound, ..description(all("Rule"), reads) })
    }

    fn token() -> Selection {
        fields(labelled(whole(v1("", "Secret")), "a=b"), &["data.token"])
    }

    #[test]
    fn calls_are_declared_by_origin_and_method() {
        let grant = with(rule(Vec::new()), Vec::new()).unwrap();
        let may = |method, url| {
            let target = Target::parse(url).unwrap();
            grant.may_call(method, &target).map(|rules| rules.len())
        };
        assert_eq!(may(Methods::GET, "https://eu.api.example.com/"), Ok(1));
        let error = may(Methods::PUT, "https://eu.api.example.com/").unwrap_err();
        assert!(error.ends_with("declared methods of this origin: GET"), "{error}");
        let error = may(Methods::GET, "https://api.example.com.evil.example/").unwrap_err();
        assert!(error.ends_with("declared origins: `https://*.api.example.com`"), "{error}");
    }

    #[test]
    fn credentials_are_watched_and_cannot_be_read() {
        let grant = with(rule(vec![token()]), Vec::new()).unwrap();
        let (kind, scope, wanted) = grant.wanted().last().unwrap();
        assert_eq!((&*kind.kind, &*scope.labels), ("Secret", "a=b"));
        assert!(wanted.fields.covers(&"data.token".parse().unwrap()));
        assert!(!wanted.fields.covers(&"data.other".parse().unwrap()));
        let secret = crate::fixture::object_ref(v1("", "Secret"), Some("default"), "token");
        assert!(grant.may_get(&secret, &[]).is_err());
        assert!(!grant.names(&secret.kind));
    }

    #[test]
    fn credentials_need_the_rights_of_reads() {
        use crate::grant::role::{Roles, Served};
        let outbound = vec![rule(vec![token()])];
        let description = Description { outbound, ..description(all("Rule"), Vec::new()) };
        let served = |kind: &Kind| Served {
            plural: format!("{}s", kind.kind.to_lowercase()),
            namespaced: true,
            status: false,
        };
        let questions = Roles::needed(&description, served).questions();
        let of_secrets = questions.iter().filter(|of| &*of.resource == "secrets");
        let verbs: Vec<&str> = of_secrets.map(|of| &*of.verb).collect();
        assert_eq!(verbs, ["get", "list", "watch"]);
        assert!(description.kinds().contains(&v1("", "Secret")));
    }

    #[test]
    fn bounds_of_outbound_rules() {
        use crate::contract::bounds::{OUTBOUND, OUTBOUND_CREDENTIALS, check_description};
        let check = |outbound: Vec<contract::OutboundRule>| {
            let version = "1.0.0".to_owned();
            let of = description(all("Rule"), Vec::new());
            check_description(&Description { version, outbound, ..of })
        };
        assert_eq!(check(vec![rule(vec![token(); OUTBOUND_CREDENTIALS])]), Ok(()));
        assert_eq!(check(vec![rule(Vec::new()); OUTBOUND]), Ok(()));
        let bad = contract::OutboundRule { origin: "https://*.com".into(), ..rule(Vec::new()) };
        let cases = [
            (vec![rule(Vec::new()); OUTBOUND + 1], "outbound"),
            (vec![rule(vec![token(); OUTBOUND_CREDENTIALS + 1])], "outbound[0].credentials"),
            (vec![rule(vec![whole(v1("", "Secret"))])], "outbound[0].credentials[0].fields"),
            (vec![bad], "outbound[0].origin"),
        ];
        for (outbound, place) in cases {
            let error = check(outbound).expect_err(place);
            assert!(error.contains(&format!("`{place}`")), "{place}: {error}");
        }
    }

    #[test]
    fn malformed_credentials_are_refused() {
        let elsewhere = crate::fixture::elsewhere(v1("", "Secret"), "a/b/c");
        let cases = [
            ("no fields", whole(v1("", "Secret")), "fields"),
            ("bad field", fields(whole(v1("", "Secret")), &["data..a"]), "fields"),
            ("any kind", fields(whole(v1("", "*")), &["data.token"]), "kind"),
            ("other cluster", fields(whole(elsewhere), &["data.token"]), "kind"),
            ("labels", labelled(token(), "a in"), "labels"),
        ];
        for (case, of, part) in cases {
            let error = with(rule(vec![of]), Vec::new()).expect_err(case).to_string();
            let place = format!("`outbound[0].credentials[0].{part}`");
            assert!(error.starts_with(&place), "{case}: {error}");
        }
        let bad = contract::OutboundRule { origin: "https://*".into(), ..rule(Vec::new()) };
        let error = with(bad, Vec::new()).unwrap_err().to_string();
        assert!(
            error.starts_with("`outbound[0].origin`") && error.contains("an origin is"),
            "{error}"
        );
    }

    #[test]
    fn the_annotation_with_a_copy_of_a_credential_cannot_be_read() {
        let auth = || rule(vec![fields(all("Auth"), &["spec.token"])]);
        let version = || Kind { version: "v2".into(), ..kind("Auth") };
        let cases = [
            (all("Auth"), false),
            (fields(all("Auth"), &["metadata"]), false),
            (fields(all("Auth"), &["metadata.annotations"]), false),
            (fields(all("Auth"), &[LAST_APPLIED]), false),
            (fields(whole(version()), &["metadata"]), false),
            (fields(whole(v1("*", "*")), &["metadata"]), false),
            (fields(all("Auth"), &["metadata.labels", "metadata.annotations[\"a\"]"]), true),
            (fields(all("Auth"), &["spec.server"]), true),
            (all("Other"), true),
        ];
        for (read, accepted) in cases {
            let found = with(auth(), vec![read.clone()]);
            assert_eq!(found.is_ok(), accepted, "{read:?}: {found:?}");
        }
        let reconciled =
            Description { outbound: vec![auth()], ..description(all("Auth"), Vec::new()) };
        assert!(Grant::new(&reconciled).is_err());
    }

    #[test]
    fn objects_are_not_selected_by_their_credentials() {
        use crate::fixture::matching;
        let held = || rule(vec![fields(all("Auth"), &["spec.token", "spec.keys[].value"])]);
        let auth = || fields(all("Auth"), &["spec.server"]);
        let keys = |path: &str| fields(all("Auth"), &[path]);
        let cases = [
            ("a field", matching(auth(), "spec.token", "guess"), false),
            ("an index of it", matching(auth(), "spec.token", "*"), false),
            ("a field above", matching(auth(), "spec", "*"), false),
            ("one below", matching(auth(), "spec.token.a", "*"), false),
            ("all of a list", matching(auth(), "spec.keys[].value", "*"), false),
            ("one of a list", matching(auth(), "spec.keys[name=a].value", "*"), false),
            ("a step", matching(auth(), "spec.keys[value=guess].name", "*"), false),
            ("a copy", matching(auth(), LAST_APPLIED, "*"), false),
            ("any kind", matching(whole(v1("*", "*")), "spec.token", "*"), false),
            ("a step of a field", keys("spec.keys[value=guess].name"), false),
            ("another field", matching(auth(), "spec.server", "*"), true),
            ("another of a list", matching(auth(), "spec.keys[].name", "*"), true),
            ("another kind", matching(all("Other"), "spec.token", "*"), true),
            ("another step", keys("spec.keys[name=a].name"), true),
        ];
        for (case, read, accepted) in cases {
            let found = with(held(), vec![read.clone()]);
            assert_eq!(found.is_ok(), accepted, "{case}: {found:?}");
            let Err(error) = found else { continue };
            assert!(error.to_string().starts_with("`reads[0]."), "{case}: {error}");
        }
        let by_token = || matching(auth(), "spec.token", "guess");
        let of = contract::WriteRule {
            of: by_token(),
            verbs: crate::contract::Verbs::DELETE,
            fields: vec![],
        };
        let outbound = || vec![held()];
        let refused = [
            (
                "reconcilers[0].of",
                Description { outbound: outbound(), ..description(by_token(), vec![]) },
            ),
            (
                "writes[0].of",
                Description {
                    outbound: outbound(),
                    writes: vec![of],
                    ..description(all("Rule"), vec![])
                },
            ),
            (
                "outbound[0].credentials[0]",
                Description {
                    outbound: vec![rule(vec![matching(keys("spec.token"), "spec.token", "guess")])],
                    ..description(all("Rule"), vec![])
                },
            ),
        ];
        for (place, of) in refused {
            let error = Grant::new(&of).expect_err(place).to_string();
            assert!(error.starts_with(&format!("`{place}.matching`")), "{error}");
        }
    }

    #[test]
    fn a_read_compares_no_credential_in_a_step_of_a_path() {
        use crate::{fixture::matching, store::Query};
        let held = rule(vec![fields(all("Auth"), &["spec.keys[].value"])]);
        let grant = with(held, vec![fields(all("Auth"), &["spec.keys[].name"])]).unwrap();
        let of = crate::fixture::reference("Auth", "a");
        let may_get = |path: &str| grant.may_get(&of, &[path.to_owned()]).map(drop);
        let may_list = |path: &str| {
            let of = matching(fields(all("Auth"), &["spec.keys[].name"]), path, "a");
            grant.may_list(&of, &Query::new(&of).unwrap()).map(drop)
        };
        for may in [&may_get as &dyn Fn(&str) -> _, &may_list] {
            let error = may("spec.keys[value=guess].name").unwrap_err();
            assert!(
                matches!(&error, contract::ReadError::Denied(why) if why.contains("guess")),
                "{error:?}"
            );
            assert!(may("spec.keys[name=b].name").is_ok());
        }
    }
}
