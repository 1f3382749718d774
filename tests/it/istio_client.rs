//! Istio's renderer as a component: what it renders is what a native build of the same modules
//! renders, byte for byte.
//!
//! A native build takes minutes, so its answers are recorded as digests in `istio_client/`, and the
//! test that compares with it is ignored by default.

mod answer;
mod case;
mod native;
mod renderer;
mod second;

use std::{collections::BTreeMap, sync::Mutex};

use answer::Answer;
use case::Case;
use mortise_tests::istio_client::version;
use renderer::Renderer;

/// The version whose answers are recorded.
const VERSION: &str = "1.31";
/// The Go module of that version.
const MODULE: &str = "v0.0.0-20260827124520-eed52ebb66ad";

/// Bytes of linear memory that a call takes at most.
const MEMORY: usize = 96 << 20;

/// Renders cases in two threads, each case in an instance of its own, as the host does.
fn rendered(renderer: &Renderer, cases: &[Case]) -> BTreeMap<String, Answer> {
    let (waiting, answers) = (Mutex::new(cases.iter()), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let Some(case) = waiting.lock().unwrap().next() else { return };
            let mut instance = renderer.instance();
            let answer = instance.render(case);
            let memory = instance.memory();
            assert!(memory <= MEMORY, "{}: {memory} bytes of memory", case.name);
            answers.lock().unwrap().insert(case.name.clone(), answer);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    answers.into_inner().unwrap()
}

#[test]
fn answers_are_those_recorded_from_a_native_build() {
    let Some(renderer) = Renderer::of(VERSION) else { return };
    let recorded = native::record(VERSION);
    // The copies of the original's cases may be more than were recorded.
    let mut cases = case::recorded();
    cases.retain(|case| recorded.contains_key(&case.name));
    let answers = rendered(&renderer, &cases);
    let ours: BTreeMap<String, String> =
        answers.iter().map(|(name, answer)| (name.clone(), answer.record())).collect();
    assert_eq!(ours, recorded);
    // The records are of something.
    let successes = answers.values().filter(|answer| answer.rendered().is_some()).count();
    assert!(successes >= 25, "{successes} of {} were rendered", cases.len());
    let default = answers["profile default"].rendered().unwrap();
    let components: Vec<_> =
        default.components.iter().map(|component| component.name.as_str()).collect();
    assert_eq!(components, ["Base", "Pilot", "IngressGateways"]);
    let warnings = &answers["cluster with Cilium and Calico"].rendered().unwrap().warnings;
    assert_eq!(warnings.len(), 3, "{warnings:?}");
}

#[test]
fn a_component_imports_nothing_and_knows_its_version() {
    let Some(renderer) = Renderer::of(VERSION) else { return };
    assert_eq!(renderer.imports(), Vec::<String>::new());
    let release = version(VERSION).unwrap().release().to_owned();
    assert_eq!(renderer.instance().version(), (release, MODULE.to_owned()));
}

#[test]
fn an_instance_goes_on_after_a_panic_and_an_error() {
    let Some(renderer) = Renderer::of(VERSION) else { return };
    let (panics, fails) = (case::panics(), case::profile("no-such-profile"));
    let works = case::profile("minimal");
    let mut instance = renderer.instance();
    println!("{} bytes of memory after the start", instance.memory());
    let before = instance.render(&works);
    println!("{} bytes of memory after a call", instance.memory());
    assert!(before.rendered().is_some(), "{before:?}");
    let error = instance.render(&panics).error().unwrap().to_owned();
    assert!(error.starts_with("panic: not a map, got string"), "{error}");
    assert!(error.contains("operator/pkg/values"), "no stack: {error}");
    assert!(instance.render(&fails).error().is_some());
    assert_eq!(instance.render(&works), before);
    println!("{} bytes of memory after four", instance.memory());
}

#[test]
#[ignore = "the native build takes minutes"]
fn a_native_build_gives_the_same_answers() {
    let Some(renderer) = Renderer::of(VERSION) else { return };
    let cases = case::all();
    let native = native::answers(&version(VERSION).unwrap(), &cases);
    let ours = rendered(&renderer, &cases);
    for (name, native) in &native {
        assert_eq!(&ours[name], native, "{name}");
    }
    assert_eq!(native.len(), cases.len());
    native::check_record(VERSION, &native);
}

#[test]
#[ignore = "a second version takes minutes to build and to compile"]
fn another_version_is_built_the_same_way() {
    let Some(first) = Renderer::of(VERSION) else { return };
    let second = Renderer::build(second::version());
    let second = second.expect("Go was there for the first one");
    let (release, module) = second.instance().version();
    assert_eq!((release.as_str(), module.as_str()), (second::RELEASE, MODULE));
    let case = case::profile("default");
    let before = first.instance().render(&case);
    let after = second.instance().render(&case);
    let changes = second::changes(before.rendered().unwrap(), after.rendered().unwrap());
    assert_eq!(changes, second::CHANGES);
}
