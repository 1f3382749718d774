//! What rules can call, beyond operators and macros: the functions of CEL and those that Kubernetes adds.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value};
use regex::Regex;

use super::re2;

/// How many patterns a thread remembers; rules have constant ones, so that there are few.
const PATTERNS: usize = 512;

/// The functions and names that every rule sees. Contexts of single evaluations are made inside of it.
pub(super) static ROOT: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    context.add_function("matches", matches);
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

/// `text.matches(pattern)`: patterns are compiled once for each thread.
#[expect(clippy::needless_pass_by_value, reason = "the form that functions of rules have")]
fn matches(This(text): This<Arc<String>>, pattern: Arc<String>) -> Result<bool, ExecutionError> {
    REGEXES.with_borrow_mut(|regexes| {
        if let Some(regex) = regexes.get(pattern.as_str()) {
            return found(regex, &text);
        }
        if regexes.len() >= PATTERNS {
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
