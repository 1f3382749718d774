//! The requests that Konnect has received, in the form of the record.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use konnect_fake::log::{Answered, Entry};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Map, Value, json};
use similar::{Algorithm, DiffTag};

use super::{format::Step, names::Names};
use crate::goldens::scenario::with_differences;

/// The host of a request that names none.
const HOST: &str = "eu.api.konghq.com";
/// The answer to a request that has none.
const NONE: &str = "connection closed without an answer";
/// The content type that is not recorded.
const JSON: &str = "application/json";
const ORGANIZATION: &str = "/v3/organizations/me";
const CONTROL_PLANES: &str = "/v2/control-planes";
/// The query by which the original asks for a control plane at each pass.
const BY_ID: &str = "filter[id][eq]";
/// The fields of answers that are left out.
const LEFT_OUT: [&str; 2] = ["created_at", "updated_at"];

/// A request, with the answer to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Request {
    pub(super) method: String,
    #[serde(default = "host")]
    pub(super) host: String,
    pub(super) path: String,
    #[serde(default)]
    pub(super) query: BTreeMap<String, String>,
    /// The token, unless it is that of the scenario.
    pub(super) token: Option<String>,
    #[serde(default)]
    pub(super) body: Value,
    /// The fault that the answer comes from: the step has it, and the answer shows it.
    #[serde(skip_serializing, default, rename = "fault")]
    _fault: IgnoredAny,
    pub(super) answer: Answer,
    /// True if the request came more than once in the step, each time with this answer.
    #[serde(default)]
    pub(super) repeated: bool,
    pub(super) seconds_since_previous: Option<u64>,
    pub(super) periods_since_previous: Option<u64>,
}

/// An answer of Konnect.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Answer {
    /// Why there is no answer.
    pub(super) none: Option<String>,
    pub(super) status: Option<u16>,
    /// The id in an ordinary answer, which is otherwise the body that was sent.
    pub(super) id: Option<String>,
    /// The ids of an ordinary list.
    pub(super) ids: Option<Vec<String>>,
    pub(super) body: Option<Value>,
    pub(super) content_type: Option<String>,
    pub(super) headers: BTreeMap<String, String>,
}

/// A request of ours, with the time at which it came, in milliseconds.
#[derive(Debug, Clone)]
pub(super) struct Timed {
    pub(super) at: u64,
    pub(super) request: Request,
}

/// What is left out of all requests of a scenario.
#[derive(Debug, Default)]
pub(super) struct Normal {
    is_without_control_plane: bool,
    /// True if the look-ups of control planes do not count.
    is_without_lookups: bool,
    /// The calls of each pass that have come before.
    seen: BTreeSet<String>,
    /// The last time at which something was sent for an entity.
    sent: BTreeMap<String, u64>,
}

fn host() -> String {
    HOST.to_owned()
}

// === impl Request ===

impl Request {
    /// Returns a request of the log in the form of the record.
    pub(super) fn of(entry: &Entry, names: &Names, token: &str) -> Self {
        let shown = |text: &String| names.shown(text);
        let mut body = names.value(entry.body.as_ref().unwrap_or(&Value::Null));
        sort_lists(&mut body);
        let query = entry.query.iter().map(|(name, value)| {
            let value = shown(value);
            (name.clone(), if name == "tags" { sorted_text(&value) } else { value })
        });
        Self {
            method: entry.method.clone(),
            host: entry.host.clone(),
            path: shown(&entry.path),
            query: query.collect(),
            token: entry.token.clone().filter(|held| held != token),
            body,
            _fault: IgnoredAny,
            answer: Answer::of(entry.answer.as_ref(), names),
            repeated: false,
            seconds_since_previous: None,
            periods_since_previous: None,
        }
    }

    /// Returns whether the request changes nothing.
    pub(super) fn is_read(&self) -> bool {
        self.method == "GET"
    }

    /// Returns whether the request has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.answer.status.is_none_or(|status| status >= 400)
    }

    pub(super) fn is_of_organization(&self) -> bool {
        self.path == ORGANIZATION
    }

    /// Returns whether the request looks a control plane up by its id, and finds it.
    pub(super) fn is_lookup_by_id(&self) -> bool {
        let is_found = self.answer.ids.as_ref().is_some_and(|ids| !ids.is_empty());
        self.is_read() && self.path == CONTROL_PLANES && self.query.contains_key(BY_ID) && is_found
    }

    /// Returns whether the request belongs to every pass of the object that it is for.
    pub(super) fn is_of_each_pass(&self) -> bool {
        self.is_of_organization() || self.is_lookup_by_id()
    }

    /// Returns whether the request is for the organization or for a control plane itself.
    fn is_of_control_plane(&self) -> bool {
        let after = self.path.strip_prefix(CONTROL_PLANES);
        let is_itself = |rest: &str| !rest.trim_start_matches('/').contains('/');
        self.is_of_organization() || after.is_some_and(is_itself)
    }

    /// Returns the request and its answer as a text, by which equal ones are found.
    pub(super) fn key(&self) -> String {
        let Self { method, host, path, query, token, body, answer, .. } = self;
        json!([method, host, path, query, token, body, answer]).to_string()
    }

    /// Returns the path of the entity that is written, or that was created.
    pub(super) fn entity(&self) -> String {
        match (self.method.as_str(), &self.answer.id) {
            ("POST", Some(id)) => format!("{}/{id}", self.path),
            _ => self.place(),
        }
    }

    /// Returns where something is written: the path of an entity or, where one is created, the path
    /// of the list and the uid of the object.
    pub(super) fn place(&self) -> String {
        match self.method.as_str() {
            "POST" => format!("{} {}", self.path, self.uid().unwrap_or_default()),
            _ => self.path.clone(),
        }
    }

    /// Returns the uid of the object that the body is made of.
    pub(super) fn uid(&self) -> Option<String> {
        uid_of(&self.body)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}{}", self.method, self.host, self.path)?;
        if !self.query.is_empty() {
            write!(to, " {}", json!(self.query))?;
        }
        match self.answer.status {
            Some(status) => write!(to, " ({status})"),
            None => to.write_str(" (no answer)"),
        }
    }
}

/// Returns the uid of the object that an entity is made of, by its tag or label.
pub(super) fn uid_of(entity: &Value) -> Option<String> {
    let tags = entity.get("tags").and_then(Value::as_array).into_iter().flatten();
    let tag = tags.filter_map(Value::as_str).find_map(|tag| tag.strip_prefix("k8s-uid:"));
    let label = entity.pointer("/labels/k8s-uid").and_then(Value::as_str);
    tag.or(label).map(str::to_owned)
}

// === impl Answer ===

impl Answer {
    fn of(answered: Option<&Answered>, names: &Names) -> Self {
        let Some(Answered { status, headers, body }) = answered else {
            return Self { none: Some(NONE.to_owned()), ..Self::default() };
        };
        let header = |name: &str| {
            let mut held = headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
            held.next().map(|(_, value)| value.clone())
        };
        let body = body.as_ref().map(|body| names.value(body));
        let retry = header("retry-after").map(|value| ("Retry-After".to_owned(), value));
        let answer = Self {
            status: Some(*status),
            headers: retry.into_iter().collect(),
            content_type: header("content-type").filter(|held| body.is_some() && held != JSON),
            ..Self::default()
        };
        match body {
            Some(body) if matches!(status, 200 | 201) => answer.ordinary(body),
            body => Self { body: body.map(without_times), ..answer },
        }
    }

    /// Adds the ids of an ordinary answer, or the body of another.
    fn ordinary(self, body: Value) -> Self {
        let id = |entity: &Value| Some(entity.get("id")?.as_str()?.to_owned());
        let list = ["data", "items"].iter().find_map(|field| body.get(field)?.as_array());
        if let Some(id) = id(&body).or_else(|| id(body.get("item")?)) {
            Self { id: Some(id), ..self }
        } else if let Some(list) = list {
            Self { ids: Some(list.iter().filter_map(id).collect()), ..self }
        } else if body.get("consumer_group").is_some() {
            self
        } else {
            Self { body: Some(without_times(body)), ..self }
        }
    }
}

fn without_times(mut body: Value) -> Value {
    if let Value::Object(fields) = &mut body {
        fields.retain(|field, _| !LEFT_OUT.contains(&field.as_str()));
    }
    body
}

// === impl Normal ===

impl Normal {
    /// Starts a scenario without requests.
    pub(super) fn new(is_without_control_plane: bool, is_without_lookups: bool) -> Self {
        Self { is_without_control_plane, is_without_lookups, ..Self::default() }
    }

    /// Returns the requests of the record in a step without those that are left out.
    pub(super) fn recorded(&mut self, step: &Step) -> Vec<Request> {
        let requests = step.requests.iter().map(|request| {
            let mut request = request.clone();
            sort_lists(&mut request.body);
            if let Some(tags) = request.query.get_mut("tags") {
                *tags = sorted_text(tags);
            }
            request
        });
        let requests = requests.map(|request| Timed { at: 0, request }).collect();
        self.reduced(requests, step)
    }

    /// Returns the requests of ours in a step, with their times, and without those that are left
    /// out. `period` is the sync period in milliseconds.
    pub(super) fn ours(&mut self, mut timed: Vec<Timed>, step: &Step, period: u64) -> Vec<Request> {
        let mut previous: BTreeMap<(String, String), u64> = BTreeMap::new();
        for Timed { at, request } in &mut timed {
            let of = (request.method.clone(), request.path.clone());
            let last = previous.insert(of, *at);
            if step.has_times() && !step.has_periods() {
                request.seconds_since_previous = last.map(|last| at.saturating_sub(last) / 1_000);
            }
            if !request.is_read() {
                let last = self.sent.insert(request.entity(), *at);
                let passed = last.map(|last| at.saturating_sub(last));
                if step.has_periods() {
                    // Rounded to the nearest.
                    request.periods_since_previous =
                        passed.map(|passed| (2 * passed + period) / (2 * period));
                }
            }
        }
        self.reduced(timed, step)
    }

    /// Forgets what a setup step has asked: its requests are not recorded.
    pub(super) fn skip(&mut self, timed: Vec<Timed>) -> BTreeSet<String> {
        let mut asked = BTreeSet::new();
        for Timed { at, request } in timed {
            if request.is_of_each_pass() {
                asked.insert(request.key());
            }
            if !request.is_read() {
                self.sent.insert(request.entity(), at);
            }
        }
        asked
    }

    fn reduced(&mut self, timed: Vec<Timed>, step: &Step) -> Vec<Request> {
        let mut kept: Vec<Timed> = Vec::new();
        let mut deleted: BTreeSet<String> = BTreeSet::new();
        for Timed { at, request } in timed {
            if self.is_left_out(&request, step) {
                continue;
            }
            let is_gone = request.method == "DELETE" && deleted.contains(&request.path);
            if request.method == "DELETE" && request.answer.status == Some(204) {
                deleted.insert(request.path.clone());
            }
            let key = request.key();
            let equal = kept.iter_mut().rev().find(|held| held.request.key() == key);
            match equal {
                _ if is_gone => {}
                Some(first) if request.has_failed() && !step.has_periods() => {
                    first.request.repeated = true;
                }
                Some(last) if request.is_read() && step.has_times() => {
                    if last.at / 1_000 != at / 1_000 {
                        kept.push(Timed { at, request });
                    }
                }
                Some(_) if request.is_read() => {}
                Some(_)
                    if matches!(request.method.as_str(), "PUT" | "PATCH") && !step.has_times() => {}
                _ => kept.push(Timed { at, request }),
            }
        }
        let mut requests: Vec<Request> = kept.into_iter().map(|timed| timed.request).collect();
        // Those of each pass come at any time.
        requests.sort_by_key(|request| (!request.is_of_organization(), !request.is_of_each_pass()));
        if step.requests_in_any_order {
            requests.sort_by_cached_key(Request::key);
        }
        requests
    }

    fn is_left_out(&mut self, request: &Request, step: &Step) -> bool {
        step.without_reads && request.is_read()
            || self.is_without_control_plane && request.is_of_control_plane()
            || self.is_without_lookups && request.is_lookup_by_id()
            || request.is_of_each_pass() && !self.seen.insert(request.key())
    }
}

// === lists whose order does not count ===

/// Sorts the lists `tags` and `members`.
pub(super) fn sort_lists(body: &mut Value) {
    let fields = body.as_object_mut().into_iter().flat_map(Map::iter_mut);
    for (_, list) in fields.filter(|(name, _)| matches!(name.as_str(), "tags" | "members")) {
        if let Value::Array(items) = list {
            items.sort_by_cached_key(Value::to_string);
        }
    }
}

fn sorted_text(tags: &str) -> String {
    let mut tags: Vec<&str> = tags.split(',').collect();
    tags.sort_unstable();
    tags.join(",")
}

// === comparison ===

/// Returns the differences of two lists of requests. A request that the record marks as repeated
/// may come once.
pub(super) fn differences(expected: &[Request], actual: &[Request]) -> Vec<String> {
    let titles =
        |requests: &[Request]| -> Vec<String> { requests.iter().map(Request::to_string).collect() };
    let (wanted, held) = (titles(expected), titles(actual));
    let mut found = Vec::new();
    for change in similar::capture_diff_slices(Algorithm::Myers, &wanted, &held) {
        let (tag, of_wanted, of_held) = change.as_tag_tuple();
        if tag == DiffTag::Equal {
            for (expected, actual) in expected[of_wanted].iter().zip(&actual[of_held]) {
                compare(expected, actual, &mut found);
            }
            continue;
        }
        let told = |what: &'static str| {
            move |request: &Request| format!("{request}: {what}: {}", json!(request.body))
        };
        found.extend(expected[of_wanted].iter().map(told("is not sent")));
        found.extend(actual[of_held].iter().map(told("is sent, which it is not in the record")));
    }
    found
}

fn compare(expected: &Request, actual: &Request, found: &mut Vec<String>) {
    let mut expected = expected.clone();
    expected.repeated &= actual.repeated;
    with_differences(actual, &json!(expected), &json!(actual), found);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(text: &str) -> Vec<Request> {
        serde_saphyr::from_str(text).unwrap()
    }

    fn step(text: &str) -> Step {
        serde_saphyr::from_str(text).unwrap()
    }

    /// Requests of ours, each a second after the one before.
    fn ours(text: &str, step: &Step) -> Vec<Request> {
        let timed = (0..).zip(requests(text));
        let timed = timed.map(|(second, request)| Timed { at: second * 1_000, request });
        Normal::new(false, false).ours(timed.collect(), step, 4_000)
    }

    const PUT: &str = "{method: PUT, path: /s/1, body: {a: 1}, answer: {status: 200, id: '1'}}";
    const FAILED: &str = "{method: PUT, path: /s/1, body: {a: 1}, answer: {status: 500}}";
    const GET: &str = "{method: GET, path: /s, answer: {status: 200, ids: []}}";
    const DELETE: &str = "{method: DELETE, path: /s/1, answer: {status: 204}}";

    #[test]
    fn what_comes_more_than_once_counts_once() {
        let plain = step("{}");
        let cases = [
            (format!("[{PUT}, {PUT}]"), format!("[{PUT}]")),
            (format!("[{GET}, {PUT}, {GET}]"), format!("[{GET}, {PUT}]")),
            (
                format!("[{FAILED}, {FAILED}, {PUT}]"),
                format!("[{}, {PUT}]", FAILED.replace("answer", "repeated: true, answer")),
            ),
            (format!("[{DELETE}, {}]", DELETE.replace("204", "404")), format!("[{DELETE}]")),
            (
                format!("[{PUT}, {}]", PUT.replace("a: 1", "a: 2")),
                format!("[{PUT}, {}]", PUT.replace("a: 1", "a: 2")),
            ),
        ];
        for (sent, expected) in cases {
            assert_eq!(ours(&sent, &plain), requests(&expected), "{sent}");
        }
    }

    #[test]
    fn the_first_call_of_each_pass_is_at_the_head_of_its_step() {
        let organization =
            "{method: GET, path: /v3/organizations/me, answer: {status: 200, id: ID-organization}}";
        let lookup = "{method: GET, path: /v2/control-planes, query: {'filter[id][eq]': x}, answer: {status: 200, ids: [x]}}";
        let sent = format!("[{PUT}, {lookup}, {organization}, {lookup}]");
        let expected = format!("[{organization}, {lookup}, {PUT}]");
        assert_eq!(ours(&sent, &step("{}")), requests(&expected));
        let mut normal = Normal::new(false, false);
        let timed = |text: &str| -> Vec<Timed> {
            requests(text).into_iter().map(|request| Timed { at: 0, request }).collect()
        };
        normal.ours(timed(&sent), &step("{}"), 1_000);
        assert_eq!(normal.ours(timed(&sent), &step("{}"), 1_000), requests(&format!("[{PUT}]")));
        let mut without = Normal::new(true, false);
        assert_eq!(without.ours(timed(&sent), &step("{}"), 1_000), requests(&format!("[{PUT}]")));
    }

    #[test]
    fn times_are_those_since_the_previous_call() {
        let timed = step(&format!(
            "{{requests: [{}]}}",
            PUT.replace("answer", "secondsSincePrevious: 1, answer")
        ));
        let found = ours(&format!("[{PUT}, {PUT}]"), &timed);
        let seconds: Vec<Option<u64>> =
            found.iter().map(|request| request.seconds_since_previous).collect();
        assert_eq!(seconds, [None, Some(1)]);
        let periods = step("{waitPeriods: 1}");
        let create = "{method: POST, path: /s, answer: {status: 201, id: '1'}}";
        let found = ours(&format!("[{create}, {GET}, {GET}, {GET}, {PUT}]"), &periods);
        assert_eq!(found.last().unwrap().periods_since_previous, Some(1));
    }

    #[test]
    fn differences_are_told_by_request_and_field() {
        let cases: [(&str, &str, &[&str]); 7] = [
            (PUT, PUT, &[]),
            (FAILED, FAILED, &[]),
            (PUT, &PUT.replace("a: 1", "a: 2"), &["/body/a: expected 1, found 2"]),
            (PUT, "", &["is not sent"]),
            ("", PUT, &["is sent, which it is not in the record"]),
            (PUT, FAILED, &["(200): is not sent", "(500): is sent"]),
            (
                PUT,
                &PUT.replace("answer", "token: other, answer"),
                &["/token: expected null, found \"other\""],
            ),
        ];
        for (expected, actual, texts) in cases {
            let parse = |text: &str| requests(&format!("[{text}]"));
            let found = differences(&parse(expected), &parse(actual));
            assert_eq!(found.len(), texts.len(), "{expected} {actual}: {found:?}");
            for (found, text) in found.iter().zip(texts) {
                assert!(found.contains(text), "{found}");
            }
        }
    }

    #[test]
    fn a_request_that_is_repeated_in_the_record_may_come_once_but_not_the_other_way_round() {
        let repeated =
            requests(&format!("[{}]", FAILED.replace("answer", "repeated: true, answer")));
        let once = requests(&format!("[{FAILED}]"));
        assert_eq!(differences(&repeated, &once), Vec::<String>::new());
        assert_eq!(differences(&once, &repeated).len(), 1);
    }

    #[test]
    fn lists_of_tags_and_members_have_no_order() {
        let body = |text: &str| {
            let mut body: Value = serde_saphyr::from_str(text).unwrap();
            sort_lists(&mut body);
            body
        };
        assert_eq!(
            body("{tags: [b, a], members: [{id: b}, {id: a}]}"),
            body("{tags: [a, b], members: [{id: a}, {id: b}]}")
        );
        assert_ne!(body("{paths: [b, a]}"), body("{paths: [a, b]}"));
        assert_eq!(sorted_text("b,a"), "a,b");
    }
}
