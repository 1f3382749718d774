use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

use super::*;

const ADDRESS: &str = "127.0.0.1:6443";

fn write(text: Option<&str>) -> (anyhow::Result<Kubeconfig>, Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    if let Some(text) = text {
        std::fs::write(&path, text).unwrap();
    }
    let written = Kubeconfig::write(Some(&path), ADDRESS.parse().unwrap(), "default");
    (written, std::fs::read_to_string(&path).ok())
}

#[test]
fn a_file_that_is_new_empty_or_ours_is_written() {
    let (_, ours) = write(None);
    let ours = ours.unwrap();
    for present in ["", "\n", &ours.replace("6443", "7000")] {
        let (written, text) = write(Some(present));
        written.unwrap();
        assert_eq!(text.as_deref(), Some(&*ours));
    }
}

#[test]
fn only_its_owner_can_read_a_kubeconfig() {
    let folder = tempfile::tempdir().unwrap();
    let present = folder.path().join("present");
    std::fs::write(&present, "").unwrap();
    std::fs::set_permissions(&present, Permissions::from_mode(0o644)).unwrap();
    for path in [present, folder.path().join("new")] {
        Kubeconfig::write(Some(&path), ADDRESS.parse().unwrap(), "default").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_file_of_other_clusters_or_of_something_else_is_left_as_it_is() {
    let kind = "apiVersion: v1\nkind: Config\nclusters: []\ncontexts: [{name: kind-a, context: {cluster: a, user: a}}]\n";
    let user = "users: [{name: admin, user: {token: x}}]\ncontexts: [{name: mortise, context: {cluster: mortise}}]\n";
    let cases = [
        (kind, "kind-a"),
        (user, "admin"),
        ("my notes: [", "no kubeconfig"),
        ("a: 1\n", "no kubeconfig"),
    ];
    for (present, named) in cases {
        let (written, text) = write(Some(present));
        let message = format!("{:#}", written.unwrap_err());
        assert!(message.contains(named) && message.contains("--kubeconfig"), "{message}");
        assert_eq!(text.as_deref(), Some(present));
    }
}
