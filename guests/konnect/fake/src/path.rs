//! Paths of the API.

use crate::{
    error::Errors,
    kind::{Family, Kind},
    message::decode,
};

/// The subject of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The organization of the token.
    Organization,
    ControlPlanes,
    ControlPlane(String),
    /// The members of a control plane group.
    Members(String),
    /// Something in a control plane.
    Within(String, Within),
}

/// A part of a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Within {
    Entities(Collection),
    Entity(Collection, String),
    /// The consumers of a group.
    GroupConsumers(String),
    /// The membership of a consumer in a group: group, consumer.
    GroupConsumer(String, String),
    /// The groups of a consumer.
    ConsumerGroups(String),
}

/// The entities of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Collection {
    pub(crate) kind: &'static Kind,
    pub(crate) of: Of,
}

/// The parents whose entities are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Of {
    /// The kind has no parents.
    ControlPlane,
    /// One parent's.
    Parent(String),
    /// All parents', for reading only.
    All,
}

/// Reads a path. A path that the API does not have gives nothing.
pub(crate) fn parse(path: &str) -> Option<Target> {
    let segments: Vec<String> =
        path.strip_prefix('/')?.split('/').map(|segment| decode(segment, false)).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    if segments.iter().any(|segment| segment.is_empty()) {
        return None;
    }
    let target = match *segments.as_slice() {
        ["v3", "organizations", "me"] => Target::Organization,
        ["v2", "control-planes"] => Target::ControlPlanes,
        ["v2", "control-planes", plane] => Target::ControlPlane(plane.to_owned()),
        ["v2", "control-planes", plane, "group-memberships"] => Target::Members(plane.to_owned()),
        ["v2", "control-planes", plane, ref rest @ ..] => {
            Target::Within(plane.to_owned(), within(rest)?)
        }
        _ => return None,
    };
    Some(target)
}

/// Returns the family of the errors of a path, also of one that the API does not have.
pub(crate) fn errors(path: &str) -> Errors {
    let entity = ["/core-entities", "/dp-client-certificates"];
    let is_entity = entity.iter().any(|segment| path.contains(segment));
    if is_entity { Errors::Entity } else { Errors::Problem }
}

fn within(segments: &[&str]) -> Option<Within> {
    match *segments {
        ["core-entities", ref rest @ ..] => core(rest),
        [segment] => Some(Within::Entities(beside(segment)?)),
        [segment, id] => Some(Within::Entity(beside(segment)?, id.to_owned())),
        _ => None,
    }
}

/// Returns the collection of a kind that is not a core entity.
fn beside(segment: &str) -> Option<Collection> {
    let kind = Kind::find(segment).filter(|kind| kind.family != Family::Core)?;
    Some(Collection { kind, of: Of::ControlPlane })
}

fn core(segments: &[&str]) -> Option<Within> {
    match *segments {
        ["consumer_groups", group, "consumers"] => Some(Within::GroupConsumers(group.to_owned())),
        ["consumer_groups", group, "consumers", consumer] => {
            Some(Within::GroupConsumer(group.to_owned(), consumer.to_owned()))
        }
        ["consumers", consumer, "consumer_groups"] => {
            Some(Within::ConsumerGroups(consumer.to_owned()))
        }
        [segment] => Some(Within::Entities(top(segment)?)),
        [segment, id] => Some(Within::Entity(top(segment)?, id.to_owned())),
        [parents, parent, segment] => Some(Within::Entities(nested(parents, parent, segment)?)),
        [parents, parent, segment, id] => {
            Some(Within::Entity(nested(parents, parent, segment)?, id.to_owned()))
        }
        _ => None,
    }
}

fn top(segment: &str) -> Option<Collection> {
    let flat = Kind::find_flat(segment).map(|kind| Collection { kind, of: Of::All });
    let is_top = |kind: &&Kind| kind.family == Family::Core && kind.parent.is_none();
    let own = Kind::find(segment).filter(is_top);
    flat.or_else(|| Some(Collection { kind: own?, of: Of::ControlPlane }))
}

fn nested(parents: &str, parent: &str, segment: &str) -> Option<Collection> {
    let kind = Kind::find(segment)?;
    let is_parent = kind.parent_reference().is_some_and(|reference| reference.to == parents);
    is_parent.then(|| Collection { kind, of: Of::Parent(parent.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_what_the_api_has() {
        let services = Kind::find("services").unwrap();
        let all = Collection { kind: services, of: Of::ControlPlane };
        let key = Kind::find("key-auth").unwrap();
        let of_consumer = Collection { kind: key, of: Of::Parent("c".to_owned()) };
        let flat = Collection { kind: key, of: Of::All };
        let cases = [
            ("core-entities/services", Some(Within::Entities(all.clone()))),
            ("core-entities/services/a%20b", Some(Within::Entity(all, "a b".to_owned()))),
            ("core-entities/consumers/c/key-auth", Some(Within::Entities(of_consumer))),
            ("core-entities/key-auths", Some(Within::Entities(flat))),
            ("core-entities/key-auth", None),
            ("core-entities/consumers/c/targets", None),
            ("core-entities/config-stores", None),
            ("services", None),
            ("core-entities/services/", None),
        ];
        for (path, within) in cases {
            let target = within.map(|within| Target::Within("p".to_owned(), within));
            assert_eq!(parse(&format!("/v2/control-planes/p/{path}")), target, "{path}");
        }
        assert_eq!(parse("/v2/control-planes//core-entities/services"), None);
    }
}
