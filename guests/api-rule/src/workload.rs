//! Reads of the services behind an APIRule and of the Pods behind these services. Each of them is
//! read once, no matter how many rules name it.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use mortise_sdk::{
    Error, Host, Selection,
    kubernetes::{Pod, Service},
};

use crate::api::{ApiRule, Rule};

/// The fields that are read of a Service.
pub(crate) const SERVICE_FIELDS: [&str; 1] = ["spec.selector"];
/// The fields that are read of a Pod.
pub(crate) const POD_FIELDS: [&str; 2] = ["spec.containers[].name", "spec.initContainers[].name"];

const SIDECAR: &str = "istio-proxy";

/// Labels that select Pods.
pub(crate) type Labels = BTreeMap<String, String>;

/// The services and Pods that were read in this call.
pub(crate) struct Workloads<'a> {
    host: &'a Host,
    /// The selectors by namespace and name of the service.
    selectors: Known<Result<Labels, Missing>>,
    /// The Pods without a sidecar, by namespace and label selector.
    bare_pods: Known<Vec<String>>,
}

/// Results of reads, by the two parts that identify a read.
type Known<T> = RefCell<BTreeMap<(String, String), Rc<T>>>;

/// The reason why the labels behind a rule are not known.
#[derive(Debug, Clone)]
pub(crate) enum Missing {
    /// The service is missing, has no name or cannot be read: a text for the status.
    Service(String),
    /// The cluster cannot be read at the moment.
    Unavailable(Error),
}

impl<'a> Workloads<'a> {
    pub(crate) fn new(host: &'a Host) -> Self {
        Self { host, selectors: RefCell::default(), bare_pods: RefCell::default() }
    }

    /// Returns the labels by which the service behind a rule selects its Pods.
    pub(crate) fn selector_of(&self, rule: &ApiRule, of: &Rule) -> Rc<Result<Labels, Missing>> {
        let name = rule.service(of).and_then(|service| service.name.as_deref());
        self.selector(rule.service_namespace(of), name)
    }

    /// Returns the labels by which a service selects its Pods.
    pub(crate) fn selector(
        &self,
        namespace: &str,
        name: Option<&str>,
    ) -> Rc<Result<Labels, Missing>> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Rc::new(Err(Missing::Service(
                "service name is required but missing".to_owned(),
            )));
        };
        let key = (or_default(namespace).to_owned(), name.to_owned());
        if let Some(known) = self.selectors.borrow().get(&key) {
            return Rc::clone(known);
        }
        let read = Rc::new(self.read_selector(&key.0, name));
        self.selectors.borrow_mut().insert(key, Rc::clone(&read));
        read
    }

    fn read_selector(&self, namespace: &str, name: &str) -> Result<Labels, Missing> {
        match self.host.get::<Service>(Some(namespace), name, &SERVICE_FIELDS) {
            Ok(Some(service)) => Ok(service.spec.selector),
            // As the original's cache says it, which names the kind; the API server says `services`.
            Ok(None) => Err(Missing::Service(format!("Service {name:?} not found"))),
            Err(error @ Error::Unavailable { .. }) => Err(Missing::Unavailable(error)),
            Err(error) => Err(Missing::Service(error.to_string())),
        }
    }

    /// Returns the Pods with these labels that have no sidecar, as namespace/name.
    pub(crate) fn pods_without_sidecar(
        &self,
        namespace: &str,
        labels: &Labels,
    ) -> Result<Rc<Vec<String>>, Error> {
        let selector: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let key = (or_default(namespace).to_owned(), selector.join(","));
        if let Some(known) = self.bare_pods.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let selection = Selection::of::<Pod>().namespace(&key.0).labels(&key.1).fields(POD_FIELDS);
        let mut bare = Vec::new();
        for pod in self.host.objects::<Pod>(&selection, 0) {
            let pod = pod?;
            let mut containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
            if !containers.any(|container| container.name == SIDECAR) {
                bare.push(format!("{}/{}", key.0, pod.metadata.name));
            }
        }
        let bare = Rc::new(bare);
        self.bare_pods.borrow_mut().insert(key, Rc::clone(&bare));
        Ok(bare)
    }
}

/// Returns a namespace. An empty one means `default`, as in the original.
fn or_default(namespace: &str) -> &str {
    if namespace.is_empty() { "default" } else { namespace }
}
