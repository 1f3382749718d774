//! The instances of a loaded component, and the memory that it takes beside the linear memories of
//! its calls.

use wasmtime::{
    Store,
    component::{Instance, InstancePre},
};

use super::{
    budget::{Charge, Short},
    component::LoadError,
    content::Content,
    engine::Engine,
    footprint::{self, Footprint},
    state::State,
};

/// Makes the instances of a loaded component.
pub(super) struct Instances {
    pre: InstancePre<State>,
    charge: ModuleCharge,
}

/// The account of a loaded component: what it takes until it is dropped, and what each of its
/// instances takes.
pub(super) struct ModuleCharge {
    instance_bytes: usize,
    _charge: Charge,
}

// === impl Instances ===

impl Instances {
    pub(super) fn new(pre: InstancePre<State>, charge: ModuleCharge) -> Self {
        Self { pre, charge }
    }

    /// Makes an instance for one call, whose memory is charged to the call.
    pub(super) async fn instantiate(&self, store: &mut Store<State>) -> wasmtime::Result<Instance> {
        store.data_mut().take_memory(self.charge.instance_bytes)?;
        self.pre.instantiate_async(store).await
    }
}

// === impl ModuleCharge ===

impl ModuleCharge {
    /// Charges a module to its namespace. Reads the module, so it blocks.
    pub(super) fn new(
        engine: &Engine,
        module: &str,
        content: &Content,
        namespace: Option<&str>,
    ) -> Result<Self, LoadError> {
        let module = || module.to_owned();
        let footprint = Footprint::of(content).map_err(|error| match error {
            footprint::Error::Unreadable(source) => {
                LoadError::Unreadable { module: module(), source }
            }
            footprint::Error::Malformed(found) => {
                LoadError::Malformed { module: module(), source: wasmtime::Error::msg(found) }
            }
            footprint::Error::Refused(found) => LoadError::TooLarge { module: module(), found },
        })?;
        let mut charge = engine.budget().charge_namespace(namespace.unwrap_or_default());
        charge.grow(footprint.loaded_bytes).map_err(|Short { asked, limit }| {
            LoadError::OutOfMemory { module: module(), asked, limit }
        })?;
        Ok(Self { instance_bytes: footprint.instance_bytes, _charge: charge })
    }
}
