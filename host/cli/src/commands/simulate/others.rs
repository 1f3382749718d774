//! The other clusters of a simulation: an API in memory for each.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use mortise_core::write::Clock;
use mortise_embedded_api::EmbeddedApi;
use mortise_sdk::testing::identity::Identity;
use serde_json::Value;

use super::{
    end::drop_managed_fields,
    world::{UID_SEED, identity, not_given, without},
};
use crate::{args::ClusterFolder, commands::dev::objects, files, print, remotes::Remotes};

/// Another cluster before the simulation.
#[derive(Debug, Clone)]
pub struct OtherCluster {
    /// The name of the cluster, and the namespace in its kubeconfig.
    pub cluster: ClusterFolder,
    /// The objects that exist there.
    pub objects: Vec<files::Object>,
}

/// The APIs, with a record of what the user gave.
#[derive(Debug)]
pub(super) struct Others {
    pub(super) remotes: Remotes,
    /// The objects created by an API and by this module, by the cluster's name.
    hidden: BTreeMap<String, BTreeSet<Identity>>,
}

// === impl OtherCluster ===

impl OtherCluster {
    /// Reads the objects.
    ///
    /// # Errors
    ///
    /// Fails as [`files::load`] does.
    pub fn open(cluster: &ClusterFolder) -> Result<Self, files::Error> {
        Ok(Self { cluster: cluster.clone(), objects: files::open(&cluster.objects)? })
    }
}

// === impl Others ===

impl Others {
    /// Loads CRDs and objects; missing namespaces are created.
    ///
    /// # Errors
    ///
    /// Fails for the first object that does not match the schema of its kind, and names its place.
    pub(super) fn load(
        clusters: &[OtherCluster],
        crds: &[Value],
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let (mut apis, mut hidden) = (Vec::new(), BTreeMap::new());
        for (OtherCluster { cluster, objects }, seed) in clusters.iter().zip(UID_SEED + 1..) {
            let api = EmbeddedApi::new(mortise_embedded_api::Options {
                now: Clock::clone(clock),
                // Two clusters are told apart by the uids of their namespaces.
                seed: Some(seed),
                ..Default::default()
            });
            for crd in crds {
                let refused = || format!("{} is refused", print::title(crd));
                api.load(crd.clone(), true).with_context(refused)?;
            }
            let refused = || format!("in the cluster `{}`", cluster.name);
            objects::load(&api, objects.clone()).with_context(refused)?;
            let given: BTreeSet<Identity> = objects.iter().map(|of| identity(&of.value)).collect();
            hidden.insert(cluster.name.clone(), not_given(&api, &given));
            apis.push((cluster.name.clone(), api));
        }
        Ok(Self { remotes: apis.into_iter().collect(), hidden })
    }

    /// Returns the objects that matter to a user by the cluster's name, without managed fields.
    pub(super) fn visible(&self) -> BTreeMap<String, Vec<Value>> {
        let of = |(name, api): (&str, &EmbeddedApi)| {
            let mut objects = self.hidden.get(name).map(|of| without(api, of)).unwrap_or_default();
            objects.iter_mut().for_each(drop_managed_fields);
            (name.to_owned(), objects)
        };
        self.remotes.iter().map(of).collect()
    }
}
