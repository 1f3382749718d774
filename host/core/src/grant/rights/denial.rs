//! A read or write that a run was refused.

use std::fmt;

use super::Question;
use crate::contract::Kind;

/// A read or write that a run was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The missing right or declaration.
    pub lack: Lack,
    /// The kind that was to be read or written.
    pub kind: Kind,
}

/// The missing right or declaration of a denial.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// The account lacks this right.
    Right(Question),
    /// The processor's description does not declare the read or write.
    Declaration {
        /// The verb that was refused, as a role names it: `get`.
        verb: &'static str,
        /// The message to the processor, which names the existing declarations.
        message: Box<str>,
    },
}

// === impl Denial ===

impl Denial {
    /// Returns the denial for an account that lacks a right.
    pub fn of_right(question: Question, kind: &Kind) -> Self {
        Self { lack: Lack::Right(question), kind: kind.clone() }
    }

    /// Returns the denial for a description that lacks a declaration.
    pub fn of_declaration(verb: &'static str, kind: &Kind, message: &str) -> Self {
        let lack = Lack::Declaration { verb, message: message.into() };
        Self { lack, kind: kind.clone() }
    }

    /// Returns the texts of the denial that a processor may have chosen.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let chosen = match &self.lack {
            Lack::Right(question) => question.name.as_deref(),
            Lack::Declaration { message, .. } => Some(&**message),
        };
        chosen.into_iter().chain([self.kind.group.as_str(), self.kind.kind.as_str()])
    }

    /// Applies `change` to each text that a processor may have chosen.
    pub fn each_text(&mut self, mut change: impl FnMut(&mut String)) {
        let chosen = match &mut self.lack {
            Lack::Right(question) => question.name.as_mut(),
            Lack::Declaration { message, .. } => Some(message),
        };
        if let Some(chosen) = chosen {
            let mut text = std::mem::take(chosen).into_string();
            change(&mut text);
            *chosen = text.into();
        }
        change(&mut self.kind.group);
        change(&mut self.kind.kind);
    }

    /// Returns the denial in words: `may not get secrets in namespace …`,
    /// ``v1 Secret `a` is not declared; …``.
    pub fn in_words(&self) -> String {
        self.lack.to_string()
    }
}

// === impl Lack ===

impl Lack {
    /// Returns the verb that was refused, as a role names it: `get`, `patch`.
    pub fn verb(&self) -> &str {
        match self {
            Self::Right(question) => &question.verb,
            Self::Declaration { verb, .. } => verb,
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right(question) => write!(to, "may not {question}"),
            Self::Declaration { message, .. } => to.write_str(message),
        }
    }
}
