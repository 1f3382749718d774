//! Conversions between the contract's types and the types that are generated from wit/.

/// Implements the conversions to [`contract`](crate::contract) and back for the types that wasmtime
/// or wit-bindgen generates from wit/.
///
/// `guest`, `types`, `cluster`, `log` and `outbound` must name the generated modules where the macro
/// is used. Each conversion names every field, so that a change of wit/ does not compile until it is
/// handled here.
#[macro_export]
macro_rules! contract_conversions {
    () => {
        use $crate::contract::outbound as calls;
        use $crate::contract::{
            Action, Deletion, Description, Event, EventType, Failure, GrantedRule, Kind, Level,
            Manifest, Methods, Mode, ObjectRef, OutboundRule, Outcome, Page, Propagation,
            ReadError, Reconciler, Request, Requeue, Retry, Selection, Start, Verbs, WriteFailure,
            WriteRule,
        };

        fn all<A, B: From<A>>(of: Vec<A>) -> Vec<B> {
            of.into_iter().map(B::from).collect()
        }

        // === From the guest ===

        /// Returns a cluster's name as a kind holds it. That of the host's own is not allocated.
        fn shared(cluster: String) -> ::std::sync::Arc<str> {
            if cluster.is_empty() { ::std::sync::Arc::default() } else { cluster.into() }
        }

        /// In wit/, the cluster stands beside the kind.
        fn kind_in(cluster: String, kind: types::Kind) -> ::std::sync::Arc<Kind> {
            let types::Kind { group, version, kind } = kind;
            Kind { cluster: shared(cluster), group, version, kind }.into()
        }

        impl From<types::ObjectRef> for ObjectRef {
            fn from(types::ObjectRef { cluster, kind, namespace, name }: types::ObjectRef) -> Self {
                Self { kind: kind_in(cluster, kind), namespace, name }
            }
        }

        impl From<types::Selection> for Selection {
            fn from(of: types::Selection) -> Self {
                let types::Selection { cluster, kind, namespace, name, labels, matching, fields } =
                    of;
                let (kind, fields) = (kind_in(cluster, kind), fields.into());
                Self { kind, namespace, name, labels, matching, fields }
            }
        }

        impl From<log::Level> for Level {
            fn from(level: log::Level) -> Self {
                match level {
                    log::Level::Trace => Self::Trace,
                    log::Level::Debug => Self::Debug,
                    log::Level::Info => Self::Info,
                    log::Level::Warn => Self::Warn,
                    log::Level::Error => Self::Error,
                }
            }
        }

        impl From<guest::Reconciler> for Reconciler {
            fn from(one: guest::Reconciler) -> Self {
                let guest::Reconciler {
                    name,
                    of,
                    finalizers,
                    resync,
                    triggered_by_status,
                    min_interval,
                    on_demand,
                    whole_status,
                } = one;
                let of = of.into();
                Self {
                    name,
                    of,
                    finalizers,
                    resync,
                    triggered_by_status,
                    min_interval,
                    on_demand,
                    whole_status,
                }
            }
        }

        /// The verbs of wit/, and their counterparts. Flags cannot be matched exhaustively: a test,
        /// where `guest::Verbs` knows all of its flags, checks that wit/ has no others.
        const VERBS: [(guest::Verbs, Verbs); 4] = [
            (guest::Verbs::CREATE, Verbs::CREATE),
            (guest::Verbs::UPDATE, Verbs::UPDATE),
            (guest::Verbs::DELETE, Verbs::DELETE),
            (guest::Verbs::EVICT, Verbs::EVICT),
        ];
        const _: () = assert!(VERBS.len() == Verbs::all().bits().count_ones() as usize);

        impl From<guest::Verbs> for Verbs {
            fn from(verbs: guest::Verbs) -> Self {
                let held = VERBS.into_iter().filter(|(theirs, _)| verbs & *theirs == *theirs);
                held.map(|(_, ours)| ours).collect()
            }
        }

        impl From<guest::WriteRule> for WriteRule {
            fn from(guest::WriteRule { of, verbs, fields }: guest::WriteRule) -> Self {
                Self { of: of.into(), verbs: verbs.into(), fields }
            }
        }

        impl From<guest::GrantedRule> for GrantedRule {
            fn from(of: guest::GrantedRule) -> Self {
                let guest::GrantedRule {
                    api_groups,
                    resources,
                    resource_names,
                    verbs,
                    non_resource_urls,
                } = of;
                Self { api_groups, resources, resource_names, verbs, non_resource_urls }
            }
        }

        /// The methods of wit/, and their counterparts; see [`VERBS`].
        const METHODS: [(guest::Methods, Methods); 6] = [
            (guest::Methods::GET, Methods::GET),
            (guest::Methods::HEAD, Methods::HEAD),
            (guest::Methods::POST, Methods::POST),
            (guest::Methods::PUT, Methods::PUT),
            (guest::Methods::PATCH, Methods::PATCH),
            (guest::Methods::DELETE, Methods::DELETE),
        ];
        const _: () = assert!(METHODS.len() == Methods::all().bits().count_ones() as usize);

        impl From<guest::Methods> for Methods {
            fn from(methods: guest::Methods) -> Self {
                let held = METHODS.into_iter().filter(|(theirs, _)| methods & *theirs == *theirs);
                held.map(|(_, ours)| ours).collect()
            }
        }

        impl From<guest::OutboundRule> for OutboundRule {
            fn from(of: guest::OutboundRule) -> Self {
                let guest::OutboundRule { origin, methods, credentials, pause } = of;
                Self { origin, methods: methods.into(), credentials: all(credentials), pause }
            }
        }

        impl From<outbound::Call> for calls::Call {
            fn from(of: outbound::Call) -> Self {
                let outbound::Call { method, url, headers, body, credential, timeout } = of;
                let (method, credential) = (method.into(), credential.map(Into::into));
                Self { method, url, headers, body, credential, timeout }
            }
        }

        impl From<outbound::Method> for calls::Method {
            fn from(method: outbound::Method) -> Self {
                match method {
                    outbound::Method::Get => Self::Get,
                    outbound::Method::Head => Self::Head,
                    outbound::Method::Post => Self::Post,
                    outbound::Method::Put => Self::Put,
                    outbound::Method::Patch => Self::Patch,
                    outbound::Method::Delete => Self::Delete,
                }
            }
        }

        impl From<outbound::Credential> for calls::Credential {
            fn from(outbound::Credential { of, at, scheme }: outbound::Credential) -> Self {
                let scheme = match scheme {
                    outbound::Scheme::Bearer => calls::Scheme::Bearer,
                    outbound::Scheme::Basic(user) => calls::Scheme::Basic(user),
                    outbound::Scheme::Header(name) => calls::Scheme::Header(name),
                };
                Self { of: of.into(), at, scheme }
            }
        }

        impl From<guest::Description> for Description {
            fn from(of: guest::Description) -> Self {
                let guest::Description {
                    name,
                    version,
                    reconcilers,
                    reads,
                    writes,
                    grants,
                    outbound,
                    config_schema,
                } = of;
                let (reconcilers, reads, writes) = (all(reconcilers), all(reads), all(writes));
                let (grants, outbound) = (all(grants), all(outbound));
                Self { name, version, reconcilers, reads, writes, grants, outbound, config_schema }
            }
        }

        impl From<guest::Mode> for Mode {
            fn from(mode: guest::Mode) -> Self {
                match mode {
                    guest::Mode::Apply => Self::Apply,
                    guest::Mode::Create => Self::Create,
                }
            }
        }

        impl From<guest::Manifest> for Manifest {
            fn from(of: guest::Manifest) -> Self {
                let guest::Manifest { cluster, object, mode, leave, absent } = of;
                Self { cluster: shared(cluster), object, mode: mode.into(), leave, absent }
            }
        }

        impl From<guest::Start> for Start {
            fn from(guest::Start { reconciler, of }: guest::Start) -> Self {
                Self { reconciler, of: of.into() }
            }
        }

        impl From<guest::Propagation> for Propagation {
            fn from(propagation: guest::Propagation) -> Self {
                match propagation {
                    guest::Propagation::Background => Self::Background,
                    guest::Propagation::Foreground => Self::Foreground,
                    guest::Propagation::Orphan => Self::Orphan,
                }
            }
        }

        impl From<guest::Deletion> for Deletion {
            fn from(of: guest::Deletion) -> Self {
                let guest::Deletion { ref_, uid, propagation, grace_period } = of;
                Self { ref_: ref_.into(), uid, propagation: propagation.into(), grace_period }
            }
        }

        impl From<guest::EventType> for EventType {
            fn from(of: guest::EventType) -> Self {
                match of {
                    guest::EventType::Normal => Self::Normal,
                    guest::EventType::Warning => Self::Warning,
                }
            }
        }

        impl From<guest::Event> for Event {
            fn from(guest::Event { on, event_type, reason, message }: guest::Event) -> Self {
                Self { on: on.map(Into::into), event_type: event_type.into(), reason, message }
            }
        }

        impl From<guest::Requeue> for Requeue {
            fn from(requeue: guest::Requeue) -> Self {
                match requeue {
                    guest::Requeue::ByDefault => Self::ByDefault,
                    guest::Requeue::After(milliseconds) => Self::After(milliseconds),
                    guest::Requeue::Never => Self::Never,
                }
            }
        }

        impl From<guest::Outcome> for Outcome {
            fn from(of: guest::Outcome) -> Self {
                let guest::Outcome {
                    apply,
                    patch,
                    evict,
                    delete,
                    prune,
                    status,
                    events,
                    requeue,
                    finalizers,
                    start,
                    note,
                } = of;
                Self {
                    apply: all(apply),
                    patch: all(patch),
                    evict: all(evict),
                    delete: all(delete),
                    prune: all(prune),
                    status,
                    events: all(events),
                    requeue: requeue.into(),
                    finalizers,
                    start: all(start),
                    note: note.map(Into::into),
                }
            }
        }

        impl From<guest::Retry> for Retry {
            fn from(retry: guest::Retry) -> Self {
                match retry {
                    guest::Retry::BackOff => Self::BackOff,
                    guest::Retry::After(milliseconds) => Self::After(milliseconds),
                    guest::Retry::OnChange => Self::OnChange,
                }
            }
        }

        impl From<guest::Failure> for Failure {
            fn from(of: guest::Failure) -> Self {
                let guest::Failure { message, status, events, retry, note } = of;
                let (events, retry, note) = (all(events), retry.into(), note.map(Into::into));
                Self { message, status, events, retry, note }
            }
        }

        // === To the guest ===

        impl From<ObjectRef> for types::ObjectRef {
            fn from(ObjectRef { kind, namespace, name }: ObjectRef) -> Self {
                let Kind { cluster, group, version, kind } =
                    ::std::sync::Arc::unwrap_or_clone(kind);
                let kind = types::Kind { group, version, kind };
                Self { cluster: (&*cluster).into(), kind, namespace, name }
            }
        }

        impl From<ReadError> for types::ReadError {
            fn from(error: ReadError) -> Self {
                match error {
                    ReadError::Denied(message) => Self::Denied(message),
                    ReadError::UnknownKind => Self::UnknownKind,
                    ReadError::Unavailable(message) => Self::Unavailable(message),
                    ReadError::Invalid(message) => Self::Invalid(message),
                }
            }
        }

        impl From<Page> for cluster::Page {
            fn from(Page { objects, next }: Page) -> Self {
                Self { objects, next }
            }
        }

        impl From<Action> for guest::Action {
            fn from(action: Action) -> Self {
                match action {
                    Action::Apply => Self::Apply,
                    Action::Patch => Self::Patch,
                    Action::Evict => Self::Evict,
                    Action::Delete => Self::Delete,
                    Action::Prune => Self::Prune,
                    Action::Finalize => Self::Finalize,
                    Action::Status => Self::Status,
                }
            }
        }

        impl From<WriteFailure> for guest::WriteFailure {
            fn from(of: WriteFailure) -> Self {
                let WriteFailure { action, ref_, code, reason, message, conflicting_managers } = of;
                let (action, ref_) = (action.into(), ref_.into());
                Self { action, ref_, code, reason, message, conflicting_managers }
            }
        }

        impl From<Request> for guest::Request {
            fn from(of: Request) -> Self {
                let Request { reconciler, ref_, object, config, attempt, failed_writes, note } = of;
                Self {
                    reconciler,
                    ref_: ref_.into(),
                    object,
                    config,
                    attempt,
                    failed_writes: all(failed_writes),
                    note: note.map(Into::into),
                }
            }
        }

        impl From<calls::Answer> for outbound::Answer {
            fn from(calls::Answer { status, headers, body }: calls::Answer) -> Self {
                Self { status, headers, body }
            }
        }

        impl From<calls::CredentialFault> for outbound::CredentialFault {
            fn from(fault: calls::CredentialFault) -> Self {
                match fault {
                    calls::CredentialFault::NoObject => Self::NoObject,
                    calls::CredentialFault::NoValue => Self::NoValue,
                    calls::CredentialFault::NotText => Self::NotText,
                }
            }
        }

        impl From<calls::CallError> for outbound::CallError {
            fn from(error: calls::CallError) -> Self {
                match error {
                    calls::CallError::Denied(message) => Self::Denied(message),
                    calls::CallError::NotHeld => Self::NotHeld,
                    calls::CallError::Credential(fault) => Self::Credential(fault.into()),
                    calls::CallError::Paused(milliseconds) => Self::Paused(milliseconds),
                    calls::CallError::NotSent(message) => Self::NotSent(message),
                    calls::CallError::NoAnswer(message) => Self::NoAnswer(message),
                    calls::CallError::TooLarge => Self::TooLarge,
                    calls::CallError::Invalid(message) => Self::Invalid(message),
                }
            }
        }
    };
}

/// Implements the conversions of the records of wit/conversion.wit and wit/admission.wit, as
/// [`contract_conversions`](crate::contract_conversions) does for the others.
///
/// `conversion` and `admission` must name the generated modules where the macro is used, beside the
/// names that the other macro needs.
#[macro_export]
macro_rules! hook_conversions {
    () => {
        use $crate::contract::hooks::{
            Answer, Conversion, Converted, Denial, Hook, Operation, Otherwise, Review, Verdict,
        };

        // === From the guest ===

        impl From<conversion::Converted> for Converted {
            fn from(of: conversion::Converted) -> Self {
                let conversion::Converted { group, kind, versions } = of;
                Self { group, kind, versions }
            }
        }

        impl From<admission::Operation> for Operation {
            fn from(of: admission::Operation) -> Self {
                match of {
                    admission::Operation::Create => Self::Create,
                    admission::Operation::Update => Self::Update,
                    admission::Operation::Delete => Self::Delete,
                }
            }
        }

        impl From<admission::Otherwise> for Otherwise {
            fn from(of: admission::Otherwise) -> Self {
                match of {
                    admission::Otherwise::Refuse => Self::Refuse,
                    admission::Otherwise::LetPass => Self::LetPass,
                }
            }
        }

        impl From<admission::Hook> for Hook {
            fn from(hook: admission::Hook) -> Self {
                let admission::Hook { name, of, operations, changes, on_failure, timeout } = hook;
                Self {
                    name,
                    of: of.into(),
                    operations: all(operations),
                    changes,
                    on_failure: on_failure.into(),
                    timeout,
                }
            }
        }

        impl From<admission::Verdict> for Verdict {
            fn from(of: admission::Verdict) -> Self {
                match of {
                    admission::Verdict::Allow => Self::Allow,
                    admission::Verdict::Deny(admission::Denial { code, message }) => {
                        Self::Deny(Denial { code, message })
                    }
                    admission::Verdict::Change(object) => Self::Change(object),
                }
            }
        }

        impl From<admission::Answer> for Answer {
            fn from(admission::Answer { verdict, warnings }: admission::Answer) -> Self {
                Self { verdict: verdict.into(), warnings }
            }
        }

        // === To the guest ===

        impl From<Conversion> for conversion::Request {
            fn from(Conversion { group, kind, to, objects, config }: Conversion) -> Self {
                Self { group, kind, to, objects, config }
            }
        }

        impl From<Operation> for admission::Operation {
            fn from(of: Operation) -> Self {
                match of {
                    Operation::Create => Self::Create,
                    Operation::Update => Self::Update,
                    Operation::Delete => Self::Delete,
                }
            }
        }

        impl From<Review> for admission::Review {
            fn from(of: Review) -> Self {
                let Review { hook, operation, ref_, object, old, user, groups, dry_run, config } =
                    of;
                let (operation, ref_) = (operation.into(), ref_.into());
                Self { hook, operation, ref_, object, old, user, groups, dry_run, config }
            }
        }
    };
}
