//! Recorded reconciles of the original, compared with the state in which this processor comes to
//! rest. A double stands for the library, and the workloads become ready.
//!
//! The recorded cases are those of the group `controller`; `MORTISE_GOLDENS` names another folder.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use mortise_sdk::testing::request_for;

use super::*;

/// The workloads that a recorded cluster has without anything in them; here the double makes them.
const WORKLOADS: [&str; 3] = ["istiod", "istio-ingressgateway", "istio-cni-node"];

struct Case {
    name: String,
    istio: Value,
    objects: Vec<Value>,
    config: String,
    uninstall_error: String,
    expected: Value,
}

/// A rule by which the settled state differs from the recorded one on purpose.
struct Rule {
    reason: &'static str,
    applies: fn(&Case) -> bool,
    /// The state of the resource instead, or "gone".
    state: &'static str,
    /// The beginning of its description.
    description: &'static str,
}

const RULES: [Rule; 4] = [
    Rule {
        reason: "what is wrong with the spec of a deleted resource must not keep it",
        applies: |case| {
            let texts = ["Authorizer name needs", "ProxyStatsMatcher", "Experimental features"];
            let description = case.description();
            case.is_deleted() && texts.iter().any(|text| description.starts_with(text))
        },
        state: "gone",
        description: "",
    },
    Rule {
        reason: "names of managed objects count as a whole, and in istio-system only",
        applies: |case| {
            case.is_deleted()
                && case.expected["cr"] == "gone"
                && case.objects.iter().any(|object| {
                    let labels = serde_json::from_value(object["metadata"]["labels"].clone());
                    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
                    let kind = text("/kind").unwrap_or_default();
                    let is_of_istio = istio::blocking::KINDS.iter().any(|(.., of)| *of == kind);
                    let namespace = text("/metadata/namespace").unwrap_or_default();
                    let name = text("/metadata/name").unwrap_or_default();
                    is_of_istio
                        && istio::blocking::blocks(
                            kind,
                            namespace,
                            name,
                            &labels.unwrap_or_default(),
                        )
                })
        },
        state: "Warning",
        description: "There are Istio resources that block deletion.",
    },
    Rule {
        reason: "the API server deletes, no library that can fail",
        applies: |case| case.is_deleted() && !case.uninstall_error.is_empty(),
        state: "gone",
        description: "",
    },
    Rule {
        reason: "the namespace is made where it is missing, and nothing has failed",
        applies: |case| case.description().starts_with("Could not add warden validation label"),
        state: "Ready",
        description: "",
    },
];

// === impl Case ===

impl Case {
    fn read(folder: &Path) -> Self {
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let documents = |name: &str| -> Vec<Value> {
            if !folder.join(name).exists() {
                return Vec::new();
            }
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text(name)).unwrap();
            documents.into_iter().filter(|document| !document.is_null()).collect()
        };
        let context = documents("context.yaml").remove(0);
        let is_experimental = context["build"] == "experimental";
        let config = json!({"env": context["env"], "experimental": is_experimental});
        Self {
            name: folder.file_name().unwrap().to_string_lossy().into_owned(),
            istio: documents("istio-cr.yaml").remove(0),
            objects: documents("cluster.yaml"),
            config: config.to_string(),
            uninstall_error: context["uninstallError"].as_str().unwrap_or_default().to_owned(),
            expected: serde_json::from_str(&text("expected.json")).unwrap(),
        }
    }

    fn is_deleted(&self) -> bool {
        !self.istio["metadata"]["deletionTimestamp"].is_null()
    }

    fn description(&self) -> &str {
        self.expected["cr"]["description"].as_str().unwrap_or_default()
    }

    fn reference(&self) -> ObjectRef {
        let metadata = &self.istio["metadata"];
        ObjectRef::of::<Istio>(metadata["namespace"].as_str(), metadata["name"].as_str().unwrap())
    }

    /// Returns the cluster, with the conditions that the other processors would have.
    fn stub(&self) -> Stub {
        let is_other = |object: &&Value| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            !WORKLOADS.contains(&name) || object["kind"] == "Service"
        };
        let mut istio = self.istio.clone();
        istio["status"]["conditions"] = self.conditions();
        let namespaces = self.objects.iter().chain([&self.istio]).filter_map(|object| {
            let name = object["metadata"]["namespace"].as_str()?;
            let is_recorded =
                |one: &Value| one["kind"] == "Namespace" && one["metadata"]["name"] == name;
            let is_missing = name != ISTIO_NAMESPACE && !self.objects.iter().any(is_recorded);
            is_missing.then(|| {
                (name, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            })
        });
        let namespaces: BTreeMap<&str, Value> = namespaces.collect();
        let objects = self.objects.iter().filter(is_other).cloned();
        Stub::new().crds(CRDS).objects(namespaces.into_values()).objects(objects).objects([istio])
    }

    fn conditions(&self) -> Value {
        let recorded = self.expected["cr"]["conditions"].as_array().cloned().unwrap_or_default();
        let reason = recorded
            .iter()
            .find(|one| one["type"] == "Ready")
            .map(|one| one["reason"].clone())
            .unwrap_or_default();
        let mut conditions: Vec<Value> =
            recorded.into_iter().filter(|one| one["type"] != "Ready").collect();
        for condition in &mut conditions {
            // The message of an error is the description that the original gives.
            if condition["reason"] == "ProxySidecarRestartFailed"
                || condition["reason"] == "IngressTargetingUserResourceFound"
            {
                condition["message"] = self.description().into();
            }
        }
        if reason == "ReconcileSucceeded" || reason == "IngressGatewayRestartSucceeded" {
            conditions.push(json!({
                "type": "IngressGatewayRestarted", "status": "True",
                "reason": "IngressGatewayRestartSucceeded", "message": "",
            }));
        }
        for condition in &mut conditions {
            condition["lastTransitionTime"] = "2026-01-01T00:00:00Z".into();
        }
        conditions.into()
    }

    /// Returns the part of a settled resource that is compared.
    fn settled(&self, stub: &Stub) -> Value {
        let Some(istio) = stub.object(&self.reference()) else { return "gone".into() };
        let mut conditions = istio["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|one| one["type"] == "Ready");
        for condition in &mut conditions {
            let condition = condition.as_object_mut().unwrap();
            condition.remove("lastTransitionTime");
            condition.remove("observedGeneration");
        }
        let annotation = &istio["metadata"]["annotations"][ANNOTATION];
        json!({
            "state": istio["status"]["state"],
            "description": istio["status"]["description"],
            "conditions": conditions,
            "finalizers": istio["metadata"]["finalizers"],
            "lastAppliedConfiguration": annotation.as_str().unwrap_or_default(),
        })
    }

    fn recorded(&self) -> Value {
        let mut recorded = self.expected["cr"].clone();
        if let Some(conditions) = recorded.get_mut("conditions").and_then(Value::as_array_mut) {
            conditions.retain(|one| one["type"] == "Ready");
        }
        recorded
    }
}

/// Returns the end of a case whose resource the API refuses: the processor is called without one.
fn refused(case: &Case) -> Option<String> {
    let objects = Stub::new().objects(case.objects.iter().cloned()).objects([case.istio.clone()]);
    let request = request_for(&case.istio);
    let config = serde_json::from_str(&case.config).unwrap();
    let outcome = Installation::reconcile(&request, &config, &objects.host()).unwrap();
    let status: Value = serde_json::from_str(&outcome.status.unwrap()).unwrap();
    let recorded = case.recorded();
    let is_equal = status["status"]["state"] == recorded["state"]
        && status["status"]["description"] == recorded["description"]
        && status["status"]["conditions"][0]["reason"] == recorded["conditions"][0]["reason"]
        && outcome.apply.is_empty();
    (!is_equal).then(|| format!("\n  recorded {recorded}\n  told     {status}"))
}

/// Returns the first difference between a settled case and the recorded one, and the reason of the
/// rule that applies.
fn difference(case: &Case) -> (Option<String>, Option<&'static str>) {
    if case.description().starts_with("Could not merge Istio operator configuration") {
        return (refused(case), None);
    }
    let stub = case.stub();
    for _ in 0..3 {
        stub.settle::<Installation>(&case.config);
        stub.advance(Duration::from_millis(1));
        stub.settle::<Installation>(&case.config);
        roll_out(&stub);
    }
    stub.settle::<Installation>(&case.config);
    let (settled, recorded) = (case.settled(&stub), case.recorded());
    if let Some(rule) = RULES.iter().find(|rule| (rule.applies)(case)) {
        let (state, description) = match &settled {
            Value::String(gone) => (gone.as_str(), ""),
            settled => (
                settled["state"].as_str().unwrap_or_default(),
                settled["description"].as_str().unwrap_or_default(),
            ),
        };
        let is_expected = state == rule.state
            && description.starts_with(rule.description)
            && description.is_empty() == rule.description.is_empty();
        return ((!is_expected).then(|| format!("{settled}")), Some(rule.reason));
    }
    let differs = settled != recorded;
    let difference = differs.then(|| format!("\n  recorded {recorded}\n  settled  {settled}"));
    (difference.or_else(|| of_objects(case, &stub)), None)
}

/// Returns a difference in the namespace or in the labels of Istio's objects.
fn of_objects(case: &Case, stub: &Stub) -> Option<String> {
    if case.is_deleted() {
        return None;
    }
    let namespace = get(stub, "v1", "Namespace", ISTIO_NAMESPACE).unwrap_or_default();
    for part in ["labels", "annotations"] {
        let recorded = case.expected["istioSystemNamespace"][part].as_object();
        for (key, value) in recorded.into_iter().flatten() {
            if namespace["metadata"][part].get(key) != Some(value) {
                return Some(format!("{part} of the namespace: {key}"));
            }
        }
    }
    let labelled = case.expected["moduleLabelled"].as_array();
    for title in labelled.into_iter().flatten().filter_map(Value::as_str) {
        let mut parts = title.split('/');
        let (kind, name) = (parts.next()?, parts.next_back()?);
        let (kind, at) = match kind.split_once('.') {
            Some((kind, _)) => (kind, "/spec/template/metadata/labels"),
            None => (kind, "/metadata/labels"),
        };
        let object = workload(stub, kind, name);
        let labels = object.as_ref().and_then(|object| object.pointer(at));
        if labels.and_then(|labels| labels.get("kyma-project.io/module")).is_none() {
            return Some(format!("label of {title}"));
        }
    }
    None
}

#[test]
fn istio_controller_settles_as_recorded() {
    let root = std::env::var_os("MORTISE_GOLDENS").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens")),
        PathBuf::from,
    );
    let folder = root.join("istio/controller");
    let mut folders: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    assert!(!folders.is_empty(), "{} holds no case", folder.display());
    let (mut differ, mut by_rule) = (Vec::new(), 0);
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        let case = Case::read(folder);
        let (difference, reason) = difference(&case);
        by_rule += usize::from(reason.is_some());
        differ.extend(difference.map(|text| {
            format!(
                "{}: {text}{}",
                case.name,
                reason.map(|r| format!(" ({r})")).unwrap_or_default()
            )
        }));
    }
    assert!(
        differ.is_empty(),
        "{} of {} cases differ, {by_rule} by rules\n{}",
        differ.len(),
        folders.len(),
        differ.join("\n")
    );
}
