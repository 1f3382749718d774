//! Get and list.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Call, select::Selection};
use crate::{
    Cause, Failure,
    answer::{Answer, List},
    request::{ListOptions, Match},
    state::State,
    storage::{Compacted, Image},
};

const META: &str = "meta.k8s.io/v1";

/// The content of a continue token.
#[derive(Debug, Serialize, Deserialize)]
struct Token {
    v: String,
    /// The revision of the first page; -1 for the newest.
    rv: i64,
    /// The last key of the previous page.
    start: String,
}

/// The moment whose state of the objects a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Now,
    At(u64),
}

/// Answers with one object.
pub(super) fn get(call: &Call<'_>) -> Result<Answer, Failure> {
    let version = call.request.query.text("resourceVersion");
    let state = call.shared.state.read();
    if let Some(wanted) = parse_version(version)
        .map_err(|why| Failure::bad_request(format!("invalid resource version: {why}")))?
    {
        check_not_newer(wanted, &state)?;
    }
    let image = state
        .storage
        .get(&call.place())
        .ok_or_else(|| Failure::not_found(call.named(&call.path.name)))?;
    Ok(Answer::object(200, State::show_at(call.resource, image, call.subresource())?))
}

/// Answers with the objects of a collection.
pub(super) fn list(call: &Call<'_>) -> Result<Answer, Failure> {
    let options = ListOptions::of(&call.request.query, false)?;
    let selection = Selection::of(call.path, &options, call.resource)?;
    let state = call.shared.state.read();
    let (moment, after) = moment(&options, &state)?;
    let page = page(call, &state, &selection, moment, after.as_deref(), limit(&options))?;
    let revision = match moment {
        Moment::Now => state.storage.revision(),
        Moment::At(revision) => revision,
    };
    let continue_token = page.last.map(|last| token(revision, &last)).unwrap_or_default();
    let items = State::show_all(call.resource, &page.images)?;
    Ok(Answer::list(List {
        items,
        resource_version: revision.to_string(),
        continue_token,
        remaining: page.remaining,
    }))
}

/// Returns all objects of the selection, as they are now.
pub(super) fn select(
    call: &Call<'_>,
    state: &State,
    selection: &Selection,
) -> Result<Vec<Arc<Image>>, Failure> {
    Ok(page(call, state, selection, Moment::Now, None, usize::MAX)?.images)
}

struct Page {
    images: Vec<Arc<Image>>,
    /// The key of the last object of the page, if there are more objects.
    last: Option<Arc<str>>,
    remaining: Option<usize>,
}

fn page(
    call: &Call<'_>,
    state: &State,
    selection: &Selection,
    moment: Moment,
    after: Option<&str>,
    limit: usize,
) -> Result<Page, Failure> {
    let nothing = Page { images: Vec::new(), last: None, remaining: None };
    let Some(table) = state.storage.table(&State::table_of(call.resource)) else {
        return Ok(nothing);
    };
    match moment {
        Moment::At(revision) if table.last() > revision => {
            let past = table
                .list_at(&selection.namespace, revision)
                .map_err(|compacted| too_old(compacted, after))?;
            let rest = past.iter().filter(|(key, _)| after.is_none_or(|after| **key > *after));
            Ok(cut(call, selection, rest.map(|(key, image)| (key, image)), limit))
        }
        _ => match only_key(selection) {
            Some(key) => Ok(cut(call, selection, table.entry(&key).into_iter(), limit)),
            None => Ok(cut(call, selection, table.list(&selection.namespace, after), limit)),
        },
    }
}

/// Returns the key of the only object that can match, if a namespace and a name are selected.
fn only_key(selection: &Selection) -> Option<String> {
    let name = selection.name().filter(|_| !selection.namespace.is_empty())?;
    Some(format!("{}/{name}", selection.namespace))
}

fn cut<'a>(
    call: &Call<'_>,
    selection: &Selection,
    objects: impl Iterator<Item = (&'a Arc<str>, &'a Arc<Image>)>,
    limit: usize,
) -> Page {
    let mut matching = objects.filter(|(_, image)| selection.matches(call.resource, image));
    let mut page = Page { images: Vec::new(), last: None, remaining: None };
    let mut last: Option<&Arc<str>> = None;
    for (key, image) in matching.by_ref() {
        if page.images.len() == limit {
            page.last = last.cloned();
            page.remaining = selection.is_whole().then(|| 1 + matching.count());
            return page;
        }
        page.images.push(image.clone());
        last = Some(key);
    }
    page
}

/// Returns the largest number of objects in the answer: lists from version 0 are not limited.
fn limit(options: &ListOptions) -> usize {
    if options.limit == 0 || (options.resource_version == "0" && options.continue_token.is_empty())
    {
        return usize::MAX;
    }
    options.limit
}

/// Returns the moment to show, and the key after which to begin.
fn moment(options: &ListOptions, state: &State) -> Result<(Moment, Option<String>), Failure> {
    let version = options.resource_version.as_str();
    if !options.continue_token.is_empty() {
        let token = read_token(&options.continue_token)?;
        if !version.is_empty() && version != "0" {
            return Err(Failure::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let moment = u64::try_from(token.rv).map_or(Moment::Now, Moment::At);
        return Ok((moment, Some(token.start)));
    }
    let bad = |why: String| Failure::bad_request(format!("invalid resource version: {why}"));
    let Some(wanted) = parse_version(version).map_err(bad)? else { return Ok((Moment::Now, None)) };
    check_not_newer(wanted, state)?;
    let exact = match options.version_match {
        Some(Match::Exact) => true,
        Some(Match::NotOlderThan) => false,
        None => options.limit > 0 && wanted > 0,
    };
    Ok((if exact { Moment::At(wanted) } else { Moment::Now }, None))
}

/// Parses a resource version; `None` for the empty text.
pub(super) fn parse_version(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let fault = |_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    };
    text.parse().map(Some).map_err(fault)
}

/// Fails with 504 if the version does not exist yet.
pub(super) fn check_not_newer(wanted: u64, state: &State) -> Result<(), Failure> {
    let current = state.storage.revision();
    if wanted <= current {
        return Ok(());
    }
    let text = format!("Timeout: Too large resource version: {wanted}, current: {current}");
    let details = Map::from_iter([("retryAfterSeconds".to_owned(), json!(1))]);
    let cause = Cause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    };
    Err(Failure::timeout(text).with_details(details).with_causes(vec![cause]))
}

fn token(revision: u64, last: &str) -> String {
    let rv = i64::try_from(revision).unwrap_or(-1);
    let token = Token { v: META.to_owned(), rv, start: last.to_owned() };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

fn read_token(text: &str) -> Result<Token, Failure> {
    let bad = |why: &str| {
        Failure::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
    };
    let bytes =
        URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|why| bad(&why.to_string()))?;
    let token: Token = serde_json::from_slice(&bytes).map_err(|why| bad(&why.to_string()))?;
    match token.v.as_str() {
        META if token.rv != 0 && !token.start.is_empty() => Ok(token),
        META => Err(bad("incorrect encoded start resourceVersion or key")),
        version => Err(bad(&format!("server does not recognize this encoded version {version:?}"))),
    }
}

/// Returns the 410 for a list from a forgotten state. If there was a previous page, its token
/// continues in the newest state.
fn too_old(_: Compacted, after: Option<&str>) -> Failure {
    let Some(after) = after else {
        return Failure::expired("The resourceVersion for the provided list is too old.");
    };
    let token = Token { v: META.to_owned(), rv: -1, start: after.to_owned() };
    let token = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default());
    let text = "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
                the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
                Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
                deleted between the time the first chunk was returned and now may show up in the list.";
    Failure::expired(text)
        .with_metadata(Map::from_iter([("continue".to_owned(), Value::from(token))]))
}
