//! Conversions between wasmtime's generated types of wit/ and those of [`mortise_core::contract`].

use super::bindings::{
    exports::mortise::host::{admission, conversion, reconciliation as guest},
    mortise::host::{cluster, log, outbound, types},
};

mortise_core::contract_conversions!();
mortise_core::hook_conversions!();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_the_contract_is_converted() {
        let converted = METHODS.iter().fold(guest::Methods::empty(), |all, (one, _)| all | *one);
        assert_eq!(converted, guest::Methods::all());
    }

    #[test]
    fn every_verb_of_the_contract_is_converted() {
        let converted = VERBS.iter().fold(guest::Verbs::empty(), |all, (verb, _)| all | *verb);
        assert_eq!(converted, guest::Verbs::all());
    }

    fn text(text: &str) -> String {
        text.to_owned()
    }

    /// Returns a selection and a reference whose texts all differ.
    fn places(of: &str) -> (types::Selection, types::ObjectRef) {
        let part = |part: &str| format!("{part} of {of}");
        let kind =
            || types::Kind { group: part("group"), version: part("version"), kind: part("kind") };
        let selection = types::Selection {
            cluster: part("cluster"),
            kind: kind(),
            namespace: Some(part("namespace")),
            name: Some(part("name")),
            labels: part("labels"),
            matching: vec![(part("path"), part("value"))],
            fields: vec![part("field")],
        };
        let reference = types::ObjectRef {
            cluster: part("cluster"),
            kind: kind(),
            namespace: Some(part("namespace")),
            name: part("name"),
        };
        (selection, reference)
    }

    /// Returns an outcome whose texts name their fields.
    fn outcome() -> guest::Outcome {
        let manifest = |of: &str, mode| guest::Manifest {
            cluster: format!("cluster of {of}"),
            object: format!("object of {of}"),
            mode,
            leave: vec![format!("leave of {of}")],
            absent: vec![format!("absent of {of}")],
        };
        let deletion = |of: &str, propagation| guest::Deletion {
            ref_: places(of).1,
            uid: Some(format!("uid of {of}")),
            propagation,
            grace_period: Some(3),
        };
        guest::Outcome {
            apply: vec![manifest("apply", guest::Mode::Apply)],
            patch: vec![manifest("patch", guest::Mode::Create)],
            evict: vec![deletion("evict", guest::Propagation::Foreground)],
            delete: vec![deletion("delete", guest::Propagation::Orphan)],
            prune: vec![places("prune").0],
            status: Some(text("status")),
            events: vec![guest::Event {
                on: Some(places("event").1),
                event_type: guest::EventType::Warning,
                reason: text("reason"),
                message: text("message"),
            }],
            requeue: guest::Requeue::After(7),
            finalizers: Some(vec![text("finalizer")]),
            start: vec![guest::Start { reconciler: text("start"), of: places("start").0 }],
            note: Some(text("note")),
        }
    }

    #[test]
    fn each_text_of_an_outcome_stays_in_its_field() {
        let outcome = outcome();
        let Outcome { apply, patch, evict, delete, prune, status, events, requeue, .. } =
            Outcome::from(outcome.clone());
        assert_eq!(
            apply,
            [Manifest {
                cluster: "cluster of apply".into(),
                object: text("object of apply"),
                mode: Mode::Apply,
                leave: vec![text("leave of apply")],
                absent: vec![text("absent of apply")],
            }]
        );
        assert_eq!((&*patch[0].object, &patch[0].mode), ("object of patch", &Mode::Create));
        let of = |deletion: &Deletion| (deletion.uid.clone(), deletion.propagation);
        assert_eq!(of(&evict[0]), (Some(text("uid of evict")), Propagation::Foreground));
        assert_eq!(of(&delete[0]), (Some(text("uid of delete")), Propagation::Orphan));
        assert_eq!(delete[0].grace_period, Some(3));
        assert_eq!(
            prune[0],
            Selection {
                kind: Kind {
                    cluster: "cluster of prune".into(),
                    ..Kind::home("group of prune", "version of prune", "kind of prune")
                }
                .into(),
                namespace: Some(text("namespace of prune")),
                name: Some(text("name of prune")),
                labels: text("labels of prune"),
                matching: [(text("path of prune"), text("value of prune"))].into(),
                fields: [text("field of prune")].into(),
            }
        );
        assert_eq!((status.as_deref(), requeue), (Some("status"), Requeue::After(7)));
        let Event { event_type, reason, message, .. } = &events[0];
        assert_eq!((event_type, &**reason, &**message), (&EventType::Warning, "reason", "message"));

        // The way back exists for references.
        let reference = events[0].on.clone().unwrap();
        assert_eq!(types::ObjectRef::from(reference), places("event").1);
        let Outcome { start, finalizers, .. } = outcome.into();
        assert_eq!(finalizers, Some(vec![text("finalizer")]));
        assert_eq!((&*start[0].reconciler, &*start[0].of.labels), ("start", "labels of start"));
    }

    #[test]
    fn each_text_of_a_request_stays_in_its_field() {
        let request = Request {
            reconciler: text("reconciler"),
            ref_: places("object").1.into(),
            object: Some(text("object")),
            config: text("config"),
            attempt: 4,
            failed_writes: vec![WriteFailure {
                action: Action::Prune,
                ref_: places("failed").1.into(),
                code: 409,
                reason: text("reason"),
                message: text("message"),
                conflicting_managers: vec![text("manager")],
            }],
            note: Some(text("note").into()),
        };
        let expected = guest::Request {
            reconciler: text("reconciler"),
            ref_: places("object").1,
            object: Some(text("object")),
            config: text("config"),
            attempt: 4,
            failed_writes: vec![guest::WriteFailure {
                action: guest::Action::Prune,
                ref_: places("failed").1,
                code: 409,
                reason: text("reason"),
                message: text("message"),
                conflicting_managers: vec![text("manager")],
            }],
            note: Some(text("note")),
        };
        assert_eq!(guest::Request::from(request), expected);
    }
}
