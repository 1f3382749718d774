//! The HTTP server: from a request to an answer, with fault injection and request counts.

mod target;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    response::Response,
    serve::{Listener, ListenerExt as _},
};
use http_body_util::BodyExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use self::target::Tolerant;
use crate::{
    Failure, RequestKind, Shared,
    access::{Action, User},
    answer::{Accept, Answer, Style, failure, respond, warn},
    discovery::{self, Document},
    fault::Seen,
    kind::Registry,
    request::{Request, ResourcePath, Verb},
    verbs::{self, Call},
};

/// The size of the largest body that is read, in bytes, as in Kubernetes.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Returns the tower service.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(move |request: http::Request<Body>| {
        let shared = shared.clone();
        async move { answer(shared, request).await }
    })
}

/// Serves requests until `shutdown` is cancelled.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let stop = shared.stop.clone();
    let end = async move {
        shutdown.cancelled().await;
        stop.cancel();
    };
    let check = shared.check;
    let checked = Router::new().fallback(move |request: http::Request<Body>| {
        let shared = shared.clone();
        async move {
            let (parts, body) = request.into_parts();
            if let Some(Err(refusal)) = check.map(|check| check(&parts)) {
                return respond(403, "text/plain; charset=utf-8", Body::from(refusal + "\n"));
            }
            answer(shared, http::Request::from_parts(parts, body)).await
        }
    });
    axum::serve(Tolerant(prompt(listener)), checked).with_graceful_shutdown(end).await
}

/// Sets `TCP_NODELAY` on connections: otherwise an event could wait until the client acknowledges
/// the one before.
fn prompt(listener: TcpListener) -> impl Listener<Io = TcpStream, Addr = SocketAddr> {
    listener.tap_io(|stream| {
        if let Err(fault) = stream.set_nodelay(true) {
            tracing::debug!(%fault, "a connection stays slow");
        }
    })
}

async fn answer(shared: Arc<Shared>, request: http::Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let body = match http_body_util::Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(why) if why.is::<http_body_util::LengthLimitError>() => {
            let text = format!("Request entity too large: limit is {MAX_BODY_BYTES}");
            return failure(&Failure::generic(413, "RequestEntityTooLarge", text));
        }
        Err(why) => return failure(&Failure::bad_request(format!("cannot read the body: {why}"))),
    };
    let request = Request::new(parts, body);
    match ResourcePath::parse(&request.path) {
        Some(path) => for_resource(&shared, &request, &path).await,
        None => for_document(&shared, &request).unwrap_or_else(|refusal| failure(&refusal)),
    }
}

/// Answers paths that name no resource: discovery, `OpenAPI`, version, health.
fn for_document(shared: &Shared, request: &Request) -> Result<Response, Failure> {
    let state = shared.state.read();
    if let Some(user) = User::impersonated(&request.headers, &request.path)? {
        let verb = request.method.as_str().to_lowercase();
        let action = Action::Path { verb, path: request.path.clone() };
        if state.allows(&user, &action).is_none() {
            return Err(action.refusal(&user));
        }
    }
    let accept = request.header("accept").unwrap_or_default();
    match discovery::answer(&state.registry, &request.path, accept) {
        Some(Document::Json(document)) => Answer::document(200, document)
            .into_response(None, &style(shared, request, Accept::default())),
        Some(Document::Typed(document, content_type)) => {
            let mut response = respond(200, "application/json", Body::from(document.to_string()));
            if let Ok(value) = content_type.parse() {
                response.headers_mut().insert(http::header::CONTENT_TYPE, value);
            }
            Ok(response)
        }
        Some(Document::Text(text)) => {
            Ok(respond(200, "text/plain; charset=utf-8", Body::from(text)))
        }
        Some(Document::Bytes(bytes, content_type)) => {
            Ok(respond(200, content_type, Body::from(bytes)))
        }
        Some(Document::NotAcceptable(available)) => Err(Failure::not_acceptable(available)),
        None => Err(not_served(&state.registry, &request.path)),
    }
}

/// Returns the 404 of a path where nothing is served: a `Status` below the paths of Kubernetes' own
/// groups, a text elsewhere.
fn not_served(registry: &Registry, path: &str) -> Failure {
    let mut segments = path.split('/').skip(1);
    let is_own = match segments.next() {
        Some("api" | "version") => true,
        Some("apis") => {
            segments.next().is_some_and(|group| !group.is_empty() && registry.is_built_in(group))
        }
        _ => false,
    };
    if is_own { Failure::no_such_resource() } else { Failure::no_such_page() }
}

async fn for_resource(shared: &Arc<Shared>, request: &Request, path: &ResourcePath) -> Response {
    let Some(verb) = request.verb(path) else { return failure(&Failure::method_not_allowed()) };
    count(shared, path, verb);
    let seen = Seen {
        verb,
        group: &path.group,
        plural: &path.resource,
        namespace: &path.namespace,
        name: &path.name,
        subresource: &path.subresource,
    };
    let obstacles = shared.faults.meet(seen);
    if !obstacles.latency.is_zero() {
        tokio::time::sleep(obstacles.latency).await;
    }
    let response = match obstacles.refusal {
        Some(refusal) if verb == Verb::Watch && refusal.code() == 410 => {
            verbs::refuse_watch(&refusal)
        }
        Some(refusal) => failure(&refusal),
        None => perform(shared, request, path, verb),
    };
    if obstacles.loses_answer { lost() } else { response }
}

fn perform(shared: &Arc<Shared>, request: &Request, path: &ResourcePath, verb: Verb) -> Response {
    let (resource, user) = match find(shared, request, path, verb) {
        Ok(found) => found,
        Err(refusal) => return failure(&refusal),
    };
    let deprecation = resource.deprecation().map(str::to_owned);
    let now = shared.now();
    let mut call = Call {
        shared,
        request,
        path,
        resource: &resource,
        user,
        now,
        warnings: deprecation.into_iter().collect(),
    };
    let result = Accept::negotiate(request.header("accept")).and_then(|accept| {
        let style = style(shared, request, accept);
        if verb == Verb::Watch {
            return verbs::open_watch(&call, style);
        }
        style.check()?;
        verbs::perform(&mut call, verb)?.into_response(Some(&resource), &style)
    });
    let mut response = result.unwrap_or_else(|refusal| failure(&refusal));
    warn(&mut response, &call.warnings);
    response
}

/// Returns the resource that the path names, and the impersonated user. Fails with 403 if that user
/// may not do this to it.
fn find(
    shared: &Shared,
    request: &Request,
    path: &ResourcePath,
    verb: Verb,
) -> Result<(Arc<crate::kind::Resource>, Option<User>), Failure> {
    let state = shared.state.read();
    let user = User::impersonated(&request.headers, &request.path)?;
    if let Some(user) = &user {
        let action = Action::of(path, verb, request.query.text("fieldSelector"));
        if state.allows(user, &action).is_none() {
            return Err(action.refusal(user));
        }
    }
    let resource = state.registry.find(&path.group, &path.version, &path.resource).cloned();
    Ok((resource.ok_or_else(|| not_served(&state.registry, &request.path))?, user))
}

fn style(shared: &Shared, request: &Request, accept: Accept) -> Style {
    Style {
        accept,
        pretty: request.query.flag("pretty"),
        include_object: request.query.text("includeObject").to_owned(),
        now: shared.now(),
    }
}

fn count(shared: &Shared, path: &ResourcePath, verb: Verb) {
    let kind = RequestKind {
        verb,
        group: path.group.clone(),
        resource: path.resource.clone(),
        subresource: path.subresource.clone(),
    };
    *shared.counts.lock().entry(kind).or_default() += 1;
}

/// Returns a response whose connection breaks before any of the body is read.
fn lost() -> Response {
    let fault = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "the answer was lost");
    respond(
        200,
        "application/json",
        Body::from_stream(futures::stream::iter([Err::<bytes::Bytes, _>(fault)])),
    )
}
