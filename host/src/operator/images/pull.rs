//! Resolves tags, and reads artifacts from the disk or pulls them from their registries.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use mortise_core::{api::Outgoing, resource::encoded};
use serde_json::Value;

use super::{Images, Pulled, Wanted};
use crate::{
    cluster::Cluster,
    oci::{
        Credentials, Digest, DockerConfig, Document, Error, Incoming, MAX_MODULE_BYTES, Reference,
        Repository, Sink, Store, Stored,
        artifact::{self, Parts},
        signature::{self, Requirement, Signature, verify_found, verify_manifest},
    },
    operator::fault::Fault,
    reason::Reason,
};

/// The keys of a pull secret's data.
const DATA: [&str; 2] = [".dockerconfigjson", ".dockercfg"];

/// Gets the artifacts of one Processor.
pub(super) struct Puller {
    pub(super) images: Images,
    pub(super) cluster: Cluster,
    pub(super) wanted: Wanted,
    pub(super) reference: Reference,
    pub(super) requirement: Requirement,
}

/// Takes the bytes of a blob that is on the disk: only their digest counts.
struct Nowhere;

// === impl Puller ===

impl Puller {
    /// Returns the digest that the tag names now.
    pub(super) async fn resolve(&self) -> Result<Digest, Failed> {
        // Without a store for the artifact, the registry is not asked.
        self.store()?;
        let _permit = self.images.permit_to_resolve(&self.wanted.account.namespace).await;
        let tag = self.reference.tag().unwrap_or_default();
        Ok(self.repository().await?.resolve(tag).await?)
    }

    /// Returns the digest that the tag was last known to name.
    pub(super) async fn last_known(&self) -> Option<Digest> {
        let store = self.images.0.options.store.as_ref()?;
        store.last_of_tag(&self.wanted.account.namespace, &self.reference).await
    }

    /// Returns an artifact by its digest. The registry is asked only if a part is missing on the
    /// disk, or if it has not served the artifact to this namespace.
    pub(super) async fn get(&self, manifest: Digest) -> Result<Pulled, Failed> {
        let store = self.store()?;
        let may = self.may_read(store, manifest).await;
        let on_disk = if may { self.on_disk(store, manifest).await } else { None };
        let (pulled, is_served) = match on_disk {
            Some(pulled) => (pulled, false),
            None => (self.pull(store, manifest).await?, true),
        };
        let artifact = (manifest, pulled.module.digest);
        let circumstances = (self.images.keeps(), (self.images.0.now)());
        store.record_access(self.place(), artifact, is_served, circumstances).await?;
        Ok(pulled)
    }

    /// Returns whether the repository has served a manifest or a layer to this namespace.
    async fn may_read(&self, store: &Store, digest: Digest) -> bool {
        let circumstances = (&self.images.keeps(), (self.images.0.now)());
        store.has_access(self.place(), digest, circumstances).await
    }

    fn place(&self) -> (&str, &Reference) {
        (&self.wanted.account.namespace, &self.reference)
    }

    /// Returns an artifact from the disk, if its signatures there suffice.
    async fn on_disk(&self, store: &Store, manifest: Digest) -> Option<Pulled> {
        let bytes = store.manifest(manifest)?;
        let parts = artifact::parse(&bytes).ok()?;
        let signatures = self.kept_signatures(store, manifest);
        if !self.is_enough(manifest, &signatures) {
            return None;
        }
        let module = store.module(&parts.layer).await?;
        Some(self.pulled(manifest, module, signatures))
    }

    async fn pull(&self, store: &Store, manifest: Digest) -> Result<Pulled, Failed> {
        let _permit = self.images.permit_to_pull(&self.wanted.account.namespace).await;
        let repository = self.repository().await?;
        let document = repository.manifest(&manifest.to_string()).await?;
        let parts = artifact::parse(&document.bytes)?;
        // Checked before the module is pulled, which is larger: unsigned modules are not pulled.
        let signatures = self.signatures(store, &repository, manifest).await?;
        let module = self.pull_module(store, &repository, document, &parts, &signatures).await?;
        Ok(self.pulled(manifest, module, signatures))
    }

    async fn pull_module(
        &self,
        store: &Store,
        repository: &Repository,
        Document { digest: manifest, bytes }: Document,
        Parts { layer, .. }: &Parts,
        signatures: &[Signature],
    ) -> Result<Stored, Failed> {
        if layer.size > MAX_MODULE_BYTES {
            let what = "the module".to_owned();
            return Err(Error::TooLarge { what, found: layer.size, limit: MAX_MODULE_BYTES }.into());
        }
        let is_signed = !self.requirement.is_nothing();
        let signatures = is_signed.then(|| serde_json::to_vec(signatures).unwrap_or_default());
        let incoming = Incoming { manifest: bytes, signatures, layer: layer.clone() };
        let namespace = &self.wanted.account.namespace;
        let room = store.admit(namespace, incoming, self.images.keeps()).await?;
        if let Some(stored) = store.module(layer).await {
            // Whoever knows a digest must not get bytes that only others may pull.
            if !self.may_read(store, layer.digest).await {
                repository.blob(layer, MAX_MODULE_BYTES, &mut Nowhere).await?;
            }
            return Ok(stored);
        }
        let mut writer = store.begin(Some(room)).await?;
        repository.blob(layer, MAX_MODULE_BYTES, &mut writer).await?;
        let stored = writer.finish(layer.digest).await?;
        tracing::info!(image = %self.reference, %manifest, module = %layer.digest, bytes = layer.size, "pulled");
        Ok(stored)
    }

    /// Returns the signatures of a manifest, if any are required; from the registry if those on the
    /// disk do not suffice.
    async fn signatures(
        &self,
        store: &Store,
        repository: &Repository,
        manifest: Digest,
    ) -> Result<Vec<Signature>, Failed> {
        if self.requirement.is_nothing() {
            return Ok(Vec::new());
        }
        let kept = self.kept_signatures(store, manifest);
        if self.is_enough(manifest, &kept) {
            return Ok(kept);
        }
        let found = signature::fetch(repository, manifest).await?;
        let requirement = self.requirement.clone();
        // A tenant chooses the registry, and so the work: not on a thread that runs other tasks.
        let verified =
            tokio::task::spawn_blocking(move || verify_found(manifest, found, &requirement.keys()));
        let (verified, found) = verified.await.expect("a check of signatures does not panic");
        self.requirement.check(&verified).map_err(|unsigned| {
            Failed::Unsigned(Fault::unsigned(&self.reference.at(manifest).to_string(), &unsigned))
        })?;
        Ok(found)
    }

    fn kept_signatures(&self, store: &Store, manifest: Digest) -> Vec<Signature> {
        let kept = if self.requirement.is_nothing() { None } else { store.signatures(manifest) };
        kept.and_then(|kept| serde_json::from_slice(&kept).ok()).unwrap_or_default()
    }

    fn is_enough(&self, manifest: Digest, signatures: &[Signature]) -> bool {
        let verified = verify_manifest(manifest, signatures, &self.requirement.keys());
        self.requirement.check(&verified).is_ok()
    }

    fn pulled(&self, manifest: Digest, module: Stored, signatures: Vec<Signature>) -> Pulled {
        Pulled { reference: self.reference.at(manifest), manifest, module, signatures }
    }

    fn store(&self) -> Result<&Store, Failed> {
        self.images.0.options.store.as_ref().ok_or_else(|| {
            let why =
                "this host has no folder for modules from registries; give it one with --cache";
            Failed::Fault(Fault::new(Reason::CacheMissing, self.not_pulled(why)))
        })
    }

    fn not_pulled(&self, why: &str) -> String {
        format!("`{}` cannot be pulled: {why}", self.reference)
    }

    async fn repository(&self) -> Result<Repository, Failed> {
        let credentials = self.credentials().await.map_err(Failed::Fault)?;
        let registries = &self.images.0.options.registries;
        Ok(registries.repository(&self.reference, credentials, false))
    }

    /// Returns the credentials for the repository in the first pull secret that has some.
    async fn credentials(&self) -> Result<Option<Credentials>, Fault> {
        for name in &self.wanted.secrets {
            if let Some(credentials) = self.in_secret(name).await? {
                return Ok(Some(credentials));
            }
        }
        Ok(None)
    }

    /// Reads a pull secret as the account of the Processor: the host itself may read none.
    async fn in_secret(&self, name: &str) -> Result<Option<Credentials>, Fault> {
        let account = &self.wanted.account;
        let namespace = &account.namespace;
        let path = format!("/api/v1/namespaces/{}/secrets/{}", encoded(namespace), encoded(name));
        let answer = self.cluster.acting_as(account).send(&Outgoing::get(path)).await;
        let secret = answer.map_err(|refusal| {
            let why = if refusal.code == 403 {
                format!(
                    "the ServiceAccount `{}` may not get the pull secret `{name}`: bind it to a Role in the namespace `{namespace}` with apiGroups [\"\"], resources [secrets], resourceNames [{name}], verbs [get]",
                    account.name
                )
            } else {
                format!("the pull secret `{name}` cannot be read: {refusal}")
            };
            Fault::passing(Reason::PullSecretUnreadable, self.not_pulled(&why))
        })?;
        let data = secret.body.get("data");
        let text = DATA.iter().find_map(|key| data?.get(*key).and_then(Value::as_str));
        let invalid = |why: String| {
            let why = format!("the pull secret `{name}`: {why}");
            Fault::passing(Reason::PullSecretInvalid, self.not_pulled(&why))
        };
        let text = text.ok_or_else(|| {
            invalid("it holds no credentials; one of the type kubernetes.io/dockerconfigjson is accepted, as `kubectl create secret docker-registry` makes it".to_owned())
        })?;
        let text = STANDARD.decode(text).map_err(|_| invalid("it is no base64".to_owned()))?;
        let config = DockerConfig::parse(&text).map_err(|error| invalid(error.to_string()))?;
        config.credentials(&self.reference).map_err(|error| invalid(error.to_string()))
    }
}

// === impl Nowhere ===

impl Sink for Nowhere {
    async fn take(&mut self, _: Bytes) -> Result<(), Error> {
        Ok(())
    }
}

/// The reason why an artifact is not available.
#[derive(Debug)]
pub(super) enum Failed {
    /// An error of the registry, of its content, or of the disk.
    Registry(Error),
    /// A required signature is missing.
    Unsigned(Fault),
    /// This host cannot load the artifact.
    Unusable(Fault),
    /// Any other fault, such as a pull secret that cannot be read.
    Fault(Fault),
}

// === impl Failed ===

impl Failed {
    /// Returns whether the registry is unavailable, so that a pulled artifact stays in use.
    pub(super) fn is_away(&self) -> bool {
        matches!(self, Self::Registry(error) if error.is_registry_away())
    }

    /// Returns whether the artifact does not exist, is no component, or lacks a signature: it does
    /// not help to ask for it again.
    pub(super) fn is_of_no_use(&self) -> bool {
        match self {
            Self::Registry(error) => {
                matches!(error, Error::Refused { status: 404, .. } | Error::NotWasm { .. })
            }
            Self::Unsigned(_) | Self::Unusable(_) => true,
            Self::Fault(_) => false,
        }
    }

    /// Returns the fault for the condition.
    pub(super) fn fault(&self, reference: &Reference) -> Fault {
        match self {
            Self::Registry(error) => Fault::of_registry(reference, error),
            Self::Unsigned(fault) | Self::Unusable(fault) | Self::Fault(fault) => fault.clone(),
        }
    }

    /// Returns the message, for a condition of an artifact that is still in use.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Registry(error) => mortise_core::error_chain::whole(error),
            Self::Unsigned(fault) | Self::Unusable(fault) | Self::Fault(fault) => {
                fault.message.clone()
            }
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Registry(error)
    }
}
