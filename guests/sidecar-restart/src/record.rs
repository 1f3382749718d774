//! The record of the settings that sidecars depend on: an annotation of the Istio resource.
//!
//! It says of each setting since when it is as it is. A workload that was rolled out since then is
//! not rolled out for it again: so one that comes up with another sidecar than expected is
//! restarted once, and not for ever.

use std::collections::{BTreeMap, BTreeSet};

use istio::{
    api::{Config, Istio},
    last_applied::LastApplied,
};
use mortise_sdk::{Manifest, Object, time};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The annotation of the Istio resource.
pub const ANNOTATION: &str = "operator.kyma-project.io/sidecar-restart";

/// The port on which proxies offer their metrics, unless the mesh has another one.
pub(crate) const DEFAULT_STATUS_PORT: i64 = 15020;

/// How much later than a change a Pod must have been created to count as created after it: the
/// clocks of host and API server differ.
const MAX_CLOCK_SKEW_MS: u64 = 60_000;

/// The most workloads that are recorded, in 78 KB. Of more, only their templates tell that they
/// were restarted.
const MAX_RECORDED_WORKLOADS: usize = 2000;

/// A reason for a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[repr(u8)]
pub enum Cause {
    /// The sidecar has another image or other resources.
    Sidecar,
    /// The annotations for Prometheus are those of the other mode.
    PrometheusMerge,
    /// The Pod was started for the other way of redirecting traffic.
    Cni,
    /// The DNS proxying was switched.
    DnsProxying,
    /// The additional metrics are others.
    StatsMatcher,
    /// The Pod should have a sidecar and has none.
    Missing,
    /// Istio is uninstalled.
    Uninstall,
}

/// A set of causes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Causes(u8);

/// A setting, and since when it is so.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Setting {
    value: Value,
    /// `None`: since before the first run; each restart counts as a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// The uids of the workloads that were restarted for it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    workloads: BTreeSet<String>,
}

/// The settings that sidecars depend on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Record(BTreeMap<Cause, Setting>);

/// Returns the value of the setting of metrics.
pub(crate) fn prometheus(config: &Config, port: i64) -> Value {
    json!({"enabled": config.telemetry.metrics.prometheus_merge, "port": port})
}

// === impl Causes ===

impl Causes {
    pub fn add(&mut self, cause: Cause) {
        self.0 |= 1 << cause as u8;
    }

    /// Adds all causes of another set.
    pub fn add_all(&mut self, others: Self) {
        self.0 |= others.0;
    }

    /// Returns whether there is no cause.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether there is no cause but that the sidecar is missing.
    pub fn is_only_missing(self) -> bool {
        self.without_missing().is_empty()
    }

    /// Returns whether a cause is in the set.
    pub fn has(self, cause: Cause) -> bool {
        self.0 & (1 << cause as u8) != 0
    }

    /// Returns the set without the cause that the sidecar is missing.
    pub(crate) fn without_missing(self) -> Self {
        self.retain(|cause| cause != Cause::Missing)
    }

    fn retain(self, keep: impl Fn(Cause) -> bool) -> Self {
        let mut kept = Self::default();
        for cause in ALL.into_iter().filter(|cause| self.has(*cause) && keep(*cause)) {
            kept.add(cause);
        }
        kept
    }
}

const ALL: [Cause; 7] = [
    Cause::Sidecar,
    Cause::PrometheusMerge,
    Cause::Cni,
    Cause::DnsProxying,
    Cause::StatsMatcher,
    Cause::Missing,
    Cause::Uninstall,
];

// === impl Record ===

impl Record {
    /// Reads the record of a resource. One that cannot be read counts as missing.
    pub fn read(istio: &Istio) -> Option<Self> {
        serde_json::from_str(istio.metadata.annotations.get(ANNOTATION)?).ok()
    }

    /// Returns the patch that writes the annotation.
    pub(crate) fn patch(&self, istio: &Istio) -> Manifest {
        let metadata = &istio.metadata;
        Manifest::json(&json!({
            "apiVersion": Istio::kind().api_version(),
            "kind": Istio::KIND,
            "metadata": {
                "namespace": metadata.namespace,
                "name": metadata.name,
                "annotations": {ANNOTATION: self.text()},
            },
        }))
    }

    /// Returns the text of the annotation.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the record once these settings hold; `None` if they do already. The time is asked
    /// for only if a setting changes.
    #[must_use]
    pub fn after(&self, settings: &[(Cause, Value)], now: impl Fn() -> u64) -> Option<Self> {
        let mut next = self.clone();
        for (cause, value) in settings {
            if self.0.get(cause).is_none_or(|setting| setting.value != *value) {
                // All Pods that there are now are older than the next second.
                let since = Some(time::rfc3339(now().saturating_add(1000)));
                let setting = Setting { value: value.clone(), since, ..Setting::default() };
                next.0.insert(*cause, setting);
            }
        }
        (next != *self).then_some(next)
    }

    /// Returns the record of the settings that were last applied, by the original or at the
    /// installation: no restart for them is due.
    pub fn taken_over(last: &LastApplied) -> Self {
        let config = &last.spec.config;
        let settings = [
            (Cause::PrometheusMerge, prometheus(config, DEFAULT_STATUS_PORT)),
            (Cause::DnsProxying, config.enable_dns_proxying.into()),
            (Cause::StatsMatcher, config.sorted_regexps().into()),
        ];
        let setting = |(cause, value)| (cause, Setting { value, ..Setting::default() });
        Self(settings.map(setting).into())
    }

    /// Returns since when a setting is as it is, in Unix time in milliseconds. `None`: since before
    /// the first run.
    pub fn since(&self, cause: Cause) -> Option<u64> {
        self.0.get(&cause)?.since.as_deref().map(|text| time::parse(text).unwrap_or_default())
    }

    /// Returns the causes for which a workload was not rolled out since, given the annotation of
    /// its template.
    #[must_use]
    pub fn due(&self, causes: Causes, restarted_at: Option<&str>) -> Causes {
        let Some(restarted_at) = restarted_at else { return causes };
        let restarted_at = time::parse(restarted_at).unwrap_or_default();
        causes.retain(|cause| self.since(cause).is_some_and(|since| restarted_at < since))
    }

    /// Returns whether a workload was restarted because its sidecars were missing.
    pub(crate) fn was_restarted(&self, uid: Option<&str>) -> bool {
        let missing = self.0.get(&Cause::Missing);
        missing.zip(uid).is_some_and(|(missing, uid)| missing.workloads.contains(uid))
    }

    /// Records workloads that are restarted because their sidecars are missing, and drops those
    /// that exist no longer.
    pub(crate) fn add_restarted(&mut self, uids: Vec<String>, existing: &BTreeSet<String>) {
        let Some(missing) = self.0.get_mut(&Cause::Missing) else { return };
        missing.workloads.retain(|uid| existing.contains(uid));
        let free = MAX_RECORDED_WORKLOADS.saturating_sub(missing.workloads.len());
        missing.workloads.extend(uids.into_iter().take(free));
    }

    /// Drops a workload whose restart was refused.
    pub(crate) fn drop_restarted(&mut self, uid: &str) {
        if let Some(missing) = self.0.get_mut(&Cause::Missing) {
            missing.workloads.remove(uid);
        }
    }

    /// Returns the causes that are older than a Pod and so did not pass by themselves.
    ///
    /// A Pod that was created after a change, and still differs, would differ after a restart too.
    #[must_use]
    pub fn not_in_vain(&self, causes: Causes, created: Option<u64>, skew: Skew) -> Causes {
        let Some(created) = created else { return causes };
        causes.retain(|cause| match (self.since(cause), skew) {
            // Istio may have been away when the Pod was created, at any time.
            _ if cause == Cause::Missing => skew == Skew::Allowed,
            (None, skew) => skew == Skew::Allowed,
            (Some(since), Skew::Allowed) => created < since.saturating_add(MAX_CLOCK_SKEW_MS),
            (Some(since), Skew::None) => created < since,
        })
    }

    /// Returns whether one of these causes is about a setting from before the first run.
    pub fn is_from_the_start(&self, causes: Causes) -> bool {
        !causes.retain(|cause| cause != Cause::Missing && self.since(cause).is_none()).is_empty()
    }

    /// Returns the time of the latest change, in Unix time in milliseconds.
    pub fn latest(&self) -> u64 {
        self.0.keys().filter_map(|cause| self.since(*cause)).max().unwrap_or_default()
    }

    /// Returns the time to write into the template of a workload that is rolled out: not before
    /// any setting has changed, even if the clocks of two hosts differ.
    pub fn restart_time(&self, now: u64) -> String {
        time::rfc3339(now.max(self.latest()))
    }
}

/// The handling of clocks that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skew {
    /// A Pod must be a minute younger than a change: its workload was rolled out by then, which
    /// keeps it from being restarted twice.
    Allowed,
    /// Nothing else keeps the Pod from being restarted twice.
    None,
}
