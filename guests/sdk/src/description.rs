//! Builders for the `Description` that `describe` returns.

use std::time::Duration;

use crate::{
    Description, GrantedRule, Methods, OutboundRule, Reconciler, Selection, Verbs, WriteRule,
    outcome::milliseconds,
};

impl Description {
    /// Creates a description that reconciles, reads and writes nothing yet. At least one reconciler
    /// must be added.
    ///
    /// `name` is the name by which users know the processor, a DNS label; `version` is the
    /// processor's own version, a semantic one: `1.2.3`.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            reconcilers: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            grants: Vec::new(),
            outbound: Vec::new(),
            config_schema: None,
        }
    }

    /// Adds a reconciler, which names the objects that the processor reconciles.
    #[must_use]
    pub fn reconciles(mut self, reconciler: Reconciler) -> Self {
        self.reconcilers.push(reconciler);
        self
    }

    /// Adds objects that the processor may read besides those that it reconciles.
    #[must_use]
    pub fn reads(mut self, selection: Selection) -> Self {
        self.reads.push(selection);
        self
    }

    /// Adds objects that the processor may write with these verbs.
    ///
    /// The status, events and finalizers of the reconciled objects need no such rule.
    #[must_use]
    pub fn writes(mut self, selection: Selection, verbs: Verbs) -> Self {
        self.writes.push(WriteRule { of: selection, verbs, fields: Vec::new() });
        self
    }

    /// Adds objects that the processor may write with these verbs, where apply and patch are
    /// limited to the paths in `fields`.
    #[must_use]
    pub fn writes_fields<S: Into<String>>(
        mut self,
        selection: Selection,
        verbs: Verbs,
        fields: impl IntoIterator<Item = S>,
    ) -> Self {
        self.writes.push(WriteRule {
            of: selection,
            verbs,
            fields: fields.into_iter().map(Into::into).collect(),
        });
        self
    }
}

impl Description {
    /// Adds rules that the processor grants in roles that it writes or binds. Its account must hold
    /// them in all namespaces; `mortise inspect --rbac` prints them.
    ///
    /// `testing::check_grants` compares them with the roles of an outcome.
    #[must_use]
    pub fn grants(mut self, rules: impl IntoIterator<Item = GrantedRule>) -> Self {
        self.grants.extend(rules);
        self
    }

    /// Adds systems outside of the cluster that the processor may call. The Processor must grant
    /// them, too: `spec.egress`.
    #[must_use]
    pub fn outbound(mut self, rules: impl IntoIterator<Item = OutboundRule>) -> Self {
        self.outbound.extend(rules);
        self
    }
}

impl OutboundRule {
    /// Creates a rule for an origin, `https://api.example.com` or `https://*.example.com:8443`, where
    /// `*` stands for one label: GET without credentials, and no pause unless the other side names
    /// its time.
    pub fn new(origin: impl Into<String>) -> Self {
        Self {
            origin: origin.into(),
            methods: Methods::GET,
            credentials: Vec::new(),
            pause: milliseconds(Duration::ZERO),
        }
    }

    /// Sets the methods.
    #[must_use]
    pub fn methods(mut self, methods: Methods) -> Self {
        self.methods = methods;
        self
    }

    /// Adds objects that hold what calls are authenticated with. `fields` of each selection names
    /// the paths of the values; the processor need not be able to read them.
    #[must_use]
    pub fn credentials(mut self, of: impl IntoIterator<Item = Selection>) -> Self {
        self.credentials.extend(of);
        self
    }

    /// Sets the time in which nothing is sent with the same credential after an answer of 429 that
    /// names no time.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = milliseconds(pause);
        self
    }
}

impl GrantedRule {
    /// Creates a rule for resources of API groups: `pods`, `pods/log`, `*/scale`. The core group is
    /// `""`.
    pub fn new<S: Into<String>>(
        api_groups: impl IntoIterator<Item = S>,
        resources: impl IntoIterator<Item = S>,
        verbs: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            api_groups: texts(api_groups),
            resources: texts(resources),
            resource_names: Vec::new(),
            verbs: texts(verbs),
            non_resource_urls: Vec::new(),
        }
    }

    /// Creates a rule for paths that are no resources: `/metrics`, `/healthz/*`.
    pub fn urls<S: Into<String>>(
        urls: impl IntoIterator<Item = S>,
        verbs: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            api_groups: Vec::new(),
            resources: Vec::new(),
            resource_names: Vec::new(),
            verbs: texts(verbs),
            non_resource_urls: texts(urls),
        }
    }

    /// Limits the rule to objects of these names.
    #[must_use]
    pub fn named<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.resource_names.extend(names.into_iter().map(Into::into));
        self
    }

    /// Reads the rules of a Role or `ClusterRole` from its JSON; an object without rules has none.
    pub fn of_role(role: &serde_json::Value) -> Vec<Self> {
        let rules = role.get("rules").and_then(serde_json::Value::as_array).into_iter().flatten();
        let list = |rule: &serde_json::Value, key: &str| -> Vec<String> {
            let texts = rule.get(key).and_then(serde_json::Value::as_array).into_iter().flatten();
            texts.filter_map(serde_json::Value::as_str).map(str::to_owned).collect()
        };
        rules
            .map(|rule| Self {
                api_groups: list(rule, "apiGroups"),
                resources: list(rule, "resources"),
                resource_names: list(rule, "resourceNames"),
                verbs: list(rule, "verbs"),
                non_resource_urls: list(rule, "nonResourceURLs"),
            })
            .collect()
    }
}

fn texts<S: Into<String>>(of: impl IntoIterator<Item = S>) -> Vec<String> {
    of.into_iter().map(Into::into).collect()
}

impl Reconciler {
    /// Creates a reconciler for the objects of a selection: without finalizers, without a resync,
    /// and not triggered by changes of only the status.
    ///
    /// `name` comes back in `Request::reconciler`. It must be unique within the processor and stay
    /// the same from version to version: the host uses it to find what was written for an object.
    pub fn new(name: impl Into<String>, of: Selection) -> Self {
        Self {
            name: name.into(),
            of,
            finalizers: Vec::new(),
            resync: 0,
            triggered_by_status: false,
            min_interval: 0,
            on_demand: false,
            whole_status: false,
        }
    }

    /// Creates a reconciler that runs for no object until outcomes start it on selections within
    /// `of`, in which the kind and the group may be `*`, and the cluster [`ClusterName::any`].
    pub fn on_demand(name: impl Into<String>, of: Selection) -> Self {
        Self { on_demand: true, ..Self::new(name, of) }
    }

    /// The status of an outcome is the whole status of the object: other fields of it are removed,
    /// whoever wrote them. A change of the status triggers a run.
    #[must_use]
    pub fn whole_status(mut self) -> Self {
        self.whole_status = true;
        self
    }

    /// Adds a finalizer that the reconciler may hold on its objects. [`Outcome::finalizers`] says
    /// which of them an object should have.
    ///
    /// [`Outcome::finalizers`]: crate::Outcome::finalizers
    #[must_use]
    pub fn finalizer(mut self, finalizer: impl Into<String>) -> Self {
        self.finalizers.push(finalizer.into());
        self
    }

    /// Reconciles an object again this long after a success, even if nothing has changed.
    #[must_use]
    pub fn resync(mut self, every: Duration) -> Self {
        self.resync = milliseconds(every);
        self
    }

    /// Combines all changes of an object within this time after the start of a run into one run at
    /// the end of that time.
    #[must_use]
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = milliseconds(interval);
        self
    }

    /// Lets a change of only the status of an object trigger a reconcile. By default, status
    /// writes, including those of the processor itself, trigger none.
    #[must_use]
    pub fn triggered_by_status(mut self) -> Self {
        self.triggered_by_status = true;
        self
    }
}
