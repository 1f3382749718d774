//! The table of kinds: everything that the one loop needs to know of a kind, as data.
//!
//! A kind is added by a row in one of the modules below and an entry in [`ALL`]. What does not fit
//! the columns is named by a [`Special`], which the loop carries out.
//!
//! Kinds that are left out would go here too: those of tier T4 (portals, event gateways, AI
//! gateways) into modules `portal`, `event_gateway` and `ai_gateway`, with their generated
//! references before `pluginRef` in [`Entity::references`]; the cloud gateways, whose state is
//! asynchronous, into `cloud_gateway` with a [`Special`] of their own.

mod certificate;
mod consumer;
mod control_plane;
mod gateway;
mod key;
mod plugin;
mod reference;
mod schema;
mod upstream;
mod vault;

pub use consumer::CONSUMER;
pub use control_plane::{AUTH, CONTROL_PLANE, GRANT};
pub use plugin::{BINDING, PLUGIN};
pub use reference::{Name, Reference, Shape, at, text};
pub use schema::{Column, Conditions, Definition, Field, How, Rule, Schema, Type};

use mortise_sdk::{Kind, ObjectRef, Selection};
use serde_json::Value;

/// The API group of control planes and their configuration.
pub const KONNECT: &str = "konnect.konghq.com";
/// The API group of what is configured in a control plane.
pub const CONFIGURATION: &str = "configuration.konghq.com";
/// The finalizer of an object that has, or is about to have, an entity.
pub const CLEANUP: &str = "gateway.konghq.com/konnect-cleanup";
/// The finalizer that the original had on control planes before [`CLEANUP`].
pub const OLD_CLEANUP: &str = "gateway.operator.konghq.com/konnect-gateway-controlplane";

/// The kinds, parents before their children.
pub static ALL: [&Entity; 24] = [
    &control_plane::AUTH,
    &control_plane::CONTROL_PLANE,
    &control_plane::CONFIG_STORE,
    &certificate::CA_CERTIFICATE,
    &certificate::CERTIFICATE,
    &certificate::CLIENT_CERTIFICATE,
    &gateway::SERVICE,
    &gateway::ROUTE,
    &consumer::GROUP,
    &consumer::CONSUMER,
    &consumer::ACL,
    &consumer::API_KEY,
    &consumer::BASIC_AUTH,
    &consumer::HMAC,
    &consumer::JWT,
    &plugin::PLUGIN,
    &plugin::BINDING,
    &upstream::UPSTREAM,
    &upstream::TARGET,
    &certificate::SNI,
    &key::KEY_SET,
    &key::KEY,
    &vault::VAULT,
    &control_plane::GRANT,
];

/// A kind: a row of the table.
pub struct Entity {
    /// The API group.
    pub group: &'static str,
    /// The version in which objects are read and written.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The resource in the plural, lower case.
    pub plural: &'static str,
    /// True if objects have no namespace.
    pub is_cluster_scoped: bool,
    /// The fields beside `spec`.
    pub root: &'static [Field],
    /// The fields of `spec`.
    pub spec: &'static [Field],
    /// The references, in the order in which they are checked.
    pub references: &'static [Reference],
    /// The entity in the API; `None` for kinds without one.
    pub api: Option<Api>,
    /// The rest of the `CustomResourceDefinition`.
    pub definition: Definition,
}

/// An entity in the API.
pub struct Api {
    /// The path of the collection. `{field}` stands for that ID of [`Entity::id_path`].
    pub collection: &'static str,
    /// How an entity is created.
    pub create: Create,
    /// How an entity is updated.
    pub update: Update,
    /// The query of a deletion, without `?`.
    pub delete: &'static str,
    /// How an entity is found if its ID is not known.
    pub lookup: Lookup,
    /// The fields of the body by which the API refuses a second entity; without one of them in a
    /// body, the entity is looked up before it is created.
    pub unique: &'static [&'static str],
    /// Where the generated keys go.
    pub marks: Marks,
    /// Fields of the body that no field of the object sets, as JSON.
    pub constants: &'static [(&'static str, &'static str)],
    /// The member of an answer that holds the entity; "" for the answer itself.
    pub item: &'static str,
    /// The member of an answer that holds a list.
    pub items: &'static str,
    /// The modes in which `spec.adopt` takes an entity over.
    pub adopt: &'static [Adopt],
    /// The fields that an entity must share with an object that takes it over as it is, each with the
    /// way in which it is compared.
    pub matched: &'static [(&'static str, Matched)],
    /// The exceptions to the columns of this table.
    pub special: &'static [Special],
}

/// How an entity is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Create {
    /// POST to the collection.
    Post,
    /// POST to the collection; without a name in the body, PUT at the uid of the object.
    PostOrPutAtUid,
}

/// How an entity is updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// PUT of the whole body, which creates an entity that is gone under its old ID.
    Put,
    /// PUT of the whole body; 404 for an entity that is gone, which is then created anew.
    PutExisting,
    /// PATCH of these fields; 404 for an entity that is gone, which is then created anew.
    Patch(&'static [&'static str]),
    /// No update: the entity cannot be changed.
    Never,
}

/// How an entity is found whose ID is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// In this collection, by the tag `k8s-uid`.
    Tags(&'static str),
    /// In this collection: before the creation by all tags, otherwise by the tag `k8s-uid`.
    AllTags(&'static str),
    /// In the collection, by the label `k8s-uid`.
    Labels,
    /// In the collection, by this field of the body, which is all that an entity holds: equal ones
    /// are as good as each other.
    Content(&'static str),
    /// In the collection, by this field of the body. What has the same name may hold other things.
    Name(&'static str),
}

/// Where the generated keys of an object go in its entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// Into the list `tags`.
    Tags,
    /// Into the map `labels`.
    Labels,
    /// Nowhere: the entity has neither.
    None,
}

/// A mode in which an object takes over an entity that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adopt {
    /// The entity is taken over if its fields are equal.
    Match,
    /// The entity is overwritten.
    Override,
}

/// How a field of an entity is compared with that of the body of an object that takes it over. What
/// is empty, or zero, counts as absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matched {
    /// Equal; absent is as good as this value, in JSON.
    Or(&'static str),
    /// Equal, lists in any order.
    Unordered,
    /// Equal, if the object has it.
    Given,
    /// Equal, if both have it: the API may not show it.
    Shared,
}

/// A field that is equal, or absent on both sides.
const SAME: Matched = Matched::Or("null");

/// An exception of a kind to the columns of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// `spec.source: Mirror`: an entity that is read only.
    Mirror,
    /// `spec.members` of a group of control planes.
    Members,
    /// `status.clusterType` and `status.konnectEndpoints`, and whether the entity is still there.
    Endpoints,
    /// The entity may be attached to a group of control planes.
    AttachesToGroups,
    /// `consumerGroups` of a consumer.
    ConsumerGroups,
    /// The body comes from a `KongPlugin`, and the targets need IDs.
    Plugin,
    /// An adopted entity must belong to the same service.
    SameService,
}

/// Returns the row of a kind.
pub fn find(kind: &str) -> Option<&'static Entity> {
    ALL.into_iter().find(|entity| entity.kind == kind)
}

/// Returns the rows of kinds that have an entity in the API.
pub fn entities() -> impl Iterator<Item = (&'static Entity, &'static Api)> {
    ALL.into_iter().filter_map(|entity| Some((entity, entity.api.as_ref()?)))
}

// === impl Entity ===

impl Entity {
    /// Returns group, version and kind.
    pub fn of(&self) -> Kind {
        Kind::new(self.group, self.version, self.kind)
    }

    /// Selects all objects of the kind.
    pub fn selection(&self) -> Selection {
        Selection::new(self.of())
    }

    /// Returns a reference to an object of the kind.
    pub fn object(&self, namespace: &str, name: &str) -> ObjectRef {
        let namespace = (!self.is_cluster_scoped).then_some(namespace);
        ObjectRef::new(self.of(), namespace, name)
    }

    /// Returns kind and group as error texts of the API server name them.
    pub fn display(&self) -> String {
        format!("{}.{}", self.kind, self.group)
    }

    /// Returns whether IDs are kept in `status` itself, not in `status.konnect`.
    pub fn is_native(&self) -> bool {
        self.group == KONNECT
    }

    /// Returns the path of an ID in an object: `id`, `organizationID`, `serverURL`,
    /// `controlPlaneID`, or [`Reference::id`].
    pub fn id_path(&self, field: &str) -> String {
        match (self.is_native(), field) {
            (true, "controlPlaneID") => "status.controlPlaneID.id".to_owned(),
            (true, _) => format!("status.{field}"),
            (false, _) => format!("status.konnect.{field}"),
        }
    }

    /// Returns an ID of an object; `None` if it is absent or empty.
    pub fn id<'a>(&self, object: &'a Value, field: &str) -> Option<&'a str> {
        text(object, &self.id_path(field)).filter(|id| !id.is_empty())
    }

    /// Returns the references through which control plane and token are found.
    pub fn parents(&self) -> impl Iterator<Item = &'static Reference> {
        self.references.iter().filter(|reference| reference.is_parent)
    }
}

/// An entity below a control plane, with the values that most of them have.
const CORE_ENTITY: Api = Api {
    collection: "",
    create: Create::Post,
    update: Update::Put,
    delete: "",
    lookup: Lookup::Labels,
    unique: &[],
    marks: Marks::Tags,
    constants: &[],
    item: "",
    items: "data",
    adopt: &[Adopt::Match, Adopt::Override],
    matched: &[],
    special: &[],
};

const IN_CONTROL_PLANE: Reference = Reference::new(
    "KonnectGatewayControlPlane",
    "spec.controlPlaneRef.konnectNamespacedRef",
    "ControlPlaneRefValid",
)
.id("controlPlaneID")
.parent();

const OF_CONSUMER: Reference =
    Reference::new("KongConsumer", "spec.consumerRef", "KongConsumerRefValid")
        .id("consumerID")
        .parent();
