//! Bounds on the kinds that are converted, on hooks, and on their answers.

use std::collections::BTreeSet;

use super::{
    CONVERSIONS, FAILURE, HOOK_SECONDS, HOOKS, VERSIONS, WARNING, WARNINGS,
    description::{check_count, check_kind, check_labels, check_namespace, label, wrong},
    text,
};
use crate::{
    contract::hooks::{Answer, Converted, Hook, Hooks, Operation, Verdict},
    labels::LabelSelector,
};

/// The shortest timeout that a webhook can have, in milliseconds.
const MIN_TIMEOUT: u64 = 1_000;

/// Refuses kinds and hooks that cannot be served. The message names the place and what is accepted.
pub fn check(of: &Hooks) -> Result<(), String> {
    check_count("conversions", of.conversions.len(), CONVERSIONS)?;
    let mut kinds = BTreeSet::new();
    for (index, converted) in of.conversions.iter().enumerate() {
        let place = format!("conversions[{index}]");
        check_converted(&place, converted)?;
        if !kinds.insert((&converted.group, &converted.kind)) {
            return Err(wrong(&place, &converted.kind, "a kind is named once"));
        }
    }
    check_count("hooks", of.admission.len(), HOOKS)?;
    let mut names = BTreeSet::new();
    for (index, hook) in of.admission.iter().enumerate() {
        let place = format!("hooks[{index}]");
        check_hook(&place, hook)?;
        if !names.insert(&hook.name) {
            return Err(wrong(&format!("{place}.name"), &hook.name, "a name is used once"));
        }
    }
    Ok(())
}

fn check_converted(place: &str, of: &Converted) -> Result<(), String> {
    let Converted { group, kind, versions } = of;
    if group.is_empty() || !text::is_group(group) {
        return Err(wrong(&format!("{place}.group"), group, "a group is a DNS subdomain"));
    }
    if !text::is_kind_name(kind) {
        return Err(wrong(&format!("{place}.kind"), kind, "such as `ConfigMap`"));
    }
    let place = format!("{place}.versions");
    check_count(&place, versions.len(), VERSIONS)?;
    if let Some(bad) = versions.iter().find(|version| !text::is_version(version)) {
        return Err(wrong(&place, bad, "such as `v1`"));
    }
    let different: BTreeSet<&String> = versions.iter().collect();
    if different.len() < 2 || different.len() < versions.len() {
        return Err(format!("`{place}`: two or more versions are named, each once"));
    }
    Ok(())
}

fn check_hook(place: &str, of: &Hook) -> Result<(), String> {
    let Hook { name, of: selection, operations, timeout, .. } = of;
    if !text::is_label(name) {
        return Err(wrong(&format!("{place}.name"), name, &label()));
    }
    let kind = &selection.kind;
    check_kind(&format!("{place}.of"), kind)?;
    if !text::is_kind(kind) {
        return Err(wrong(&format!("{place}.of.kind"), &kind.kind, "one kind in one version"));
    }
    check_namespace(&format!("{place}.of"), selection)?;
    check_labels(&format!("{place}.of"), selection)?;
    if let Err(error) = LabelSelector::parse(&selection.labels) {
        return Err(wrong(&format!("{place}.of.labels"), &selection.labels, &error.problem));
    }
    let is_plain = kind.cluster.is_empty() && selection.name.is_none();
    if !is_plain || !selection.matching.is_empty() || !selection.fields.is_empty() {
        return Err(format!(
            "`{place}.of`: `namespace` and `labels` limit the objects; `cluster`, `name`, `matching` and `fields` are empty"
        ));
    }
    let is_repeated =
        |(index, one): (usize, &Operation)| operations.iter().skip(index + 1).any(|of| of == one);
    if operations.is_empty() || operations.iter().enumerate().any(is_repeated) {
        return Err(format!("`{place}.operations`: one or more operations are named, each once"));
    }
    let longest = HOOK_SECONDS as u64 * 1_000;
    if !(MIN_TIMEOUT..=longest).contains(timeout) {
        return Err(format!(
            "`{place}.timeout` is {timeout} ms; from {MIN_TIMEOUT} to {longest} are accepted"
        ));
    }
    Ok(())
}

/// Cuts the texts of an answer to their bounds. A denial code outside 400–499 becomes 403.
pub fn shorten_answer(answer: &mut Answer) {
    answer.warnings.truncate(WARNINGS);
    answer.warnings.iter_mut().for_each(|warning| text::cut(warning, WARNING));
    if let Verdict::Deny(denial) = &mut answer.verdict {
        text::cut(&mut denial.message, FAILURE);
        if !(400..500).contains(&denial.code) {
            denial.code = 403;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        contract::hooks::{Denial, Otherwise},
        fixture::{all, fields, labelled, matching},
    };

    fn converted() -> Converted {
        let versions = vec!["v1".to_owned(), "v2".to_owned()];
        Converted { group: "example.com".into(), kind: "Rule".into(), versions }
    }

    fn hook() -> Hook {
        Hook {
            name: "mark".into(),
            of: labelled(all("Rule"), "a=b"),
            operations: vec![Operation::Create, Operation::Delete],
            changes: true,
            on_failure: Otherwise::Refuse,
            timeout: 5_000,
        }
    }

    fn refusal(conversions: Vec<Converted>, admission: Vec<Hook>) -> String {
        check(&Hooks { conversions, admission }).unwrap_err()
    }

    #[test]
    fn kinds_that_cannot_be_converted_are_refused() {
        check(&Hooks { conversions: vec![converted()], admission: vec![hook()] }).unwrap();
        let with = |change: fn(&mut Converted)| {
            let mut one = converted();
            change(&mut one);
            vec![one]
        };
        let many = || (0..=VERSIONS).map(|number| format!("v{number}")).collect::<Vec<_>>();
        let cases = [
            (with(|of| of.group = "a/b".into()), "`conversions[0].group`"),
            (with(|of| of.group.clear()), "`conversions[0].group`"),
            (with(|of| of.kind = "*".into()), "`conversions[0].kind`"),
            (with(|of| of.versions = vec!["V1".into(), "v2".into()]), "`V1`: such as `v1`"),
            (with(|of| of.versions.truncate(1)), "two or more versions"),
            (with(|of| of.versions = vec!["v1".into(), "v1".into()]), "each once"),
            (vec![converted(), converted()], "a kind is named once"),
            (vec![converted(); CONVERSIONS + 1], "17 entries, at most 16"),
            (vec![Converted { versions: many(), ..converted() }], "17 entries, at most 16"),
        ];
        for (conversions, expected) in cases {
            let message = refusal(conversions, Vec::new());
            assert!(message.contains(expected), "{expected}: {message}");
        }
    }

    #[test]
    fn hooks_that_cannot_be_served_are_refused() {
        let with = |change: fn(&mut Hook)| {
            let mut one = hook();
            change(&mut one);
            vec![one]
        };
        let twice = vec![Operation::Update, Operation::Create, Operation::Update];
        let cases = [
            (with(|of| of.name = "a/../b".into()), "`hooks[0].name`"),
            (
                with(|of| Arc::make_mut(&mut of.of.kind).kind = "*".into()),
                "one kind in one version",
            ),
            (with(|of| Arc::make_mut(&mut of.of.kind).version.clear()), "one kind in one version"),
            (with(|of| Arc::make_mut(&mut of.of.kind).cluster = "other".into()), "are empty"),
            (with(|of| of.of.name = Some("a".into())), "are empty"),
            (with(|of| of.of = fields(all("Rule"), &["spec"])), "are empty"),
            (with(|of| of.of = matching(all("Rule"), "a", "b")), "are empty"),
            (with(|of| of.of.namespace = Some("A".into())), "`hooks[0].of.namespace`"),
            (with(|of| of.of.labels = "a=b=c".into()), "`hooks[0].of.labels`"),
            (with(|of| of.operations.clear()), "one or more operations"),
            (vec![Hook { operations: twice, ..hook() }], "each once"),
            (with(|of| of.timeout = 999), "`hooks[0].timeout` is 999 ms"),
            (with(|of| of.timeout = 30_001), "from 1000 to 30000"),
            (vec![hook(), hook()], "a name is used once"),
            (vec![hook(); HOOKS + 1], "17 entries, at most 16"),
        ];
        for (hooks, expected) in cases {
            let message = refusal(Vec::new(), hooks);
            assert!(message.contains(expected), "{expected}: {message}");
        }
    }

    #[test]
    fn a_denial_and_its_warnings_are_cut_to_their_limits() {
        let denial = Denial { code: 200, message: "m".repeat(2 * FAILURE) };
        let warnings = vec!["w".repeat(2 * WARNING); 2 * WARNINGS];
        let mut answer = Answer { verdict: Verdict::Deny(denial), warnings };
        shorten_answer(&mut answer);
        let Verdict::Deny(denial) = &answer.verdict else { panic!("{answer:?}") };
        assert_eq!(denial.code, 403, "a denial is no success");
        assert!(denial.message.len() <= FAILURE + 3, "{}", denial.message.len());
        assert_eq!(answer.warnings.len(), WARNINGS);
        assert!(answer.warnings.iter().all(|warning| warning.len() <= WARNING + 3));
    }
}
