//! The host as a processor sees it: reads, calls to the outside, the clock and the log.

use std::{collections::VecDeque, marker::PhantomData, rc::Rc};

use serde::de::DeserializeOwned;

use crate::{
    Error, Level, Object, ObjectRef, Selection,
    bindings::mortise::host::{
        clock,
        cluster::{self, Page},
        log, outbound,
        types::ReadError,
    },
    selection, shape, time,
};

/// The host as a processor sees it: reads, calls to the outside, the clock and the log.
///
/// In a component, a `Host` calls the contract's imports; in a native test, a `testing::Stub` takes
/// their place. All reads of one call see one state of each kind. A later change of an object or
/// list that was read triggers the reconcile again.
#[derive(Clone)]
pub struct Host {
    source: Rc<dyn Source>,
}

/// The implementation behind a [`Host`]: the contract's imports, or the stub.
pub(crate) trait Source {
    fn get(&self, reference: &ObjectRef, fields: &[String]) -> Result<Option<String>, ReadError>;
    fn list(&self, of: &Selection, limit: u32, from: Option<&str>) -> Result<Page, ReadError>;
    fn send(&self, call: &outbound::Call) -> Result<outbound::Answer, outbound::CallError>;
    fn now(&self) -> u64;
    fn log(&self, level: Level, message: &str, fields: &[(String, String)]);
}

/// The [`Source`] of a component: the contract's imports.
pub(crate) struct Imports;

/// An iterator over the objects of a selection, which reads one page after the other.
pub struct Objects<'a, T> {
    host: &'a Host,
    of: &'a Selection,
    limit: u32,
    page: VecDeque<String>,
    state: Paging,
    read: PhantomData<T>,
}

enum Paging {
    First,
    Next(String),
    End,
}

// === impl Host ===

impl Host {
    pub(crate) fn new(source: Rc<dyn Source>) -> Self {
        Self { source }
    }

    pub(crate) fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Reads an object; `None` if there is no such object.
    ///
    /// `namespace` is `None` for cluster-scoped kinds. `fields` are the paths to read; if empty,
    /// all fields that were declared for the kind are read.
    pub fn get<T: Object + DeserializeOwned>(
        &self,
        namespace: Option<&str>,
        name: &str,
        fields: &[&str],
    ) -> Result<Option<T>, Error> {
        self.get_ref(&ObjectRef::of::<T>(namespace, name), fields)
    }

    /// Reads an object by its reference; `T` need not implement [`Object`]. Otherwise as
    /// [`Host::get`].
    pub fn get_ref<T: DeserializeOwned>(
        &self,
        reference: &ObjectRef,
        fields: &[&str],
    ) -> Result<Option<T>, Error> {
        let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        let answer = self.source.get(reference, &fields);
        let object =
            answer.map_err(|error| Error::new(error, selection::display_ref(reference)))?;
        object.map(|text| decode(&text, || selection::display_ref(reference))).transpose()
    }

    /// Reads all objects of a selection, ordered by namespace and name.
    pub fn list<T: DeserializeOwned>(&self, of: &Selection) -> Result<Vec<T>, Error> {
        self.objects(of, 0).collect()
    }

    /// Reads the objects of a selection page by page, as the iterator advances. `limit` is the
    /// largest number of objects of a page; with 0, a page holds as many as fit.
    ///
    /// The reconcile depends on the whole selection, no matter how many objects are taken.
    pub fn objects<'a, T: DeserializeOwned>(
        &'a self,
        of: &'a Selection,
        limit: u32,
    ) -> Objects<'a, T> {
        Objects {
            host: self,
            of,
            limit,
            page: VecDeque::new(),
            state: Paging::First,
            read: PhantomData,
        }
    }

    /// Returns the time of this call, as Unix time in milliseconds. It stays the same during a
    /// call.
    ///
    /// A run that asks for the time is never skipped later, so ask only if the answer is needed.
    /// The functions of [`crate::status`] do so.
    pub fn now(&self) -> u64 {
        self.source.now()
    }

    /// Returns the time of this call in RFC 3339, as Kubernetes writes it. For the cost, see
    /// [`Host::now`].
    pub fn now_text(&self) -> String {
        time::rfc3339(self.now())
    }

    /// Writes a line to the host's log: a message and named values.
    ///
    /// The host adds the processor, the reconciler and the object to each line.
    pub fn log(&self, level: Level, message: &str, fields: &[(&str, &str)]) {
        let fields: Vec<(String, String)> =
            fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.source.log(level, message, &fields);
    }
}

fn decode<T: DeserializeOwned>(text: &str, what: impl Fn() -> String) -> Result<T, Error> {
    serde_json::from_str(text)
        .map_err(|error| Error::Shape { what: what(), message: shape::describe(text, &error) })
}

// === impl Imports ===

impl Source for Imports {
    fn get(&self, reference: &ObjectRef, fields: &[String]) -> Result<Option<String>, ReadError> {
        cluster::get(reference, fields)
    }

    fn list(&self, of: &Selection, limit: u32, from: Option<&str>) -> Result<Page, ReadError> {
        cluster::list(of, limit, from)
    }

    fn send(&self, call: &outbound::Call) -> Result<outbound::Answer, outbound::CallError> {
        outbound::send(call)
    }

    fn now(&self) -> u64 {
        clock::now()
    }

    fn log(&self, level: Level, message: &str, fields: &[(String, String)]) {
        log::write(level, message, fields);
    }
}

// === impl Objects ===

impl<T: DeserializeOwned> Objects<'_, T> {
    fn next_page(&mut self) -> Result<bool, Error> {
        let from = match std::mem::replace(&mut self.state, Paging::End) {
            Paging::First => None,
            Paging::Next(token) => Some(token),
            Paging::End => return Ok(false),
        };
        let page = self.host.source.list(self.of, self.limit, from.as_deref());
        let page = page.map_err(|error| Error::new(error, self.what()))?;
        self.page = page.objects.into();
        self.state = page.next.map_or(Paging::End, Paging::Next);
        Ok(true)
    }

    fn what(&self) -> String {
        format!("a list of {}", selection::display_kind(&self.of.kind))
    }
}

impl<T: DeserializeOwned> Iterator for Objects<'_, T> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(text) = self.page.pop_front() {
                return Some(decode(&text, || self.what()));
            }
            match self.next_page() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
