//! The JSON form of verbs: a list of their names in the contract, `["create", "update"]`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::Verbs;

const NAMES: [(&str, Verbs); 4] = [
    ("create", Verbs::CREATE),
    ("update", Verbs::UPDATE),
    ("delete", Verbs::DELETE),
    ("evict", Verbs::EVICT),
];

impl Serialize for Verbs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let held = NAMES.iter().filter(|(_, verb)| *self & *verb == *verb);
        serializer.collect_seq(held.map(|(name, _)| name))
    }
}

impl<'de> Deserialize<'de> for Verbs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        names.iter().try_fold(Self::empty(), |verbs, name| {
            let verb = NAMES.iter().find(|(known, _)| known == name);
            let (_, verb) = verb.ok_or_else(|| {
                D::Error::custom(format!("`{name}` is no verb: create, update, delete, evict are"))
            })?;
            Ok(verbs | *verb)
        })
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::contract;

    use super::*;

    #[test]
    fn each_verb_has_a_name() {
        let named = NAMES.iter().fold(Verbs::empty(), |named, (_, verb)| named | *verb);
        assert_eq!(contract::Verbs::from(named), contract::Verbs::all());
    }

    #[test]
    fn verbs_are_a_list_of_names() {
        let verbs: Verbs = serde_json::from_str(r#"["delete", "create"]"#).unwrap();
        assert_eq!(verbs, Verbs::CREATE | Verbs::DELETE);
        assert_eq!(serde_json::to_string(&verbs).unwrap(), r#"["create","delete"]"#);
        let error = serde_json::from_str::<Verbs>(r#"["patch"]"#).unwrap_err().to_string();
        assert!(error.starts_with("`patch` is no verb: create"), "{error}");
    }
}
