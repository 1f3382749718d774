//! The traits of a processor that serves webhooks, and builders for its hooks and answers.

use std::{rc::Rc, time::Duration};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Host, Processor, Selection,
    bindings::{
        admitter::exports::mortise::host::admission::{
            Answer, Denial, Hook, Operation, Otherwise, Review, Verdict,
        },
        converter::exports::mortise::host::conversion::{Converted, Request},
    },
    host::Imports,
    outcome::milliseconds,
    processor::{parse_config, report_panics},
    shape,
};

/// The default timeout of a hook: that of Kubernetes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// A processor that converts objects between the versions of their kinds.
///
/// Exported with `export!(TYPE, conversion)`.
pub trait Converts: Processor {
    /// Returns the kinds that are converted. The same configuration must always give the same
    /// kinds.
    fn conversions(config: &Self::Config) -> Vec<Converted>;

    /// Returns an object in another version.
    ///
    /// The object may be partial: server-side apply converts what was applied. Of the metadata only
    /// labels and annotations count. An `Err` refuses all objects of a request, so convert every
    /// object that could be stored, at least in part.
    fn convert(object: &Value, to: &str, config: &Self::Config) -> Result<Value, String>;
}

/// A processor that reviews objects before they are stored or deleted.
///
/// Exported with `export!(TYPE, admission)`.
pub trait Admits: Processor {
    /// Returns the hooks. The same configuration must always give the same hooks.
    fn hooks(config: &Self::Config) -> Vec<Hook>;

    /// Decides about a request. An `Err` is a failure of the hook: its
    /// [`on_failure`](Hook::on_failure) decides.
    fn admit(review: &Review, config: &Self::Config, host: &Host) -> Result<Answer, String>;
}

// === impl Converted ===

impl Converted {
    /// Names a kind and the versions between which its objects are converted.
    pub fn new(group: &str, kind: &str, versions: &[&str]) -> Self {
        let versions = versions.iter().map(|version| (*version).to_owned()).collect();
        Self { group: group.to_owned(), kind: kind.to_owned(), versions }
    }
}

// === impl Hook ===

impl Hook {
    /// Creates a hook that reviews these operations on the objects of a selection, changes nothing,
    /// and refuses them when it fails. Its timeout is 10 seconds.
    pub fn new(name: &str, of: Selection, operations: &[Operation]) -> Self {
        Self {
            name: name.to_owned(),
            of,
            operations: operations.to_vec(),
            changes: false,
            on_failure: Otherwise::Refuse,
            timeout: milliseconds(DEFAULT_TIMEOUT),
        }
    }

    /// Declares that the hook may change objects.
    #[must_use]
    pub fn changes(self) -> Self {
        Self { changes: true, ..self }
    }

    /// Lets requests pass when the hook fails.
    #[must_use]
    pub fn lets_pass_on_failure(self) -> Self {
        Self { on_failure: Otherwise::LetPass, ..self }
    }

    /// Sets how long the API server waits for the answer: from 1 to 30 seconds.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: milliseconds(timeout), ..self }
    }
}

// === impl Review ===

impl Review {
    /// Reads the object as it is to be stored; `None` in a deletion.
    pub fn new_object<T: DeserializeOwned>(&self) -> Result<Option<T>, String> {
        self.object.as_deref().map(read).transpose()
    }

    /// Reads the object as it is stored; `None` in a creation.
    pub fn old_object<T: DeserializeOwned>(&self) -> Result<Option<T>, String> {
        self.old.as_deref().map(read).transpose()
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| shape::describe(text, &error))
}

// === impl Answer ===

impl Answer {
    /// Creates the answer that allows the request unchanged.
    pub fn allow() -> Self {
        Self { verdict: Verdict::Allow, warnings: Vec::new() }
    }

    /// Creates the answer that refuses the request with status 403 and a message, which should name
    /// the accepted values.
    pub fn deny(message: impl Into<String>) -> Self {
        Self::deny_with(403, message)
    }

    /// Creates the answer that refuses the request with an HTTP status from 400 to 499.
    pub fn deny_with(code: u16, message: impl Into<String>) -> Self {
        let denial = Denial { code, message: message.into() };
        Self { verdict: Verdict::Deny(denial), warnings: Vec::new() }
    }

    /// Creates the answer that allows the request with this object instead.
    pub fn change(object: &Value) -> Self {
        Self { verdict: Verdict::Change(object.to_string()), warnings: Vec::new() }
    }

    /// Adds a warning for the client of the request.
    #[must_use]
    pub fn warning(mut self, text: impl Into<String>) -> Self {
        self.warnings.push(text.into());
        self
    }
}

// === exports ===

/// Serves the component's export `conversions`.
///
/// # Panics
///
/// If the configuration cannot be read, which `describe` refuses before.
#[doc(hidden)]
pub fn conversions<P: Converts>(config: &str) -> Vec<Converted> {
    report_panics();
    P::conversions(&parse_config(config).unwrap_or_else(|error| panic!("{error}")))
}

/// Serves the component's export `convert`.
#[doc(hidden)]
pub fn convert<P: Converts>(of: &Request) -> Result<Vec<String>, String> {
    report_panics();
    let config = parse_config::<P::Config>(&of.config)?;
    let converted = |text: &String| {
        let object = read::<Value>(text)?;
        P::convert(&object, &of.to, &config).map(|object| object.to_string())
    };
    of.objects.iter().map(converted).collect()
}

/// Serves the component's export `hooks`.
///
/// # Panics
///
/// As [`conversions`] does.
#[doc(hidden)]
pub fn hooks<P: Admits>(config: &str) -> Vec<Hook> {
    report_panics();
    P::hooks(&parse_config(config).unwrap_or_else(|error| panic!("{error}")))
}

/// Serves the component's export `admit`.
#[doc(hidden)]
pub fn admit<P: Admits>(of: &Review) -> Result<Answer, String> {
    report_panics();
    admitted::<P>(of, &Host::new(Rc::new(Imports)))
}

/// Parses the configuration and calls the hook with the given host.
pub(crate) fn admitted<P: Admits>(of: &Review, host: &Host) -> Result<Answer, String> {
    P::admit(of, &parse_config(&of.config)?, host)
}
