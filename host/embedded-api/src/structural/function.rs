//! The functions that rules can call, beyond operators and macros: those of CEL and those that
//! Kubernetes adds.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use chrono::SecondsFormat;
use kube_cel::{
    KubeCelExt as _,
    cel::{
        Context, ExecutionError, Program, ResolveResult, Value,
        extractors::This,
        objects::{Map, Opaque},
    },
};
use regex::Regex;

use super::{re2, rule};
use crate::field_error::go_float;

/// The number of patterns that a thread caches; rules have constant ones, so there are few.
const MAX_CACHED_PATTERNS: usize = 512;

/// The functions and names that every rule sees. Contexts of single evaluations are its inner
/// scopes.
pub(super) static ROOT: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    context.add_function(rule::PAIRS, pairs);
    context.add_function(rule::MERGE, merge);
    context.add_function("matches", matches);
    context.add_function("size", size);
    context.add_function("string", to_string);
    context.add_function("dyn", ResolveResult::Ok as fn(Value) -> ResolveResult);
    context.add_function("bool", to_bool);
    context.add_function("type", type_of);
    for name in
        ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"]
    {
        context.add_variable_from_value(name, TypeName(name).into_value());
    }
    context
});

/// The functions of the library, called by ours for the types that ours do not handle.
static LIBRARY: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

/// A type as a value: `type(self) == string`.
#[derive(Debug, PartialEq, Eq)]
struct TypeName(&'static str);

impl TypeName {
    fn into_value(self) -> Value {
        Value::Opaque(Arc::new(self))
    }
}

impl Opaque for TypeName {
    #[expect(clippy::unnecessary_literal_bound, reason = "the trait asks for this form")]
    fn runtime_type_name(&self) -> &str {
        "type"
    }
}

#[expect(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "the form that functions of rules have"
)]
fn type_of(value: Value) -> ResolveResult {
    let name = match value {
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Int(_) => "int",
        Value::UInt(_) => "uint",
        Value::Float(_) => "double",
        Value::String(_) => "string",
        Value::Bytes(_) => "bytes",
        Value::Bool(_) => "bool",
        Value::Duration(_) => "google.protobuf.Duration",
        Value::Timestamp(_) => "google.protobuf.Timestamp",
        Value::Null => "null_type",
        Value::Opaque(_) | Value::Function(_, _) => "type",
    };
    Ok(TypeName(name).into_value())
}

/// Returns the pairs of index and value of a list, or of key and value of a map.
#[expect(clippy::needless_pass_by_value, reason = "the form that functions of rules have")]
fn pairs(range: Value) -> ResolveResult {
    let pair = |one: Value, two: Value| Value::List(Arc::new(vec![one, two]));
    let pairs = match &range {
        Value::List(items) => (0_i64..)
            .map(Value::Int)
            .zip(items.iter())
            .map(|(at, item)| pair(at, item.clone()))
            .collect(),
        Value::Map(map) => {
            map.map.iter().map(|(key, value)| pair(key.into(), value.clone())).collect()
        }
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(Value::List(Arc::new(pairs)))
}

/// Returns a map with the entries of another one, too.
fn merge(one: Value, other: Value) -> ResolveResult {
    let (Value::Map(one), Value::Map(other)) = (one, other) else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let entries = one.map.iter().chain(other.map.iter());
    let map = entries.map(|(key, value)| (key.clone(), value.clone())).collect();
    Ok(Value::Map(Map { map: Arc::new(map) }))
}

/// Returns the number of characters, bytes, items or entries of a value.
fn size(This(value): This<Value>) -> ResolveResult {
    let size = match &value {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.len(),
        Value::Map(map) => map.map.len(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    i64::try_from(size).map(Value::Int).map_err(|_| ExecutionError::NoSuchOverload)
}

/// Converts a value to a text; types of libraries are converted by the library.
fn to_string(This(value): This<Value>) -> ResolveResult {
    let text = match value {
        Value::Bool(value) => value.to_string(),
        Value::Float(value) => go_float(value),
        Value::Timestamp(time) => time.to_utc().to_rfc3339_opts(SecondsFormat::AutoSi, true),
        Value::Duration(duration) => {
            let nanoseconds = duration.num_nanoseconds().ok_or(ExecutionError::NoSuchOverload)?;
            #[expect(
                clippy::cast_precision_loss,
                reason = "Go writes durations by way of floats, too"
            )]
            let seconds = nanoseconds as f64 / 1e9;
            format!("{}s", go_float(seconds))
        }
        other => {
            let mut context = LIBRARY.new_inner_scope();
            context.add_variable_from_value("value", other);
            return STRING.execute(&context);
        }
    };
    Ok(Value::String(Arc::new(text)))
}

static STRING: LazyLock<Program> = LazyLock::new(|| {
    Program::compile("string(value)").expect("the expression is written here, and tested")
});

fn to_bool(value: Value) -> ResolveResult {
    match &value {
        Value::Bool(_) => Ok(value),
        Value::String(text) => match text.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => Err(ExecutionError::function_error(
                "bool",
                "type conversion error from 'string' to 'bool'",
            )),
        },
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

thread_local! {
    static REGEXES: RefCell<HashMap<String, Result<Regex, String>>> = RefCell::default();
}

/// Implements `text.matches(pattern)`: patterns are compiled once for each thread.
#[expect(clippy::needless_pass_by_value, reason = "the form that functions of rules have")]
fn matches(This(text): This<Arc<String>>, pattern: Arc<String>) -> Result<bool, ExecutionError> {
    REGEXES.with_borrow_mut(|regexes| {
        if let Some(regex) = regexes.get(pattern.as_str()) {
            return found(regex, &text);
        }
        if regexes.len() >= MAX_CACHED_PATTERNS {
            regexes.clear();
        }
        let regex = regexes.entry(pattern.to_string()).or_insert_with(|| re2::compile(&pattern));
        found(regex, &text)
    })
}

fn found(regex: &Result<Regex, String>, text: &str) -> Result<bool, ExecutionError> {
    match regex {
        Ok(regex) => Ok(regex.is_match(text)),
        Err(fault) => Err(ExecutionError::function_error("matches", fault)),
    }
}
