//! Signatures of cosign 2 and 3, and theirs of ours. Both programs are built from their Go modules,
//! which takes minutes; `host/src/oci/signature/recorded` holds what they once made.

use std::{path::PathBuf, process::Command};

use mortise_tests::{go, guest};

use crate::registry::Setup;

const TESTS: &str = "the tests of it::cosign";

/// A version of cosign, and how it is told not to ask a transparency log.
struct Cosign {
    program: PathBuf,
    folder: PathBuf,
    /// True for version 3, which wants a file that names no log.
    has_config: bool,
    authority: PathBuf,
    docker: PathBuf,
}

impl Cosign {
    fn all(setup: &Setup) -> Option<[Self; 2]> {
        let versions = [
            ("cosign-2", "github.com/sigstore/cosign/v2/cmd/cosign@v2.6.5"),
            ("cosign-3", "github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3"),
        ];
        let built = versions.map(|(name, package)| go::installed(name, package, TESTS).unwrap());
        let [Some(two), Some(three)] = built else { return None };
        let of = |program: PathBuf, has_config: bool| Self {
            program,
            folder: setup.folder.path().to_owned(),
            has_config,
            authority: setup.registry.authority(),
            docker: setup.registry.docker_config(),
        };
        let cosigns = [of(two, false), of(three, true)];
        let [_, three] = &cosigns;
        three.run(&["signing-config", "create", "--out", "no-log.json"]);
        Some(cosigns)
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new(&self.program)
            .args(arguments)
            .current_dir(&self.folder)
            .env("COSIGN_PASSWORD", "mortise")
            .env("DOCKER_CONFIG", &self.docker)
            .env("SSL_CERT_FILE", &self.authority)
            .env("HOME", &self.folder)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{} {arguments:?}: {said}", self.program.display());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn without_log(&self) -> &'static [&'static str] {
        if self.has_config {
            &["--signing-config", "no-log.json"]
        } else {
            &["--tlog-upload=false"]
        }
    }

    fn sign(&self, reference: &str) {
        let arguments =
            [&["sign", "--yes", "--key", "key.key"][..], self.without_log(), &[reference]];
        self.run(&arguments.concat());
    }

    fn sign_file(&self, file: &str) {
        let to = if self.has_config { "--bundle" } else { "--output-signature" };
        let signature = format!("{file}.sig");
        let arguments = [
            &["sign-blob", "--yes", "--key", "key.key", to, &signature][..],
            self.without_log(),
            &[file],
        ];
        self.run(&arguments.concat());
    }

    fn verify(&self, reference: &str) {
        self.run(&["verify", "--key", "key.pub", "--insecure-ignore-tlog", reference]);
    }

    fn verify_file(&self, file: &str) {
        let from = if self.has_config { "--bundle" } else { "--signature" };
        let signature = format!("{file}.sig");
        self.run(&[
            "verify-blob",
            "--key",
            "key.pub",
            "--insecure-ignore-tlog",
            from,
            &signature,
            file,
        ]);
    }
}

#[test]
#[ignore = "builds cosign 2 and 3 from their Go modules"]
fn cosign_and_mortise_verify_each_others_signatures() {
    let Some(setup) = Setup::open(TESTS) else { return };
    let Some(cosigns) = Cosign::all(&setup) else { return };
    let [two, _] = &cosigns;
    two.run(&["generate-key-pair", "--output-key-prefix", "key"]);
    let at = |name: &str| setup.folder.path().join(name).to_str().unwrap().to_owned();
    let (key, public, file) = (at("key.key"), at("key.pub"), at("idle.wasm"));
    std::fs::copy(guest("tests/guests/idle").unwrap(), &file).unwrap();
    for (number, cosign) in cosigns.iter().enumerate() {
        let format = if cosign.has_config { "bundle" } else { "tag" };
        // Theirs is verified here.
        let push = |name: &str| {
            let reference = setup.reference(&format!("{name}/v{number}:1"));
            setup.well(&["push", &file, &reference, "--revision", name]).trim().to_owned()
        };
        let reference = push("theirs");
        cosign.sign(&reference);
        setup.well(&["verify", &reference, "--key", &public]);
        cosign.sign_file("idle.wasm");
        setup.well(&["verify", &file, "--key", &public]);
        // And ours there.
        let reference = push("ours");
        setup.well(&["sign", &reference, "--key", &key, "--format", format]);
        cosign.verify(&reference);
        setup.well(&["sign", &file, "--key", &key, "--format", format]);
        cosign.verify_file("idle.wasm");
    }
}
