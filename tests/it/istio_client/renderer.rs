//! The component as the library of a guest that returns its answers (`tests/guests/render`).

use std::{fs, path::PathBuf, time::Duration};

use futures::{StreamExt as _, stream};
use istio_client_build::Version;
use mortise::local;
use mortise_core::{
    contract::{Kind, ObjectRef, Request},
    reads::View,
};
use mortise_host::wasm::{Engine, Input, LibraryModule, Limits, Module, Moment, Processor};
use mortise_tests::istio_client;
use serde_json::json;

use super::{answer::Answer, case::Case};

const GUEST: &str = "tests/guests/render";
const INTERFACE: &str = "istio:client/renderer@0.1.0";
/// Bytes of linear memory that a call takes at most.
const MAX_MEMORY_BYTES: usize = 96 << 20;
/// The calls that run at the same time.
const CONCURRENT_CALLS: usize = 2;

/// A loaded version of `guests/istio-client`.
pub(crate) struct Renderer(Processor);

impl Renderer {
    /// Builds and loads a version of `guests/istio-client`; `None` without Go.
    pub(crate) async fn of(version: &str) -> Option<Self> {
        Self::build(istio_client::version(version).unwrap()).await
    }

    /// Builds and loads a version; `None` without Go.
    pub(crate) async fn build(version: Version) -> Option<Self> {
        let built = move || {
            let library = istio_client::component(version).unwrap()?;
            Some((mortise_tests::guest(GUEST).unwrap(), library))
        };
        let (guest, library) = tokio::task::spawn_blocking(built).await.unwrap()?;
        // The code that all tests share.
        let engine = local::engine(Some(&mortise_tests::code_cache()), false);
        Some(Self::load(&engine.unwrap(), &guest, &library).await)
    }

    async fn load(engine: &Engine, guest: &PathBuf, library: &PathBuf) -> Self {
        let module = |path: &PathBuf, memory: usize| Module {
            name: path.display().to_string(),
            content: fs::read(path).unwrap().into(),
            limits: Limits { memory, deadline: Duration::from_mins(2), ..Limits::default() },
        };
        let library = LibraryModule {
            interface: INTERFACE.to_owned(),
            module: module(library, MAX_MEMORY_BYTES),
        };
        let guest = module(guest, 2 * MAX_MEMORY_BYTES);
        Self(Processor::load_with(engine, None, guest, vec![library]).await.unwrap())
    }

    /// Returns the release and the module that the component says it holds.
    pub(crate) async fn version(&self) -> String {
        self.0.describe("{}").await.unwrap().version
    }

    pub(crate) async fn render(&self, case: &Case) -> Answer {
        let kind = Kind::home("", "v1", "ConfigMap");
        let of = ObjectRef { kind: kind.into(), namespace: None, name: "one".into() };
        let request = Request {
            reconciler: "renders".into(),
            ref_: of,
            object: Some(json!({}).to_string()),
            config: serde_json::to_string(case).unwrap(),
            attempt: 0,
            failed_writes: Vec::new(),
            note: None,
        };
        let moment = Moment { now_ms: 0, seed: 0 };
        let called = self.0.call(Input::new(View::default(), &request, moment)).await;
        let outcome = called.outcome.unwrap().unwrap();
        serde_json::from_str(&outcome.status.unwrap()).unwrap()
    }

    /// Renders cases, two at a time.
    pub(crate) async fn render_all(&self, cases: &[Case]) -> Vec<(String, Answer)> {
        let answers = stream::iter(cases)
            .map(async |case| (case.name.clone(), self.render(case).await))
            .buffer_unordered(CONCURRENT_CALLS);
        answers.collect().await
    }
}
