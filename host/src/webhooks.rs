//! The port of `--webhooks`: answers conversions and admissions of the API server with the hooks of
//! processors, over TLS.
//!
//! The API server authenticates to no conversion hook, and to admission hooks only if it is told
//! to ([`Clients`]). Hooks write nothing, and get their objects from the request. The cost of
//! requests is bounded: connections, the rate of each caller, bytes of bodies, time, and
//! slots for calls (see [`wasm`](crate::wasm)).
//!
//! | path | answers |
//! | --- | --- |
//! | `/convert/NAMESPACE/PROCESSOR` | a `ConversionReview` |
//! | `/admit/NAMESPACE/PROCESSOR/HOOK` | an `AdmissionReview` |

mod admission;
mod body;
mod certificate;
mod client_config;
mod clients;
mod conversion;
mod listener;
mod path;
mod rate;
mod review;
mod serving;
#[cfg(test)]
mod tests;

pub(crate) use body::MAX_HELD_BYTES;
pub use certificate::{Certificate, Served};
pub use clients::Clients;
pub use listener::Stop;
pub use path::{Alias, Paths};

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tracing::{debug, warn};

use self::{
    body::{Held, Holding},
    path::Path,
    rate::{REQUESTS_A_SECOND, Rates},
};
use crate::{
    blocking::on_text,
    host::{Hooking, Host, Source},
    wasm::namespace_of,
};

/// The timeout of a request without the parameter `timeout`: that of a conversion.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The part of a caller's timeout that is reserved for sending the response.
const RESPONSE_TIME: Duration = Duration::from_millis(100);
/// The delay after which a client of Kubernetes repeats a request that came too early, in seconds.
const RETRY_AFTER_SECONDS: u16 = 1;
const NO_CERTIFICATE: &str = "admissions are answered only to callers with a certificate of `--webhook-client-ca`: \
    kube-apiserver sends the one that its AdmissionConfiguration names";
/// The longest path that is parsed, in bytes: enough for the longest names.
const MAX_PATH_BYTES: usize = 1024;

/// The port. Cheap to clone.
#[derive(Clone)]
pub struct Webhooks {
    shared: Arc<State>,
}

struct State {
    host: Arc<Host>,
    paths: Paths,
    held: Held,
    rates: Rates,
    /// The authorities of callers of admission hooks; `None` if anyone may call them.
    clients: Option<Clients>,
}

/// The sender of the requests of a connection.
#[derive(Clone, Copy, Debug)]
struct Caller {
    address: IpAddr,
    /// True if it has a certificate of an authority of clients.
    is_known: bool,
}

/// The answer to a review.
struct Answered {
    body: Bytes,
    /// True if the processor refuses the conversion or the request.
    is_refused: bool,
}

/// A refused request: its HTTP status and error message.
#[derive(Debug)]
struct Refused {
    status: StatusCode,
    message: String,
}

// === impl Webhooks ===

impl Webhooks {
    /// Creates the port of a host; `paths` are served beside its own. With `clients`, admissions
    /// are answered to those only.
    pub fn new(host: &Arc<Host>, paths: Paths, clients: Option<Clients>) -> Self {
        let (held, rates) = (Held::default(), Rates::default());
        let state = State { host: Arc::clone(host), paths, held, rates, clients };
        Self { shared: Arc::new(state) }
    }

    /// Serves a listener until `stop.closed` is cancelled and the requests in flight are answered.
    ///
    /// # Errors
    ///
    /// Fails if TLS cannot be set up.
    pub async fn serve(
        self,
        listener: TcpListener,
        certificate: Source<Option<Served>>,
        stop: Stop,
    ) -> anyhow::Result<()> {
        listener::serve(self, listener, certificate, stop).await
    }

    /// Reports to the host whether the API server can call the hooks with this certificate,
    /// whenever that may have changed. Does not end.
    pub async fn report_state(&self, certificate: Certificate) {
        serving::report(&self.shared.host, &self.shared.paths, certificate).await;
    }

    async fn answer(&self, request: Request<Incoming>, from: Caller) -> Response<Full<Bytes>> {
        let path: String = request.uri().path().chars().take(MAX_PATH_BYTES).collect();
        let answered = self.ask(request, from).await;
        if let Err(refused) = &answered {
            self.log(&path, from, refused);
        }
        response(answered)
    }

    /// Logs a refusal. Lines use the allowance of the processor only if it is loaded: callers choose
    /// the paths.
    fn log(&self, path: &str, from: Caller, Refused { status, message }: &Refused) {
        let caller = from.address;
        let processor = self.shared.paths.resolve(path).ok().map(|path| path.processor());
        let processor = processor.filter(|name| self.shared.host.hooking(name).is_some());
        match processor {
            _ if *status == StatusCode::UNAUTHORIZED => {
                warn!(path, %caller, "an admission without a certificate is refused");
            }
            _ if !status.is_server_error() => {
                debug!(path, %caller, message, %status, "a request is refused");
            }
            Some(processor) => warn!(processor, path, %caller, message, "a webhook gave no answer"),
            None => warn!(path, %caller, "a webhook of no loaded processor is called"),
        }
    }

    async fn ask(&self, request: Request<Incoming>, from: Caller) -> Result<Bytes, Refused> {
        let asked = Instant::now();
        let (parts, body) = request.into_parts();
        let path = self.shared.paths.resolve(parts.uri.path())?;
        if matches!(path, Path::Admit { .. }) && self.shared.clients.is_some() && !from.is_known {
            return Err(Refused::new(StatusCode::UNAUTHORIZED, NO_CERTIFICATE.to_owned()));
        }
        if parts.method != Method::POST {
            let message = format!("{} is not answered here, POST is", parts.method);
            return Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        check_type(&parts)?;
        let ends = asked + timeout(parts.uri.query())?.saturating_sub(RESPONSE_TIME);
        let processor = path.processor();
        let Some(hooking) = self.shared.host.hooking(&processor) else {
            let message = format!("no version of processor `{processor}` with hooks is loaded");
            return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, message));
        };
        if !self.shared.rates.admit(from.address, hooking.name(), asked) {
            let message = format!(
                "a caller may send {REQUESTS_A_SECOND} requests a second for one processor"
            );
            return Err(Refused::new(StatusCode::TOO_MANY_REQUESTS, message));
        }
        let holding = self.shared.held.open(from.address, namespace_of(hooking.name()));
        let answered = self.ask_hook(&hooking, &path, (body, holding), (asked, ends)).await;
        // The metrics of a processor that was removed meanwhile must not be created again.
        if self.shared.host.hooking(&processor).is_some() {
            let result = match &answered {
                Ok(Answered { is_refused: false, .. }) => "success",
                Ok(_) => "refused",
                Err(refused) if refused.status.is_server_error() => "failed",
                Err(_) => "invalid",
            };
            let metrics = &self.shared.host.options().metrics;
            metrics.hooked(&processor, path.hook_of(hooking.hooks()), result, asked.elapsed());
        }
        answered.map(|answered| answered.body)
    }

    async fn ask_hook(
        &self,
        hooking: &Hooking,
        path: &Path<'_>,
        (body, mut holding): (Incoming, Holding),
        (asked, ends): (Instant, Instant),
    ) -> Result<Answered, Refused> {
        let bound = match path {
            Path::Convert { .. } => body::CONVERSION,
            Path::Admit { .. } => body::ADMISSION,
        };
        // The bytes count as held until the answer is made.
        let body = holding.read(body, bound, ends).await?;
        match path {
            Path::Convert { .. } => conversion::answer(hooking, body, &mut holding, ends).await,
            Path::Admit { hook, .. } => {
                admission::answer(hooking, hook, (body, holding), (asked, ends)).await
            }
        }
    }
}

/// Reads a body of so many bytes.
async fn parsed<T: Send + 'static>(
    bytes: usize,
    read: impl FnOnce() -> Result<T, Refused> + Send + 'static,
) -> Result<T, Refused> {
    let parsed = on_text(bytes, read).await;
    parsed.unwrap_or_else(|error| Err(Refused::unavailable(error.to_string())))
}

fn response(answered: Result<Bytes, Refused>) -> Response<Full<Bytes>> {
    let (status, kind, body) = match answered {
        Ok(body) => (StatusCode::OK, "application/json", body),
        Err(Refused { status, message }) => {
            (status, "text/plain; charset=utf-8", (message + "\n").into())
        }
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
    }
    response
}

/// Refuses a request whose content type is not JSON.
fn check_type(request: &Parts) -> Result<(), Refused> {
    let kind = request.headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let media_type = kind.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "a review comes as application/json".to_owned();
    Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
}

/// Returns the caller's timeout: `timeout` in the query of its request.
fn timeout(query: Option<&str>) -> Result<Duration, Refused> {
    let pairs = query.unwrap_or_default().split('&');
    let Some(text) = pairs.into_iter().find_map(|pair| pair.strip_prefix("timeout=")) else {
        return Ok(DEFAULT_TIMEOUT);
    };
    let parsed = text.parse::<jiff::SignedDuration>().ok();
    let parsed = parsed.and_then(|duration| Duration::try_from(duration).ok());
    let parsed = parsed.ok_or_else(|| {
        Refused::bad(format!("timeout={}: a duration such as `10s` is expected", short(text)))
    })?;
    Ok(parsed.min(DEFAULT_TIMEOUT))
}

/// Quotes the beginning of an untrusted text.
fn short(text: &str) -> String {
    mortise_core::contract::bounds::text::quoted(text)
}

// === impl Refused ===

impl Refused {
    fn new(status: StatusCode, message: String) -> Self {
        Self { status, message }
    }

    fn bad(message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    fn unavailable(message: String) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }
}
