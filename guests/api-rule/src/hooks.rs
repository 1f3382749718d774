//! The webhooks of the APIRule: the conversion between its versions, and the two admissions of the
//! original.

use mortise_sdk::{
    Admits, Answer, Converted, Converts, Error, Hook, Host, Kind, Operation, Review, Selection,
};
use serde_json::Value;

use crate::{
    ApiRules, Config,
    admission::{self, REFUSAL},
    conversion::{self, GROUP, KIND, VERSIONS},
};

/// The hook that marks objects with the version in which they were written.
const ORIGINAL_VERSION: &str = "original-version";
/// The hook that refuses writes in v1beta1 without a grant.
const V1BETA1: &str = "v1beta1";

impl Converts for ApiRules {
    fn conversions(_config: &Config) -> Vec<Converted> {
        vec![Converted::new(GROUP, KIND, &VERSIONS)]
    }

    fn convert(object: &Value, to: &str, _config: &Config) -> Result<Value, String> {
        conversion::convert(object, to)
    }
}

impl Admits for ApiRules {
    fn hooks(_config: &Config) -> Vec<Hook> {
        let of = |version: &str| Selection::new(Kind::new(GROUP, version, KIND));
        let (create, update) = (Operation::Create, Operation::Update);
        vec![
            Hook::new(ORIGINAL_VERSION, of("v2alpha1"), &[create, update]).changes(),
            Hook::new(V1BETA1, of("v1beta1"), &[create, update, Operation::Delete]),
        ]
    }

    fn admit(review: &Review, config: &Config, host: &Host) -> Result<Answer, String> {
        match review.hook.as_str() {
            ORIGINAL_VERSION => mark(review),
            _ => allow_v1beta1(review, config, host),
        }
    }
}

fn mark(review: &Review) -> Result<Answer, String> {
    let object: Value = review.new_object()?.ok_or("a deletion is not marked")?;
    let old: Option<Value> = review.old_object()?;
    let marked = admission::mark(&object, old.as_ref());
    Ok(marked.as_ref().map_or_else(Answer::allow, Answer::change))
}

fn allow_v1beta1(review: &Review, config: &Config, host: &Host) -> Result<Answer, String> {
    let grant = config.grant()?;
    let granted = || -> Result<bool, Error> { grant.is_granted(host) };
    if admission::is_allowed(&review.user, granted) {
        Ok(Answer::allow())
    } else {
        Ok(Answer::deny(REFUSAL))
    }
}

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::{Asked, Reviewed, Stub};
    use serde_json::json;

    use super::*;

    fn rule(version: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/{version}"), "kind": KIND,
            "metadata": {"name": "web", "namespace": "shop", "uid": "1"}, "spec": spec,
        })
    }

    fn asked(hook: &str, object: Option<&Value>, old: Option<&Value>, config: &Value) -> Reviewed {
        let asked = Asked { hook, object, old, user: "jane" };
        Stub::new().review::<ApiRules>(&asked, &config.to_string()).unwrap()
    }

    /// The host accepts what becomes of an object, also if any field of it is missing.
    #[test]
    fn every_version_is_converted_to_every_other_one_also_in_part() {
        let spec = json!({
            "hosts": ["web"], "gateway": "a/b", "service": {"name": "web", "port": 80},
            "rules": [{"path": "/*", "methods": ["GET"], "noAuth": true}],
        });
        let stub = Stub::new();
        for from in VERSIONS {
            for to in VERSIONS {
                let whole = rule(from, &spec);
                let fields = ["metadata", "spec", "status", ""];
                for field in fields {
                    let mut part = whole.clone();
                    part.as_object_mut().unwrap().remove(field);
                    let converted = stub.convert::<ApiRules>(&part, to, "").unwrap();
                    assert_eq!(converted["apiVersion"], format!("{GROUP}/{to}"), "{from} {field}");
                }
            }
        }
        let back = |object: &Value, version| {
            let there = stub.convert::<ApiRules>(object, version, "").unwrap();
            stub.convert::<ApiRules>(&there, "v2alpha1", "").unwrap()
        };
        let mut stored = rule("v2alpha1", &spec);
        stored["metadata"]["annotations"] =
            json!({"gateway.kyma-project.io/original-version": "v2"});
        assert_eq!(back(&stored, "v2"), stored);
    }

    #[test]
    fn an_object_is_marked_when_it_is_stored() {
        let object = rule("v2alpha1", &json!({"rules": [{"path": "/a"}]}));
        let marked = asked(ORIGINAL_VERSION, Some(&object), None, &json!({})).object.unwrap();
        let annotations = &marked["metadata"]["annotations"];
        assert_eq!(annotations["gateway.kyma-project.io/original-version"], "v2alpha1");
        let again = asked(ORIGINAL_VERSION, Some(&marked), Some(&object), &json!({}));
        assert_eq!(again.object, Some(marked));
    }

    #[test]
    fn v1beta1_is_refused_without_a_grant_also_when_it_is_deleted() {
        let object = rule("v1beta1", &json!({}));
        for (object, old) in
            [(Some(&object), None), (Some(&object), Some(&object)), (None, Some(&object))]
        {
            let denied = asked(V1BETA1, object, old, &json!({})).denial.unwrap();
            assert_eq!((denied.code, denied.message.as_str()), (403, REFUSAL));
            let allowed = asked(V1BETA1, object, old, &json!({"v1beta1": "allowed"}));
            assert_eq!(allowed.denial, None);
        }
    }
}
