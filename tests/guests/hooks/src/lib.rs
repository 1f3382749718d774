//! A processor with hooks: it converts Rules between `spec.size` (v1) and `spec.length` (v2), marks
//! them when they are stored, and refuses those that are too large. `spec.do` of a Rule says how it
//! misbehaves, and `do` of the configuration how conversions of all of them do.

#![expect(clippy::indexing_slicing, reason = "an object without the field panics, as it should")]

use mortise_sdk::{
    Admits, Answer, Converted, Converts, Description, Failure, Hook, Host, Level, Object,
    Operation, OutboundRule, Outcome, Processor, Reconciler, Request, Review, Selection,
    bindings::mortise::host::outbound,
    kubernetes::{ConfigMap, Secret},
    outbound::{Call, Method},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The processor.
pub struct Hooks;

/// A Rule of version v1, which is the stored one.
#[derive(Debug, Deserialize)]
pub struct Rule {}

impl Object for Rule {
    const GROUP: &'static str = "example.com";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Rule";
}

/// The configuration.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The versions that are converted.
    versions: Vec<String>,
    /// The rounds of work before the kinds that are converted, and the hooks, are told.
    rounds: u64,
    /// Writes the status of each Rule.
    reports: bool,
    /// The misbehaviour of all conversions.
    #[serde(rename = "do")]
    deed: String,
}

impl Default for Config {
    fn default() -> Self {
        let versions = vec!["v1".to_owned(), "v2".to_owned()];
        Self { versions, rounds: 0, reports: false, deed: String::new() }
    }
}

/// The system outside that a hook calls which is told to, and that is declared then.
const OUTSIDE: &str = "http://api.example.com";

/// The annotation that marks a Rule.
const MARK: &str = "example.com/marked-by";

impl Processor for Hooks {
    type Config = Config;

    fn describe(config: &Config) -> Result<Description, String> {
        let reconciler = Reconciler::new("rules", Selection::of::<Rule>());
        let outside = (config.deed == "call").then(|| OutboundRule::new(OUTSIDE));
        let description = Description::new("hooks", "0.1.0")
            .reconciles(reconciler)
            .reads(Selection::of::<ConfigMap>())
            .outbound(outside);
        Ok(match config.deed.as_str() {
            "quote" => description.reads(Selection::of::<Secret>()),
            _ => description,
        })
    }

    fn reconcile(request: &Request, config: &Config, _host: &Host) -> Result<Outcome, Failure> {
        let outcome = Outcome::new();
        Ok(if config.reports { outcome.status(request, &json!({"done": true})) } else { outcome })
    }
}

impl Converts for Hooks {
    fn conversions(config: &Config) -> Vec<Converted> {
        work(config.rounds);
        let versions: Vec<&str> = config.versions.iter().map(String::as_str).collect();
        vec![Converted::new(Rule::GROUP, Rule::KIND, &versions)]
    }

    fn convert(object: &Value, to: &str, config: &Config) -> Result<Value, String> {
        let mut object = object.clone();
        object["apiVersion"] = format!("{}/{to}", Rule::GROUP).into();
        match deed(&object).unwrap_or(&config.deed) {
            "refuse" => return Err("told to refuse".to_owned()),
            "call" => return Err(call()),
            "forget" => drop(object["spec"].as_object_mut().and_then(|spec| spec.remove("note"))),
            "annotate" => object["metadata"]["annotations"]["example.com/from"] = to.into(),
            "swell" if to == "v1" => object["spec"]["length"] = "x".repeat(2 << 20).into(),
            "rename" => object["metadata"]["name"] = "other".into(),
            "bloat" => object["spec"]["size"] = "x".repeat(80_000).into(),
            "grow" => object["spec"]["size"] = "x".repeat(9 << 20).into(),
            "stay" => object["apiVersion"] = "example.com/v1".into(),
            other => misbehave(other),
        }
        let (from, into) = if to == "v1" { ("length", "size") } else { ("size", "length") };
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
            && let Some(value) = spec.remove(from)
        {
            spec.insert(into.to_owned(), value);
        }
        Ok(object)
    }
}

impl Admits for Hooks {
    fn hooks(config: &Config) -> Vec<Hook> {
        work(config.rounds);
        let of = Selection::of::<Rule>();
        vec![
            Hook::new("mark", of.clone(), &[Operation::Create, Operation::Update]).changes(),
            Hook::new("check", of, &[Operation::Create, Operation::Update, Operation::Delete]),
        ]
    }

    fn admit(review: &Review, _config: &Config, host: &Host) -> Result<Answer, String> {
        let object: Option<Value> = review.new_object()?;
        let old: Option<Value> = review.old_object()?;
        let object = object.or(old).ok_or("no object")?;
        match deed(&object).unwrap_or_default() {
            "refuse" => return Err("told to refuse".to_owned()),
            "call" => return Err(call()),
            "quote" => return Err(quote(host)),
            "rename" => {
                let mut other = object.clone();
                other["metadata"]["name"] = "other".into();
                return Ok(Answer::change(&other));
            }
            other => misbehave(other),
        }
        if review.hook == "mark" {
            let mut marked = object.clone();
            marked["metadata"]["annotations"][MARK] = review.user.as_str().into();
            return Ok(Answer::change(&marked).warning("it is marked"));
        }
        let limit = limit(review, host)?;
        if object["spec"]["size"].as_u64().is_some_and(|size| size > limit) {
            return Ok(Answer::deny_with(422, format!("spec.size is at most {limit}")));
        }
        Ok(Answer::allow())
    }
}

/// Reads the largest size from the `ConfigMap` `limits` of the Rule's namespace; 10 without one.
fn limit(review: &Review, host: &Host) -> Result<u64, String> {
    let namespace = review.ref_.namespace.as_deref();
    let limits = host.get::<ConfigMap>(namespace, "limits", &[]);
    let limits = limits.map_err(|error| error.to_string())?;
    let size = limits.as_ref().and_then(|limits| limits.data.get("size"));
    Ok(size.and_then(|size| size.parse().ok()).unwrap_or(10))
}

fn work(rounds: u64) {
    for round in 0..rounds {
        std::hint::black_box(round);
    }
}

fn deed(object: &Value) -> Option<&str> {
    object.pointer("/spec/do").and_then(Value::as_str)
}

/// Calls a system outside, past the SDK, which gives conversions no host. Returns the answer.
fn call() -> String {
    let url = format!("{OUTSIDE}/");
    let (headers, timeout) = (Vec::new(), 1_000);
    let get = Call { method: Method::Get, url, headers, body: None, credential: None, timeout };
    format!("{:?}", outbound::send(&get))
}

/// Returns the values of a Secret, which go to the log too.
fn quote(host: &Host) -> String {
    let secret = host.get::<Secret>(Some("default"), "certificate", &[]);
    let values = format!("read: {:?}", secret.map(|secret| secret.map(|secret| secret.data)));
    host.log(Level::Info, &values, &[("values", &values)]);
    values
}

fn misbehave(deed: &str) {
    match deed {
        "panic" => panic!("told to panic"),
        "hang" => loop {
            std::hint::black_box(());
        },
        _ => {}
    }
}

mortise_sdk::export!(Hooks, conversion, admission);

#[cfg(test)]
mortise_sdk::testing::cases!(Hooks, "cases", conversion, admission);

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::{Asked, Stub};

    use super::*;

    fn rule(version: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": format!("example.com/{version}"), "kind": "Rule",
            "metadata": {
                "name": "a", "namespace": "shop", "uid": "1",
                "managedFields": [{"manager": "kubectl"}],
            },
            "spec": spec,
        })
    }

    #[test]
    fn the_stub_converts_by_the_rules_of_the_host() {
        let stub = Stub::new();
        let stored = rule("v1", &json!({"size": 3}));
        let newer = stub.convert::<Hooks>(&stored, "v2", "").unwrap();
        assert_eq!(newer, rule("v2", &json!({"length": 3})), "managed fields are kept");
        assert_eq!(stub.convert::<Hooks>(&newer, "v1", "").unwrap(), stored);
        for (deed, expected) in [
            ("refuse", "told to refuse"),
            ("rename", "metadata.name is another one"),
            ("stay", "wanted are `example.com/v2` and `Rule`"),
        ] {
            let object = rule("v1", &json!({"do": deed}));
            let error = stub.convert::<Hooks>(&object, "v2", "").unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let error = stub.convert::<Hooks>(&stored, "v3", "").unwrap_err();
        assert!(
            error.contains("version `v3` of Rule example.com/* is unknown: there are v1, v2"),
            "{error}"
        );
    }

    #[test]
    fn the_stub_reviews_by_the_rules_of_the_host() {
        let limits = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "limits", "namespace": "shop"}, "data": {"size": "5"},
        });
        let stub = Stub::new().objects([limits]);
        let ask = |hook, object: &Value| {
            let asked = Asked { hook, object: Some(object), old: None, user: "jane" };
            stub.review::<Hooks>(&asked, "")
        };
        let small = rule("v1", &json!({"size": 3}));
        let marked = ask("mark", &small).unwrap();
        let mut expected = small.clone();
        expected["metadata"]["annotations"] = json!({MARK: "jane"});
        assert_eq!((marked.object, marked.denial), (Some(expected), None));
        assert_eq!(marked.warnings, ["it is marked"]);
        assert_eq!(ask("check", &small).unwrap().denial, None);
        let refused = ask("check", &rule("v1", &json!({"size": 6}))).unwrap();
        let denial = refused.denial.unwrap();
        assert_eq!((denial.code, denial.message.as_str()), (422, "spec.size is at most 5"));
        assert_eq!(refused.object, None);
        let error = ask("mark", &rule("v1", &json!({"do": "rename"}))).unwrap_err();
        assert!(error.contains("changes metadata.name"), "{error}");
        let error = ask("mark", &rule("v2", &json!({}))).unwrap_err();
        assert!(error.contains("reviews Rule example.com/v1, not Rule"), "{error}");
        let error = ask("marks", &small).unwrap_err();
        assert!(error.contains("no hook `marks`"), "{error}");
    }
}
