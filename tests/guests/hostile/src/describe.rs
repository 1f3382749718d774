//! Hostile descriptions.

use mortise_sdk::{
    Description, GrantedRule, Kind, Reconciler, Selection, Verbs,
    kubernetes::{ConfigMap, Secret},
};

use crate::{Describe, Play, calls};

/// Levels of the schema: checking one value takes two to the power of these steps.
const LEVELS: u32 = 40;
/// Verbs of a granted rule.
const VERBS: u32 = 64;
/// A version with each text that a reader may take for the end of a line.
const FORGED_VERSION: &str = "1.0.0\nFORGED\rFORGED\u{85}FORGED\u{2028}FORGED\u{2029}FORGED";
/// The finalizer that the benign neighbour declares.
const FINALIZER: &str = "benign.mortise.dev/held";

pub(crate) fn description(play: &Play) -> Description {
    let version = match play.describe {
        Describe::Version => "1".repeat(play.bytes),
        Describe::ForgedVersion => FORGED_VERSION.to_owned(),
        _ => "1.0.0".to_owned(),
    };
    let mut reconciler = Reconciler::new("objects", own(play));
    if matches!(play.describe, Describe::Finalizer) {
        reconciler = reconciler.finalizer(FINALIZER);
    }
    let of_namespace = || Selection::of::<ConfigMap>().namespace(&play.namespace);
    let fields = match play.describe {
        Describe::Nested => vec![format!("data{}", "[]".repeat(play.times as usize))],
        _ => Vec::new(),
    };
    let description = Description::new(&play.name, version)
        .reconciles(reconciler)
        .reads(of_namespace())
        .writes_fields(of_namespace(), Verbs::CREATE | Verbs::UPDATE, fields);
    match play.describe {
        Describe::Plain
        | Describe::Version
        | Describe::ForgedVersion
        | Describe::Finalizer
        | Describe::Nested => description,
        Describe::Index => description.reads(of_namespace().matching("metadata.finalizers[]", "*")),
        Describe::Things => {
            description.reconciles(Reconciler::new("things", Selection::new(thing())))
        }
        Describe::ThingsWithin => {
            let of = Selection::new(thing()).namespace(&play.namespace);
            description.reconciles(Reconciler::new("things", of))
        }
        Describe::Loop => calls::endless(),
        Describe::Deployments => {
            description.reads(Selection::new(deployment()).namespace(&play.namespace))
        }
        Describe::Secrets => {
            description.reads(Selection::of::<Secret>().namespace(&play.namespace))
        }
        Describe::Schema => Description { config_schema: Some(schema()), ..description },
        Describe::Selections => (0..play.times).fold(description, |description, number| {
            let of = Selection::of::<ConfigMap>().namespace(format!("none-{number}"));
            description.reads(of)
        }),
        Describe::Grants => {
            let verbs = || (0..VERBS).map(|number| format!("verb{number}"));
            let rule = |number: u32| {
                GrantedRule::new([String::new()], [format!("things{number}")], verbs())
            };
            description.grants((0..play.times).map(rule))
        }
    }
}

/// Returns the selection of the reconciled objects.
fn own(play: &Play) -> Selection {
    Selection::of::<ConfigMap>().namespace(&play.namespace).labels(format!("hostile={}", play.name))
}

pub(crate) fn deployment() -> Kind {
    Kind { group: "apps".into(), version: "v1".into(), kind: "Deployment".into() }
}

fn thing() -> Kind {
    Kind { group: "hostile.example".into(), version: "v1".into(), kind: "Thing".into() }
}

/// Returns a schema in which `anyOf` at each level names the next level twice, and the last level
/// accepts nothing: each branch is tried.
fn schema() -> String {
    let levels: Vec<String> = (0..LEVELS)
        .map(|level| {
            let next = format!(r##"{{"$ref": "#/$defs/l{}"}}"##, level + 1);
            format!(r#""l{level}": {{"anyOf": [{next}, {next}]}}"#)
        })
        .collect();
    format!(
        r##"{{"$ref": "#/$defs/l0", "$defs": {{{}, "l{LEVELS}": {{"type": "string"}}}}}}"##,
        levels.join(", ")
    )
}
