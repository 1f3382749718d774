//! The calls of one call of a processor: their rules, in order, their limits and their records.
//!
//! *Guarantee.* Nothing is sent, and no client is asked, before every rule has let a call through.
//! The value of a credential is read last.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use zeroize::Zeroizing;

use super::{
    Allowed, Answer, Authorization, Call, CallError, Credential, CredentialFault, Egress, Granted,
    Made, Method, Outbound, Target,
    credential::{self, value_at},
    granted::{self, GrantedOrigin},
    header,
};
use crate::{
    api::Api,
    contract::{
        ObjectRef, ReadError,
        bounds::{self, text::shortened},
        display_kind,
    },
    grant::{Grant, OutboundRule},
    path::Path,
    reads::View,
    store::{Known, Stores},
};

/// The calls of one call of a processor.
pub struct Sending {
    state: State,
    made: Vec<Made>,
    /// The call that is being made.
    open: Option<Open>,
    /// True if a client was asked to send the open call.
    is_sent: bool,
    ended: Option<Ended>,
}

/// A call that is being made.
struct Open {
    made: Made,
    begin: Instant,
    /// The entry that grants its origin, if one does.
    egress: Option<Arc<Egress>>,
}

/// The state that decides about calls.
enum State {
    /// Nothing is sent, for this reason.
    Closed(&'static str),
    /// Nothing is sent: the first call ends the trial.
    Trial,
    /// What the rules let through is sent.
    Open(Box<Gate>),
}

/// The reason why a call of a processor must end because of its calls to the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It made more than [`bounds::CALLS`].
    TooMany,
    /// It is a trial and made one.
    Trial,
}

/// The rules of one run.
pub(crate) struct Gate {
    pub(crate) grant: Arc<Grant>,
    pub(crate) granted: Arc<Granted>,
    pub(crate) api: Arc<dyn Api>,
    pub(crate) stores: Stores,
    /// The finalizers of the reconciler.
    pub(crate) finalizers: Vec<String>,
    /// The object of the request, with its uid; `None` if it is gone.
    pub(crate) object: Option<(ObjectRef, String)>,
}

/// The rules and grants that fit a call.
struct Fitting<'a> {
    rules: Vec<&'a OutboundRule>,
    egress: Vec<&'a GrantedOrigin>,
    client: &'a Arc<dyn Outbound>,
}

/// A checked credential of a call.
struct Named {
    credential: Credential,
    header: String,
    path: Path,
}

// === impl Sending ===

impl Sending {
    fn new(state: State) -> Self {
        Self { state, made: Vec::new(), open: None, is_sent: false, ended: None }
    }

    /// Creates the state of a call that sends nothing, for the given reason.
    pub fn closed(reason: &'static str) -> Self {
        Self::new(State::Closed(reason))
    }

    /// Creates the state of a trial, which ends at its first call.
    pub(crate) fn trial() -> Self {
        Self::new(State::Trial)
    }

    pub(crate) fn open(gate: Gate) -> Self {
        Self::new(State::Open(Box::new(gate)))
    }

    /// Sends a call, or refuses it. If [`Sending::ended`] holds afterwards, the call of the processor
    /// must end, with whatever answer.
    ///
    /// The client keeps the timeout of the call. A caller that drops the future before it is ready
    /// gets the error from [`Sending::late`].
    pub async fn send(&mut self, view: &mut View, call: Call) -> Result<Answer, CallError> {
        self.count()?;
        let target = Target::parse(&call.url);
        let shown = target.as_ref().map(ToString::to_string).unwrap_or_default();
        let url = shortened(&shown, bounds::RECORDED_URL);
        let made = Made {
            method: call.method,
            url,
            status: None,
            took: Duration::ZERO,
            error: None,
            refused: None,
        };
        let egress = target.as_ref().ok().and_then(|target| self.state.granting(target));
        self.open = Some(Open { made, begin: Instant::now(), egress });
        self.is_sent = false;
        let answer = match &self.state {
            State::Closed(reason) => Err(CallError::Denied((*reason).to_owned())),
            State::Trial => Err(CallError::Denied("a trial of a version calls nothing".to_owned())),
            State::Open(gate) => match target {
                Err(invalid) => Err(CallError::Invalid(invalid)),
                Ok(target) => match gate.admit(view, call, target).await {
                    Err(refused) => Err(refused),
                    Ok((client, allowed)) => {
                        self.is_sent = true;
                        let sent = allowed.authorization.as_ref().and_then(Authorization::encoded);
                        let answer = client.send(allowed).await;
                        let values = sent.iter().map(|value| value.as_str());
                        answer.map(|answer| {
                            credential::masked(answer, view.credentials().chain(values))
                        })
                    }
                },
            },
        };
        let answer = answer.map_err(CallError::bounded);
        self.close(answer.as_ref());
        answer
    }

    /// Counts a call.
    fn count(&mut self) -> Result<(), CallError> {
        if matches!(self.state, State::Trial) {
            self.ended = Some(Ended::Trial);
        } else if self.made.len() >= bounds::CALLS {
            self.ended = Some(Ended::TooMany);
            return Err(CallError::Denied(format!("more than {} calls", bounds::CALLS)));
        }
        Ok(())
    }

    /// Returns the error of a call that was given up because its time is over.
    pub fn late(&mut self) -> CallError {
        let error = if self.is_sent {
            CallError::NoAnswer("there was no answer within the timeout".to_owned())
        } else {
            CallError::NotSent("the timeout was over before anything was sent".to_owned())
        };
        self.close(Err(&error));
        error
    }

    fn close(&mut self, answer: Result<&Answer, &CallError>) {
        let Some(Open { made, begin, egress }) = self.open.take() else { return };
        let origin = || egress.map_or_else(String::new, |egress| egress.origin.clone());
        let refused = (!self.is_sent).then(origin);
        let status = answer.ok().map(|answer| answer.status);
        let error = answer.err().map(CallError::code);
        self.made.push(Made { status, error, took: begin.elapsed(), refused, ..made });
    }

    /// Returns the reason why the call of the processor must end, if it must.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Returns the records of the calls; one that the end of the processor's call has cut off has
    /// no answer.
    pub(crate) fn finish(mut self) -> Vec<Made> {
        if self.open.is_some() {
            self.late();
        }
        self.made
    }
}

impl Default for Sending {
    fn default() -> Self {
        Self::closed("only `reconcile` may call systems outside of the cluster")
    }
}

impl fmt::Debug for Sending {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Sending").field("made", &self.made).finish_non_exhaustive()
    }
}

// === impl State ===

impl State {
    /// Returns the first entry that grants calls to a target.
    fn granting(&self, target: &Target) -> Option<Arc<Egress>> {
        let Self::Open(gate) = self else { return None };
        gate.granted.of(target).next().map(|granted| Arc::clone(&granted.egress))
    }
}

// === impl Gate ===

impl Gate {
    /// Applies all rules to a call. Returns it as it is sent, and the client that sends it.
    async fn admit(
        &self,
        view: &mut View,
        call: Call,
        target: Target,
    ) -> Result<(Arc<dyn Outbound>, Allowed), CallError> {
        let Call { method, url: _, headers, body, credential, timeout } = call;
        check_body(method, body.as_deref()).map_err(CallError::Invalid)?;
        let named = credential.map(Named::new).transpose().map_err(CallError::Invalid)?;
        let authenticating = named.as_ref().map(|named| named.header.as_str());
        let headers = header::checked(headers, authenticating).map_err(CallError::Invalid)?;
        let fitting = self.fitting(method, &target).map_err(CallError::Denied)?;
        self.may_send(method)?;
        if timeout == 0 {
            return Err(CallError::NotSent("no time is left for the call".to_owned()));
        }
        let (rule, granted, authorization) = match named {
            None => (fitting.rules.first().copied(), fitting.egress.first().copied(), None),
            Some(named) => {
                // The answer would tell whether a guess is right.
                let of = &named.credential.of;
                let compared = self.grant.check_compared(&of.kind, &named.path, || shown(of));
                compared.map_err(CallError::Denied)?;
                let (rule, granted, authorization) =
                    fitting.authorize(view, named, target.tls).await?;
                // The question to the API server may have taken a while.
                self.may_send(method)?;
                (Some(rule), Some(granted), Some(authorization))
            }
        };
        let (Some(rule), Some(granted)) = (rule, granted) else {
            return Err(CallError::Denied("the call is not declared and granted".to_owned()));
        };
        let allowed = Allowed {
            method,
            target,
            headers,
            body,
            authorization,
            egress: Arc::clone(&granted.egress),
            pause: rule.pause,
            timeout: Duration::from_millis(timeout),
            processor: Arc::clone(&self.granted.processor),
        };
        Ok((Arc::clone(fitting.client), allowed))
    }

    /// Returns the declarations and grants that fit a call. Fails if one of them is lacking.
    fn fitting(&self, method: Method, target: &Target) -> Result<Fitting<'_>, String> {
        let rules = self.grant.may_call(method.into(), target)?;
        let egress = self.granted.to(target)?;
        let client = self.granted.client.as_ref();
        let client = client.ok_or("this host makes no calls to systems outside of the cluster")?;
        Ok(Fitting { rules, egress, client })
    }

    /// Fails unless this host may write, and the object as it is stored permits the method.
    fn may_send(&self, method: Method) -> Result<(), CallError> {
        if !self.api.is_leading() {
            let reason = "this host does not hold the Lease: another one leads, or is about to";
            return Err(CallError::Denied(reason.to_owned()));
        }
        let Some((of, uid)) = &self.object else {
            let reason = "the object is gone: calls are made while it exists";
            return Err(CallError::Denied(reason.to_owned()));
        };
        if method.is_safe() {
            return Ok(());
        }
        match self.stores.known(of) {
            Known::Present(entry)
                if entry.uid() == Some(uid)
                    && self.finalizers.iter().any(|name| entry.holds_finalizer(name)) =>
            {
                Ok(())
            }
            Known::Present(_) | Known::Absent | Known::Unwatched => Err(CallError::NotHeld),
        }
    }
}

fn check_body(method: Method, body: Option<&[u8]>) -> Result<(), String> {
    match body {
        Some(_) if method.is_safe() => Err("`get` and `head` have no body".to_owned()),
        Some(body) if body.len() > bounds::CALL_BODY => {
            let (bytes, most) = (body.len(), bounds::CALL_BODY);
            Err(format!("the body has {bytes} bytes, at most {most} are accepted"))
        }
        _ => Ok(()),
    }
}

// === impl Named ===

impl Named {
    fn new(credential: Credential) -> Result<Self, String> {
        bounds::check_get(&credential.of, std::slice::from_ref(&credential.at))?;
        let (header, path) = (credential.header()?, credential.path()?);
        Ok(Self { credential, header, path })
    }
}

// === impl Fitting ===

impl<'a> Fitting<'a> {
    /// Reads the value of a credential that the declarations and the grants let through.
    async fn authorize(
        &self,
        view: &mut View,
        Named { credential, header, path }: Named,
        tls: bool,
    ) -> Result<(&'a OutboundRule, &'a GrantedOrigin, Authorization), CallError> {
        let of = &credential.of;
        if !tls {
            let reason = "a credential is sent over `https` only";
            return Err(CallError::Denied(reason.to_owned()));
        }
        let rule = self.rules.iter().find(|rule| rule.may_use(of, &path));
        let rule = *rule.ok_or_else(|| CallError::Denied(self.undeclared(of, &path)))?;
        if !self.egress.iter().any(|egress| egress.names(&of.kind)) {
            return Err(CallError::Denied(self.ungranted(of)));
        }
        let holders = rule.holders(of, &path);
        let found = view.credential(of, &path, holders).await.map_err(unread)?;
        let entry = found.ok_or(CallError::Credential(CredentialFault::NoObject))?;
        let granted =
            self.egress.iter().find(|egress| egress.holds(&of.kind, |key| entry.label(key)));
        let granted = *granted.ok_or_else(|| CallError::Denied(self.ungranted(of)))?;
        let value = value_at(&of.kind, &path, entry.json()).map_err(CallError::Credential)?;
        view.saw_credential(Zeroizing::clone(&value));
        let authorization = credential.authorize(header, value).map_err(CallError::Credential)?;
        Ok((rule, granted, authorization))
    }

    fn undeclared(&self, of: &ObjectRef, path: &Path) -> String {
        let accepted = OutboundRule::accepted(&self.rules);
        format!("the credential `{path}` of {} is not declared; {accepted}", shown(of))
    }

    fn ungranted(&self, of: &ObjectRef) -> String {
        let accepted = granted::credentials(&self.egress);
        format!("the Processor does not grant the credential of {}; {accepted}", shown(of))
    }
}

fn shown(of: &ObjectRef) -> String {
    let namespace = of.namespace.iter().map(|namespace| format!("{namespace}/"));
    format!("{} `{}{}`", display_kind(&of.kind), namespace.collect::<String>(), of.name)
}

/// Returns the error of a call whose credential could not be read.
fn unread(error: ReadError) -> CallError {
    match error {
        ReadError::Denied(text) => CallError::Denied(text),
        ReadError::Invalid(text) => CallError::Invalid(text),
        ReadError::UnknownKind => CallError::Credential(CredentialFault::NoObject),
        ReadError::Unavailable(text) => {
            CallError::NotSent(format!("the credential cannot be read now: {text}"))
        }
    }
}
