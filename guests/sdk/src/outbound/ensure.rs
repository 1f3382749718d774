//! Creates something outside once, by the order that keeps it from being created twice or lost.

use std::fmt;

use serde::Deserialize;

use super::{Answer, CallError};
use crate::{Failure, Request, object::Metadata};

/// HTTP's status for something that is there already.
const CONFLICT: u16 = 409;

/// The reason why something outside could not be found or created.
///
/// `?` turns it into a [`Failure`]: an answer that refuses runs again on a change if its status is
/// one of 400 to 499 other than 408 and 429, and with back-off else. No text quotes an answer's body.
#[derive(Debug, Clone, PartialEq)]
pub enum Error {
    /// A call has no answer.
    Call(CallError),
    /// The answer has a status outside of 200 to 299.
    Refused(Answer),
    /// The body of an answer cannot be read.
    Unreadable(String),
}

/// Returns what an object stands for outside, which is created unless it is there.
///
/// Returns `None` as long as the object does not hold the finalizer: an outcome must add it and ask
/// for the next run, which creates; the host's own write of a finalizer triggers none. If the reconciler reads certain fields only, `metadata.finalizers`
/// must be among them. `known` is what the status of the object says, such as an ID. If it
/// is `None`, `find` looks for what an earlier run may have created, by a mark such as the object's
/// uid; then `create` is called. After a conflict, and after a call that may have been done without
/// an answer, `find` is called again. So nothing is created before a finalizer is stored, and never
/// without having looked.
///
/// ```
/// use mortise_sdk::{
///     Failure, Host, ObjectRef, Outcome, Request,
///     outbound::{self, Credential, ensure},
/// };
/// use serde::Deserialize;
/// use serde_json::json;
/// use std::time::Duration;
///
/// const FINALIZER: &str = "example.com/item";
/// const ITEMS: &str = "https://api.example.com/v1/items";
///
/// #[derive(Deserialize)]
/// struct Item {
///     id: String,
/// }
///
/// /// Returns the outcome for an object that stands for an item.
/// fn outcome(
///     request: &Request, known: Option<Item>, uid: &str, secret: &ObjectRef, host: &Host,
/// ) -> Result<Outcome, Failure> {
///     let token = || Credential::bearer(secret, "data.token");
///     let find = || -> Result<Option<Item>, outbound::Error> {
///         let found = host.outbound().get(format!("{ITEMS}?tag={uid}")).credential(token());
///         let items: Vec<Item> = found.send()?.success()?.json()?;
///         Ok(items.into_iter().next())
///     };
///     let create = || {
///         let created = host.outbound().post(ITEMS).credential(token()).json(&json!({"tag": uid}));
///         Ok(created.send()?.success()?.json()?)
///     };
///     let outcome = Outcome::new().finalizers([FINALIZER]);
///     let Some(item) = ensure(request, FINALIZER, known, find, create)? else {
///         return Ok(outcome.requeue_after(Duration::ZERO));
///     };
///     Ok(outcome.status(request, &json!({"id": item.id})))
/// }
/// # use mortise_sdk::{Description, Methods, NoConfig, OutboundRule, Processor, Reconciler, Selection};
/// # use mortise_sdk::{kubernetes::{ConfigMap, Secret}, testing::{Reply, Stub}};
/// # struct Items;
/// # impl Processor for Items {
/// #     type Config = NoConfig;
/// #     fn describe(_: &NoConfig) -> Result<Description, String> {
/// #         let tokens = Selection::of::<Secret>().fields(["data.token"]);
/// #         let rule = OutboundRule::new("https://api.example.com").credentials([tokens]);
/// #         let items = Reconciler::new("items", Selection::of::<ConfigMap>().labels("item"));
/// #         Ok(Description::new("items", "0.1.0").reconciles(items.finalizer(FINALIZER))
/// #             .outbound([rule.methods(Methods::GET | Methods::POST)]))
/// #     }
/// #     fn reconcile(request: &Request, _: &NoConfig, host: &Host) -> Result<Outcome, Failure> {
/// #         let secret = ObjectRef::of::<Secret>(Some("shop"), "token");
/// #         outcome(request, None, "1", &secret, host).map(|of| Outcome { status: None, ..of })
/// #     }
/// # }
/// # let stub = Stub::new()
/// #     .objects([
/// #         json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop", "labels": {"item": ""}}}),
/// #         json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": "shop"}, "data": {"token": "c2VjcmV0"}}),
/// #     ])
/// #     .outbound(|call| match call.method {
/// #         outbound::Method::Get => Reply::json(200, &json!([])),
/// #         _ => Reply::json(201, &json!({"id": "7"})),
/// #     });
/// # stub.settle::<Items>("");
/// # stub.advance(Duration::from_millis(1));
/// # assert!(stub.settle::<Items>("").failures.is_empty());
/// # let made: Vec<_> = stub.calls().into_iter().map(|call| (call.method, call.token)).collect();
/// # let secret = || Some("secret".to_owned());
/// # assert_eq!(made, [(outbound::Method::Get, secret()), (outbound::Method::Post, secret())]);
/// ```
///
/// # Errors
///
/// Those of `find` and `create`.
pub fn ensure<T>(
    request: &Request,
    finalizer: &str,
    known: Option<T>,
    mut find: impl FnMut() -> Result<Option<T>, Error>,
    create: impl FnOnce() -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    if !request.holds(finalizer) {
        return Ok(None);
    }
    if let Some(there) = known.map_or_else(&mut find, |known| Ok(Some(known)))? {
        return Ok(Some(there));
    }
    match create() {
        Err(error) if error.may_be_there() => find()?.map_or(Err(error), |found| Ok(Some(found))),
        created => created.map(Some),
    }
}

// === impl Request ===

impl Request {
    /// Returns whether the reconciled object holds a finalizer; false if it is gone.
    pub fn holds(&self, finalizer: &str) -> bool {
        #[derive(Deserialize)]
        struct Held {
            metadata: Metadata,
        }
        let object =
            self.object.as_deref().and_then(|text| serde_json::from_str::<Held>(text).ok());
        object.is_some_and(|held| held.metadata.finalizers.iter().any(|held| held == finalizer))
    }
}

// === impl Answer ===

impl Answer {
    /// Returns the answer if its status is one of 200 to 299.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the answer.
    pub fn success(self) -> Result<Self, Error> {
        if self.is_success() { Ok(self) } else { Err(Error::Refused(self)) }
    }
}

// === impl Error ===

impl Error {
    /// Returns whether what was to be created may be there.
    fn may_be_there(&self) -> bool {
        match self {
            Self::Call(error) => error.may_be_done(),
            Self::Refused(answer) => answer.status == CONFLICT,
            Self::Unreadable(_) => true,
        }
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<serde_json::Error> for Error {
    /// Keeps the place of the error only: its text may quote a secret.
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let what = if error.is_data() { "JSON of another form" } else { "no whole JSON" };
        Self::Unreadable(format!("it is {what} at line {line} column {column}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Refused(answer) => write!(f, "the answer has status {}", answer.status),
            Self::Unreadable(why) => write!(f, "the answer cannot be read: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let failure = Self::new(error.to_string());
        match error {
            Error::Call(error) => error.into(),
            Error::Refused(answer) => match answer.status {
                408 | 429 => failure,
                400..500 => failure.retry_on_change(),
                _ => failure,
            },
            Error::Unreadable(_) => failure,
        }
    }
}
