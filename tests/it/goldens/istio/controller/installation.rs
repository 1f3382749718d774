//! istio-installation over a double of the library that fails where the original's installer
//! failed.

use std::cell::RefCell;

use ingress_gateway_restart::IngressGatewayRestarts;
use istio_installation::{
    Cluster, Installations, IstioVersion, Rendered, Rendering, double::Double,
};
use mortise_sdk::{Description, Failure, Host, Outcome, Processor, Request};
use peer_authentication::PeerAuthentications;
use sidecar_restart::Sidecars;

thread_local! {
    /// The error with which the library fails.
    static ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The double of the library, which fails if the original's installer failed.
#[derive(Debug, Clone, Copy)]
struct Recorded;

impl Rendering for Recorded {
    fn version() -> IstioVersion {
        Double::version()
    }

    fn render(spec: &str, cluster: Option<&Cluster>) -> Result<Rendered, String> {
        let error = ERROR.with_borrow(Clone::clone);
        if error.is_empty() { Double::render(spec, cluster) } else { Err(error) }
    }
}

/// istio-installation over that double. The rules that it grants come from a library that works.
pub(super) struct Installation;

impl Processor for Installation {
    type Config = istio_installation::Config;

    fn describe(config: &Self::Config) -> Result<Description, String> {
        Installations::<Double>::describe(config)
    }

    fn reconcile(
        request: &Request,
        config: &Self::Config,
        host: &Host,
    ) -> Result<Outcome, Failure> {
        Installations::<Recorded>::reconcile(request, config, host)
    }
}

/// istio-installation, which declares all kinds that the others read, so that a cluster which it
/// reconciles first knows them.
pub(super) struct First;

impl Processor for First {
    type Config = istio_installation::Config;

    fn describe(config: &Self::Config) -> Result<Description, String> {
        let description = Installation::describe(config)?;
        let others = [
            PeerAuthentications::describe(&<_>::default())?,
            IngressGatewayRestarts::describe(&<_>::default())?,
            Sidecars::describe(&<_>::default())?,
        ];
        Ok(others.into_iter().flat_map(|other| other.reads).fold(description, Description::reads))
    }

    fn reconcile(
        request: &Request,
        config: &Self::Config,
        host: &Host,
    ) -> Result<Outcome, Failure> {
        Installation::reconcile(request, config, host)
    }
}

/// Sets the error with which the library fails from now on; "" if it does not.
pub(super) fn fail_with(error: &str) {
    ERROR.set(error.to_owned());
}
