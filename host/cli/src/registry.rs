//! Registries, with the developer's own credentials from Docker's configuration file.

use std::{
    fs::File,
    io::{ErrorKind, Read as _, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use anyhow::Context as _;
use mortise_host::oci::{
    self, Credentials, Digest, DockerConfig, MAX_MODULE_BYTES, Reference, Registries, Repository,
    Sink,
    artifact::{self, Annotations},
};
use serde::Deserialize;

use crate::{args::RegistryClientArgs, guest::Source};

/// The name of the configuration file in its folder.
const CONFIG: &str = "config.json";
/// The user name by which a credential helper marks the password as a token.
const TOKEN_USER: &str = "<token>";
/// The output of a failing credential helper that has no credentials for a registry
/// (docker-credential-helpers, `credentials/error.go`).
const NOT_FOUND: &str = "credentials not found in native keychain";
/// The longest part of a helper's message that is repeated.
const MAX_MESSAGE_CHARACTERS: usize = 200;

/// The registries, and Docker's configuration.
pub struct RegistryClient {
    registries: Registries,
    config: Option<(PathBuf, DockerConfig)>,
}

/// A component from a registry.
#[derive(Debug)]
pub struct Pulled {
    /// The reference with the digest of the manifest.
    pub reference: Reference,
    /// The annotations of the manifest.
    pub annotations: Annotations,
    /// The component.
    pub file: tempfile::NamedTempFile,
}

/// The output of a Docker credential helper.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Helped {
    username: String,
    secret: String,
}

/// A component given to a command: a file, the build of a guest's folder, or an artifact.
#[derive(Debug)]
pub struct Subject {
    /// The source, for a file or a folder.
    pub source: Source,
    /// The component's file.
    pub file: PathBuf,
    /// The artifact from which it was pulled.
    pub pulled: Option<Pulled>,
}

struct ToFile {
    file: File,
    at: u64,
}

// === impl RegistryClient ===

impl RegistryClient {
    /// Reads the options and Docker's configuration file, if there is one.
    ///
    /// # Errors
    ///
    /// Fails for invalid options or an unusable file.
    pub fn open(args: &RegistryClientArgs) -> anyhow::Result<Self> {
        let registries = args.registry.registries()?;
        let in_home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker"));
        let folder = args.docker_config.clone().or_else(in_home);
        let config = folder.map(|folder| docker_config(&folder.join(CONFIG))).transpose()?;
        Ok(Self { registries, config: config.flatten() })
    }

    /// Returns the repository of a reference. `pushes`: it is written to.
    ///
    /// # Errors
    ///
    /// Fails for credentials that cannot be parsed.
    pub fn repository(&self, of: &Reference, pushes: bool) -> anyhow::Result<Repository> {
        let credentials = self.credentials(of)?;
        Ok(self.registries.repository(of, credentials, pushes))
    }

    /// Pulls a component into a temporary file.
    ///
    /// # Errors
    ///
    /// Fails if the component cannot be pulled, and for any other artifact.
    pub async fn pull(&self, of: &Reference) -> anyhow::Result<Pulled> {
        let pulled = self.pull_now(of).await;
        pulled.with_context(|| format!("cannot pull `{of}`"))
    }

    async fn pull_now(&self, of: &Reference) -> anyhow::Result<Pulled> {
        let repository = self.repository(of, false)?;
        let name = name_of(of);
        let document = repository.manifest(&name).await?;
        let parts = artifact::parse(&document.bytes)?;
        let file = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
        let mut sink = ToFile { file: file.reopen()?, at: 0 };
        repository.blob(&parts.layer, MAX_MODULE_BYTES, &mut sink).await?;
        let annotations = parts.annotations;
        Ok(Pulled { reference: of.at(document.digest), annotations, file })
    }

    fn credentials(&self, of: &Reference) -> anyhow::Result<Option<Credentials>> {
        let Some((path, config)) = &self.config else { return Ok(None) };
        let registry = of.registry();
        let helper = config.cred_helpers.get(registry).or(config.creds_store.as_ref());
        if let Some(helper) = helper
            && let Some(credentials) = ask(helper, registry)?
        {
            return Ok(Some(credentials));
        }
        let found = config.credentials(of);
        found.with_context(|| format!("cannot use `{}`", path.display()))
    }
}

// === impl Subject ===

impl Subject {
    /// Opens the file or folder at a path, or pulls the artifact of a reference.
    ///
    /// # Errors
    ///
    /// Fails for any other text, for a guest that does not build, and if the artifact cannot be
    /// pulled.
    pub async fn open(what: &Path, args: &RegistryClientArgs) -> anyhow::Result<Self> {
        let Some(reference) = reference(what)? else {
            let source = Source::open(what)?;
            let file = source.component()?;
            return Ok(Self { source, file, pulled: None });
        };
        let pulled = RegistryClient::open(args)?.pull(&reference).await?;
        let file = pulled.file.path().to_owned();
        Ok(Self { source: Source::File(file.clone()), file, pulled: Some(pulled) })
    }

    /// Returns the name of the component, for people.
    pub fn shown(&self) -> String {
        let of_file = || self.file.display().to_string();
        self.pulled.as_ref().map_or_else(of_file, |pulled| pulled.reference.to_string())
    }
}

/// Parses an argument as a reference; `None` if it is a path.
///
/// # Errors
///
/// Fails for an invalid reference that is no existing path.
pub fn reference(what: &Path) -> anyhow::Result<Option<Reference>> {
    if what.exists() {
        return Ok(None);
    }
    let text = what.to_string_lossy();
    match text.parse() {
        Ok(reference) => Ok(Some(reference)),
        Err(error) if is_meant_as_reference(&text) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Returns whether a text that is neither an existing path nor a reference was meant as a
/// reference.
fn is_meant_as_reference(text: &str) -> bool {
    // Errors repeat a path, and this text may hold a password.
    let may_hold_password = text.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    let names_registry = text.split_once('/').is_some_and(|(first, _)| oci::is_registry(first));
    // A text with a file's extension was meant as a file: a missing file is the better error.
    let is_file = Path::new(text).extension().is_some_and(|ending| ending == "wasm");
    may_hold_password || !is_file && (names_registry || text.contains([':', '@']))
}

/// Returns the digest of a reference, or else its tag, for requests of its manifest.
pub fn name_of(of: &Reference) -> String {
    let tag = || of.tag().unwrap_or_default().to_owned();
    of.digest().map_or_else(tag, |digest| digest.to_string())
}

fn docker_config(path: &Path) -> anyhow::Result<Option<(PathBuf, DockerConfig)>> {
    let cannot = || format!("cannot use `{}`", path.display());
    match std::fs::read(path) {
        Ok(text) => {
            let config = DockerConfig::parse(&text).with_context(cannot)?;
            Ok(Some((path.to_owned(), config)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(cannot),
    }
}

/// Asks a Docker credential helper for the credentials of a registry; `None` if it has none.
fn ask(helper: &str, registry: &str) -> anyhow::Result<Option<Credentials>> {
    let program = format!("docker-credential-{helper}");
    let cannot = || format!("cannot run `{program}`, which Docker's configuration file names");
    let mut child = Command::new(&program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(cannot)?;
    if let Some(mut stdin) = child.stdin.take()
        && let Err(error) = stdin.write_all(registry.as_bytes())
        // A helper may end without reading: its output counts.
        && error.kind() != ErrorKind::BrokenPipe
    {
        return Err(error).with_context(cannot);
    }
    let output = child.wait_with_output().with_context(cannot)?;
    let given = given(output.status.success(), &output.stdout);
    given.map_err(|found| {
        anyhow::anyhow!("`{program}`, which Docker's configuration file names, {found}")
    })
}

/// Parses the output of a Docker credential helper; `None` if it has no credentials. An error
/// repeats the message of a helper that fails, and no other output: it may hold the secret.
fn given(is_success: bool, output: &[u8]) -> Result<Option<Credentials>, String> {
    if !is_success {
        let output = String::from_utf8_lossy(output);
        let message = output.trim();
        if message == NOT_FOUND {
            return Ok(None);
        }
        let first = message.lines().next().unwrap_or("it does not say why");
        let first = first.chars().filter(|sign| !sign.is_control()).take(MAX_MESSAGE_CHARACTERS);
        return Err(format!("fails: {}", first.collect::<String>()));
    }
    let helped: Helped = serde_json::from_slice(output).map_err(|_| {
        "prints no credentials: JSON with `Username` and `Secret` is expected".to_owned()
    })?;
    Ok(Some(if helped.username == TOKEN_USER {
        Credentials::IdentityToken(helped.secret)
    } else {
        Credentials::Basic { user: helped.username, password: helped.secret }
    }))
}

// === impl ToFile ===

impl Sink for ToFile {
    async fn take(&mut self, part: bytes::Bytes) -> Result<(), oci::Error> {
        self.file.write_all_at(&part, self.at).map_err(|source| oci::Error::Disk {
            what: "cannot write to a temporary file".to_owned(),
            source,
        })?;
        self.at += part.len() as u64;
        Ok(())
    }
}

/// Returns an open file, with its digest and length.
///
/// # Errors
///
/// Fails for a file that cannot be read, or is larger than a module may be.
pub fn measured(path: &Path) -> anyhow::Result<(Arc<File>, Digest, u64)> {
    let cannot = || format!("cannot read the module `{}`", path.display());
    let file = File::open(path).with_context(cannot)?;
    let mut bytes = Vec::new();
    (&file).take(MAX_MODULE_BYTES + 1).read_to_end(&mut bytes).with_context(cannot)?;
    let length = bytes.len() as u64;
    anyhow::ensure!(
        length <= MAX_MODULE_BYTES,
        "the module `{}` is too large: up to {} MiB are accepted",
        path.display(),
        MAX_MODULE_BYTES >> 20
    );
    Ok((Arc::new(file), Digest::of(&bytes), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_credential_helper_is_read_as_docker_reads_it() {
        let basic = |user: &str, password: &str| {
            let (user, password) = (user.to_owned(), password.to_owned());
            Ok(Some(Credentials::Basic { user, password }))
        };
        let token: Result<_, String> = Ok(Some(Credentials::IdentityToken("secret".to_owned())));
        let cases = [
            (
                r#"{"ServerURL": "a", "Username": "user", "Secret": "secret"}"#,
                basic("user", "secret"),
            ),
            ("{\"Username\": \"\", \"Secret\": \"\"}\n", basic("", "")),
            (r#"{"Username": "<token>", "Secret": "secret"}"#, token),
        ];
        for (output, expected) in cases {
            assert_eq!(given(true, output.as_bytes()), expected, "{output}");
        }
        let not_found = format!("{NOT_FOUND}\n");
        assert_eq!(given(false, not_found.as_bytes()), Ok(None));
    }

    #[test]
    fn a_credential_helper_error_holds_the_reason_but_no_credentials() {
        let long = "x".repeat(MAX_MESSAGE_CHARACTERS);
        let cases = [
            (false, "the keychain is locked\nand more".to_owned(), "fails: the keychain is locked"),
            (false, "a\u{1b}[31mb\r\n".to_owned(), "fails: a[31mb"),
            (false, " \n".to_owned(), "fails: it does not say why"),
            (false, format!("{long}y"), &format!("fails: {long}")),
            (true, NOT_FOUND.to_owned(), "prints no credentials: "),
            (true, "geheim".to_owned(), "prints no credentials: "),
            (true, r#"{"Username": "geheim"}"#.to_owned(), "prints no credentials: "),
            (true, r#"{"Username": 1, "Secret": "geheim"}"#.to_owned(), "prints no credentials: "),
            (true, String::new(), "prints no credentials: "),
        ];
        for (is_success, output, expected) in cases {
            let found = given(is_success, output.as_bytes()).unwrap_err();
            let is_it = if is_success { found.starts_with(expected) } else { found == expected };
            assert!(is_it && !found.contains("geheim"), "{output}: {found}");
        }
    }
}
