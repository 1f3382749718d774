//! `mortise new`: creates a guest, in Rust a crate, that builds, passes its tests and runs in
//! `mortise dev` at once.
//!
//! All files are written into a temporary folder beside the new one, which is then renamed, so that
//! no half-written guest stays behind. The files come from `new/template`.

mod example;
mod language;
mod render;
mod subject;
#[cfg(test)]
mod tests;
mod workspace;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use mortise_core::contract::display_kind;

use self::{language::Language, render::Files, subject::Subject, workspace::Workspace};
use crate::args::{NewArgs, NewLanguage};

/// The longest name: a DNS label, as in the names of processors.
const MAX_NAME_BYTES: usize = 63;
/// Names that a crate cannot have: Rust's keywords and its own crates.
const RESERVED: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// The reason why no guest was created. No file is left then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is not valid for a crate and a processor.
    #[error(
        "`{name}` is no name for a guest: it takes lower-case letters, digits and `-`, starts with a letter and ends with none of `-`, \
         has at most {MAX_NAME_BYTES} characters and is no word of Rust, as `my-guest`"
    )]
    Name { name: String },

    /// The kind does not parse.
    #[error(
        "`{text}` is no kind: write GROUP/VERSION/KIND, as `example.com/v1/Greeting` or `apps/v1/Deployment`, or VERSION/KIND for \
         the core group, as `v1/ConfigMap`"
    )]
    Kind { text: String },

    /// Kubernetes has no such kind, and no CRD may have the kind's group.
    #[error(
        "Kubernetes has no kind `{text}`{hint}; a kind of your own has a group like `example.com`"
    )]
    NoSuchKind { text: String, hint: String },

    /// There is no example object of the kind.
    #[error(
        "there is no example of `{text}` to begin with: choose another kind, and change it in its source"
    )]
    NoExample { text: String },

    /// The folder exists already.
    #[error("`{folder}` is there already: choose another name, or another folder with --path")]
    FolderTaken { folder: PathBuf },

    /// A member of the workspace has the name already.
    #[error("the workspace `{workspace}` has a member `{name}` already: choose another name")]
    MemberTaken { workspace: PathBuf, name: String },

    /// The workspace around the folder cannot be read.
    #[error("cannot read the workspace `{workspace}`: {message}")]
    Workspace { workspace: PathBuf, message: String },

    /// A file or folder could not be written.
    #[error("cannot write `{path}`: name another folder with --path")]
    Unwritable {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
}

/// Runs the command.
///
/// # Errors
///
/// Fails if the guest cannot be created; no file of it is left then.
pub async fn run(args: &NewArgs) -> anyhow::Result<ExitCode> {
    let language = match args.language {
        NewLanguage::Rust => None,
        NewLanguage::Python => Some(Language::Python),
        NewLanguage::Typescript => Some(Language::TypeScript),
    };
    let name = checked_name(&args.name)?;
    let subject = Subject::of(name, args.kind.as_deref()).await?;
    let folder = args.path.clone().unwrap_or_else(|| PathBuf::from(name));
    let rest = tokio::task::spawn_blocking({
        let (name, subject, folder) = (name.to_owned(), subject.clone(), folder.clone());
        move || match language {
            Some(language) => {
                put(&free(&folder)?, &language.files(&name, &subject))?;
                Ok(format!("{}\n", language.tools()))
            }
            None => {
                make(&name, &subject, &folder, &Sdk::of_this_build()).map(|made| made.describe())
            }
        }
    })
    .await??;
    // There is nowhere to report a closed standard output.
    let _ = write!(anstream::stdout(), "{}", describe(name, &subject, &folder, &rest));
    Ok(ExitCode::SUCCESS)
}

/// The source of the SDK.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sdk {
    /// The folder of the SDK's package.
    Path(PathBuf),
    /// A published version.
    Version(&'static str),
}

/// The result of creating a guest in Rust.
#[derive(Debug, PartialEq, Eq)]
struct Made {
    /// The Cargo.toml of the workspace that the guest belongs to; `None` if the guest is its own
    /// workspace.
    workspace: Option<PathBuf>,
    /// True if the workspace's Cargo.toml had to be changed.
    added: bool,
    sdk: Sdk,
}

fn checked_name(name: &str) -> Result<&str, Error> {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(is_part)
        && !RESERVED.contains(&name);
    if is_name { Ok(name) } else { Err(Error::Name { name: name.to_owned() }) }
}

fn make(name: &str, subject: &Subject, folder: &Path, sdk: &Sdk) -> Result<Made, Error> {
    let folder = free(folder)?;
    let workspace = Workspace::around(&folder)?;
    if let Some(workspace) = &workspace {
        workspace.check_free(name)?;
    }
    let files = render::files(name, subject, workspace.as_ref(), sdk);
    put(&folder, &files)?;
    let added = match workspace.as_ref().map(|workspace| workspace.add(&folder)) {
        None => false,
        Some(Ok(added)) => added,
        Some(Err(error)) => {
            // No incomplete guest is left. An error while removing it matters less than the first
            // error.
            let _ = fs::remove_dir_all(&folder);
            return Err(error);
        }
    };
    Ok(Made { workspace: workspace.map(|workspace| workspace.manifest), added, sdk: sdk.clone() })
}

/// Returns the absolute path of a folder that does not exist yet.
fn free(folder: &Path) -> Result<PathBuf, Error> {
    let unwritable = |cause| Error::Unwritable { path: folder.to_owned(), cause };
    let folder = std::path::absolute(folder).map_err(unwritable)?;
    if folder.symlink_metadata().is_ok() {
        return Err(Error::FolderTaken { folder });
    }
    Ok(folder)
}

/// Writes the files into a temporary folder beside `folder`, and renames it when all files are
/// written.
fn put(folder: &Path, files: &Files) -> Result<(), Error> {
    let unwritable = |path: &Path, cause| Error::Unwritable { path: path.to_owned(), cause };
    let parent = folder.parent().unwrap_or(folder);
    let draft = tempfile::Builder::new().prefix(".mortise-new-").tempdir_in(parent);
    let draft = draft.map_err(|cause| unwritable(folder, cause))?;
    let inner = draft.path().join("guest");
    for (path, text) in files {
        let file = inner.join(path);
        let written = fs::create_dir_all(file.parent().unwrap_or(&inner))
            .and_then(|()| fs::write(&file, text));
        written.map_err(|cause| unwritable(&folder.join(path), cause))?;
    }
    fs::rename(&inner, folder).map_err(|cause| unwritable(folder, cause))
}

fn describe(name: &str, subject: &Subject, folder: &Path, rest: &str) -> String {
    let kind = display_kind(&subject.kind);
    let folder = folder.display();
    format!("made `{name}` in {folder}: it reconciles {kind}\n{rest}next: mortise dev {folder}\n")
}

// === impl Made ===

impl Made {
    fn describe(&self) -> String {
        let workspace = match &self.workspace {
            Some(manifest) if self.added => {
                format!("added it to the workspace {}", manifest.display())
            }
            Some(manifest) => format!("it is a member of the workspace {}", manifest.display()),
            None => "it is a workspace of its own".to_owned(),
        };
        let sdk = match &self.sdk {
            Sdk::Path(path) => format!("by path: {}", path.display()),
            Sdk::Version(version) => format!("by version: {version}"),
        };
        format!("{workspace}\nit depends on mortise-sdk {sdk}\n")
    }
}

// === impl Sdk ===

impl Sdk {
    /// Returns the SDK in the checkout from which this program was built, if it still exists;
    /// otherwise the published SDK of this program's version.
    fn of_this_build() -> Self {
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/sdk");
        match beside.canonicalize() {
            Ok(path) if path.join("Cargo.toml").is_file() => Self::Path(path),
            _ => Self::Version(env!("CARGO_PKG_VERSION")),
        }
    }
}
