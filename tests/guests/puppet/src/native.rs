//! The puppet as a Rust type, for the host stub.

use std::{borrow::Cow, time::Duration};

use mortise_sdk::{
    Description, Error, Failure, Host, Level, ObjectRef, Outcome, Processor, Request, Selection,
    bindings::mortise::host::{outbound::Call, types::ReadError},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::value::RawValue;

use crate::{Ask, Play, Puppet, reconcile};

impl Processor for Puppet {
    type Config = Play;

    fn describe(config: &Play) -> Result<Description, String> {
        match config.call {
            Some(_) => Err("a native description has no imports to call with".to_owned()),
            None => Ok(config.description.clone()),
        }
    }

    fn reconcile(request: &Request, _config: &Play, host: &Host) -> Result<Outcome, Failure> {
        reconcile(request, host)
    }
}

/// Accepts anything: a play is checked when it is parsed.
impl JsonSchema for Play {
    fn schema_name() -> Cow<'static, str> {
        "Play".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        true.into()
    }
}

impl Ask for Host {
    fn get(&self, of: &ObjectRef, fields: &[String]) -> Result<Option<String>, ReadError> {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let object: Option<Box<RawValue>> = self.get_ref(of, &fields).map_err(contract)?;
        Ok(object.map(|object| object.get().to_owned()))
    }

    fn list(&self, of: &Selection, limit: u32) -> Result<Vec<String>, ReadError> {
        self.objects::<Box<RawValue>>(of, limit)
            .map(|object| object.map(|object| object.get().to_owned()).map_err(contract))
            .collect()
    }

    fn send(&self, call: &Call) -> String {
        let mut prepared = self.outbound().call(call.method, &call.url);
        for (name, value) in &call.headers {
            prepared = prepared.header(name, value);
        }
        if let Some(body) = &call.body {
            prepared = prepared.body(body.clone());
        }
        if let Some(credential) = &call.credential {
            prepared = prepared.credential(credential.clone());
        }
        format!("{:?}", prepared.timeout(Duration::from_millis(call.timeout)).send())
    }

    fn seek(&self, parts: &[String]) -> usize {
        panic!("a native program shares its memory with its host, which holds {parts:?}")
    }

    fn now(&self) -> u64 {
        Host::now(self)
    }

    fn say(&self, message: &str, answer: String) {
        self.log(Level::Info, message, &[("answer", &answer)]);
    }
}

/// Converts an error to the contract's type.
fn contract(error: Error) -> ReadError {
    match error {
        Error::Denied { message, .. } => ReadError::Denied(message),
        Error::UnknownKind { .. } => ReadError::UnknownKind,
        Error::Unavailable { message, .. } => ReadError::Unavailable(message),
        Error::Invalid { message, .. } | Error::Shape { message, .. } => {
            ReadError::Invalid(message)
        }
    }
}
