//! Replaces what differs from run to run by names, as the recorded answers were.

use std::{collections::HashMap, sync::LazyLock};

use regex::{Captures, Regex};
use serde_json::{Map, Value};

static UID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap()
});
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)").unwrap()
});
static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(\d+[smhdy])+$").unwrap());
static HASH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\?hash=[0-9A-Za-z%]+").unwrap());
static VERSION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(ResourceVersion in (?:the precondition|record)(?: \(|: ))(\d+)").unwrap()
});
static TOO_OLD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(too old resource version: \d+ \()\d+").unwrap());
static TOO_LARGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(Too large resource version: \d+, current: )\d+").unwrap());
static BLANK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\$\{([A-Z0-9-]+)\}").unwrap());

/// The names that were given in one scenario.
#[derive(Default)]
pub(crate) struct Names {
    /// From what was seen to its name, by the prefix of the name.
    seen: HashMap<(&'static str, String), String>,
    counts: HashMap<&'static str, usize>,
    /// From the name to what was seen.
    values: HashMap<String, String>,
    generated: Vec<(String, String)>,
}

/// What a value is part of.
#[derive(Clone, Copy, Default)]
struct Context {
    is_list: bool,
    is_table: bool,
}

impl Names {
    /// Puts what was seen in place of `${RV-1}` and the like.
    pub(crate) fn fill_in(&self, text: &str) -> String {
        let value = |captures: &Captures<'_>| {
            self.values.get(&captures[1]).cloned().unwrap_or_else(|| captures[0].to_owned())
        };
        BLANK.replace_all(text, value).into_owned()
    }

    /// A body, or what is selected of it.
    pub(crate) fn body(&mut self, body: &Value, select: Option<&[&str]>) -> Value {
        self.record_generated(body);
        let is_list = is_list(body);
        let is_table = body["kind"] == "Table";
        self.select(body, select, Context { is_list, is_table })
    }

    /// An event of a watch, or what is selected of it.
    pub(crate) fn event(&mut self, event: &Value, select: Option<&[&str]>) -> Value {
        self.record_generated(&event["object"]);
        let is_table = event["object"]["kind"] == "Table";
        if select.is_some() {
            return self.select(event, select, Context { is_list: false, is_table });
        }
        let is_apart = event["type"] == "BOOKMARK" || is_list(&event["object"]);
        let mut out = Map::new();
        for (key, value) in event.as_object().unwrap() {
            let context = Context { is_list: is_apart && key == "object", is_table };
            out.insert(key.clone(), self.walk(value, key, 0, context));
        }
        Value::Object(out)
    }

    fn select(&mut self, whole: &Value, select: Option<&[&str]>, context: Context) -> Value {
        let Some(select) = select else { return self.walk(whole, "", 0, context) };
        let mut out = Map::new();
        for place in select {
            if let Some(value) = pointer(whole, place) {
                let key = place.rsplit('/').next().unwrap_or_default();
                let is_apart = context.is_list
                    && matches!(*place, "/metadata/resourceVersion" | "/metadata/continue");
                let depth = if is_apart { 2 } else { 9 };
                let value = self.walk(value, key, depth, Context { is_list: is_apart, ..context });
                out.insert((*place).to_owned(), value);
            }
        }
        Value::Object(out)
    }

    /// Walks a value that stands under `key`. `depth` 2 with a list as context is directly in the
    /// list's metadata.
    fn walk(&mut self, value: &Value, key: &str, depth: usize, context: Context) -> Value {
        let is_apart = context.is_list && depth == 2;
        match value {
            Value::Object(map) => {
                let inside =
                    if depth == 0 || (depth == 1 && key == "metadata") { depth + 1 } else { 9 };
                let mut out = Map::new();
                for (key, value) in map {
                    if context.is_table && key == "description" {
                        continue;
                    }
                    let walked = self.walk(value, key, inside, context);
                    out.insert(self.text(key), walked);
                }
                Value::Object(out)
            }
            Value::Array(items) => {
                let mut items: Vec<Value> = items.clone();
                if key == "managedFields" {
                    let text =
                        |item: &Value, key: &str| item[key].as_str().unwrap_or_default().to_owned();
                    items.sort_by_key(|item| {
                        ["operation", "manager", "apiVersion", "subresource"]
                            .map(|key| text(item, key))
                    });
                }
                let mut out: Vec<Value> =
                    items.iter().map(|item| self.walk(item, key, 9, context)).collect();
                if key == "causes" {
                    let text =
                        |item: &Value, key: &str| item[key].as_str().unwrap_or_default().to_owned();
                    out.sort_by_key(|item| {
                        ["field", "reason", "message"].map(|key| text(item, key))
                    });
                }
                Value::Array(out)
            }
            Value::String(text) => Value::String(match key {
                "resourceVersion" if is_number(text) && is_apart => self.fresh("RV-LIST", text),
                "resourceVersion" if is_number(text) => self.name("RV", text),
                "continue" if is_apart && !text.is_empty() => self.fresh("CONTINUE", text),
                "clusterIP" | "clusterIPs" if !text.is_empty() && text != "None" => {
                    self.name("IP", text)
                }
                "storageVersionHash" => "HASH".to_owned(),
                "cells" if context.is_table && AGE.is_match(text) => "AGE".to_owned(),
                _ => self.text(text),
            }),
            other => other.clone(),
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (generated, name) in &self.generated {
            text = text.replace(generated, name);
        }
        let text = UID
            .replace_all(&text, |captures: &Captures<'_>| self.name("UID", &captures[0]))
            .into_owned();
        let time =
            |captures: &Captures<'_>| if captures.get(1).is_some() { "MICROTIME" } else { "TIME" };
        let text = TIME.replace_all(&text, time).into_owned();
        let text = HASH.replace_all(&text, "?hash=HASH").into_owned();
        let version =
            |captures: &Captures<'_>| format!("{}{}", &captures[1], self.name("RV", &captures[2]));
        let text = VERSION.replace_all(&text, version).into_owned();
        let text = TOO_OLD.replace_all(&text, "${1}NUMBER").into_owned();
        TOO_LARGE.replace_all(&text, "${1}NUMBER").into_owned()
    }

    fn name(&mut self, prefix: &'static str, value: &str) -> String {
        if let Some(name) = self.seen.get(&(prefix, value.to_owned())) {
            return name.clone();
        }
        let name = self.fresh(prefix, value);
        self.seen.insert((prefix, value.to_owned()), name.clone());
        name
    }

    fn fresh(&mut self, prefix: &'static str, value: &str) -> String {
        let count = self.counts.entry(prefix).or_default();
        *count += 1;
        let name = format!("{prefix}-{count}");
        self.values.insert(name.clone(), value.to_owned());
        name
    }

    fn record_generated(&mut self, body: &Value) {
        let items = body["items"].as_array().into_iter().flatten();
        for object in std::iter::once(body).chain(items) {
            let metadata = &object["metadata"];
            let (Some(prefix), Some(name)) =
                (metadata["generateName"].as_str(), metadata["name"].as_str())
            else {
                continue;
            };
            let is_known = self.generated.iter().any(|(generated, _)| generated == name);
            if name.strip_prefix(prefix).is_some_and(|suffix| suffix.len() == 5) && !is_known {
                let given = self.fresh("NAME", name);
                self.generated.push((name.to_owned(), given));
            }
        }
    }
}

fn is_list(body: &Value) -> bool {
    let kind = body["kind"].as_str().unwrap_or_default();
    (body.get("items").is_some() && body.get("metadata").is_some())
        || kind.ends_with("List")
        || kind == "Table"
}

fn is_number(text: &str) -> bool {
    text != "0" && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A JSON pointer with `[key=value]` for the item of a list.
pub(crate) fn pointer<'a>(whole: &'a Value, place: &str) -> Option<&'a Value> {
    let mut value = whole;
    let mut rest = place.strip_prefix('/')?;
    loop {
        let end =
            if rest.starts_with('[') { rest.find(']').map(|end| end + 1) } else { rest.find('/') };
        let (segment, after) = rest.split_at(end.unwrap_or(rest.len()));
        let inner = segment.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
        value = if let Some((key, wanted)) = inner.and_then(|inner| inner.split_once('=')) {
            let at = |item: &'a Value| key.split('.').try_fold(item, |item, key| item.get(key));
            value
                .as_array()?
                .iter()
                .find(|item| at(item).and_then(Value::as_str) == Some(wanted))?
        } else {
            let key = segment.replace("~1", "/").replace("~0", "~");
            match value {
                Value::Array(items) => items.get(key.parse::<usize>().ok()?)?,
                value => value.get(&key)?,
            }
        };
        match after.strip_prefix('/') {
            Some(after) => rest = after,
            None => return Some(value),
        }
    }
}

/// Numbers are compared by value: `1.0` becomes `1`.
#[expect(clippy::cast_possible_truncation, reason = "only numbers without a fraction are cast")]
pub(crate) fn integral(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(float) =
                number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15)
            {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(integral),
        Value::Object(map) => map.values_mut().for_each(integral),
        _ => {}
    }
}
