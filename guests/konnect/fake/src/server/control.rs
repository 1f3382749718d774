//! Paths for people, and for tests of other programs:
//!
//! | request | does |
//! | --- | --- |
//! | `GET /_log`, `GET /_log?since=N` | lists the requests that came (after number N) |
//! | `POST /_faults` | sets the faults, a list, in place of those set before |
//! | `POST /_data` | changes stored data: one [`Change`] or a list of them |

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Shared;
use crate::{Answer, Change, Fault, Request, log::Entry};

/// Answers a request for people; nothing if it is one for the API.
pub(super) fn answer(request: &Request, shared: &Shared) -> Option<Answer> {
    let path = request.path.strip_prefix("/_")?;
    let answer = match (request.method.as_str(), path) {
        ("GET", "log") => log(request, shared),
        ("POST", "faults") => faults(request, shared),
        ("POST", "data") => data(request, shared),
        _ => Err("the paths are GET /_log, POST /_faults and POST /_data".to_owned()),
    };
    Some(answer.unwrap_or_else(|message| Answer::json(400, &json!({"message": message}))))
}

fn log(request: &Request, shared: &Shared) -> Result<Answer, String> {
    let since = request.query_value("since").unwrap_or_else(|| "0".to_owned());
    let since = since.parse().map_err(|_| "`since` must be the number of a request".to_owned())?;
    let konnect = shared.konnect.lock();
    let entries: Vec<&Entry> = konnect.log(since).collect();
    let body = serde_json::to_value(entries).map_err(|error| error.to_string())?;
    Ok(Answer::json(200, &body))
}

fn faults(request: &Request, shared: &Shared) -> Result<Answer, String> {
    let faults: Vec<Fault> = body(request)?;
    let set = shared.konnect.lock().set_faults(faults);
    set.map(|()| Answer::empty(204)).map_err(|error| format!("{:#}", anyhow::Error::new(error)))
}

fn data(request: &Request, shared: &Shared) -> Result<Answer, String> {
    let changes = match body::<Value>(request)? {
        Value::Array(changes) => changes,
        change => vec![change],
    };
    let now = (shared.clock)();
    let mut konnect = shared.konnect.lock();
    for (index, change) in changes.into_iter().enumerate() {
        let change: Change = serde_json::from_value(change)
            .map_err(|error| format!("change {index} cannot be read: {error}"))?;
        konnect.change(now, &change).map_err(|error| format!("change {index}: {error}"))?;
    }
    Ok(Answer::empty(204))
}

fn body<T: DeserializeOwned>(request: &Request) -> Result<T, String> {
    serde_json::from_slice(&request.body)
        .map_err(|error| format!("the body cannot be read: {error}"))
}
