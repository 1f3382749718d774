//! The paths of the port.

use http::StatusCode;
use mortise_core::contract::{bounds::text::is_label, hooks::Hooks};

use super::{MAX_PATH_BYTES, Refused, short};
use crate::metrics::HookRequest;

/// A path that is served as another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The path that callers use, such as `/convert`.
    pub old: String,
    /// The path of a hook of this host.
    pub new: String,
}

/// The aliases that are served beside the host's own paths.
#[derive(Clone, Debug, Default)]
pub struct Paths(Vec<Alias>);

/// A path of the host.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Path<'a> {
    Convert { namespace: &'a str, name: &'a str },
    Admit { namespace: &'a str, name: &'a str, hook: &'a str },
}

const OWN: &str = "/convert/NAMESPACE/PROCESSOR and /admit/NAMESPACE/PROCESSOR/HOOK";

// === impl Alias ===

impl std::str::FromStr for Alias {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "OLD=NEW is expected, as `/convert=/convert/kyma-system/api-rule`; NEW is one of {OWN}"
            )
        };
        let (old, new) = text.split_once('=').ok_or_else(expected)?;
        let is_path = old.starts_with('/') && old.len() <= MAX_PATH_BYTES && !old.contains('?');
        if !is_path || Path::parse(new).is_none() {
            return Err(expected());
        }
        if Path::parse(old).is_some() {
            return Err(format!("`{old}` is a path of the host itself"));
        }
        Ok(Self { old: old.to_owned(), new: new.to_owned() })
    }
}

// === impl Paths ===

impl Paths {
    /// Creates the paths.
    ///
    /// # Errors
    ///
    /// Fails if two aliases have the same old path.
    pub fn new(aliases: Vec<Alias>) -> Result<Self, String> {
        for (at, alias) in aliases.iter().enumerate() {
            if aliases.iter().skip(at + 1).any(|other| other.old == alias.old) {
                return Err(format!("`--webhook-path {}=…` is given twice", alias.old));
            }
        }
        Ok(Self(aliases))
    }

    /// Resolves the path of a request, through an alias if there is one.
    pub(super) fn resolve<'a>(&'a self, path: &'a str) -> Result<Path<'a>, Refused> {
        let alias = self.0.iter().find(|alias| alias.old == path);
        Path::parse(alias.map_or(path, |alias| &alias.new)).ok_or_else(|| {
            let message = format!("nothing is served at {}; paths are {OWN}", short(path));
            Refused::new(StatusCode::NOT_FOUND, message)
        })
    }
}

// === impl Path ===

impl<'a> Path<'a> {
    fn parse(path: &'a str) -> Option<Self> {
        let mut parts = path.strip_prefix('/')?.split('/');
        let (of, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        let (hook, rest) = (parts.next(), parts.next());
        let names = [Some(namespace), Some(name), hook];
        if rest.is_some() || !names.into_iter().flatten().all(is_label) {
            return None;
        }
        match (of, hook) {
            ("convert", None) => Some(Self::Convert { namespace, name }),
            ("admit", Some(hook)) => Some(Self::Admit { namespace, name, hook }),
            _ => None,
        }
    }

    /// Returns the hook's label in metrics, for a processor with these hooks.
    pub(super) fn hook_of(&self, hooks: &Hooks) -> HookRequest<'_> {
        match self {
            Self::Convert { .. } => HookRequest::Convert,
            Self::Admit { hook, .. } if hooks.hook(hook).is_some() => HookRequest::Admit(hook),
            Self::Admit { .. } => HookRequest::Unknown,
        }
    }

    /// Returns the name of the processor, as the host knows it.
    pub(super) fn processor(&self) -> String {
        match self {
            Self::Convert { namespace, name } | Self::Admit { namespace, name, .. } => {
                format!("{namespace}/{name}")
            }
        }
    }
}
