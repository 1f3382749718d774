//! The errors of kube's client that repeat credentials: what a credential plugin has printed, the
//! variables that it was started with, and lines of a key.

use std::{error::Error, process::Output};

use kube::client::AuthError;
use rustls::pki_types::pem;

/// Returns the text that is shown instead of an error which repeats a credential; `None` for any
/// other error.
pub(crate) fn withheld(error: &(dyn Error + 'static)) -> Option<String> {
    anyhow::Chain::new(error).find_map(|cause| {
        if cause.is::<pem::Error>() {
            return Some("the client certificate or its key is no PEM".to_owned());
        }
        match cause.downcast_ref::<AuthError>()? {
            AuthError::AuthExecRun { cmd, out } => Some(failed(cmd, out)),
            AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) => {
                Some("the credential plugin prints no credentials".to_owned())
            }
            _ => None,
        }
    })
}

/// Describes a credential plugin that has failed, by what it wrote to standard error: its standard
/// output may hold a token.
fn failed(command: &str, output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    format!("`{}` failed ({}): {said}", program(command), output.status)
}

/// Returns the program of a command, which is printed as the variables of its environment
/// (`KEY="value"`), the program and its arguments, each in quotes.
fn program(command: &str) -> &str {
    let quoted = match command.strip_prefix('"') {
        Some(program) => Some(program),
        // Quotes within a value stand behind a backslash.
        None => command.split_once(" \"").map(|(_, program)| program),
    };
    let program = quoted.and_then(|program| program.split_once('"'));
    program.map_or("the credential plugin", |(program, _)| program)
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::ExitStatusExt as _,
        process::{Command, ExitStatus},
    };

    use super::*;

    #[test]
    fn what_a_credential_plugin_prints_and_is_started_with_is_not_told() {
        let ran = |command: &str| {
            let (stdout, stderr) = (b"hidden".to_vec(), b"log in\nfirst\n".to_vec());
            let out = Box::new(Output { status: ExitStatus::from_raw(3 << 8), stdout, stderr });
            AuthError::AuthExecRun { cmd: command.to_owned(), out }
        };
        let mut login = Command::new("/bin/log in");
        let bare = format!("{login:?}");
        login.arg("--token=hidden").arg("hidden").env("A", "hid\" \"den ").env_remove("B");
        let yaml = serde_saphyr::from_str::<Vec<u8>>("- hidden\n- hidden: [").unwrap_err();
        let json = serde_json::from_str::<u8>("\"hidden\"").unwrap_err();
        let line = b"-----BEGIN PRIVATE KEY-----hidden".to_vec();
        let pem =
            kube::client::RustlsTlsError::InvalidIdentityPem(pem::Error::IllegalSectionStart {
                line,
            });
        let failed = "`/bin/log in` failed (exit status: 3): log in; first";
        let plugin = "the credential plugin";
        let cases = [
            (kube::Error::Auth(ran(&bare)), failed),
            (kube::Error::Service(ran(&format!("{login:?}")).into()), "failed (exit status: 3)"),
            (kube::Error::Auth(ran("hidden hidden")), plugin),
            (kube::Error::Auth(AuthError::AuthExecParse(Box::new(yaml))), plugin),
            (kube::Error::Auth(AuthError::ParseTokenKey(json)), plugin),
            (kube::Error::RustlsTls(pem), "is no PEM"),
        ];
        for (error, expected) in cases {
            let whole = mortise_core::error_chain::whole(&error);
            let text = withheld(&error).unwrap();
            assert!(text.contains(expected) && !text.contains("hidden"), "{text}, of {whole}");
        }
        assert_eq!(withheld(&kube::Error::TlsRequired), None);
    }

    #[test]
    fn the_program_of_a_command_is_found_behind_its_variables() {
        let mut command = Command::new("login");
        command.env("A", "b").env("C", "d \" e");
        assert_eq!(program(&format!("{command:?}")), "login");
        assert_eq!(program("gcloud config"), "the credential plugin");
    }
}
