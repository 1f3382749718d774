//! The outcome for an Istio resource that is there: the objects of Istio, in phases.

mod objects;
mod progress;
mod record;

use istio::{
    api::{FINALIZER, ISTIO_NAMESPACE},
    condition,
    last_applied::LastApplied,
    merge::{self, Input},
    version,
};
use mortise_sdk::{Kind, ObjectRef, Outcome};

use self::{objects::Part, progress::Progress};
use crate::{
    Rendering,
    render::{self, Component},
    run::{Run, Stop},
    status::Summary,
    surroundings,
    workload::{self, Live},
};

/// The description of an installation that fails, as the original gives it; here the cause follows.
pub(crate) const FAILED: &str = "Could not install Istio: Istio installation resulted in an error";

/// The Deployment of the control plane.
const CONTROL_PLANE: &str = "istiod";

/// The Istio to install.
struct Target {
    /// The tag that is recorded, such as `1.31.0-distroless`.
    tag: String,
    components: Vec<Component>,
    /// The configuration that was last applied.
    last: Option<LastApplied>,
}

/// Returns the outcome for a resource.
pub(crate) fn install<R: Rendering>(run: &Run) -> Result<Outcome, Stop> {
    let target = Target::of::<R>(run)?;
    let parts = Part::read(&target.components, run)?;
    let mut outcome = objects::outcome(&parts, run)?.finalizers([FINALIZER]);
    let (summary, again) = match Progress::of(&parts, &target, run)? {
        Progress::Under { summary, again } => (summary, again),
        Progress::Done { again } => {
            let summary = Summary::of_others(run.istio);
            let record = record::record(&target.tag, &summary, run.istio);
            outcome.patch.extend(record);
            (summary, again)
        }
    };
    let outcome = run.with_status(outcome, summary);
    Ok(match again {
        Some(after) => outcome.requeue_after(after),
        None => outcome,
    })
}

fn failed(description: String) -> Summary {
    Summary::error(condition::INSTALL_UNINSTALL_FAILED, description)
}

/// Returns whether the control plane was installed by somebody else: nothing says that it was this
/// processor or the original, and its labels say otherwise.
pub(crate) fn is_of_others(run: &Run) -> Result<bool, Stop> {
    if run.istio.metadata.annotations.contains_key(istio::last_applied::ANNOTATION) {
        return Ok(false);
    }
    let deployment = Kind::new("apps", "v1", "Deployment");
    let control_plane = ObjectRef::new(deployment, Some(ISTIO_NAMESPACE), CONTROL_PLANE);
    let live: Option<Live> = run.host.get_ref(&control_plane, &workload::FIELDS)?;
    Ok(live.is_some_and(|live| render::is_of_others(&live.metadata.labels)))
}

// === impl Target ===

impl Target {
    /// Returns the Istio to install, if it may be.
    fn of<R: Rendering>(run: &Run) -> Result<Self, Stop> {
        let Run { config, host, istio, .. } = *run;
        let surroundings = surroundings::read(host, config.flavour())?.map_err(|error| {
            let description = format!("Could not build cluster strategy: {error}");
            Summary::error(condition::RECONCILE_FAILED, description)
        })?;
        let release = R::version().release;
        let tag = config.tag(&release);
        let last = LastApplied::read(istio)
            .map_err(|error| failed(format!("Istio install check failed: {error}")))?;
        check_update(last.as_ref(), &tag)?;
        let images =
            config.images(&release).map_err(|error| failed(format!("{FAILED}: {error}")))?;
        let input = Input {
            spec: &istio.spec,
            cluster: &surroundings.cluster,
            flavour: config.flavour(),
            features: surroundings.features,
            images: &images,
            pull_secret: config.pull_secret(),
        };
        let operator = merge::merge(&input).map_err(|error| {
            let description = format!("Could not merge Istio operator configuration: {error}");
            Stop::Held(Summary::error(condition::MISCONFIGURED, description))
        })?;
        if is_of_others(run)? {
            let description = format!(
                "{FAILED}: Deployment {ISTIO_NAMESPACE}/{CONTROL_PLANE} was installed by somebody else, remove that Istio first"
            );
            return Err(failed(description).into());
        }
        let components = render::render::<R>(&operator, surroundings.version.as_ref(), &release)
            .map_err(|error| Stop::Held(failed(format!("{FAILED}: {error}"))))?;
        Ok(Self { tag, components, last })
    }
}

/// Checks that the installed version may be followed by another one. A configuration without a tag
/// says nothing about the version; the original would refuse it for ever.
fn check_update(last: Option<&LastApplied>, tag: &str) -> Result<(), Summary> {
    let Some(last) = last.filter(|last| !last.tag.is_empty()) else { return Ok(()) };
    version::check_update(&last.tag, tag).map_err(|error| {
        let description = format!("Istio version update is not allowed: {error}");
        Summary::warning(condition::UPDATE_NOT_ALLOWED, description)
    })
}
