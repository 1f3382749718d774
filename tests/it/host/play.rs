//! Puppets: processors whose declaration and behaviour a test chooses.

use mortise_host::host::Loaded;
use mortise_tests::loaded;
use serde_json::{Value, json};

use super::{PUPPET, merge};

/// The description and the script of a puppet.
#[derive(Clone)]
pub(super) struct Play {
    description: Value,
    script: Value,
}

// === impl Play ===

impl Play {
    /// Creates a puppet that declares nothing yet.
    pub(super) fn new(name: &str) -> Self {
        let description = json!({
            "name": name, "version": "1.0.0", "grants": [], "outbound": [], "config_schema": null, "reconcilers": [], "reads": [], "writes": [],
        });
        Self { description, script: json!({}) }
    }

    pub(super) fn version(mut self, version: &str) -> Self {
        self.description["version"] = json!(version);
        self
    }

    /// Sets the script for objects that carry no script of their own.
    pub(super) fn script(mut self, script: Value) -> Self {
        self.script = script;
        self
    }

    pub(super) fn reconciles(self, name: &str, of: &Value) -> Self {
        self.reconciles_with(name, of, &json!({}))
    }

    /// Adds a reconciler with other fields than the usual ones.
    pub(super) fn reconciles_with(mut self, name: &str, of: &Value, rest: &Value) -> Self {
        let mut reconciler = json!({
            "name": name, "of": of, "finalizers": [], "resync": 0, "triggered_by_status": false, "min_interval": 0, "on_demand": false, "whole_status": false,
        });
        merge(&mut reconciler, rest);
        push(&mut self.description["reconcilers"], reconciler);
        self
    }

    pub(super) fn reads(mut self, of: &Value) -> Self {
        push(&mut self.description["reads"], of.clone());
        self
    }

    /// Adds GET of an origin to the calls.
    pub(super) fn calls(mut self, origin: &str) -> Self {
        let rule = json!({"origin": origin, "methods": ["get"], "credentials": [], "pause": 0});
        push(&mut self.description["outbound"], rule);
        self
    }

    pub(super) fn writes(mut self, of: &Value, verbs: &[&str]) -> Self {
        push(&mut self.description["writes"], json!({"of": of, "verbs": verbs, "fields": []}));
        self
    }

    /// Returns the puppet's configuration.
    pub(super) fn config(&self) -> Value {
        json!({"description": self.description, "script": self.script})
    }

    pub(super) async fn load(&self) -> Loaded {
        loaded(PUPPET, &self.config().to_string()).await.unwrap()
    }
}

fn push(list: &mut Value, item: Value) {
    list.as_array_mut().unwrap().push(item);
}

/// Returns an outcome with only these parts.
pub(super) fn outcome(of: &Value) -> Value {
    let mut outcome = json!({
        "apply": [], "patch": [], "evict": [], "delete": [], "prune": [], "status": null, "events": [],
        "requeue": "ByDefault", "finalizers": null, "start": [],
    });
    merge(&mut outcome, of);
    json!({"outcome": outcome})
}

/// Returns a manifest in mode Apply.
pub(super) fn manifest(object: &Value) -> Value {
    json!({"cluster": "", "object": object.to_string(), "mode": "Apply", "leave": [], "absent": []})
}

/// Returns a deletion or an eviction.
pub(super) fn deletion(of: &Value) -> Value {
    json!({"ref_": of, "uid": null, "propagation": "Background", "grace_period": null})
}
