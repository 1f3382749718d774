//! A registry of the attackers, and of the benign tenant.

#[expect(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "it is written for tests, which need more of it"
)]
#[path = "../../../host/src/oci/tests/fake.rs"]
mod fake;

pub(super) use fake::Fake;

use anyhow::Result;
use mortise_host::oci::artifact::{Annotations, Artifact, Descriptor, LAYER};

/// The tag of all artifacts.
pub(super) const TAG: &str = "1";
/// The megabytes of the folder of modules.
pub(super) const MAX_MODULES_MIB: usize = 64;
/// Number of layers that fill the folder, but for less than a module.
pub(super) const LAYERS: usize = 8;
/// Bytes of one of them.
const LAYER_BYTES: usize = (MAX_MODULES_MIB << 20) / LAYERS - (8 << 10);

/// Stores a component in a repository.
pub(super) fn push(registry: &Fake, repository: &str, component: &[u8]) -> Result<()> {
    let layer = Descriptor::of(LAYER, component);
    let artifact = Artifact::build(layer, (Vec::new(), Vec::new()), Annotations::new())?;
    registry.put_blob(component);
    registry.put_blob(&artifact.config);
    registry.put_manifest(repository, TAG, &artifact.manifest);
    Ok(())
}

/// Stores layers that are no modules in the repositories `layer-0` and so on.
pub(super) fn push_layers(registry: &Fake) -> Result<()> {
    (0..LAYERS).try_for_each(|number| {
        let byte = u8::try_from(number)?;
        push(registry, &format!("layer-{number}"), &vec![byte; LAYER_BYTES])
    })
}
