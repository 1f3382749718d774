//! The modules of one Processor: read from files and registries, and verified.
//!
//! *Guarantee.* Only modules with the signatures that the Processor and the host require are
//! loaded. A version that is restored later is checked again.

use mortise_core::grant::rights::Account;

use super::Controller;
use crate::{
    oci::{
        Digest, Reference,
        signature::{
            PublicKey, Requirement, Verified, policy::Unsigned, verify_file, verify_manifest,
        },
    },
    operator::{
        api::{Library, LibraryStatus, Module, Processor, ProcessorSpec, ProcessorStatus},
        egress,
        fault::Fault,
        images::{Image, Pulled, Wanted},
        recipe::Digests,
        source::{self, ReadModule, Source, Stamp},
    },
    wasm::Content,
};

/// The modules that a spec names, each with its required signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// The module, and then the libraries.
    modules: Vec<(Source, Requirement)>,
}

/// The modules as they were last read.
#[derive(Debug)]
pub(super) struct LastRead {
    named: Named,
    stamps: Vec<Stamp>,
    pub(super) digests: Digests,
    pub(super) origins: Origins,
}

/// The origins of the modules of a version, and their verified signatures.
#[derive(Debug, Clone, Default)]
pub(super) struct Origins {
    modules: Vec<Origin>,
}

#[derive(Debug, Clone)]
struct Origin {
    /// The name of the module in policies.
    name: String,
    verified: Verified,
    image: Option<Reference>,
}

// === impl Controller ===

impl Controller {
    /// Returns the modules that a spec names, each with its required signatures. Fails if the host
    /// does not support a field of the spec.
    pub(super) fn named(&self, spec: &ProcessorSpec) -> Result<Named, Fault> {
        Fault::unreadable(spec).map_or(Ok(()), Err)?;
        Fault::check_clusters(spec, &self.shared.host.options().clusters.servers)?;
        egress::check(spec, &self.shared.host.options().outbound)?;
        let (sources, keys) = (source::sources(spec)?, source::keys(spec)?);
        let modules = sources.into_iter().map(|source| {
            let requirement = self.requirement(&source.name(), keys.as_deref());
            let requirement =
                requirement.map_err(|unsigned| Fault::unsigned(&source.to_string(), &unsigned))?;
            Ok((source, requirement))
        });
        Ok(Named { modules: modules.collect::<Result<_, Fault>>()? })
    }

    fn requirement(&self, name: &str, keys: Option<&[PublicKey]>) -> Result<Requirement, Unsigned> {
        Requirement::of(name, keys, self.shared.images.policy())
    }

    /// Returns whether the file of the module or of a library differs from the one that was read.
    pub(super) async fn module_has_moved(&self, newest: &Processor) -> bool {
        let Ok(named) = self.named(&newest.spec) else { return false };
        let read = self.versions.read.as_ref();
        self.stamps(&named).await.as_ref() != read.map(|read| &read.stamps)
    }

    /// Returns the stamps of modules; `None` if one of them cannot be read.
    async fn stamps(&self, named: &Named) -> Option<Vec<Stamp>> {
        let mut stamps = Vec::new();
        for (at, (source, requirement)) in named.modules.iter().enumerate() {
            stamps.push(match source {
                Source::Path(path) => {
                    let modules = &self.shared.modules;
                    let signature = if requirement.is_nothing() {
                        None
                    } else {
                        modules.signature_stamp(path).await
                    };
                    Stamp::File(modules.stamp(path).await?, signature)
                }
                Source::Image(_) => match self.follower.state(at)? {
                    Image::Here { pulled, .. } => Stamp::Image(pulled.manifest),
                    Image::Coming | Image::Failed(_) => return None,
                },
            });
        }
        Some(stamps)
    }

    /// Follows the artifacts that a spec names. Fails if one of them is not pulled.
    pub(super) fn follow(
        &mut self,
        named: &Named,
        spec: &ProcessorSpec,
        account: &Account,
    ) -> Result<(), Fault> {
        let image = |(source, requirement): &(Source, Requirement)| {
            Some((source.image()?.clone(), requirement.clone()))
        };
        let wanted = Wanted {
            images: named.modules.iter().map(image).collect(),
            account: account.clone(),
            secrets: spec.image_pull_secrets.iter().map(|secret| secret.name.clone()).collect(),
        };
        let status = &self.last_status;
        let last = |at: usize, reference: &Reference| last_run(status, spec, at, reference);
        let images = self.follower.want(wanted, last);
        let mut coming = Ok(());
        for state in images.into_iter().zip(&named.modules) {
            match state {
                (Some(Image::Failed(fault)), _) => return Err(fault),
                (Some(Image::Coming), (Source::Image(reference), _)) => {
                    coming = Err(Fault::pulling(reference));
                }
                _ => {}
            }
        }
        coming
    }

    /// Returns the last read if it was of these modules and their stamps have not changed.
    pub(super) async fn digests_as_read(&self, named: &Named) -> Option<&LastRead> {
        let read = self.versions.read.as_ref().filter(|read| read.named == *named)?;
        (self.stamps(named).await? == read.stamps).then_some(read)
    }

    /// Reads and verifies the module and the libraries.
    pub(super) async fn read_modules(&mut self, named: &Named) -> Result<Vec<ReadModule>, Fault> {
        self.versions.read = None;
        let mut modules = Vec::new();
        for (at, (source, requirement)) in named.modules.iter().enumerate() {
            let (module, found) = match source {
                Source::Path(path) => self.read_file(path, requirement).await?,
                Source::Image(reference) => match self.follower.state(at) {
                    Some(Image::Here { pulled, .. }) => read_image(&pulled, requirement),
                    Some(Image::Failed(fault)) => return Err(fault),
                    Some(Image::Coming) | None => return Err(Fault::pulling(reference)),
                },
            };
            // Every loaded module passes this check.
            let checked = requirement.check(&found);
            checked.map_err(|unsigned| Fault::unsigned(&source.to_string(), &unsigned))?;
            modules.push(ReadModule { verified: found, ..module });
        }
        let digests = Digests::of(modules.iter().map(|module| module.digest))?;
        let origin = |((source, _), module): (&(Source, Requirement), &ReadModule)| Origin {
            name: source.name(),
            verified: module.verified.clone(),
            image: module.image.clone(),
        };
        self.versions.read = Some(LastRead {
            named: named.clone(),
            stamps: modules.iter().map(|module| module.stamp.clone()).collect(),
            digests,
            origins: Origins { modules: named.modules.iter().zip(&modules).map(origin).collect() },
        });
        Ok(modules)
    }

    async fn read_file(
        &self,
        path: &str,
        requirement: &Requirement,
    ) -> Result<(ReadModule, Verified), Fault> {
        let modules = &self.shared.modules;
        // Reads the signature first: a module that is replaced meanwhile does not match it.
        let signature =
            if requirement.is_nothing() { None } else { modules.signature(path).await? };
        let read = modules.read(path).await?;
        let found = match &signature {
            Some((signature, _)) => {
                let (bytes, signature) = (read.bytes.clone(), signature.clone());
                let requirement = requirement.clone();
                // Each key hashes the whole file: not on a thread that runs other tasks.
                let verified = tokio::task::spawn_blocking(move || {
                    verify_file(&bytes, &signature, &requirement.keys())
                });
                verified.await.expect("a check of a signature does not panic")
            }
            None => Verified::default(),
        };
        let module = ReadModule {
            content: Content::Memory(read.bytes),
            digest: read.digest,
            stamp: Stamp::File(read.stamp, signature.map(|(_, stamp)| stamp)),
            verified: Verified::default(),
            image: None,
        };
        Ok((module, found))
    }

    /// Fails if a version may not be restored: it lacks signatures that the spec and the host
    /// require now.
    pub(super) fn may_come_back(&self, origins: &Origins) -> Result<(), Fault> {
        let newest = self.newest.borrow();
        let keys = newest.as_ref().map(|newest| source::keys(&newest.spec)).transpose()?.flatten();
        origins.modules.iter().try_for_each(|origin| {
            let requirement = self.requirement(&origin.name, keys.as_deref());
            let checked = requirement.and_then(|required| required.check(&origin.verified));
            checked.map_err(|unsigned| Fault::unsigned(&origin.name, &unsigned))
        })
    }
}

/// Returns the manifest that ran last under a tag, from the status: a host runs that one first
/// after a restart.
fn last_run(
    status: &ProcessorStatus,
    spec: &ProcessorSpec,
    at: usize,
    reference: &Reference,
) -> Option<Digest> {
    let image = match at.checked_sub(1).and_then(|at| spec.libraries.get(at)) {
        None => status.module.as_ref()?.image.as_ref(),
        Some(library) => {
            let mut libraries = status.libraries.iter();
            libraries.find(|of| of.interface == library.interface)?.image.as_ref()
        }
    };
    let last: Reference = image?.parse().ok()?;
    last.digest().filter(|_| last.by_tag().as_ref() == Some(reference))
}

/// Returns the spec with the artifacts of the last status in place of its own; `None` if it names
/// them already, cannot be read, or if a module came from a file, whose former content is not kept.
pub(super) fn spec_of_last_version(
    spec: &ProcessorSpec,
    status: &ProcessorStatus,
) -> Option<ProcessorSpec> {
    if spec.unreadable.is_some() {
        return None;
    }
    let module = image_module(status.module.as_ref()?.image.as_ref())?;
    let library = |last: &LibraryStatus| {
        let named = spec.libraries.iter().find(|named| named.interface == last.interface);
        let limits = named.map(|named| named.limits.clone()).unwrap_or_default();
        let module = image_module(last.image.as_ref())?;
        Some(Library { interface: last.interface.clone(), module, limits })
    };
    let libraries = status.libraries.iter().map(library).collect::<Option<Vec<_>>>()?;
    let last = ProcessorSpec { module, libraries, ..spec.clone() };
    (!names(spec, &last)).then_some(last)
}

/// Returns an artifact as a spec names it.
fn image_module(image: Option<&String>) -> Option<Module> {
    Some(Module { image: Some(image?.clone()), path: None })
}

/// Returns whether a spec names the artifacts of another one: by the same references, or by tags,
/// under which a new process runs the artifact that ran last first.
fn names(spec: &ProcessorSpec, last: &ProcessorSpec) -> bool {
    let is_named = |named: &Module, last: &Module| {
        let reference = |module: &Module| module.image.as_ref()?.parse::<Reference>().ok();
        let Some((named, last)) = reference(named).zip(reference(last)) else { return false };
        named == last || last.by_tag() == Some(named)
    };
    spec.libraries.len() == last.libraries.len()
        && is_named(&spec.module, &last.module)
        && spec.libraries.iter().zip(&last.libraries).all(|(named, last)| {
            named.interface == last.interface && is_named(&named.module, &last.module)
        })
}

/// Returns a pulled module, and the keys by which it is signed.
fn read_image(pulled: &Pulled, requirement: &Requirement) -> (ReadModule, Verified) {
    let Pulled { reference, manifest, module, signatures } = pulled;
    let found = verify_manifest(*manifest, signatures, &requirement.keys());
    let (file, digest, length) = (module.file.clone(), module.digest, module.length);
    let read = ReadModule {
        content: Content::File { file, digest, length },
        digest,
        stamp: Stamp::Image(*manifest),
        verified: Verified::default(),
        image: Some(reference.clone()),
    };
    (read, found)
}

// === impl Named ===

impl Named {
    /// Returns the sources, the module's first.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.modules.iter().map(|(source, _)| source)
    }
}

// === impl Origins ===

impl Origins {
    /// Returns the artifacts that the modules come from, the module's first.
    pub(super) fn images(&self) -> impl Iterator<Item = Option<&Reference>> {
        self.modules.iter().map(|origin| origin.image.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const TAG: &str = "example.com/a/rules:1";

    fn at(image: &str, of: u8) -> String {
        format!("{image}@{}", Digest::of(&[of]))
    }

    /// Returns the artifacts that a new process runs before those of the spec, if any: `modules` are
    /// the module of the spec and its library, `last` those of the status.
    fn run_first(modules: [Value; 2], last: [Option<String>; 2]) -> Option<[Option<String>; 2]> {
        let [module, library] = modules;
        let limits = json!({"memory": "16Mi"});
        let spec = json!({
            "module": module, "serviceAccountName": "a",
            "libraries": [{"interface": "a:b/c", "module": library, "limits": limits}],
        });
        let [module, library] = last;
        let status = json!({
            "module": {"image": module}, "libraries": [{"interface": "a:b/c", "image": library}],
        });
        let spec: ProcessorSpec = serde_json::from_value(spec).unwrap();
        let last = spec_of_last_version(&spec, &serde_json::from_value(status).unwrap())?;
        let [library] = &last.libraries[..] else { panic!("{:?}", last.libraries) };
        assert_eq!(library.limits.memory, "16Mi");
        Some([last.module.image, library.module.image.clone()])
    }

    #[test]
    fn a_new_process_first_runs_the_last_artifacts_unless_the_spec_names_them() {
        let image = |name: &str| json!({"image": name});
        let library = "example.com/a/library:1";
        let (rules_1, library_1) = (at(TAG, 1), at(library, 1));
        let ran = || [Some(rules_1.clone()), Some(library_1.clone())];
        let same = [
            [image(TAG), image(library)],
            [image(&rules_1), image(library)],
            [image(&rules_1), image(&library_1)],
        ];
        for modules in same {
            assert_eq!(run_first(modules.clone(), ran()), None, "{modules:?}");
        }
        let other = [
            [image("example.com/a/rules:2"), image(library)],
            [image("example.com/b/rules:1"), image(library)],
            [image(&at(TAG, 2)), image(library)],
            [image(TAG), image("example.com/a/library:2")],
            [image("no reference"), image(library)],
            [json!({"path": "a.wasm"}), image(library)],
        ];
        for modules in other {
            assert_eq!(run_first(modules.clone(), ran()), Some(ran()), "{modules:?}");
        }
        // Without a tag there is nothing under which the same artifact would be run first.
        let untagged = [at("example.com/a/rules", 1), at("example.com/a/library", 1)];
        let by_digest = untagged.clone().map(|of| image(&of));
        let untagged = untagged.map(Some);
        assert_eq!(run_first(by_digest.clone(), untagged.clone()), None);
        for module in [image("no reference"), json!({"path": "a.wasm"})] {
            let modules = [module, by_digest[1].clone()];
            assert_eq!(run_first(modules, untagged.clone()), Some(untagged.clone()));
        }
        let next = [image("example.com/a/rules:2"), image(library)];
        for of_files in [[None, Some(library_1.clone())], [Some(rules_1), None]] {
            assert_eq!(run_first(next.clone(), of_files), None);
        }
    }

    #[test]
    fn a_library_that_the_spec_does_not_name_any_more_comes_back_with_the_version_that_called_it() {
        let spec = json!({"module": {"image": "example.com/a/rules:2"}, "serviceAccountName": "a"});
        let (module, library) = (at(TAG, 1), at("example.com/a/library:1", 1));
        let status = json!({
            "module": {"image": module}, "libraries": [{"interface": "a:b/c", "image": library}],
        });
        let spec: ProcessorSpec = serde_json::from_value(spec).unwrap();
        let status: ProcessorStatus = serde_json::from_value(status).unwrap();
        let last = spec_of_last_version(&spec, &status).unwrap();
        assert_eq!(last.libraries[0].module.image, Some(library));
        assert_eq!(spec_of_last_version(&spec, &ProcessorStatus::default()), None);
        let unreadable = Some((crate::reason::Reason::SpecInvalid, "no field `a`".to_owned()));
        let unreadable = ProcessorSpec { unreadable, ..ProcessorSpec::default() };
        assert_eq!(spec_of_last_version(&unreadable, &status), None);
    }
}
