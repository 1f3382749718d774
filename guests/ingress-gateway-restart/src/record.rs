//! The annotation of the Istio resource that says which settings were rolled out last.
//!
//! A restart begins with the new settings and its time in the annotation. The next run gives that
//! time to the workloads named with it, and the run after that finds it there and takes it out of
//! the annotation. So a restart that was cut short is continued, and none is done twice.

use istio::api::{Istio, IstioSpec};
use serde::{Deserialize, Serialize};

use crate::workload::Workload;

/// The key of the annotation.
pub const ANNOTATION: &str = "operator.kyma-project.io/ingress-gateway-restart";

/// The settings that workloads read at their start. Absent and default differ, as in the original.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Settings {
    /// The number of trusted proxies in front of the ingress gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_trusted_proxies: Option<i64>,
    /// The handling of the header `X-Forwarded-Client-Cert`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_client_cert_details: Option<String>,
    /// The trust domain of the mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust_domain: Option<String>,
    /// The regular expressions for metrics of proxies, in order of the alphabet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inclusion_regexps: Vec<String>,
    /// The module's network policies are installed.
    pub network_policies_enabled: bool,
}

/// The content of the annotation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The settings for which the last restart was begun.
    #[serde(flatten)]
    pub settings: Settings,
    /// The restart that is not known to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarting: Option<Restart>,
}

/// A restart that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// The time at which it began, which the workloads' templates get.
    pub at: String,
    /// The workloads to restart.
    pub workloads: Vec<Workload>,
}

/// The next step, as it follows from the record and the wanted settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing has changed, and no restart is under way.
    Rest,
    /// There is no record yet, and nothing has changed: these settings count as rolled out.
    TakeOver,
    /// The restart goes on.
    Continue(Restart),
    /// A restart of these workloads is needed.
    Begin(Vec<Workload>),
}

impl Settings {
    /// Returns the settings of a spec.
    pub fn of(spec: &IstioSpec) -> Self {
        let config = &spec.config;
        Self {
            num_trusted_proxies: config.num_trusted_proxies,
            forward_client_cert_details: config.forward_client_cert_details.clone(),
            trust_domain: config.trust_domain.clone(),
            inclusion_regexps: config.sorted_regexps().into_iter().map(str::to_owned).collect(),
            network_policies_enabled: spec.network_policies_enabled,
        }
    }

    /// Returns whether settings of the mesh differ, for which the ingress gateway is restarted.
    pub(crate) fn mesh_differs(&self, other: &Self) -> bool {
        let without_policies =
            |settings: &Self| Self { network_policies_enabled: false, ..settings.clone() };
        without_policies(self) != without_policies(other)
    }

    /// Returns the workloads that have to be restarted when these settings replace former ones.
    fn restarted_after(&self, former: &Self) -> Vec<Workload> {
        if self.network_policies_enabled != former.network_policies_enabled {
            Workload::ALL.to_vec()
        } else if self.mesh_differs(former) {
            vec![Workload::IngressGateway]
        } else {
            Vec::new()
        }
    }
}

impl Record {
    /// Reads the annotation of a resource; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the annotation is no such record.
    pub fn read(istio: &Istio) -> Result<Option<Self>, String> {
        let Some(text) = istio.metadata.annotations.get(ANNOTATION) else { return Ok(None) };
        istio::json::check_syntax(text)?;
        let record: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if let Some(restart) = &record.restarting
            && !is_time(&restart.at)
        {
            return Err(format!("`restarting.at`: {:?} is no time", restart.at));
        }
        Ok(Some(record))
    }

    /// Returns the step that follows. Without a record, the former settings are those that were
    /// applied last.
    pub fn step(record: Option<&Self>, last_applied: &Settings, wanted: &Settings) -> Step {
        let former = record.map_or(last_applied, |record| &record.settings);
        let pending = record.and_then(|record| record.restarting.as_ref());
        let mut workloads = wanted.restarted_after(former);
        if !workloads.is_empty() {
            workloads.extend(pending.into_iter().flat_map(|restart| restart.workloads.clone()));
            workloads.sort();
            workloads.dedup();
            return Step::Begin(workloads);
        }
        match (pending, record) {
            (Some(restart), _) => Step::Continue(restart.clone()),
            (None, Some(_)) => Step::Rest,
            (None, None) => Step::TakeOver,
        }
    }
}

/// Returns whether a text is a time in UTC, as this processor writes it.
fn is_time(text: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00Z";
    let fits = |(byte, form): (u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        form => byte == *form,
    };
    text.len() == FORM.len() && text.bytes().zip(FORM).all(fits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const AT: &str = "2026-01-01T00:00:00Z";

    fn proxies(number: i64) -> Settings {
        Settings { num_trusted_proxies: Some(number), ..Settings::default() }
    }

    fn policies() -> Settings {
        Settings { network_policies_enabled: true, ..Settings::default() }
    }

    fn read(text: &str) -> Result<Option<Record>, String> {
        let metadata = json!({"name": "default", "annotations": {ANNOTATION: text}});
        Record::read(&serde_json::from_value(json!({"metadata": metadata})).unwrap())
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let restarting =
            Restart { at: AT.to_owned(), workloads: vec![Workload::IngressGateway, Workload::Cni] };
        let record = Record { settings: proxies(2), restarting: Some(restarting) };
        let text = serde_json::to_string(&record).unwrap();
        let expected = r#"{"numTrustedProxies":2,"networkPoliciesEnabled":false,"restarting":{"at":"2026-01-01T00:00:00Z","workloads":["istio-ingressgateway","istio-cni-node"]}}"#;
        assert_eq!(text, expected);
        assert_eq!(read(&text), Ok(Some(record)));
        assert_eq!(Record::read(&Istio::default()), Ok(None));
    }

    #[test]
    fn other_texts_are_refused() {
        let restarting = |at: &str, workload: &str| {
            json!({"restarting": {"at": at, "workloads": [workload]}}).to_string()
        };
        let cases = [
            "{",
            "null",
            "[]",
            r#"{"numTrustedProxies":"2"}"#,
            &restarting("now", "istiod"),
            &restarting("2026-01-01T00:00:00+02:00", "istiod"),
            &restarting(AT, "coredns"),
        ];
        for text in cases {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read(&restarting(AT, "istiod")).is_ok());
        assert_eq!(read("{"), Err("unexpected end of JSON input".to_owned()));
    }

    #[test]
    fn the_step_follows_from_the_record_and_without_it_from_the_last_applied_settings() {
        use Workload::{Cni, IngressGateway, Istiod};
        let none = Settings::default();
        let record = |settings: &Settings| Record { settings: settings.clone(), restarting: None };
        let restart = Restart { at: AT.to_owned(), workloads: vec![Istiod] };
        let begun = Record { settings: proxies(1), restarting: Some(restart.clone()) };
        let all = vec![IngressGateway, Istiod, Cni];
        let cases = [
            ("nothing applied", None, &none, proxies(0), Step::Begin(vec![IngressGateway])),
            ("taken over", None, &proxies(1), proxies(1), Step::TakeOver),
            ("changed", None, &proxies(1), proxies(2), Step::Begin(vec![IngressGateway])),
            ("the record counts", Some(record(&proxies(1))), &none, proxies(1), Step::Rest),
            ("policies", Some(record(&none)), &none, policies(), Step::Begin(all.clone())),
            ("no policies", Some(record(&policies())), &none, none.clone(), Step::Begin(all)),
            ("begun", Some(begun.clone()), &none, proxies(1), Step::Continue(restart)),
            (
                "changed again",
                Some(begun),
                &none,
                proxies(2),
                Step::Begin(vec![IngressGateway, Istiod]),
            ),
        ];
        for (case, record, last_applied, wanted, expected) in cases {
            let step = Record::step(record.as_ref(), last_applied, &wanted);
            assert_eq!(step, expected, "{case}");
        }
    }
}
