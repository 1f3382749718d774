//! The migration of an APIRule from v1beta1 to v2, as long as Ory's `Rule`s are left.
//!
//! Requests go through Oathkeeper before, and directly to the services afterwards. In between,
//! policies accept both ways: they are written in the first step, the route is changed in the
//! second, and what is not needed any more goes in the third. Istio takes time to carry a change
//! out, so there is a minute from one step to the next, whatever else happens.

use std::time::Duration;

use mortise_sdk::{Host, Manifest, Object, Outcome, Request, object::Metadata, time};
use serde_json::json;

use crate::{annotation::MIGRATION_STEP, api::ApiRule, config::Config, status, stop::Stop};

/// A step of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Policies accept both ways.
    Authorize,
    /// The route leads directly to the services.
    SwitchRoute,
    /// Only the direct way is left.
    Finish,
}

/// The part of a migration that one run carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Round {
    step: Step,
    /// The annotation says otherwise and must be changed.
    is_new: bool,
    /// The time until the next step, unless this is the last one.
    again: Option<Duration>,
}

/// Returns the round of an APIRule. Access is asked for only if there are `Rule`s of Ory.
pub(crate) fn round(
    rule: &ApiRule,
    has_ory_rules: bool,
    config: &Config,
    host: &Host,
) -> Result<Round, Stop> {
    let annotation = rule.metadata.annotations.get(MIGRATION_STEP).map(String::as_str);
    if annotation.is_none() && !has_ory_rules {
        return Ok(Round::none());
    }
    let grant = config.grant().map_err(Stop::Untold)?;
    if !grant.is_possible() {
        return Ok(Round::none());
    }
    if !has_ory_rules || !grant.is_granted(host)? {
        return Ok(Round { is_new: annotation.is_some(), ..Round::none() });
    }
    let interval = config.migration_interval();
    let Some(done) = annotation.and_then(Step::of_annotation) else {
        return Ok(Round { step: Step::Authorize, is_new: true, again: Some(interval) });
    };
    if let Some(again) = remaining(rule, interval, host) {
        return Ok(Round { step: done, is_new: false, again: Some(again) });
    }
    let step = done.next();
    Ok(Round { step, is_new: true, again: (step != Step::Finish).then_some(interval) })
}

/// Returns the time until the next step may begin; `None` if it may begin now. The status was
/// written with the former step or later.
fn remaining(rule: &ApiRule, interval: Duration, host: &Host) -> Option<Duration> {
    let written = rule.status.as_ref()?.last_processed_time.as_deref()?;
    let since = Duration::from_millis(host.now().saturating_sub(time::parse(written)?));
    interval.checked_sub(since).filter(|remaining| !remaining.is_zero())
}

// === impl Step ===

impl Step {
    fn of_annotation(value: &str) -> Option<Self> {
        [Self::Authorize, Self::SwitchRoute]
            .into_iter()
            .find(|step| step.annotation() == Some(value))
    }

    fn annotation(self) -> Option<&'static str> {
        match self {
            Self::Authorize => Some("apply-istio-authorization"),
            Self::SwitchRoute => Some("vs-switch-to-service"),
            Self::Finish => None,
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Authorize => Self::SwitchRoute,
            Self::SwitchRoute | Self::Finish => Self::Finish,
        }
    }
}

// === impl Round ===

impl Round {
    /// Returns the round of an APIRule that is not migrated.
    pub(crate) fn none() -> Self {
        Self { step: Step::Finish, is_new: false, again: None }
    }

    /// Returns whether the route leads directly to the services.
    pub(crate) fn switches_route(&self) -> bool {
        self.step != Step::Authorize
    }

    /// Returns whether only the direct way is left.
    pub(crate) fn is_last(&self) -> bool {
        self.step == Step::Finish
    }

    /// Adds the annotation and the time of the next round to an outcome. The annotation is written
    /// after the objects of the step, and not if one of them fails.
    pub(crate) fn carry_out(
        &self,
        mut outcome: Outcome,
        rule: &ApiRule,
        request: &Request,
        host: &Host,
    ) -> Outcome {
        if self.is_new {
            outcome = outcome.patch(self.manifest(rule));
        }
        let Some(again) = self.again else { return outcome };
        if self.is_new {
            // The time of the status is that of the step.
            let status = status::now(status::ready(), host);
            outcome = outcome.status(request, &status);
        }
        outcome.requeue_after(again)
    }

    fn manifest(&self, rule: &ApiRule) -> Manifest {
        let mut metadata = Metadata::new(&rule.metadata.name).namespace(rule.namespace());
        let step = self.step.annotation().map(|step| (MIGRATION_STEP.to_owned(), step.to_owned()));
        metadata.annotations.extend(step);
        let is_taken_away = metadata.annotations.is_empty();
        let manifest = Manifest::with_kind(&ApiRule::kind(), &json!({"metadata": metadata}));
        if is_taken_away {
            return manifest.absent(format!("metadata.annotations[\"{MIGRATION_STEP}\"]"));
        }
        manifest
    }
}

#[cfg(test)]
mod tests;
