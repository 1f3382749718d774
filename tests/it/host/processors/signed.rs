//! Signatures that are required: nothing without one is loaded, on any path.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mortise_host::oci::{
    Digest, Reference, Registries,
    artifact::{Descriptor, MANIFEST},
    signature::{self, Format, Policy, PrivateKey, Signature, sign_file},
};
use mortise_tests::registry::fake::Fake;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::json;

use super::{
    images::{Images as _, Scene, module, options},
    swaps::{makes, tried_and},
    *,
};

/// The bytes before the point of a public key.
const SPKI: &[u8] =
    b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";

/// Longer than a controller takes to look at its Processor and to write the status.
const LONG: Duration = Duration::from_secs(10);

/// A key, and its public half in PEM.
struct Key {
    private: PrivateKey,
    pem: String,
}

impl Key {
    fn new() -> Self {
        let (random, kind) = (SystemRandom::new(), &ECDSA_P256_SHA256_ASN1_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(kind, pkcs8.as_ref(), &random).unwrap();
        let der = STANDARD.encode([SPKI, pair.public_key().as_ref()].concat());
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n");
        Self { private: PrivateKey::from_pkcs8(pkcs8.as_ref()).unwrap(), pem }
    }

    fn verification(&self) -> Value {
        json!({"verification": {"keys": [self.pem]}})
    }

    /// Signs an artifact in a registry; returns the signature.
    async fn sign(&self, fake: &Fake, tag: &str, format: Format) -> Signature {
        self.sign_and_change(fake, tag, format, |signature| signature).await
    }

    /// Signs an artifact in a registry with a signature that is changed before it is pushed;
    /// returns it.
    async fn sign_and_change(
        &self,
        fake: &Fake,
        tag: &str,
        format: Format,
        change: impl Fn(Signature) -> Signature,
    ) -> Signature {
        let reference: Reference = fake.image(&format!(":{tag}")).parse().unwrap();
        let registries = Registries::build(oci::Options::default()).unwrap();
        let repository = registries.repository(&reference, None, true);
        let document = repository.manifest(tag).await.unwrap();
        let signature =
            Signature::of_manifest(document.digest, &reference, format, &self.private).unwrap();
        let (of, signature) = (Descriptor::of(MANIFEST, &document.bytes), change(signature));
        signature::push(&repository, &of, &signature).await.unwrap();
        signature
    }

    /// Writes the signature of a file beside it.
    fn sign_file(&self, place: &Place, name: &str, format: Format) {
        let path = place.modules.path().join(name);
        let signature = sign_file(&fs::read(&path).unwrap(), format, &self.private).unwrap();
        fs::write(place.modules.path().join(format!("{name}.sig")), signature).unwrap();
    }

    /// Returns a policy that asks for this key, of all names with a prefix.
    fn policy(&self, prefix: &str) -> Arc<Policy> {
        let pem = self.pem.replace('\n', "\n    ");
        let text = format!("rules:\n- prefix: \"{prefix}\"\n  keys:\n  - |\n    {pem}\n");
        Arc::new(Policy::parse(&text).unwrap())
    }
}

impl Place {
    /// Waits until the module is refused since it is not signed; returns the message. Nothing runs.
    async fn unsigned(&self, name: &str, says: &str) -> String {
        let is_it = |processor: &Processor| {
            condition(processor, "Loaded").is_some_and(|loaded| {
                loaded.reason == "SignatureMissing" && loaded.message.contains(says)
            })
        };
        let found = self.until(name, &format!("not signed: {says}"), is_it).await;
        assert!(self.host.status_of(&format!("{NAMESPACE}/{name}")).is_none(), "nothing runs");
        condition(&found, "Loaded").unwrap().message.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_is_loaded_only_with_its_signature_beside_it() {
    let place = Place::new().await;
    let (key, other) = (Key::new(), Key::new());
    place.puppet("rules", &puppet(), &key.verification()).await;
    place.unsigned("rules", "`puppet.wasm`: it has no signature; one by a key of these").await;
    other.sign_file(&place, "puppet.wasm", Format::Bundle);
    place.unsigned("rules", "it has one signature, and it is by none of the keys").await;
    fs::write(place.modules.path().join("puppet.wasm.sig"), "x").unwrap();
    place.unsigned("rules", "it is no base64").await;
    for format in [Format::Bundle, Format::Tag] {
        key.sign_file(&place, "puppet.wasm", format);
        place.reason("rules", "Ready", "Runs").await;
        // Signed bytes, and others in their place.
        fs::write(place.modules.path().join("puppet.wasm"), module(&format!("{format:?}")))
            .unwrap();
        let (status, message) = place.reason("rules", "Loaded", "SignatureMissing").await;
        assert_eq!(status, "False");
        assert!(message.ends_with("; the former version 1.0.0 keeps running"), "{message}");
    }
}

#[tokio::test]
async fn an_artifact_is_loaded_only_if_it_is_signed_by_tag_and_by_digest() {
    let scene = Scene::new().await;
    let (key, other) = (Key::new(), Key::new());
    let (one, two) = (module(""), module("2"));
    let first = scene.fake.push("1", &one);
    let place = &scene.place;
    for (name, image) in [("tag", ":1".to_owned()), ("digest", format!("@{first}"))] {
        scene.processor(name, &scene.fake.image(&image), &key.verification()).await;
        place.unsigned(name, "it has no signature; one by a key of these").await;
    }
    other.sign(&scene.fake, "1", Format::Bundle).await;
    for name in ["tag", "digest"] {
        place.unsigned(name, "it has one signature, and it is by none of the keys").await;
    }
    key.sign(&scene.fake, "1", Format::Bundle).await;
    for name in ["tag", "digest"] {
        scene.until_runs(name, &one, first).await;
    }
    // The next version under the tag is not signed.
    let second = scene.fake.push("1", &two);
    let (_, message) = place.reason("tag", "Loaded", "SignatureMissing").await;
    assert!(message.contains(&format!("@{second}`: it has no signature")), "{message}");
    key.sign(&scene.fake, "1", Format::Tag).await;
    scene.until_runs("tag", &two, second).await;
}

#[tokio::test]
async fn a_signature_of_another_artifact_is_none() {
    let scene = Scene::new().await;
    let key = Key::new();
    let (one, two) = (module(""), module("2"));
    let first = scene.fake.push("1", &one);
    key.sign(&scene.fake, "1", Format::Tag).await;
    key.sign(&scene.fake, "1", Format::Bundle).await;
    let second = scene.fake.push("2", &two);
    // What stands under the tags of the first artifact's signatures is put under the second's.
    let tag = |digest: Digest, end: &str| format!("sha256-{}{end}", digest.hex());
    for end in ["", ".sig"] {
        scene.fake.copy(&tag(first, end), &tag(second, end));
    }
    scene.processor("rules", &scene.fake.image(":2"), &key.verification()).await;
    let says =
        format!("it has 2 signatures that do not count: it is of another artifact, `{first}`");
    scene.place.unsigned("rules", &says).await;
}

/// Changes the text that a signature signs.
fn changed(signature: Signature) -> Signature {
    match signature {
        Signature::Simple { payload, signature } => {
            Signature::Simple { payload: payload + " ", signature }
        }
        Signature::Bundle(text) => {
            let mut bundle: Value = serde_json::from_str(&text).unwrap();
            let payload = &mut bundle["dsseEnvelope"]["payload"];
            let mut text = STANDARD.decode(payload.as_str().unwrap()).unwrap();
            text.push(b' ');
            *payload = STANDARD.encode(text).into();
            Signature::Bundle(bundle.to_string())
        }
    }
}

#[tokio::test]
async fn a_signature_that_was_changed_in_the_registry_lets_no_version_in() {
    let scene = Scene::new().await;
    let key = Key::new();
    let (one, two) = (module(""), module("2"));
    let first = scene.fake.push("1", &one);
    key.sign(&scene.fake, "1", Format::Bundle).await;
    let edit = async |tag: &str| {
        let image = scene.fake.image(&format!(":{tag}"));
        scene.place.edit("rules", json!({"module": {"image": image}})).await;
    };
    scene.processor("rules", &scene.fake.image(":1"), &key.verification()).await;
    scene.until_runs("rules", &one, first).await;
    for (tag, format) in [("bundle", Format::Bundle), ("tag", Format::Tag)] {
        let component = module(tag);
        let next = scene.fake.push(tag, &component);
        key.sign_and_change(&scene.fake, tag, format, changed).await;
        edit(tag).await;
        let says = format!("@{next}`: it has one signature, and it is by none of the keys; ");
        let is_said = |processor: &Processor| {
            condition(processor, "Loaded").is_some_and(|loaded| loaded.message.contains(&says))
        };
        scene.place.until("rules", &says, is_said).await;
        scene.place.refused("rules", "SignatureMissing").await;
        let blob = format!("/blobs/{}", Digest::of(&component));
        let is_pulled = scene.fake.seen().iter().any(|seen| seen.target.ends_with(&blob));
        assert!(!is_pulled, "{tag}");
    }
    edit("1").await;
    scene.until_runs("rules", &one, first).await;

    // The tag moves to a version whose signature has other bytes than its digest says.
    let second = scene.fake.push("next", &two);
    let signature = key.sign(&scene.fake, "next", Format::Bundle).await;
    let Signature::Bundle(text) = signature else { panic!("it is a bundle") };
    let blob = Digest::of(text.as_bytes());
    let flip = |bytes: &mut Vec<u8>| bytes[0] ^= 1;
    scene.fake.tamper(blob, flip);
    scene.fake.copy("next", "1");
    let message = scene.place.refused("rules", "ImageDiffers").await;
    let says = format!("sent the blob {blob} with the digest sha256:");
    assert!(message.contains(&says), "{message}");
    let found = scene.place.processors().get("rules").await.unwrap().status.unwrap();
    let image = found.module.unwrap().image.unwrap();
    assert!(image.ends_with(&format!("@{first}")), "{image} runs");
    scene.fake.tamper(blob, flip);
    scene.until_runs("rules", &two, second).await;
}

#[tokio::test]
async fn a_new_host_runs_the_last_version_only_if_signed_as_required_now() {
    let mut scene = Scene::new().await;
    let (key, one) = (Key::new(), module(""));
    let first = scene.fake.push("1", &one);
    scene.processor("rules", &scene.fake.image(":1"), &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    scene.place.tasks.shutdown().await;
    let mut spec = key.verification();
    spec["module"] = json!({"image": scene.fake.image(":missing")});
    scene.place.edit("rules", spec).await;
    scene.restart(true).await;
    scene.place.reason("rules", "Loaded", "ImageNotFound").await;
    assert!(scene.place.host.status().is_empty(), "what ran last has no signature");

    key.sign(&scene.fake, "1", Format::Bundle).await;
    scene.restart(true).await;
    scene.place.until_at_work_are(&["1.0.0"]).await;
    assert_eq!(scene.place.reason("rules", "Ready", "FormerVersion").await.0, "True");
}

#[tokio::test]
async fn a_tag_moves_on_from_an_artifact_that_lacks_a_signature() {
    let scene = Scene::new().await;
    let key = Key::new();
    let (one, two) = (module(""), module("2"));
    let first = scene.fake.push("stable", &one);
    scene.processor("rules", &scene.fake.image(":stable"), &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    // From here on the artifact that the status names may not be loaded.
    scene.place.edit("rules", key.verification()).await;
    let (_, message) = scene.place.reason("rules", "Loaded", "SignatureMissing").await;
    assert!(message.contains(&first.to_string()), "{message}");
    let second = scene.fake.push("stable", &two);
    key.sign(&scene.fake, "stable", Format::Bundle).await;
    scene.until_runs("rules", &two, second).await;
}

#[tokio::test]
async fn a_cached_module_is_loaded_only_if_it_is_signed() {
    let scene = Scene::new().await;
    let key = Key::new();
    let one = module("");
    let first = scene.fake.push("1", &one);
    let image = scene.fake.image(&format!("@{first}"));
    // It is pulled, compiled and run where no signature is needed.
    scene.processor("free", &image, &json!({})).await;
    scene.until_runs("free", &one, first).await;
    scene.processor("rules", &image, &key.verification()).await;
    scene.place.unsigned("rules", "it has no signature").await;
    scene.place.edit("free", key.verification()).await;
    let (_, message) = scene.place.reason("free", "Loaded", "SignatureMissing").await;
    assert!(message.ends_with("; the former version 1.0.0 keeps running"), "{message}");
    key.sign(&scene.fake, "1", Format::Bundle).await;
    scene.until_runs("rules", &one, first).await;

    // What stands for its signatures on the disk proves nothing.
    scene.place.delete("rules").await;
    scene.place.until_gone("rules").await;
    let path = scene.cache.path().join("cache/modules").join(format!("signatures-{}", first.hex()));
    let kept = fs::read_to_string(&path).unwrap();
    fs::write(&path, kept.replace("MEU", "MEV").replace("MEQ", "MER").replace("sig", "gis"))
        .unwrap();
    scene.fake.forget();
    scene.processor("rules", &image, &key.verification()).await;
    scene.until_runs("rules", &one, first).await;
    let asked = scene.fake.seen().iter().any(|seen| seen.target.contains("/referrers/"));
    assert!(asked, "they are asked for again");
}

#[tokio::test]
async fn a_library_is_loaded_only_if_it_is_signed() {
    let scene = Scene::new().await;
    let (key, built) =
        (Key::new(), |guest: &str| fs::read(mortise_tests::guest(guest).unwrap()).unwrap());
    let (announce, shout) = (built("tests/guests/announce"), built("tests/guests/shout"));
    let path = scene.place.modules.path();
    fs::write(path.join("announce.wasm"), &announce).unwrap();
    fs::write(path.join("shout.wasm"), &shout).unwrap();
    key.sign_file(&scene.place, "announce.wasm", Format::Bundle);
    let spec = |library: Value| {
        json!({
            "module": {"path": "announce.wasm"}, "serviceAccountName": "puppet",
            "verification": {"keys": [key.pem]},
            "libraries": [{
                "interface": "example:shouting/shout@1.0.0", "module": library, "limits": {"memory": "16Mi"},
            }],
        })
    };
    let apply = async |library: Value| {
        let spec = json!({"spec": spec(library)});
        scene.place.apply(&[object("mortise.dev/v1alpha1/Processor", "rules", &spec)]).await;
    };
    apply(json!({"path": "shout.wasm"})).await;
    scene.place.unsigned("rules", "`shout.wasm`: it has no signature").await;
    scene.fake.push("shout", &shout);
    apply(json!({"image": scene.fake.image(":shout")})).await;
    scene.place.unsigned("rules", ":shout@sha256:").await;
    key.sign(&scene.fake, "shout", Format::Tag).await;
    scene.place.reason("rules", "Ready", "Runs").await;
}

#[tokio::test(start_paused = true)]
async fn a_version_comes_back_only_if_it_is_signed_as_required_now() {
    let (key, next) = (Key::new(), Key::new());
    for comes_back in [false, true] {
        let place = Place::new().await;
        place.apply(&tried_and(&["b1", "b2", "b3", "b4"])).await;
        let signer = if comes_back { &next } else { &key };
        signer.sign_file(&place, "puppet.wasm", Format::Bundle);
        let both = json!({"verification": {"keys": [key.pem, next.pem]}});
        place.puppet("rules", &makes("1.0.0"), &both).await;
        place.reason("rules", "Synced", "Synced").await;

        // The next version breaks, and the first key is no longer named.
        fs::write(place.modules.path().join("next.wasm"), module("next")).unwrap();
        next.sign_file(&place, "next.wasm", Format::Bundle);
        let second = json!({"module": {"path": "next.wasm"}, "verification": {"keys": [next.pem]}});
        let bad = makes("2.0.0").script(json!({"panics": "no such rule"}));
        place.puppet("rules", &bad, &second).await;
        if comes_back {
            let (_, message) = place.reason("rules", "Loaded", "RolledBack").await;
            assert!(message.ends_with("the former version 1.0.0 keeps running"), "{message}");
        } else {
            place.until_at_work_are(&["2.0.0"]).await;
            place.reason("rules", "Synced", "ObjectsFail").await;
            let (status, message) = place.reason("rules", "Loaded", "SignatureMissing").await;
            assert_eq!(status, "False", "{message}");
            assert!(message.starts_with("version 2.0.0 broke on 4 of the first "), "{message}");
            let says = "and version 1.0.0 is not restored: `/modules/puppet.wasm`: ";
            assert!(message.contains(says), "{message}");
            place.until_idle().await;
            place.until_at_work_are(&["2.0.0"]).await;
            // Another account has the controller look at the Processor again.
            place.account("others", &json!({})).await;
            tokio::time::sleep(LONG).await;
            assert_eq!(place.reason("rules", "Loaded", "SignatureMissing").await.1, message);
        }
    }
}

#[tokio::test]
async fn a_second_replica_loads_nothing_that_is_not_signed() {
    let mut scene = Scene::new().await;
    let key = Key::new();
    let one = module("");
    let first = scene.fake.push("1", &one);
    scene.processor("rules", &scene.fake.image(&format!("@{first}")), &json!({})).await;
    scene.until_runs("rules", &one, first).await;
    // It has the cache of the first, with the module and its code, and a policy of its own.
    let host = Arc::clone(&scene.place.host);
    let images = ImageOptions { policy: Some(key.policy("")), ..options(scene.cache.path()) };
    let second = scene.place.replica(images).await;
    second.until_faulty(1).await;
    assert!(second.host.status().is_empty(), "the second runs nothing");
    assert_eq!(host.status().len(), 1, "the first goes on");
    key.sign(&scene.fake, "1", Format::Bundle).await;
    second.until_faulty(0).await;
    assert_eq!(second.host.status().len(), 1);
}

#[tokio::test]
async fn no_processor_weakens_the_signature_policy_of_the_host() {
    let mut scene = Scene::new().await;
    let (of_host, own) = (Key::new(), Key::new());
    let registry = scene.fake.host();
    scene.place.images.policy = Some(of_host.policy(&format!("{registry}/team")));
    scene.place.restart().await;
    let one = module("");
    let first = scene.fake.push("1", &one);
    let image = scene.fake.image(":1");
    scene.processor("plain", &image, &json!({})).await;
    scene.place.unsigned("plain", "(--require-signatures)").await;
    own.sign(&scene.fake, "1", Format::Bundle).await;
    scene.processor("rules", &image, &own.verification()).await;
    scene.place.unsigned("rules", "(--require-signatures)").await;
    // A name that no rule covers.
    scene.place.puppet("file", &puppet(), &json!({})).await;
    scene
        .place
        .unsigned("file", "no rule of --require-signatures covers `/modules/puppet.wasm`")
        .await;
    let elsewhere = format!("{registry}/teams/puppet:1");
    scene.fake.push_to("teams/puppet", "1", &one);
    scene.processor("elsewhere", &elsewhere, &json!({})).await;
    scene.place.unsigned("elsewhere", "no rule of --require-signatures covers `").await;
    of_host.sign(&scene.fake, "1", Format::Tag).await;
    for name in ["plain", "rules"] {
        scene.until_runs(name, &one, first).await;
    }
}
