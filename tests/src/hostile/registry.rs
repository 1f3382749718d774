//! A registry of the attackers, and of the benign tenant.

use crate::registry::fake::Fake;

/// The tag of all artifacts.
pub(super) const TAG: &str = "1";
/// The megabytes of the folder of modules.
pub(super) const MAX_MODULES_MIB: usize = 64;
/// Number of layers that fill the folder, but for less than a module.
pub(super) const LAYERS: usize = 8;
/// Bytes of one of them.
const LAYER_BYTES: usize = (MAX_MODULES_MIB << 20) / LAYERS - (8 << 10);

/// Stores layers that are no modules in the repositories `layer-0` and so on.
pub(super) fn push_layers(registry: &Fake) {
    for number in 0..LAYERS {
        let byte = u8::try_from(number).unwrap_or(u8::MAX);
        registry.push_to(&format!("layer-{number}"), TAG, &vec![byte; LAYER_BYTES]);
    }
}
