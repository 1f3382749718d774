//! A host with an account of its own before the control plane, and puppets with accounts of theirs.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    authorization::v1::SubjectAccessReview,
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, PostParams},
};
use mortise_host::{
    api::definition,
    cluster::Cluster,
    contract::Kind,
    desk,
    lease::Guard,
    processor::{Limits, Processor},
    reconciler::Report,
    run::{Host, Loaded, Options, ProcessorStatus, Settings},
    supervisor::{self, Supervisor},
};
use mortise_sdk::{Description, Outcome};
use mortise_tests::{
    cluster::{self, Audit, Event},
    guest,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

const PUPPET: &str = "tests/guests/puppet";
/// The host's own account, in the namespace of the test.
const HOST: &str = "mortise";
/// Only a fault takes longer.
const GUARD: Duration = Duration::from_mins(2);
/// How often something is looked at that nobody tells of.
const GLANCE: Duration = Duration::from_millis(50);
pub(super) const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// What the host's own account may do; besides, it may act as the accounts of its processors.
const OWN_RIGHTS: Rights<'static> = &[
    ("processors.mortise.dev", "get list watch patch"),
    ("processors.mortise.dev/status", "patch"),
    (
        "serviceaccounts roles.rbac.authorization.k8s.io rolebindings.rbac.authorization.k8s.io \
         clusterroles.rbac.authorization.k8s.io clusterrolebindings.rbac.authorization.k8s.io \
         customresourcedefinitions.apiextensions.k8s.io",
        "get list watch",
    ),
    (
        "subjectaccessreviews.authorization.k8s.io selfsubjectreviews.authentication.k8s.io",
        "create",
    ),
    ("leases.coordination.k8s.io", "get create update patch"),
];

/// A host at work in a namespace of its own.
pub(super) struct Stage {
    pub(super) namespace: String,
    pub(super) host: Arc<Host>,
    /// As an administrator.
    pub(super) cluster: Cluster,
    /// As the host.
    own: Cluster,
    audit: Audit,
    puppet: Processor,
    /// The last report of each processor.
    last: Mutex<BTreeMap<String, Report>>,
}

/// Rights by resource (with its group and subresource, as `processors.mortise.dev/status`) and verbs, both with blanks between.
pub(super) type Rights<'a> = &'a [(&'a str, &'a str)];

// === impl Stage ===

impl Stage {
    /// With a host that may act as these accounts. None without Go.
    pub(super) async fn new(prefix: &str, accounts: &[String]) -> Option<Self> {
        let stage = Self::bare(prefix).await?;
        stage.let_act_as(accounts).await;
        Some(stage)
    }

    /// With a host that may act as nobody yet. None without Go.
    pub(super) async fn bare(prefix: &str) -> Option<Self> {
        Some(Self::before(cluster::shared().await.unwrap()?, prefix).await)
    }

    /// Before this control plane, with a host that may act as nobody yet.
    pub(super) async fn before(control_plane: &cluster::Cluster, prefix: &str) -> Self {
        let namespace = control_plane.namespace(prefix).await.unwrap();
        let audit = control_plane.audit().await.unwrap();
        let admin = control_plane.client().await.unwrap();
        let own = Cluster::new(own_client(control_plane, &admin, &namespace).await);
        let host = Host::start(&own, Vec::new(), &Options::default()).unwrap();
        let cluster = Cluster::new(admin);
        Self {
            namespace,
            host: Arc::new(host),
            cluster,
            own,
            audit,
            puppet: puppet().await,
            last: Mutex::default(),
        }
    }

    /// The host's account may act as these from now on.
    pub(super) async fn let_act_as(&self, accounts: &[String]) {
        let rule = json!({
            "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": accounts, "verbs": ["impersonate"],
        });
        self.apply(vec![
            json!({"apiVersion": RBAC, "kind": "Role", "metadata": self.named(HOST), "rules": [rule]}),
            self.binding(HOST, "Role", HOST, &self.subject(HOST)),
        ])
        .await;
    }

    /// A puppet as the Processor of this name, with the account of this name.
    pub(super) async fn puppet(&self, name: &str, description: &Description, script: &Value) {
        self.host.exchange(self.load(name, description, script).await).await.unwrap();
    }

    /// What looks after the Processors of the namespace, until it is dropped. The module `puppet.wasm` is theirs; who else reads
    /// reports misses some.
    pub(super) async fn supervise(&self) -> (JoinSet<()>, TempDir) {
        let control_plane = cluster::shared().await.unwrap().unwrap();
        control_plane.install(&[definition::processors()]).await.unwrap();
        let modules = tempfile::tempdir().unwrap();
        let module = guest(PUPPET).unwrap();
        std::fs::copy(&module, modules.path().join("puppet.wasm")).unwrap();
        let options = supervisor::Options {
            namespace: Some(self.namespace.clone()),
            modules: modules.path().to_owned(),
            now: Options::default().now,
            lease: Guard::none(),
        };
        let engine = desk::engine(Some(&module.parent().unwrap().join("mortise-cache")), false);
        let opened = Supervisor::open(&self.own, &engine.unwrap(), &self.host, options).await;
        let (supervisor, host) = (opened.unwrap(), Arc::clone(&self.host));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { supervisor.run(CancellationToken::new()).await.unwrap() });
        tasks.spawn(async move {
            loop {
                host.next_report().await.unwrap();
            }
        });
        (tasks, modules)
    }

    /// The same, not yet at work.
    pub(super) async fn load(
        &self,
        name: &str,
        description: &Description,
        script: &Value,
    ) -> Loaded {
        let play = json!({"description": description, "script": script}).to_string();
        let settings = Settings {
            name: Some(name.into()),
            account: Some(format!("{}/{name}", self.namespace).parse().unwrap()),
            ..Settings::in_namespace(&self.namespace)
        };
        Loaded::describe(self.puppet.clone(), &play, settings).await.unwrap()
    }

    /// Makes an account that may do this in the namespace.
    pub(super) async fn account(&self, name: &str, rights: Rights<'_>) {
        self.apply(vec![
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.named(name)}),
            self.binding(name, "Role", name, &self.subject(name)),
        ])
        .await;
        self.grant(name, rights).await;
    }

    /// What the account of this name may do in the namespace from now on, besides what other roles let it do.
    pub(super) async fn grant(&self, name: &str, rights: Rights<'_>) {
        self.apply(vec![json!({
            "apiVersion": RBAC, "kind": "Role", "metadata": self.named(name), "rules": rules(rights),
        })])
        .await;
    }

    /// A `RoleBinding` of this name.
    pub(super) fn binding(&self, name: &str, kind: &str, role: &str, subject: &Value) -> Value {
        json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": self.named(name),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [subject],
        })
    }

    pub(super) fn subject(&self, account: &str) -> Value {
        json!({"kind": "ServiceAccount", "namespace": self.namespace, "name": account})
    }

    pub(super) fn named(&self, name: &str) -> Value {
        json!({"namespace": self.namespace, "name": name})
    }

    /// An administrator applies objects.
    pub(super) async fn apply(&self, objects: Vec<Value>) {
        desk::apply(&self.cluster, objects).await.unwrap();
    }

    /// An administrator deletes what is in no namespace.
    pub(super) async fn delete(&self, kind: &Kind, name: &str) {
        let resource = self.cluster.resolve(kind).await.unwrap().unwrap();
        let client = self.cluster.client().clone();
        let api: Api<DynamicObject> = if resource.namespaced {
            Api::namespaced_with(client, &self.namespace, &resource.api_resource())
        } else {
            Api::all_with(client, &resource.api_resource())
        };
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// As an administrator sees it.
    pub(super) async fn get(&self, kind: &Kind, name: &str) -> Option<Value> {
        let found = self.api(kind).await.get_opt(name).await.unwrap();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    pub(super) async fn list(&self, kind: &Kind) -> Vec<Value> {
        let found = self.api(kind).await.list(&kube::api::ListParams::default()).await.unwrap();
        found.items.iter().map(|object| serde_json::to_value(object).unwrap()).collect()
    }

    async fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        let resource = self.cluster.resolve(kind).await.unwrap().unwrap();
        let client = self.cluster.client().clone();
        Api::namespaced_with(client, &self.namespace, &resource.api_resource())
    }

    /// The first report of each of these processors, by its name.
    pub(super) async fn first_reports(&self, of: &BTreeSet<String>) -> BTreeMap<String, Report> {
        let mut reports = BTreeMap::new();
        while reports.len() < of.len() {
            let (processor, report) = self.report().await;
            if of.contains(&processor) {
                reports.entry(processor).or_insert(report);
            }
        }
        reports
    }

    /// Waits until this holds of a processor's last run.
    pub(super) async fn last_run(&self, of: &str, holds: impl Fn(&Report) -> bool) -> Report {
        loop {
            if let Some(last) = self.last(of).filter(|last| holds(last)) {
                return last;
            }
            self.report().await;
        }
    }

    /// A processor's last run, of those that were waited for.
    pub(super) fn last(&self, of: &str) -> Option<Report> {
        self.last.lock().unwrap().get(of).cloned()
    }

    /// A processor's runs until now count no more.
    pub(super) fn forget_runs(&self, of: &str) {
        self.last.lock().unwrap().remove(of);
    }

    /// The next one, with the name of its processor.
    async fn report(&self) -> (String, Report) {
        let report = timeout(GUARD, self.host.next_report()).await;
        let report = report.expect("something is reconciled").unwrap();
        let processor = report.key.processor().split_once('/').unwrap().1.to_owned();
        self.last.lock().unwrap().insert(processor.clone(), report.clone());
        (processor, report)
    }

    pub(super) fn status_of(&self, processor: &str) -> ProcessorStatus {
        let name = format!("{}/{processor}", self.namespace);
        let is_it = |status: &ProcessorStatus| *status.version.processor == *name;
        self.host.status().into_iter().find(is_it).expect("the processor is at work")
    }

    /// Waits until it holds; how long that took.
    pub(super) async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) -> Duration {
        let begun = tokio::time::Instant::now();
        while !holds().await {
            assert!(begun.elapsed() < GUARD, "in vain: {what}");
            tokio::time::sleep(GLANCE).await;
        }
        begun.elapsed()
    }

    /// The value of a metric with its labels, as it stands in the text.
    pub(super) async fn metric(&self, series: &str) -> Option<String> {
        let client = Client::new(self.host.admin().router(), "default");
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = client.request_text(request).await.unwrap();
        let mut values = text.lines().filter_map(|line| line.strip_prefix(series));
        values.next().map(|value| value.trim().to_owned())
    }

    /// What was asked of the API since the stage was made by the host's account, as itself or acting as others.
    pub(super) async fn requests(&self) -> Vec<Event> {
        let own = self.user(HOST);
        let mut events = self.audit.events().await.unwrap();
        events.retain(|event| event.user.username == own);
        events
    }

    /// Waits until the API server knows of the roles of accounts: all of them may make or count events.
    pub(super) async fn until_granted(&self, accounts: &[String]) {
        for account in accounts {
            self.until("the role of an account holds", async || {
                self.may(account, "watch", "configmaps").await
            })
            .await;
        }
    }

    /// Whether an account may do this in the namespace, as the API server says.
    pub(super) async fn may(&self, account: &str, verb: &str, resource: &str) -> bool {
        let review = json!({"spec": {
            "user": self.user(account),
            "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{}", self.namespace)],
            "resourceAttributes": {"namespace": self.namespace, "verb": verb, "resource": resource},
        }});
        let reviews: Api<SubjectAccessReview> = Api::all(self.cluster.client().clone());
        let review = serde_json::from_value(review).unwrap();
        let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
        answer.status.unwrap().allowed
    }

    pub(super) fn user(&self, account: &str) -> String {
        format!("system:serviceaccount:{}:{account}", self.namespace)
    }
}

/// Rules of a role.
pub(super) fn rules(rights: Rights<'_>) -> Vec<Value> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let rule = |(resource, verbs): (String, &str)| {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), format!("/{subresource}")),
            None => (resource, String::new()),
        };
        let (plural, group) = resource.split_once('.').unwrap_or((&resource, ""));
        json!({"apiGroups": [group], "resources": [format!("{plural}{subresource}")], "verbs": words(verbs)})
    };
    let each = |(resources, verbs): &(&str, &'_ str)| -> Vec<Value> {
        words(resources).into_iter().map(|resource| rule((resource, verbs))).collect()
    };
    rights.iter().flat_map(each).collect()
}

/// Whether the host's own account may do what was asked.
pub(super) fn is_own_right(request: &Event) -> bool {
    let Some(of) = &request.object_ref else { return true };
    let (resource, subresource) = (&of.resource, &of.subresource);
    rules(OWN_RIGHTS).iter().any(|rule| {
        let has = |key: &str, text: &str| rule[key].as_array().unwrap().contains(&json!(text));
        let resource = match subresource.as_str() {
            "" => resource.clone(),
            subresource => format!("{resource}/{subresource}"),
        };
        has("apiGroups", &of.api_group)
            && has("resources", &resource)
            && has("verbs", &request.verb)
    })
}

/// A client with a token of the host's account.
async fn own_client(control_plane: &cluster::Cluster, admin: &Client, namespace: &str) -> Client {
    let everywhere = format!("{HOST}-{namespace}");
    let own = json!({"namespace": namespace, "name": HOST});
    let subject = json!({"kind": "ServiceAccount", "namespace": namespace, "name": HOST});
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": everywhere});
    let objects = vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": own}),
        json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": everywhere}, "rules": rules(OWN_RIGHTS)}),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": everywhere},
            "roleRef": role, "subjects": [subject],
        }),
    ];
    desk::apply(&Cluster::new(admin.clone()), objects).await.unwrap();
    let service_accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
    let token = service_accounts
        .create_token_request(HOST, &PostParams::default(), &request)
        .await
        .unwrap();
    let mut config = control_plane.config().await.unwrap();
    config.auth_info = kube::config::AuthInfo {
        token: Some(token.status.unwrap().token.into()),
        ..kube::config::AuthInfo::default()
    };
    Client::try_from(config).unwrap()
}

/// The component, loaded once for each test.
async fn puppet() -> Processor {
    let module: PathBuf = tokio::task::spawn_blocking(|| guest(PUPPET)).await.unwrap().unwrap();
    let bytes = std::fs::read(&module).unwrap();
    let engine = desk::engine(Some(&module.parent().unwrap().join("mortise-cache")), false);
    let name = module.display().to_string();
    Processor::load(&engine.unwrap(), &name, bytes.into(), Limits::default()).await.unwrap()
}

/// A script that returns this.
pub(super) fn returns(outcome: &Outcome) -> Value {
    json!({"returns": {"outcome": outcome}})
}
