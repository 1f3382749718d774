//! Istio's renderer as a component: what it renders is what a native build of the same modules
//! renders, byte for byte.
//!
//! A native build takes minutes, so its answers are recorded as digests in `istio_client/`, and the
//! test that compares with it is ignored by default. That one compares more: the merged
//! `IstioOperator`s without a record, and those of the folder that `MORTISE_GOLDENS` names.

mod answer;
mod case;
mod native;
mod renderer;
pub(crate) mod second;

pub(crate) use case::Case;
pub(crate) use renderer::Renderer;

use std::collections::BTreeMap;

use mortise_tests::istio_client::version;

use self::answer::Answer;

/// The version whose answers are recorded.
const VERSION: &str = "1.31";
/// The Go module of that version.
const MODULE: &str = "v0.0.0-20260827124520-eed52ebb66ad";

/// Renders cases, each in an instance of its own.
async fn rendered(renderer: &Renderer, cases: &[Case]) -> BTreeMap<String, Answer> {
    renderer.render_all(cases).await.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_recorded_from_a_native_build() {
    let Some(renderer) = Renderer::of(VERSION).await else { return };
    let recorded = native::record(VERSION);
    let answers = rendered(&renderer, &case::recorded()).await;
    let ours: BTreeMap<String, String> =
        answers.iter().map(|(name, answer)| (name.clone(), answer.record())).collect();
    assert_eq!(ours, recorded);
    // The records are of something.
    let is_rendered = |name: &str| answers[name].rendered().is_some();
    for name in ["profile default", "profile demo", "size Evaluation", "size Production"] {
        assert!(is_rendered(name), "{name}");
    }
    let merged = case::RECORDED.iter().filter(|name| is_rendered(name)).count();
    assert!(merged >= 20, "{merged} merged resources were rendered");
    let default = answers["profile default"].rendered().unwrap();
    let components: Vec<_> =
        default.components.iter().map(|component| component.name.as_str()).collect();
    assert_eq!(components, ["Base", "Pilot", "IngressGateways"]);
    let warnings = &answers["cluster with Cilium and Calico"].rendered().unwrap().warnings;
    assert_eq!(warnings.len(), 3, "{warnings:?}");
}

#[tokio::test]
async fn a_component_knows_its_version_and_answers_a_panic() {
    let Some(renderer) = Renderer::of(VERSION).await else { return };
    let release = version(VERSION).unwrap().release().to_owned();
    assert_eq!(renderer.version().await, format!("{release}+{MODULE}"));
    let answer = renderer.render(&case::panics()).await;
    let error = answer.error().unwrap();
    assert!(error.starts_with("panic: not a map, got string"), "{error}");
    assert!(error.contains("operator/pkg/values"), "no stack: {error}");
    assert!(renderer.render(&case::profile("no-such-profile")).await.error().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the native build takes minutes"]
async fn a_native_build_gives_the_same_answers() {
    let Some(renderer) = Renderer::of(VERSION).await else { return };
    let cases = case::all();
    let native = native::answers(&version(VERSION).unwrap(), &cases);
    let ours = rendered(&renderer, &cases).await;
    for (name, native) in &native {
        assert_eq!(&ours[name], native, "{name}");
    }
    assert_eq!(native.len(), cases.len());
    native::check_record(VERSION, &native);
}

#[tokio::test]
#[ignore = "a second version takes minutes to build and to compile"]
async fn another_version_is_built_the_same_way() {
    let Some(first) = Renderer::of(VERSION).await else { return };
    let second = Renderer::build(second::version()).await;
    let second = second.expect("Go was there for the first one");
    assert_eq!(second.version().await, format!("{}+{MODULE}", second::RELEASE));
    let case = case::profile("default");
    let (before, after) = (first.render(&case).await, second.render(&case).await);
    let changes = second::changes(before.rendered().unwrap(), after.rendered().unwrap());
    assert_eq!(changes, second::CHANGES);
}
