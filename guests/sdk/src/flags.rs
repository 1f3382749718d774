//! The JSON form of flags: a list of their names in the contract, `["create", "update"]`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{Methods, Verbs};

const VERBS: [(&str, Verbs); 4] = [
    ("create", Verbs::CREATE),
    ("update", Verbs::UPDATE),
    ("delete", Verbs::DELETE),
    ("evict", Verbs::EVICT),
];

const METHODS: [(&str, Methods); 6] = [
    ("get", Methods::GET),
    ("head", Methods::HEAD),
    ("post", Methods::POST),
    ("put", Methods::PUT),
    ("patch", Methods::PATCH),
    ("delete", Methods::DELETE),
];

macro_rules! as_names {
    ($flags:ty, $names:ident, $one:literal) => {
        impl Serialize for $flags {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let held = $names.iter().filter(|(_, flag)| *self & *flag == *flag);
                serializer.collect_seq(held.map(|(name, _)| name))
            }
        }

        impl<'de> Deserialize<'de> for $flags {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let names = Vec::<String>::deserialize(deserializer)?;
                names.iter().try_fold(Self::empty(), |flags, name| {
                    let flag = $names.iter().find(|(known, _)| known == name);
                    let (_, flag) = flag.ok_or_else(|| {
                        let all = $names.map(|(known, _)| known).join(", ");
                        D::Error::custom(format!("`{name}` is no {}: {all} are", $one))
                    })?;
                    Ok(flags | *flag)
                })
            }
        }
    };
}

as_names!(Verbs, VERBS, "verb");
as_names!(Methods, METHODS, "method");

#[cfg(test)]
mod tests {
    use mortise_core::contract;

    use super::*;

    #[test]
    fn each_flag_has_a_name() {
        let named = VERBS.iter().fold(Verbs::empty(), |named, (_, verb)| named | *verb);
        assert_eq!(contract::Verbs::from(named), contract::Verbs::all());
        let named = METHODS.iter().fold(Methods::empty(), |named, (_, method)| named | *method);
        assert_eq!(contract::Methods::from(named), contract::Methods::all());
    }

    #[test]
    fn flags_are_a_list_of_names() {
        let verbs: Verbs = serde_json::from_str(r#"["delete", "create"]"#).unwrap();
        assert_eq!(verbs, Verbs::CREATE | Verbs::DELETE);
        assert_eq!(serde_json::to_string(&verbs).unwrap(), r#"["create","delete"]"#);
        let error = serde_json::from_str::<Verbs>(r#"["patch"]"#).unwrap_err().to_string();
        assert!(
            error.starts_with("`patch` is no verb: create, update, delete, evict are"),
            "{error}"
        );
        let methods = serde_json::to_string(&(Methods::GET | Methods::POST)).unwrap();
        assert_eq!(methods, r#"["get","post"]"#);
    }
}
