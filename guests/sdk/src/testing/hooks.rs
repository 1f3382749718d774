//! Calls of the hooks of a processor as native functions, by the rules of the host.

use mortise_core::contract::{
    bounds,
    hooks::{self, Given, Hooks, Target},
};
use serde_json::Value;

use super::{Stub, identity};
use crate::{Admits, Converts, Denial, Operation, Processor, Review, hooks::admitted, processor};

/// The decision about a request that a hook has reviewed.
#[derive(Debug, Clone, PartialEq)]
pub struct Reviewed {
    /// The refusal; `None` if the request is allowed.
    pub denial: Option<Denial>,
    /// The object as it is stored; `None` in a deletion and after a refusal.
    pub object: Option<Value>,
    /// The warnings for the client of the request.
    pub warnings: Vec<String>,
}

/// A request that a hook reviews.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked<'a> {
    /// The name of the hook.
    pub hook: &'a str,
    /// The object as it is to be stored; `None`: a deletion.
    pub object: Option<&'a Value>,
    /// The object as it is stored; `None`: a creation.
    pub old: Option<&'a Value>,
    /// The name of the user who asks.
    pub user: &'a str,
}

impl Stub {
    /// Converts an object as the host does: of the metadata, only labels and annotations change.
    ///
    /// # Errors
    ///
    /// Fails if the processor refuses, or if its answer breaks a rule.
    pub fn convert<P: Converts>(
        &self,
        object: &Value,
        to: &str,
        config: &str,
    ) -> Result<Value, String> {
        let hooks = hooks_of::<P>(P::conversions, config)?;
        let text = object.to_string();
        let of = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let group = of("apiVersion").split_once('/').map_or("", |(group, _)| group);
        let to = format!("{group}/{to}");
        let target = Target::new(&hooks, of("kind"), &to)?;
        let given = Given::parse(&target, &text)?;
        if given.is_in(target.version()) {
            return Ok(object.clone());
        }
        let shown: Value = parsed(&given.shown())?;
        let answer =
            P::convert(&shown, target.version(), &processor::parse_config(config)?)?.to_string();
        parsed(&given.converted(&target, &answer)?)
    }

    /// Calls a hook of the processor, as the host does: without managed fields, and with an error
    /// for a change that the hook may not make. Reads see the objects of the stub.
    ///
    /// # Errors
    ///
    /// Fails if the hook fails, does not review such requests, or breaks a rule.
    pub fn review<P: Admits>(&self, asked: &Asked<'_>, config: &str) -> Result<Reviewed, String> {
        let admission = P::hooks(&processor::parse_config(config)?);
        let admission = admission.into_iter().map(Into::into).collect();
        let hooks = Hooks { conversions: Vec::new(), admission };
        bounds::check_hooks(&hooks)?;
        let hook = hooks.hook(asked.hook);
        let hook = hook.ok_or_else(|| format!("there is no hook `{}`", asked.hook))?;
        let review = review_of(asked, config)?;
        let unchanged = Reviewed { denial: None, object: asked.object.cloned(), warnings: vec![] };
        if !hooks::matches(hook, &review)? {
            return Ok(unchanged);
        }
        let description = processor::described::<P>(config)?;
        self.state.lock().declared.get_or_insert(description);
        let answer = admitted::<P>(&to_guest(&review), &self.host())?;
        let mut answer = hooks::Answer::from(answer);
        bounds::shorten_answer(&mut answer);
        let decision = hooks::decide(hook, &review, answer)?;
        let mut object = unchanged.object.filter(|_| decision.denial.is_none());
        if let (Some(object), Some(patch)) = (&mut object, &decision.patch) {
            json_patch::patch(object, patch).map_err(|error| error.to_string())?;
        }
        let denial =
            decision.denial.map(|denial| Denial { code: denial.code, message: denial.message });
        Ok(Reviewed { denial, object, warnings: decision.warnings })
    }
}

/// Returns the conversions of a processor, checked by the rules of the host.
fn hooks_of<P: Processor>(
    conversions: fn(&P::Config) -> Vec<crate::Converted>,
    config: &str,
) -> Result<Hooks, String> {
    let conversions = conversions(&processor::parse_config(config)?);
    let conversions = conversions.into_iter().map(Into::into).collect();
    let hooks = Hooks { conversions, admission: Vec::new() };
    bounds::check_hooks(&hooks)?;
    Ok(hooks)
}

fn review_of(asked: &Asked<'_>, config: &str) -> Result<hooks::Review, String> {
    let Asked { hook, object, old, user } = asked;
    let (operation, of) = match (object, old) {
        (Some(object), None) => (Operation::Create, object),
        (Some(object), Some(_)) => (Operation::Update, object),
        (None, Some(old)) => (Operation::Delete, old),
        (None, None) => return Err("a review is of an object".to_owned()),
    };
    let shown = |of: &&Value| hooks::shown(&of.to_string());
    let ref_ = identity::reference_of(of).into();
    Ok(hooks::Review {
        hook: (*hook).to_owned(),
        operation: operation.into(),
        ref_,
        object: object.as_ref().map(shown).transpose()?,
        old: old.as_ref().map(shown).transpose()?,
        user: (*user).to_owned(),
        groups: vec!["system:authenticated".to_owned()],
        dry_run: false,
        config: config.to_owned(),
    })
}

fn to_guest(review: &hooks::Review) -> Review {
    review.clone().into()
}

fn parsed(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}
