//! Reads the Processors that the API server stores.
//!
//! A Processor is untrusted input: its parts are bounded as text, before they are parsed, and of a
//! part that is too large nothing is kept.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use mortise_core::contract::bounds::{self, ENTRY, Entries};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::api::{Processor, ProcessorSpec};
use crate::{cluster::lean::LeanObject, reason::Reason};

/// The longest configuration, in bytes: it is passed to each call.
const MAX_CONFIG_BYTES: usize = 64 << 10;
/// The bound on a configuration with its entries.
const MAX_CONFIG_ACCOUNT_BYTES: usize = 256 << 10;
/// The bound on a spec with its entries: all that the CRD allows, and a configuration.
const MAX_SPEC_ACCOUNT_BYTES: usize = 1 << 20;
/// The bound on a status with its entries: 256 finalizers, each with a long selector, and the rest.
const MAX_STATUS_ACCOUNT_BYTES: usize = 2 << 20;
/// The bound on the specs of a namespace together: 256 of the longest configurations.
const MAX_NAMESPACE_BYTES: usize = 16 << 20;

/// The bytes of the specs of all Processors, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Shares(HashMap<String, Share>);

#[derive(Debug, Default)]
struct Share {
    bytes: usize,
    of: BTreeMap<Arc<str>, usize>,
}

// === impl Shares ===

impl Shares {
    /// Reads a Processor. If its spec cannot be used, or does not fit into the share of its
    /// namespace, the spec is empty but for the reason, in `unreadable`. A status that this host
    /// cannot have written becomes `None`.
    pub(super) fn read(&mut self, name: &Arc<str>, object: LeanObject) -> Processor {
        let LeanObject { metadata, spec, status } = object;
        let status = text(status.as_deref());
        let is_small = account(status) <= MAX_STATUS_ACCOUNT_BYTES;
        let status = if is_small { serde_json::from_str(status).unwrap_or_default() } else { None };
        let spec = text(spec.as_deref());
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let read = parse(spec).and_then(|read| {
            self.take(&namespace, name, spec.len())?;
            Ok(read)
        });
        let spec = read.unwrap_or_else(|unreadable| {
            self.release(&namespace, name);
            ProcessorSpec { unreadable: Some(unreadable), ..ProcessorSpec::default() }
        });
        Processor { metadata, spec, status }
    }

    /// Gives back what a Processor has of the share of its namespace.
    pub(super) fn release(&mut self, namespace: &str, name: &str) {
        let Some(share) = self.0.get_mut(namespace) else { return };
        share.bytes -= share.of.remove(name).unwrap_or_default();
        if share.of.is_empty() {
            self.0.remove(namespace);
        }
    }

    fn take(
        &mut self,
        namespace: &str,
        name: &Arc<str>,
        bytes: usize,
    ) -> Result<(), (Reason, String)> {
        let share = self.0.entry(namespace.to_owned()).or_default();
        let others = share.bytes - share.of.get(name).copied().unwrap_or_default();
        if others + bytes > MAX_NAMESPACE_BYTES {
            let message = format!(
                "the spec has {bytes} bytes, and the specs of the other Processors of the namespace {others}: at most {MAX_NAMESPACE_BYTES} are accepted together; make them smaller or fewer, and then change this Processor"
            );
            return Err((Reason::SpecInvalid, message));
        }
        share.of.insert(Arc::clone(name), bytes);
        share.bytes = others + bytes;
        Ok(())
    }
}

fn text(part: Option<&RawValue>) -> &str {
    part.map_or("null", RawValue::get)
}

fn entries(text: &str) -> usize {
    Entries::to_depth(usize::MAX).count(text.as_bytes())
}

fn account(text: &str) -> usize {
    bounds::account(text.as_bytes(), usize::MAX)
}

/// Parses a spec, or returns the reason why it cannot be used and a sentence about it.
fn parse(text: &str) -> Result<ProcessorSpec, (Reason, String)> {
    /// The part of a spec whose size the CRD cannot bound.
    #[derive(Default, Deserialize)]
    struct Unbounded<'a> {
        #[serde(borrow, default)]
        config: Option<&'a RawValue>,
    }
    let config = serde_json::from_str::<Unbounded<'_>>(text).unwrap_or_default().config;
    let config = config.map_or("", RawValue::get);
    if config.len() > MAX_CONFIG_BYTES || account(config) > MAX_CONFIG_ACCOUNT_BYTES {
        let message = format!(
            "spec.config has {} bytes and {} entries: at most {MAX_CONFIG_BYTES} bytes are accepted, and at most {MAX_CONFIG_ACCOUNT_BYTES} if each entry counts {ENTRY} bytes more",
            config.len(),
            entries(config)
        );
        return Err((Reason::ConfigInvalid, message));
    }
    if account(text) > MAX_SPEC_ACCOUNT_BYTES {
        let message = format!(
            "the spec has {} bytes and {} entries: at most {MAX_SPEC_ACCOUNT_BYTES} bytes are accepted, where each entry counts {ENTRY} bytes more",
            text.len(),
            entries(text)
        );
        return Err((Reason::SpecInvalid, message));
    }
    let spec: Value = serde_json::from_str(text)
        .map_err(|error| (Reason::SpecInvalid, format!("the spec cannot be read: {error}")))?;
    ProcessorSpec::deserialize(&spec).map_err(|error| {
        let why = with_field(&spec, &error);
        let message = format!(
            "the spec is not one of this host's version of the kind, as `kubectl explain processor.spec` shows it: {why}"
        );
        (Reason::SpecInvalid, message)
    })
}

/// Adds to a deserialization error the field that causes it: without that field, the error is a
/// different one. Names the whole spec if there is no such field.
fn with_field(spec: &Value, fault: &serde_json::Error) -> String {
    let fault = fault.to_string();
    let is_at = |key: &&String| {
        let mut others = spec.clone();
        others.as_object_mut().map(|fields| fields.remove(*key));
        ProcessorSpec::deserialize(&others).err().is_none_or(|other| other.to_string() != fault)
    };
    let field = spec.as_object().into_iter().flatten().map(|(key, _)| key).find(is_at);
    field.map_or_else(|| format!("`spec`: {fault}"), |field| format!("`spec.{field}`: {fault}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored(spec: &Value, status: &Value) -> LeanObject {
        let object = json!({"metadata": {"name": "rules", "namespace": "shop"}, "spec": spec, "status": status});
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn read(spec: &Value, status: &Value) -> Processor {
        Shares::default().read(&"shop/rules".into(), stored(spec, status))
    }

    fn plain(more: &Value) -> Value {
        let mut spec = json!({"module": {"path": "a.wasm"}, "serviceAccountName": "a"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    }

    #[test]
    fn an_unreadable_spec_is_reported_with_the_invalid_field() {
        let processor = read(&plain(&json!({})), &json!({"conditions": "none"}));
        assert_eq!((processor.spec.unreadable, processor.status), (None, None));
        assert_eq!(processor.metadata.name.as_deref(), Some("rules"));
        let deep = (0..200).fold(json!(0), |inner, _| json!([inner]));
        let cases = [
            (
                plain(&json!({"suspend": "yes"})),
                "`spec.suspend`: invalid type: string \"yes\", expected a boolean",
            ),
            (
                plain(&json!({"limits": {"concurrency": -1}})),
                "`spec.limits`: invalid value: integer `-1`, expected u32",
            ),
            (
                plain(&json!({"serviceAccountName": null})),
                "`spec.serviceAccountName`: invalid type: null",
            ),
            (json!({}), "`spec`: missing field `module`"),
            (plain(&json!({"config": {"a": deep}})), "the spec cannot be read: recursion limit"),
        ];
        for (wrong, expected) in cases {
            let (reason, why) = read(&wrong, &Value::Null).spec.unreadable.unwrap();
            assert_eq!(reason, Reason::SpecInvalid);
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn a_spec_that_is_too_large_is_refused_with_its_figures_and_not_kept() {
        let zeros = |count: usize| json!({"config": {"a": vec![0; count]}});
        let config = |text: usize| json!({"config": {"a": "x".repeat(text)}});
        let cases = [
            ("fits", config(60_000), None),
            ("fits as well", zeros(3_900), None),
            (
                "a long text",
                config(70_000),
                Some((Reason::ConfigInvalid, "spec.config has 70008 bytes and 1 entries")),
            ),
            (
                "many entries",
                zeros(4_100),
                Some((Reason::ConfigInvalid, "8207 bytes and 4101 entries")),
            ),
            (
                "another field",
                json!({"takeOver": vec![""; 20_000]}),
                Some((Reason::SpecInvalid, "the spec has")),
            ),
        ];
        for (case, more, expected) in cases {
            let spec = read(&plain(&more), &Value::Null).spec;
            let Some((reason, part)) = expected else {
                let config = spec.config.unwrap();
                assert_eq!(**config.text(), more["config"].to_string(), "{case}");
                continue;
            };
            let (found, message) = spec.unreadable.clone().unwrap();
            assert_eq!(found, reason, "{case}");
            assert!(message.contains(part) && message.contains("at most"), "{case}: {message}");
            let kept =
                ProcessorSpec { unreadable: spec.unreadable.clone(), ..ProcessorSpec::default() };
            assert_eq!(spec, kept, "{case}");
        }
    }

    #[test]
    fn a_status_that_this_host_cannot_have_written_does_not_count() {
        let conditions = |count: usize| json!({"conditions": vec![json!({"type": "a"}); count]});
        let read = |count| read(&plain(&json!({})), &conditions(count)).status;
        assert_eq!(read(8).unwrap().conditions.len(), 8);
        assert_eq!(read(20_000), None);
    }

    #[test]
    fn the_specs_of_a_namespace_have_a_share_that_is_given_back() {
        let mut shares = Shares::default();
        let spec = plain(&json!({"config": {"a": "x".repeat(60_000)}}));
        let refused = |shares: &mut Shares, name: usize| {
            let read = shares.read(&format!("shop/{name}").into(), stored(&spec, &Value::Null));
            read.spec.unreadable.map(|(_, message)| message)
        };
        let most = MAX_NAMESPACE_BYTES / spec.to_string().len();
        assert!((0..most).all(|name| refused(&mut shares, name).is_none()));
        assert_eq!(refused(&mut shares, 0), None, "its former spec does not count");
        let message = refused(&mut shares, most).unwrap();
        assert!(message.contains("at most 16777216 are accepted together"), "{message}");
        let mut elsewhere = stored(&spec, &Value::Null);
        elsewhere.metadata.namespace = Some("b".to_owned());
        assert_eq!(shares.read(&"b/a".into(), elsewhere).spec.unreadable, None);
        shares.release("shop", "shop/7");
        assert_eq!(refused(&mut shares, most), None);
        for name in 0..=most {
            shares.release("shop", &format!("shop/{name}"));
        }
        shares.release("b", "b/a");
        assert!(shares.0.is_empty());
    }
}
