//! The names of kinds, objects and verbs in messages.

use std::fmt::{self, Display};

use crate::contract::{Selection, Verbs, display_kind};

/// Returns the names of verbs, as a declaration spells them.
pub fn verb_names(verbs: Verbs) -> impl Iterator<Item = &'static str> {
    let names = [
        (Verbs::CREATE, "create"),
        (Verbs::UPDATE, "update"),
        (Verbs::DELETE, "delete"),
        (Verbs::EVICT, "evict"),
    ];
    names.into_iter().filter(move |(verb, _)| verbs.contains(*verb)).map(|(_, name)| name)
}

pub fn display_verbs(verbs: Verbs) -> String {
    let held: Vec<_> = verb_names(verbs).map(|name| format!("`{name}`")).collect();
    if held.is_empty() { "no verb".to_owned() } else { held.join(", ") }
}

pub fn display_selection(of: &Selection) -> String {
    struct Place<'a>(&'a Selection);
    impl Display for Place<'_> {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write_place(formatter, self.0.namespace.as_deref(), self.0.name.as_deref())
        }
    }
    let labels =
        if of.labels.is_empty() { String::new() } else { format!(" with labels `{}`", of.labels) };
    let cluster = match &*of.kind.cluster {
        "" => String::new(),
        cluster => format!(" in cluster `{cluster}`"),
    };
    format!("{}{}{labels}{cluster}", display_kind(&of.kind), Place(of))
}

pub fn write_place(
    formatter: &mut fmt::Formatter<'_>,
    namespace: Option<&str>,
    name: Option<&str>,
) -> fmt::Result {
    match (namespace, name) {
        (None, None) => Ok(()),
        (Some(namespace), None) => write!(formatter, " in namespace `{namespace}`"),
        (None, Some(name)) => write!(formatter, " named `{name}`"),
        (Some(namespace), Some(name)) => write!(formatter, " `{namespace}/{name}`"),
    }
}

pub fn accepted(what: &str, all: impl Iterator<Item = String>) -> String {
    /// The maximum number of declarations that a message lists: longer lists are of no use.
    const MAX_LISTED_DECLARATIONS: usize = 10;
    let mut all: Vec<String> = all.collect();
    all.dedup();
    if all.is_empty() {
        return format!("no {what} are declared");
    }
    let more = if all.len() > MAX_LISTED_DECLARATIONS {
        format!(" and {} more", all.len() - MAX_LISTED_DECLARATIONS)
    } else {
        String::new()
    };
    all.truncate(MAX_LISTED_DECLARATIONS);
    format!("declared {what}: {}{more}", all.join("; "))
}
