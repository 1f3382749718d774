//! The component in wasmtime, compiled once for each build of it.

use std::{fs, path::Path};

use istio_client_build::Version;
use mortise_tests::istio_client;
use sha2::{Digest as _, Sha256};
use wasmtime::{
    Engine, ResourceLimiter, Store,
    component::{Component, Linker},
};

use super::{answer, answer::Answer, case::Case};
use bindings::IstioClient;
use bindings::exports::istio::client::renderer as wit;

#[allow(
    clippy::pedantic,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "generated from guests/istio-client/wit"
)]
mod bindings {
    wasmtime::component::bindgen!({ path: "../guests/istio-client/wit" });
}

/// A compiled component.
pub(crate) struct Renderer {
    engine: Engine,
    component: Component,
}

/// An instance, with memory of its own.
pub(crate) struct Instance {
    store: Store<Memory>,
    bindings: IstioClient,
}

/// Bytes of linear memory.
#[derive(Default)]
struct Memory {
    bytes: usize,
}

impl ResourceLimiter for Memory {
    fn memory_growing(
        &mut self,
        _: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.bytes = self.bytes.max(desired);
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(true)
    }
}

impl Renderer {
    /// Builds and loads a version of `guests/istio-client`; `None` without Go.
    pub(crate) fn of(version: &str) -> Option<Self> {
        Self::build(istio_client::version(version).unwrap())
    }

    /// Builds and loads a version; `None` without Go.
    pub(crate) fn build(version: Version) -> Option<Self> {
        istio_client::component(version).unwrap().map(|component| Self::load(&component))
    }

    fn load(file: &Path) -> Self {
        let engine = Engine::default();
        let component = compiled(&engine, file);
        Self { engine, component }
    }

    pub(crate) fn imports(&self) -> Vec<String> {
        let imports = self.component.component_type();
        imports.imports(&self.engine).map(|(name, _)| name.to_owned()).collect()
    }

    pub(crate) fn instance(&self) -> Instance {
        let mut store = Store::new(&self.engine, Memory::default());
        store.limiter(|memory| memory);
        let linker = Linker::new(&self.engine);
        let bindings = IstioClient::instantiate(&mut store, &self.component, &linker).unwrap();
        Instance { store, bindings }
    }
}

/// Compiles a component, or takes the code that an earlier run left beside it. One test at a time
/// compiles, since that takes two cores and 1 GB.
fn compiled(engine: &Engine, file: &Path) -> Component {
    let lock = fs::File::create(file.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let bytes = fs::read(file).unwrap();
    let digest = format!("{:x}", Sha256::digest(&bytes));
    let (code, compiled_from) = (file.with_extension("cwasm"), file.with_extension("cwasm.from"));
    if fs::read_to_string(&compiled_from).is_ok_and(|from| from == digest) {
        // Another version of wasmtime refuses the code.
        if let Ok(component) = trusted(engine, &code) {
            return component;
        }
    }
    let component = Component::new(engine, &bytes).unwrap();
    // Not written in place: another process may have mapped it.
    let unfinished = file.with_extension("cwasm.unfinished");
    fs::write(&unfinished, component.serialize().unwrap()).unwrap();
    fs::rename(&unfinished, &code).unwrap();
    fs::write(&compiled_from, digest).unwrap();
    component
}

#[expect(unsafe_code, reason = "wasmtime cannot check machine code; this test wrote it")]
fn trusted(engine: &Engine, code: &Path) -> wasmtime::Result<Component> {
    // SAFETY: a run of this test wrote the file, in the target directory, and never changes it.
    unsafe { Component::deserialize_file(engine, code) }
}

impl Instance {
    /// Returns the release and the version of the module.
    pub(crate) fn version(&mut self) -> (String, String) {
        let renderer = self.bindings.istio_client_renderer();
        let version = renderer.call_version(&mut self.store).unwrap();
        (version.release, version.module)
    }

    /// Returns the bytes of linear memory, which never become fewer.
    pub(crate) fn memory(&self) -> usize {
        self.store.data().bytes
    }

    pub(crate) fn render(&mut self, case: &Case) -> Answer {
        let cluster = case.cluster.as_ref().map(|cluster| wit::Cluster {
            git_version: cluster.git_version.clone(),
            major: cluster.major.clone(),
            minor: cluster.minor.clone(),
            cilium_config: cluster.cilium_config.clone().map(|data| data.into_iter().collect()),
            felix_configuration: cluster.felix_configuration.clone(),
        });
        let renderer = self.bindings.istio_client_renderer();
        let answer = renderer.call_render(&mut self.store, &case.spec, cluster.as_ref());
        Answer::new(answer.unwrap().map(Into::into))
    }
}

impl From<wit::Rendered> for answer::Rendered {
    fn from(rendered: wit::Rendered) -> Self {
        Self {
            components: rendered.components.into_iter().map(Into::into).collect(),
            merged: rendered.merged,
            warnings: rendered.warnings,
        }
    }
}

impl From<wit::Component> for answer::Component {
    fn from(component: wit::Component) -> Self {
        let manifests = component.manifests.into_iter().map(|manifest| answer::Manifest {
            kind: manifest.kind,
            namespace: manifest.namespace,
            name: manifest.name,
            content: manifest.content,
        });
        Self { name: component.name, manifests: manifests.collect() }
    }
}
