//! The input of the command, read and checked before anything is built.

use std::path::{Path, PathBuf};

use super::{objects, remote::RemoteInput};
use crate::{
    args::{ClusterFolder, DevArgs, ModuleArgs},
    egress::Grant,
    files,
    guest::Guest,
    local,
};

/// The input of the command.
pub(super) struct Input {
    /// The guests, in the order of the command line.
    pub(super) guests: Vec<Guest>,
    /// The CRDs that the guests need, and those given on the command line.
    pub(super) crds: Vec<files::Object>,
    /// Objects that exist from the start.
    pub(super) load: Vec<files::Object>,
    /// Objects that are applied at the start.
    pub(super) apply: Vec<files::Object>,
    /// The folder into which objects are saved at the end, if any.
    pub(super) save: Option<PathBuf>,
    /// The guests' configurations, in the order of the guests.
    pub(super) configs: Vec<String>,
    /// The libraries of the guests, and the limits of their calls.
    pub(super) with: ModuleArgs,
    /// True if workloads are marked ready.
    pub(super) ready: bool,
    /// The other clusters.
    pub(super) remotes: Vec<RemoteInput>,
    /// The systems outside of the cluster that the guests may call, besides those that their
    /// companions name.
    pub(super) egress: Vec<Grant>,
    /// True if secret values are shown.
    pub(super) show_secrets: bool,
}

impl Input {
    /// Reads all files and folders that the arguments name.
    ///
    /// # Errors
    ///
    /// Fails for a file or folder that does not exist, does not parse, or is not a guest.
    pub(super) fn open(args: &DevArgs) -> anyhow::Result<Self> {
        let guests: Result<Vec<Guest>, _> =
            args.guests.iter().map(|folder| Guest::open(folder)).collect();
        let guests = guests?;
        once(&args.guests)?;
        args.with.limits().map_err(anyhow::Error::msg)?;
        let named = guests.iter().flat_map(|guest| &guest.crds);
        let crds = open_all(named.chain(&args.crds))?;
        // A user who loads a saved state does not want examples in addition.
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
            with: args.with.clone(),
            ready: args.ready,
            egress: args.egress.iter().map(Grant::given).collect::<Result<_, _>>()?,
            remotes: remotes(&guests, &args.cluster)?,
            show_secrets: args.show_secrets,
            guests,
        })
    }
}

/// Reads the objects of the other clusters: those of the guests, and those of the command line in
/// place of one of the same name.
fn remotes(guests: &[Guest], given: &[ClusterFolder]) -> anyhow::Result<Vec<RemoteInput>> {
    let mut clusters: Vec<ClusterFolder> = Vec::new();
    for cluster in guests.iter().flat_map(|guest| &guest.clusters).chain(given) {
        clusters.retain(|held| held.name != cluster.name);
        clusters.push(cluster.clone());
    }
    let read = |cluster: ClusterFolder| {
        anyhow::Ok(RemoteInput { objects: files::open(&cluster.objects)?, cluster })
    };
    clusters.into_iter().map(read).collect()
}

/// Returns the configuration of each guest, given as `FILE` if there is one guest, else as
/// `PACKAGE=FILE`.
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
    Ok(files.into_iter().map(local::config).collect::<Result<_, _>>()?)
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

/// Fails if a folder is given twice.
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
