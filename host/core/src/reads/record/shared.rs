//! Deduplicates the values that many records hold: decoded records share none, unlike records of
//! runs.

use std::{hash::Hash, sync::Arc};

use foldhash::HashSet;

use super::{Question, Record};
use crate::contract::{Kind, Selection};

/// The interned kinds, lists of fields and texts of some records.
#[derive(Debug, Default)]
pub struct Shared {
    kinds: HashSet<Arc<Kind>>,
    fields: HashSet<Arc<[String]>>,
    texts: HashSet<Arc<str>>,
}

// === impl Record ===

impl Record {
    /// Replaces values that earlier records hold too with the shared copies.
    pub fn share(&mut self, with: &mut Shared) {
        if let Some(ran_on) = &mut self.ran_on {
            share(&mut with.texts, &mut ran_on.module);
        }
        for read in &mut self.reads {
            match &mut read.question {
                Question::Get { of, fields } => {
                    share(&mut with.kinds, &mut of.kind);
                    share(&mut with.fields, fields);
                }
                Question::List { of, .. } => share_parts(of, with),
            }
        }
        for wrote in &mut self.wrote {
            share(&mut with.kinds, &mut wrote.of.kind);
            share(&mut with.texts, &mut wrote.manager);
        }
        for removed in &mut self.removed {
            share(&mut with.kinds, &mut removed.kind);
        }
        for pruned in &mut self.pruned {
            share_parts(&mut pruned.of, with);
            share(&mut with.texts, &mut pruned.manager);
        }
    }
}

fn share_parts(of: &mut Selection, with: &mut Shared) {
    share(&mut with.kinds, &mut of.kind);
    share(&mut with.fields, &mut of.fields);
}

fn share<T: ?Sized + Eq + Hash>(held: &mut HashSet<Arc<T>>, value: &mut Arc<T>) {
    if let Some(same) = held.get(value) {
        *value = Arc::clone(same);
    } else {
        held.insert(Arc::clone(value));
    }
}
