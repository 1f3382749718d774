//! Runs one scenario, against whatever answers HTTP.

use std::time::Duration;

use axum::{Router, body::Body};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};
use tower::ServiceExt as _;

use super::normalise::{self, Names, pointer};

/// What came back.
#[derive(Debug, Default, Clone)]
pub(crate) struct Got {
    pub(crate) status: u64,
    warnings: Vec<String>,
    /// The body, or the events of a watch.
    pub(crate) body: Option<Value>,
    events: Option<Vec<Value>>,
}

/// Runs all steps; the error lists those that differ.
pub(crate) async fn scenario(server: &Router, scenario: &Value) -> Result<(), String> {
    let mut names = Names::default();
    let mut wrong = Vec::new();
    for (index, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
        let title = format!(
            "step {} {} {} {}",
            index + 1,
            step["method"].as_str().unwrap_or_default(),
            step["path"].as_str().unwrap_or_default(),
            step["about"].as_str().unwrap_or_default()
        );
        if let Err(difference) = self::step(server, step, &mut names).await {
            wrong.push(format!("{title}\n{difference}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.concat()) }
}

async fn step(server: &Router, step: &Value, names: &mut Names) -> Result<(), String> {
    let mut got = request(server, step, names).await;
    if let Some(until) = step.get("until") {
        let tries = until["withinSeconds"].as_f64().unwrap_or(1.0) * 10.0;
        let mut attempts = 0.0;
        while !is_reached(&got, until) && attempts < tries {
            tokio::time::sleep(Duration::from_millis(100)).await;
            got = request(server, step, names).await;
            attempts += 1.0;
        }
    }
    let answer = &step["answer"];
    let select: Option<Vec<&str>> = step["select"]
        .as_array()
        .map(|pointers| pointers.iter().map(|pointer| pointer.as_str().unwrap()).collect());
    let mut actual = got.normalised(names, select.as_deref());
    let mut expected = answer.clone();
    normalise::integral(&mut expected);
    if answer.get("body").is_none() && answer.get("events").is_none() && select.is_none() {
        actual.remove("body");
    }
    let actual = Value::Object(actual);
    if actual == expected { Ok(()) } else { Err(difference(&expected, &actual, "")) }
}

impl Got {
    /// As an answer is recorded: what differs from run to run has names.
    pub(crate) fn normalised(
        &self,
        names: &mut Names,
        select: Option<&[&str]>,
    ) -> Map<String, Value> {
        let mut out = Map::new();
        out.insert("status".into(), json!(self.status));
        if !self.warnings.is_empty() {
            out.insert("warnings".into(), json!(self.warnings));
        }
        if let Some(events) = &self.events {
            let events = events.iter().map(|event| names.event(event, select)).collect();
            out.insert("events".into(), Value::Array(events));
        } else if let Some(body) = &self.body {
            out.insert("body".into(), names.body(body, select));
        }
        out
    }
}

fn is_reached(got: &Got, until: &Value) -> bool {
    let body = got.body.clone().unwrap_or_default();
    got.status == until["status"].as_u64().unwrap_or(200)
        && until["match"]
            .as_object()
            .into_iter()
            .flatten()
            .all(|(place, wanted)| pointer(&body, place) == Some(wanted))
}

/// Sends the request of a step.
pub(crate) async fn request(server: &Router, step: &Value, names: &Names) -> Got {
    let path = names.fill_in(step["path"].as_str().unwrap()).replace(' ', "%20");
    let mut headers: Vec<(String, String)> = vec![
        ("accept".into(), step["accept"].as_str().unwrap_or("application/json").into()),
        ("user-agent".into(), "golden/1".into()),
    ];
    let body = match (&step["body"], &step["rawBody"]) {
        (_, Value::String(raw)) => Some(names.fill_in(raw)),
        (Value::Null, _) => None,
        (body, _) => Some(names.fill_in(&body.to_string())),
    };
    if let Some(content_type) = step["contentType"].as_str() {
        headers.push(("content-type".into(), content_type.into()));
    }
    for (name, value) in step["headers"].as_object().into_iter().flatten() {
        headers.retain(|(present, _)| !present.eq_ignore_ascii_case(name));
        headers.push((name.to_lowercase(), names.fill_in(value.as_str().unwrap())));
    }
    let mut request = http::Request::builder().method(step["method"].as_str().unwrap()).uri(path);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Body::from(body.unwrap_or_default())).unwrap();
    let response = server.clone().oneshot(request).await.unwrap();
    let mut got = Got { status: u64::from(response.status().as_u16()), ..Got::default() };
    let texts = response
        .headers()
        .get_all("warning")
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    got.warnings = texts.map(|text| unquote(&text)).collect();
    if let Some(watch) = step.get("watch").filter(|_| got.status == 200) {
        got.events = Some(events(response.into_body(), watch).await);
        return got;
    }
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    if !bytes.is_empty() {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut body = serde_json::from_slice(&bytes).unwrap_or(Value::String(text));
        normalise::integral(&mut body);
        got.body = Some(body);
    }
    got
}

/// The quoted part of `299 - "text"`.
fn unquote(header: &str) -> String {
    let quoted =
        header.strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"')).unwrap_or(header);
    quoted.replace("\\\"", "\"").replace("\\\\", "\\")
}

async fn events(mut body: Body, watch: &Value) -> Vec<Value> {
    let count = usize::try_from(watch["events"].as_u64().unwrap()).unwrap();
    let limit = Duration::from_secs_f64(watch["timeoutSeconds"].as_f64().unwrap());
    let (mut text, mut events) = (Vec::new(), Vec::new());
    let read = async {
        while events.len() < count {
            let Some(Ok(frame)) = body.frame().await else { break };
            text.extend_from_slice(frame.data_ref().unwrap());
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                let mut event = serde_json::from_slice(&line).unwrap();
                normalise::integral(&mut event);
                events.push(event);
            }
        }
    };
    let _ = tokio::time::timeout(limit, read).await;
    events.truncate(count);
    events
}

/// Where two values differ, in words.
pub(crate) fn difference(expected: &Value, actual: &Value, at: &str) -> String {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            let keys: std::collections::BTreeSet<&String> =
                expected.keys().chain(actual.keys()).collect();
            let parts =
                keys.into_iter().filter(|key| expected.get(*key) != actual.get(*key)).map(|key| {
                    let at = format!("{at}/{key}");
                    match (expected.get(key), actual.get(key)) {
                        (Some(expected), Some(actual)) => difference(expected, actual, &at),
                        (Some(expected), None) => format!("  {at}: lacks {expected}\n"),
                        (None, Some(actual)) => format!("  {at}: should not be there: {actual}\n"),
                        (None, None) => String::new(),
                    }
                });
            parts.collect()
        }
        (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => {
            let pairs = expected
                .iter()
                .zip(actual)
                .enumerate()
                .filter(|(_, (expected, actual))| expected != actual);
            pairs
                .map(|(index, (expected, actual))| {
                    difference(expected, actual, &format!("{at}/{index}"))
                })
                .collect()
        }
        _ => format!("  {at}:\n    expected {expected}\n    got      {actual}\n"),
    }
}
