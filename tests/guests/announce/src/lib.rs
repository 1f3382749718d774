//! A processor that calls a library: for each `ConfigMap` with the label `announce=yes` it applies
//! another, with the text in capitals.

use std::{collections::BTreeMap, marker::PhantomData};

use mortise_sdk::{
    Description, Failure, Host, Outcome, Processor, Reconciler, Request, Selection, Verbs,
    kubernetes::ConfigMap, object::Metadata,
};
use schemars::JsonSchema;
use serde::Deserialize;

mortise_sdk::library! {
    mod bindings in ["../shout/wit", "wit"], world "example:announcing/announce";

    /// Shouts.
    pub trait Shouting, imported as Shout {
        /// Returns which build of the library this is.
        fn version() -> String = bindings::example::shouting::shout::version;

        /// Returns a text in capitals.
        fn shout(text: &str) -> Result<String, String> = bindings::example::shouting::shout::shout;
    }
}

/// The configuration: the objects to announce.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The namespace of the `ConfigMap`s; all if absent.
    namespace: Option<String>,
}

/// The processor, over the library itself or a double of it.
pub struct Announcements<L = Shout>(PhantomData<L>);

impl<L: Shouting> Processor for Announcements<L> {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        let all = || match &config.namespace {
            Some(namespace) => Selection::of::<ConfigMap>().namespace(namespace),
            None => Selection::of::<ConfigMap>(),
        };
        let announced = all().labels("announce=yes");
        // The library decides what is announced, so the version is its version.
        Ok(Description::new("announce", L::version())
            .reconciles(Reconciler::new("announcements", announced))
            .writes(all(), Verbs::CREATE | Verbs::UPDATE))
    }

    fn reconcile(request: &Request, _: &Config, _: &Host) -> Result<Outcome, Failure> {
        let Some(wanted) = request.object::<ConfigMap>()? else { return Ok(Outcome::new()) };
        let value = |key: &str| wanted.data.get(key).map(String::as_str).unwrap_or_default();
        let text = value("text");
        let times: u32 = value("times").parse().unwrap_or(1);
        let mut answer = L::shout(text);
        for number in 1..times {
            answer = L::shout(&format!("{text} {number}"));
        }
        // A ConfigMap holds 1 MiB: of a longer answer, its length is announced.
        let answer = answer.map(|text| match text.len() {
            ..=1000 => text,
            length => format!("{length} bytes"),
        });
        let data = match answer {
            Ok(text) => BTreeMap::from([("text".to_owned(), text)]),
            Err(error) => BTreeMap::from([("error".to_owned(), error)]),
        };
        let metadata = Metadata::new(format!("{}-announced", wanted.metadata.name))
            .namespace(wanted.metadata.namespace.clone().unwrap_or_default());
        Ok(Outcome::new().apply(&ConfigMap { metadata, data, ..ConfigMap::default() }))
    }
}

mortise_sdk::export!(Announcements);

/// A library for native tests.
#[cfg(not(target_family = "wasm"))]
pub struct Double;

#[cfg(not(target_family = "wasm"))]
impl Shouting for Double {
    fn version() -> String {
        "double".to_owned()
    }

    fn shout(text: &str) -> Result<String, String> {
        if text == "nothing" {
            return Err("there is nothing to shout".to_owned());
        }
        Ok(text.to_uppercase())
    }
}

#[cfg(test)]
mortise_sdk::testing::cases!(Announcements<Double>, "cases");
