//! The options of each verb, validated as by Kubernetes.

use serde_json::Value;

use super::{Encoding, Query, Request};
use crate::{
    Failure, field_error::FieldError, kind::FieldValidation, request::Body, status::Named,
};

const META: &str = "meta.k8s.io";

/// Options of create, update and patch.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) manager: String,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: bool,
}

/// Options of list and watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListOptions {
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) resource_version: String,
    pub(crate) version_match: Option<Match>,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

/// The meaning of the resource version of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    Exact,
    NotOlderThan,
}

/// Options of delete and of deleting a collection.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    pub(crate) grace_period: Option<i64>,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

/// The treatment of dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

// === impl WriteOptions ===

impl WriteOptions {
    /// Reads the options of a request. `kind` names the options in messages: `CreateOptions`.
    /// `is_apply` is `None` for all verbs but patch.
    pub(crate) fn of(
        request: &Request,
        kind: &str,
        is_apply: Option<bool>,
    ) -> Result<Self, Failure> {
        let query = &request.query;
        check_timeout(query)?;
        let mut faults = Vec::new();
        let force = query.flag("force");
        let manager = query.text("fieldManager");
        match is_apply {
            Some(true) if manager.is_empty() => {
                faults.push(FieldError::required("fieldManager", "is required for apply patch"));
            }
            Some(false) if query.get("force").is_some() => {
                faults.push(FieldError::forbidden(
                    "force",
                    "may not be specified for non-apply patch",
                ));
            }
            _ => {}
        }
        check_manager(manager, &mut faults);
        let dry_run =
            check_dry_run(&query.all("dryRun").map(Value::from).collect::<Vec<_>>(), &mut faults);
        let field_validation = check_field_validation(query.text("fieldValidation"), &mut faults);
        refuse(kind, faults)?;
        Ok(Self { dry_run, manager: request.manager(), field_validation, force })
    }
}

// === impl ListOptions ===

impl ListOptions {
    pub(crate) fn of(query: &Query, is_watch: bool) -> Result<Self, Failure> {
        check_timeout(query)?;
        let limit = query.number("limit")?.unwrap_or_default();
        let timeout = query.number("timeoutSeconds")?;
        let mut faults = Vec::new();
        let version_match = if is_watch {
            check_watch_match(query, &mut faults)
        } else {
            check_match(query, &mut faults)
        };
        refuse("ListOptions", faults)?;
        Ok(Self {
            label_selector: query.text("labelSelector").to_owned(),
            field_selector: query.text("fieldSelector").to_owned(),
            resource_version: query.text("resourceVersion").to_owned(),
            version_match,
            limit: usize::try_from(limit).unwrap_or_default(),
            continue_token: query.text("continue").to_owned(),
            timeout_seconds: timeout
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|seconds| *seconds > 0),
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.optional_flag("sendInitialEvents"),
        })
    }
}

/// Validates the resource version options of a list.
fn check_match(query: &Query, faults: &mut Vec<FieldError>) -> Option<Match> {
    let mut forbid = |field: &str, why: &str| faults.push(FieldError::forbidden(field, why));
    if query.get("sendInitialEvents").is_some() {
        forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    let text = query.get("resourceVersionMatch").filter(|text| !text.is_empty())?;
    let field = "resourceVersionMatch";
    if query.text("resourceVersion").is_empty() {
        forbid(field, "resourceVersionMatch is forbidden unless resourceVersion is provided");
    }
    if !query.text("continue").is_empty() {
        forbid(field, "resourceVersionMatch is forbidden when continue is provided");
    }
    match text {
        "Exact" => {
            if query.text("resourceVersion") == "0" {
                forbid(
                    field,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                );
            }
            Some(Match::Exact)
        }
        "NotOlderThan" => Some(Match::NotOlderThan),
        _ => {
            faults.push(FieldError::not_supported(field, text, ["Exact", "NotOlderThan", ""]));
            None
        }
    }
}

/// Validates the resource version options of a watch.
fn check_watch_match(query: &Query, faults: &mut Vec<FieldError>) -> Option<Match> {
    let field = "resourceVersionMatch";
    let mut forbid = |why: &str| faults.push(FieldError::forbidden(field, why));
    let sends = query.get("sendInitialEvents").is_some();
    let text = query.text(field);
    if sends && text != "NotOlderThan" {
        forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    }
    if text.is_empty() {
        return None;
    }
    if !sends {
        forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
    }
    if !query.text("continue").is_empty() {
        forbid("resourceVersionMatch is forbidden when continue is provided");
    }
    if text != "NotOlderThan" {
        faults.push(FieldError::not_supported(field, text, ["NotOlderThan"]));
    }
    Some(Match::NotOlderThan)
}

// === impl DeleteOptions ===

impl DeleteOptions {
    /// Reads the options from the body, or from the query if there is no body.
    pub(crate) fn of(request: &Request) -> Result<Self, Failure> {
        check_timeout(&request.query)?;
        if request.body.is_empty() {
            return Self::from_query(&request.query);
        }
        let content_type = request.header("content-type");
        let Some(encoding) = Encoding::of(content_type) else {
            return Err(Failure::unsupported_media_type(super::super::answer::BODIES));
        };
        let body = Body::read(&request.body, encoding)?.value;
        Self::from_value(&body)
    }

    /// Reads the options from an object `DeleteOptions`.
    pub(crate) fn from_value(options: &Value) -> Result<Self, Failure> {
        if !options.is_object() {
            return Err(Failure::bad_request("the body is no DeleteOptions"));
        }
        let wrong =
            |field: &str| Failure::bad_request(format!("DeleteOptions: wrong type of {field}"));
        let get = |field: &str| options.get(field).filter(|value| !value.is_null());
        let text = |value: &Value, field: &str| {
            value.as_str().map(str::to_owned).ok_or_else(|| wrong(field))
        };
        let dry_run = get("dryRun").and_then(Value::as_array).cloned().unwrap_or_default();
        let policy =
            get("propagationPolicy").map(|value| text(value, "propagationPolicy")).transpose()?;
        let condition = |field: &str| {
            options.pointer(&format!("/preconditions/{field}")).filter(|value| !value.is_null())
        };
        Self {
            grace_period: get("gracePeriodSeconds")
                .map(|value| value.as_i64().ok_or_else(|| wrong("gracePeriodSeconds")))
                .transpose()?,
            orphan_dependents: get("orphanDependents")
                .map(|value| value.as_bool().ok_or_else(|| wrong("orphanDependents")))
                .transpose()?,
            uid: condition("uid").map(|value| text(value, "preconditions.uid")).transpose()?,
            resource_version: condition("resourceVersion")
                .map(|value| text(value, "preconditions.resourceVersion"))
                .transpose()?,
            ..Self::default()
        }
        .checked(policy.as_deref(), &dry_run)
    }

    fn from_query(query: &Query) -> Result<Self, Failure> {
        let dry_run: Vec<Value> = query.all("dryRun").map(Value::from).collect();
        Self {
            grace_period: query.number("gracePeriodSeconds")?,
            orphan_dependents: query.optional_flag("orphanDependents"),
            ..Self::default()
        }
        .checked(query.get("propagationPolicy"), &dry_run)
    }

    fn checked(mut self, policy: Option<&str>, dry_run: &[Value]) -> Result<Self, Failure> {
        let mut faults = Vec::new();
        if let Some(policy) = policy {
            let field = "propagationPolicy";
            if self.orphan_dependents.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                faults.push(FieldError::invalid(field, policy, why));
            }
            self.propagation = match policy {
                "Background" => Some(Propagation::Background),
                "Foreground" => Some(Propagation::Foreground),
                "Orphan" => Some(Propagation::Orphan),
                _ => {
                    let known = ["Foreground", "Background", "Orphan", "nil"];
                    faults.push(FieldError::not_supported(field, policy, known));
                    None
                }
            };
        }
        self.dry_run = check_dry_run(dry_run, &mut faults);
        refuse("DeleteOptions", faults)?;
        Ok(self)
    }
}

fn refuse(kind: &str, faults: Vec<FieldError>) -> Result<(), Failure> {
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Failure::invalid(Named::new(META, kind, ""), faults))
    }
}

/// Validates the parameter `timeout`, a duration, which is not used.
fn check_timeout(query: &Query) -> Result<(), Failure> {
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(()) };
    if text == "0" {
        return Ok(());
    }
    let units = ["ms", "us", "ns", "h", "m", "s"];
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let unit = units.into_iter().find_map(|unit| number.strip_prefix(unit));
        match unit {
            Some(after) if number.len() < rest.len() => rest = after,
            _ => {
                return Err(Failure::bad_request(format!(
                    "invalid timeout specified in the request URL: {text:?}"
                )));
            }
        }
    }
    Ok(())
}

fn check_manager(manager: &str, faults: &mut Vec<FieldError>) {
    const MAX_MANAGER_BYTES: usize = 128;
    if manager.len() > MAX_MANAGER_BYTES {
        faults.push(FieldError::too_long("fieldManager", MAX_MANAGER_BYTES));
    }
    if let Some((position, c)) = manager.chars().enumerate().find(|(_, c)| c.is_control()) {
        let why = format!("invalid character U+{:04X} (at position {position})", u32::from(c));
        faults.push(FieldError::invalid("fieldManager", manager, why));
    }
}

fn check_dry_run(values: &[Value], faults: &mut Vec<FieldError>) -> bool {
    if values.iter().any(|value| value != "All") {
        faults.push(FieldError::not_supported("dryRun", Value::Array(values.to_vec()), ["All"]));
    }
    !values.is_empty()
}

fn check_field_validation(text: &str, faults: &mut Vec<FieldError>) -> FieldValidation {
    match text {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        _ => {
            faults.push(FieldError::not_supported(
                "fieldValidation",
                text,
                ["", "Ignore", "Strict", "Warn"],
            ));
            FieldValidation::Warn
        }
    }
}
