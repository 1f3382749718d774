//! The charts on a control plane, by the commands of `deploy/README.md`: the host, and a processor
//! that `mortise run` reconciles with the account of the chart; upgraded; uninstalled.

use std::{
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use kube::config::Kubeconfig;
use mortise_tests::{
    cluster::{self, Cluster},
    guest, tool,
};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    ground::kubeconfig_of,
    program::{Program, built},
};
use crate::{chart::Helm, guides};

const GUIDE: &str = "deploy/README.md";
/// The name of the host's release, and of its namespace.
const HOST: &str = "mortise";
/// How long kubectl waits for an object; only a fault reaches it.
const PATIENCE: &str = "--timeout=300s";

/// A control plane without anything of ours, and a shell with Helm, kubectl and `mortise` on it.
struct Shell {
    plane: Cluster,
    helm: Helm,
    /// The programs that are called by their names.
    programs: TempDir,
    /// The folder of modules, the cache and the kubeconfig of the host.
    host: TempDir,
}

// === impl Shell ===

impl Shell {
    /// Opens a shell. Returns `None` without Go or kubectl.
    async fn open() -> Option<Self> {
        if !tool::is_there("kubectl", "the tests of it::cluster::chart") {
            return None;
        }
        let helm = Helm::open()?;
        let plane = cluster::own().await.unwrap()?;
        let (programs, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(&helm.program, programs.path().join("helm")).unwrap();
        symlink(built(), programs.path().join("mortise")).unwrap();
        std::fs::create_dir(host.path().join("modules")).unwrap();
        Some(Self { plane, helm, programs, host })
    }

    fn output(&self, script: &str) -> Output {
        let mut path = vec![self.programs.path().to_owned()];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut command = self.helm.command();
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", script]).stdin(Stdio::null());
        shell.current_dir(command.get_current_dir().unwrap());
        for (name, value) in command.env("KUBECONFIG", self.plane.kubeconfig()).get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.env("PATH", std::env::join_paths(path).unwrap()).output().unwrap()
    }

    /// Runs commands, which have to succeed without a warning of the API server; returns what they
    /// print.
    #[track_caller]
    fn run(&self, script: &str) -> String {
        let output = self.output(script);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}\n{error}");
        assert!(!error.to_lowercase().contains("warning"), "{script}\n{error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a block of commands of the guide.
    #[track_caller]
    fn guide(&self, name: &str) {
        let commands = guides::block(GUIDE, &format!("<!-- cluster::chart: {name} -->"));
        let target = guest("guests/secret-copy").unwrap();
        let target = target.ancestors().nth(3).unwrap().to_str().unwrap();
        self.run(&commands.replace("target/", &format!("{target}/")));
    }

    /// Returns whether an object is there.
    fn is_there(&self, object: &str) -> bool {
        !self.run(&format!("kubectl get {object} --ignore-not-found -o name")).is_empty()
    }

    /// Waits until a field of an object has this value.
    #[track_caller]
    fn wait(&self, object: &str, condition: &str) {
        self.run(&format!("kubectl wait {object} --for={condition} {PATIENCE}"));
    }

    fn json(&self, object: &str) -> Value {
        serde_json::from_str(&self.run(&format!("kubectl get {object} -o json"))).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.host.path().join(name)
    }

    /// Starts the host with the account that the chart has made, and with no other rights.
    async fn start_host(&self) -> Program {
        let kubeconfig: Kubeconfig = kubeconfig_of(&self.plane, HOST, HOST).await;
        let text = serde_json::to_string(&kubeconfig).unwrap();
        std::fs::write(self.path("kubeconfig"), text).unwrap();
        let module = guest("guests/secret-copy").unwrap();
        for name in ["secret-copy.wasm", "secret-copy-2.wasm"] {
            std::fs::copy(&module, self.path("modules").join(name)).unwrap();
        }
        let [kubeconfig, modules] = ["kubeconfig", "modules"].map(|name| self.path(name));
        let mut host =
            Program::start(&kubeconfig, &modules, &self.path("cache"), ["--leader-elect"]);
        host.event("leading").await;
        host
    }

    /// Installs the chart of the host with these options, as the API server would, without storing
    /// anything.
    fn is_accepted(&self, options: &str) {
        let of_release = "helm template mortise deploy/chart --namespace mortise --no-hooks";
        let apply = "kubectl apply --server-side --dry-run=server --force-conflicts -f -";
        self.run(&format!("{of_release} {options} | {apply}"));
    }

    /// Uninstalls the processor's release without deleting the Processor before: it waits for the
    /// rights to clean up, and ends once the release is installed again.
    fn uninstall_too_early(&self) {
        let object = "processor secret-copy -n platform";
        let has_finalizers =
            |object: &str| self.json(object)["metadata"].get("finalizers").is_some();
        self.run("helm uninstall secret-copy --namespace platform");
        assert!(has_finalizers(object), "only the host takes it off, with the account's rights");
        self.guide("processor");
        self.wait(object, "delete");
        assert!(!has_finalizers("secretcopy registry -n platform"));
        // The release holds a Processor that is gone, and makes it again.
        self.guide("upgrade-processor");
        self.wait(object, "condition=Ready");
        self.wait("secretcopy registry -n platform", "jsonpath={.metadata.finalizers}");
    }

    /// Upgrades the host to a former chart, whose kind Processor has no short names.
    fn become_former(&self) {
        let former = self.path("former");
        let chart = former.to_str().unwrap();
        self.run(&format!("cp -r deploy/chart {chart}"));
        let definition = former.join("files/processors.mortise.dev.yaml");
        let text = std::fs::read_to_string(&definition).unwrap();
        let older = text.replace("    shortNames:\n    - proc\n", "");
        assert_ne!(text, older);
        std::fs::write(definition, older).unwrap();
        self.run(&format!("helm upgrade mortise {chart} --namespace mortise"));
    }
}

/// The short names of the kind Processor.
const SHORT_NAMES: &str = "/spec/names/shortNames";
const DEFINITION: &str = "crd processors.mortise.dev";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_are_installed_upgraded_and_uninstalled() {
    let Some(shell) = Shell::open().await else { return };
    shell.guide("install");
    shell.is_accepted("");
    shell.is_accepted("--set options.namespace=default");
    shell.is_accepted(
        "--set cache.claim.enabled=true,replicas=3,modules.persistentVolumeClaim=modules",
    );
    shell.is_accepted("--set service.enabled=true,registryCa='-----BEGIN CERTIFICATE-----',options.workers=2 --set-json 'requireSignatures=[{\"unsigned\": true}]'");
    shell.run("kubectl apply --server-side -f guests/secret-copy/examples/1-platform.yaml");

    let mut host = shell.start_host().await;
    shell.guide("processor");
    shell.run("kubectl wait --for=condition=Established crd secretcopies.copy.mortise.dev");
    shell.run("kubectl apply --server-side -f guests/secret-copy/examples/2-copy.yaml");
    shell.wait("secretcopy registry -n platform", "jsonpath={.status.copies}=2");
    assert!(shell.is_there("secret registry -n orders"));
    shell.wait("processor secret-copy -n platform", "condition=Ready");

    shell.become_former();
    assert_eq!(shell.json(DEFINITION).pointer(SHORT_NAMES), None);
    shell.guide("upgrade-host");
    assert!(shell.json(DEFINITION).pointer(SHORT_NAMES).is_some(), "Helm upgrades the kind");
    shell.guide("upgrade-processor");
    let processor = shell.json("processor secret-copy -n platform");
    assert_eq!(processor["spec"]["module"]["path"], "secret-copy-2.wasm");
    let generation = &processor["metadata"]["generation"];
    shell.wait(
        "processor secret-copy -n platform",
        &format!("jsonpath={{.status.observedGeneration}}={generation}"),
    );
    shell.wait("processor secret-copy -n platform", "condition=Ready");

    shell.uninstall_too_early();
    shell.guide("uninstall-processor");
    assert!(!shell.is_there("processor secret-copy -n platform"));
    assert!(!shell.is_there("serviceaccount secret-copy -n platform"));
    let copy = shell.json("secretcopy registry -n platform");
    assert_eq!(copy["metadata"].get("finalizers"), None, "it is cleaned up, and stays");
    host.terminate();
    let (status, said) = host.ended().await;
    assert_eq!(status.code(), Some(0), "{said}");
    shell.guide("uninstall-host");
    assert!(!shell.is_there("deployment mortise -n mortise"));
    assert!(!shell.is_there("clusterrole mortise"));
    assert!(shell.is_there(DEFINITION));
    // The same release takes over what stayed.
    shell.run("helm install mortise deploy/chart --namespace mortise");
}
