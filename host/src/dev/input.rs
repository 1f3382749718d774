//! What the command was given, read and checked before anything is built.

use std::path::{Path, PathBuf};

use super::objects;
use crate::{args::DevArgs, desk, files, guest::Guest, print::Secrets};

/// What the command was given.
pub(super) struct Input {
    /// The guests, in the order of the command line.
    pub(super) guests: Vec<Guest>,
    /// The CRDs that they need, and those that were named.
    pub(super) crds: Vec<files::Object>,
    /// Objects that are there at the start.
    pub(super) load: Vec<files::Object>,
    /// Objects that are applied at the start.
    pub(super) apply: Vec<files::Object>,
    /// Where objects are saved at the end.
    pub(super) save: Option<PathBuf>,
    /// The guests' configurations, in their order.
    pub(super) configs: Vec<String>,
    /// Whether workloads are marked ready.
    pub(super) ready: bool,
    /// Whether the values of Secrets may be seen.
    pub(super) secrets: Secrets,
}

impl Input {
    /// Reads all that the arguments name.
    ///
    /// # Errors
    ///
    /// What is not there, does not parse, or is no guest.
    pub(super) fn open(args: &DevArgs) -> anyhow::Result<Self> {
        let guests: Result<Vec<Guest>, _> =
            args.guests.iter().map(|folder| Guest::open(folder)).collect();
        let guests = guests?;
        once(&args.guests)?;
        let named = guests.iter().flat_map(|guest| &guest.crds);
        let crds = open_all(named.chain(&args.crds))?;
        // Who brings a state of their own wants that and no more.
        let examples: Vec<&PathBuf> = match &args.apply {
            Some(folder) => vec![folder],
            None if args.load.is_some() => Vec::new(),
            None => guests.iter().filter_map(|guest| guest.examples.as_ref()).collect(),
        };
        let apply = open_all(examples)?;
        let load = open_all(args.load.as_ref())?;
        if let Some(folder) = &args.save {
            objects::prepare(folder)?;
        }
        Ok(Self {
            crds,
            load,
            apply,
            save: args.save.clone(),
            configs: configs(&guests, &args.config)?,
            ready: args.ready,
            secrets: Secrets::from(args.show_secrets),
            guests,
        })
    }
}

/// The configuration of each guest: `FILE` where there is one guest, else `PACKAGE=FILE`.
fn configs(guests: &[Guest], given: &[String]) -> anyhow::Result<Vec<String>> {
    let mut files: Vec<Option<&Path>> = vec![None; guests.len()];
    for text in given {
        let named = text.split_once('=').and_then(|(package, file)| {
            Some((guests.iter().position(|guest| guest.package == package)?, file))
        });
        let (guest, file) = match named {
            Some(named) => named,
            None if guests.len() == 1 => (0, text.as_str()),
            None => anyhow::bail!(
                "`--config {text}` does not say whose: PACKAGE=FILE is expected, PACKAGE being one of {}",
                packages(guests)
            ),
        };
        if let Some(place) = files.get_mut(guest)
            && let Some(other) = place.replace(Path::new(file))
        {
            anyhow::bail!(
                "`--config {text}`: `{}` was given before: one file for each guest is expected",
                other.display()
            );
        }
    }
    Ok(files.into_iter().map(desk::config).collect::<Result<_, _>>()?)
}

fn packages(guests: &[Guest]) -> String {
    let names: Vec<String> = guests.iter().map(|guest| format!("`{}`", guest.package)).collect();
    names.join(", ")
}

fn open_all<'a>(
    paths: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<Vec<files::Object>, files::Error> {
    let objects: Result<Vec<_>, _> = paths.into_iter().map(|path| files::open(path)).collect();
    Ok(objects?.concat())
}

/// No folder may be given twice.
fn once(folders: &[PathBuf]) -> anyhow::Result<()> {
    let place = |folder: &Path| folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    for (index, folder) in folders.iter().enumerate() {
        let is_same = |other: &PathBuf| place(other) == place(folder);
        anyhow::ensure!(
            !folders.iter().take(index).any(is_same),
            "the guest `{}` is given twice: name each once",
            folder.display()
        );
    }
    Ok(())
}
