//! A container of the installation without a container engine: its arguments, and a read-only root.
//! The root holds the program, its volumes, credentials and `/etc/hosts` where Kubernetes puts
//! them, `/proc`, and of a container's devices those of random bytes. A program that is not linked
//! statically finds the libraries of this machine, too; a static one from [`program::given`], as
//! `deploy/Dockerfile` makes it, finds nothing else.

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use k8s_openapi::{
    ByteString,
    api::{apps::v1::Deployment, core::v1::Container},
};
use kube::config::Kubeconfig;
use mortise_tests::tool;
use serde_json::json;
use tempfile::TempDir;

use crate::cluster::program;

/// The folder of a pod's service account.
const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";
const LIBRARIES: &str = "/lib /lib64 /usr";
/// The folder with the pod's `/etc/hosts`. The environment of a pod holds the API server's address;
/// the test gives its name instead, so that the program has to look it up.
const ADDRESSES: &str = "etc";
const API: &str = "kubernetes.default.svc";

/// A script for a mount namespace of its own: `PROGRAM FOLDER LIBRARIES VOLUME... -- ARGUMENT...`.
/// The root is made in memory, since not every file system can be mounted again by a user who does
/// not own it.
const ENTER: &str = r#"
set -e
program=$1 folder=$2 libraries=$3
shift 3
root=$folder/root
bind() { mkdir -p "$2"; mount --rbind "$1" "$2"; }
mount -t tmpfs tmpfs "$root"
: > "$root/mortise"
mount --bind "$program" "$root/mortise"
mkdir "$root/dev"
for device in random urandom; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
for path in /proc $libraries; do
    if [ -d "$path" ]; then bind "$path" "$root$path"; fi
done
while [ "$1" != -- ]; do
    bind "$folder/volumes/$1" "$root/$1"
    shift
done
shift
mount -o remount,ro "$root"
exec chroot "$root" /mortise "$@"
"#;

/// A pod of the installation.
pub(super) struct Pod {
    /// Holds the mount point of the root, and the volumes by their paths in the root.
    folder: TempDir,
    container: Container,
}

/// Returns whether this process may have a root of its own, and reports if not.
pub(super) fn is_possible() -> bool {
    let tried = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).output();
    let is_possible = tried.is_ok_and(|tried| tried.status.success());
    if !is_possible {
        let line = "`unshare --map-root-user --mount` is not there or not allowed: the test of the installation as a pod not run";
        tool::say("unshare", line);
    }
    is_possible
}

// === impl Pod ===

impl Pod {
    pub(super) fn of(deployment: &Deployment) -> Self {
        let template = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        let [container] = template.containers.as_slice() else { panic!("one container") };
        let pod = Self { folder: tempfile::tempdir().unwrap(), container: container.clone() };
        fs::create_dir(pod.folder.path().join("root")).unwrap();
        for volume in pod.volumes() {
            // An emptyDir is writable for all users.
            let made =
                fs::DirBuilder::new().recursive(true).mode(0o777).create(pod.volume(&volume));
            made.unwrap();
        }
        pod
    }

    /// Returns the paths of mounts.
    fn volumes(&self) -> Vec<String> {
        let mounts = self.container.volume_mounts.iter().flatten();
        let paths = mounts.map(|mount| mount.mount_path.trim_start_matches('/').to_owned());
        paths.chain([ACCOUNT, ADDRESSES].map(str::to_owned)).collect()
    }

    /// Returns the folder that is mounted at a path of the pod.
    pub(super) fn volume(&self, path: &str) -> PathBuf {
        self.folder.path().join("volumes").join(path)
    }

    /// Writes the files that `kubelet` gives a pod with this account.
    pub(super) fn let_be(&self, token: &str, namespace: &str, kubeconfig: &Path) {
        let config = Kubeconfig::read_from(kubeconfig).unwrap();
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        let authority = json!(cluster.certificate_authority_data);
        let authority: ByteString = serde_json::from_value(authority).unwrap();
        let write = |name: &str, content: &[u8]| {
            fs::write(self.volume(ACCOUNT).join(name), content).unwrap();
        };
        write("token", token.as_bytes());
        write("namespace", namespace.as_bytes());
        write("ca.crt", &authority.0);
    }

    /// Returns the container's process, with the API at this address. The ports are chosen by the
    /// system; everything else is as in the installation.
    pub(super) fn command(&self, api: &http::Uri) -> Command {
        let given = program::given();
        let libraries = if given.is_some() { "" } else { LIBRARIES };
        let program = given.unwrap_or_else(program::built);
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", ENTER, "sh"]);
        command.arg(program).arg(self.folder.path()).arg(libraries).args(self.volumes()).arg("--");
        command.args(self.container.args.iter().flatten());
        command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default());
        command.envs([("MORTISE_LISTEN", "127.0.0.1:0"), ("MORTISE_ADMIN", "127.0.0.1:0")]);
        let hosts = format!("{} {API}\n", api.host().unwrap());
        fs::write(self.volume(ADDRESSES).join("hosts"), hosts).unwrap();
        command.env("KUBERNETES_SERVICE_HOST", API);
        command.env("KUBERNETES_SERVICE_PORT", api.port_u16().unwrap().to_string());
        command
    }

    /// Returns the paths of the probes.
    pub(super) fn probes(&self) -> Vec<String> {
        let probes = [&self.container.liveness_probe, &self.container.readiness_probe];
        let paths = probes.map(|probe| probe.as_ref()?.http_get.as_ref()?.path.clone());
        paths.map(|path| path.expect("a probe asks for a path")).into()
    }
}
