//! Cases of hooks, run by the component.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use jiff::Timestamp;
use mortise_core::{
    contract::{
        Description, ObjectRef,
        hooks::{Operation, Review, shown},
    },
    path::Fields,
    store::{Scope, Stores, Wanted},
};
use mortise_host::{
    host::{Hooking, Loaded},
    wasm::Processor,
};
use mortise_sdk::testing::{
    Reviewed,
    case::{HookAnswer, HookCase, Question},
};
use serde_json::Value;

use super::Verdict;
use crate::local;

/// The time limit of each request, besides the limits of the component.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a case, and writes its answer as the expected one if requested.
///
/// # Errors
///
/// Fails if the expected answer cannot be written.
pub(super) async fn verdict(
    processor: &Processor,
    case: &HookCase,
    update: bool,
) -> anyhow::Result<Verdict> {
    let start = Instant::now();
    let mut verdict = Verdict {
        name: case.name.clone(),
        differences: Vec::new(),
        error: None,
        updated: false,
        took: Duration::ZERO,
    };
    match ask(processor.clone(), case).await {
        Err(error) => verdict.error = Some(format!("{error:#}")),
        Ok(answer) => {
            verdict.differences = case.differences(&answer);
            if update && !verdict.differences.is_empty() {
                let file = case.expected_file();
                let cannot = || format!("cannot write `{}`", file.display());
                std::fs::write(&file, answer.to_yaml()).with_context(cannot)?;
                verdict.updated = true;
            }
        }
    }
    verdict.took = start.elapsed();
    Ok(verdict)
}

/// Sends a component the request of a case, by the rules of the host.
///
/// # Errors
///
/// Fails if the component refuses the configuration.
pub async fn ask(processor: Processor, case: &HookCase) -> anyhow::Result<HookAnswer> {
    let loaded = local::describe(processor, &case.config).await?;
    let ends = Instant::now() + REQUEST_TIMEOUT;
    match &case.question {
        Question::Convert { object, to } => {
            let hooking = hooking(&loaded, &[])?;
            let kind = local::kind_of(object);
            let to =
                if kind.group.is_empty() { to.clone() } else { format!("{}/{to}", kind.group) };
            let objects = vec![object.to_string().into()];
            let converted = hooking.convert(&kind.kind, &to, objects, ends).await;
            let converted = converted.map_err(|error| error.message());
            Ok(HookAnswer::converted(converted.and_then(|texts| only(&texts))))
        }
        Question::Review { hook, object, old, user, objects } => {
            let review = review(hook, object.as_ref(), old.as_ref(), user)?;
            let decision = hooking(&loaded, objects)?.admit(review, ends, |_| Ok(())).await;
            let reviewed = decision.map_err(|error| error.message()).and_then(|decision| {
                let mut stored = object.clone().filter(|_| decision.denial.is_none());
                if let (Some(stored), Some(patch)) = (&mut stored, &decision.patch) {
                    json_patch::patch(stored, patch).map_err(|error| error.to_string())?;
                }
                let denial = decision
                    .denial
                    .map(|of| mortise_sdk::Denial { code: of.code, message: of.message });
                Ok(Reviewed { denial, object: stored, warnings: decision.warnings })
            });
            Ok(HookAnswer::reviewed(reviewed, object.as_ref()))
        }
    }
}

fn only(texts: &[String]) -> Result<Value, String> {
    let text = texts.first().map(String::as_str).unwrap_or_default();
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn review(
    hook: &str,
    object: Option<&Value>,
    old: Option<&Value>,
    user: &str,
) -> anyhow::Result<Review> {
    let operation = match (object, old) {
        (Some(_), None) => Operation::Create,
        (Some(_), Some(_)) => Operation::Update,
        (None, _) => Operation::Delete,
    };
    let of = object.or(old).context("a review is of an object")?;
    let text = |pointer: &str| of.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let text_of = |object: &Value| shown(&object.to_string()).map_err(anyhow::Error::msg);
    Ok(Review {
        hook: hook.to_owned(),
        operation,
        ref_: ObjectRef {
            kind: local::kind_of(of).into(),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name").unwrap_or_default(),
        },
        object: object.map(text_of).transpose()?,
        old: old.map(text_of).transpose()?,
        user: user.to_owned(),
        groups: vec!["system:authenticated".to_owned()],
        dry_run: false,
        config: String::new(),
    })
}

/// Returns the hooks of a processor, which can read these objects.
fn hooking(loaded: &Loaded, objects: &[Value]) -> anyhow::Result<Hooking> {
    let stores = stores(&loaded.description, objects);
    // The time at which cases begin.
    let now: Timestamp = "2026-01-01T00:00:00Z".parse()?;
    Hooking::apart(loaded, stores, Arc::new(move || now))
}

/// Returns stores of all kinds that a processor declares, with these objects. Each version of a
/// kind has the same objects.
fn stores(description: &Description, objects: &[Value]) -> Stores {
    let stores = Stores::new();
    let wanted = Wanted { fields: Fields::whole(), matching: BTreeSet::default(), written: true };
    for kind in description.kinds() {
        let Some(feed) = stores.open(&kind, &Scope::default(), &wanted) else { continue };
        feed.begin_list();
        for object in objects {
            let mut of = local::kind_of(object);
            kind.version.clone_into(&mut of.version);
            if of == kind {
                let mut object = object.clone();
                let group =
                    if kind.group.is_empty() { String::new() } else { format!("{}/", kind.group) };
                if let Some(fields) = object.as_object_mut() {
                    let version = format!("{group}{}", kind.version);
                    fields.insert("apiVersion".to_owned(), version.into());
                }
                feed.list_item(&object);
            }
        }
        feed.end_list();
    }
    stores
}
