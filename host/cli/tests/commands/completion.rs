use std::process::Command;

use crate::mortise;

#[test]
fn each_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = mortise().args(["completion", shell]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{shell}");
        for part in ["simulate", "inspect", "missing-kind"] {
            assert!(script.contains(part), "{shell}: {part} is missing");
        }
    }
    let output = mortise().args(["completion", "tcsh"]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("[possible values: bash, elvish, fish, powershell, zsh]"),
        "{message}"
    );
}

#[test]
fn bash_completes_a_command() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("mortise.bash");
    let output = mortise().args(["completion", "bash"]).output().unwrap();
    std::fs::write(&script, output.stdout).unwrap();
    let words = "COMP_WORDS=(mortise simu); COMP_CWORD=1; _mortise mortise simu mortise; echo \"${COMPREPLY[@]}\"";
    let source = format!("source '{}'; {words}", script.display());
    let completed = Command::new("bash").args(["--norc", "-c", &source]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&completed.stdout).trim(), "simulate", "{completed:?}");
}
