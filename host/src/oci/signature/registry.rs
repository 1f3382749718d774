//! Signatures of artifacts in a registry, stored as cosign does.

use std::collections::BTreeMap;

use super::{Signature, bundle};
use crate::oci::{
    Blob, Digest, Error, Repository,
    artifact::{self, Descriptor, Manifest},
    error::if_found,
};

/// The maximum number of signatures of an artifact that are read, of both formats together. Each
/// costs a request or two, and a check by every key.
const MAX_SIGNATURES: usize = 32;
/// The largest signature.
const MAX_SIGNATURE_BYTES: u64 = 256 << 10;
/// The maximum size of all signatures of an artifact together. One of cosign's has 1 to 5 KB.
const MAX_ALL_BYTES: u64 = 1 << 20;
const SIMPLE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIMPLE_SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
const EMPTY_BYTES: &[u8] = b"{}";

/// The format of a signature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// Cosign 3's: a bundle, which refers to the artifact.
    #[default]
    Bundle,
    /// Cosign 2's: under the tag `sha256-….sig`; of a file the plain signature.
    Tag,
}

/// The signatures of one artifact that were read so far, within the limits.
struct Fetched<'a> {
    repository: &'a Repository,
    /// The number of blobs that were requested.
    requested: usize,
    /// Their size together.
    bytes: u64,
    found: Vec<Signature>,
    /// The error of the first part that is too large, or not as its digest says.
    damaged: Option<Error>,
}

/// Returns the signatures of a manifest, of both formats; possibly none. The first 32 are read, of
/// together 1 MiB at most. One that is damaged hides no other.
///
/// # Errors
///
/// Fails if the registry does not answer, gives an invalid answer, or has damaged signatures only.
pub async fn fetch(repository: &Repository, of: Digest) -> Result<Vec<Signature>, Error> {
    let mut fetched =
        Fetched { repository, requested: 0, bytes: 0, found: Vec::new(), damaged: None };
    let referrers = repository.referrers(of).await?;
    let is_bundle = |referrer: &&Descriptor| {
        // A hand-made list may lack the type.
        referrer.artifact_type.as_deref().is_none_or(|of| of == bundle::MEDIA_TYPE)
    };
    for referrer in referrers.iter().filter(is_bundle).take(MAX_SIGNATURES) {
        // A registry that removes unused blobs may keep the list of them; the others still count.
        let document = repository.manifest(&referrer.digest.to_string()).await;
        let Some(document) = fetched.usable(document)? else { continue };
        let Ok(manifest) = serde_json::from_slice::<Manifest>(&document.bytes) else { continue };
        for layer in manifest.layers.iter().filter(|of| of.media_type == bundle::MEDIA_TYPE) {
            fetched.add(layer, Signature::Bundle).await?;
        }
    }
    let manifest = tagged(repository, of).await?;
    let layers = manifest.iter().flat_map(|manifest| &manifest.layers);
    for layer in layers.filter(|layer| layer.media_type == SIMPLE) {
        let annotations = layer.annotations.as_ref();
        let Some(signature) = annotations.and_then(|of| of.get(SIMPLE_SIGNATURE)) else { continue };
        let simple = |payload| Signature::Simple { payload, signature: signature.clone() };
        fetched.add(layer, simple).await?;
    }
    match fetched.damaged {
        Some(damaged) if fetched.found.is_empty() => Err(damaged),
        _ => Ok(fetched.found),
    }
}

// === impl Fetched ===

impl Fetched<'_> {
    /// Returns a part of a signature, unless it is missing or damaged.
    fn usable<T>(&mut self, part: Result<T, Error>) -> Result<Option<T>, Error> {
        match if_found(part) {
            Err(
                damaged @ (Error::OtherDigest { .. }
                | Error::OtherLength { .. }
                | Error::TooLarge { .. }),
            ) => {
                self.damaged.get_or_insert(damaged);
                Ok(None)
            }
            // A registry that breaks off may not do so the next time.
            part => part,
        }
    }

    /// Reads the signature in a layer, unless that would exceed a limit.
    async fn add(
        &mut self,
        layer: &Descriptor,
        of: impl FnOnce(String) -> Signature,
    ) -> Result<(), Error> {
        let bytes = self.bytes.saturating_add(layer.size);
        let fits = layer.size <= MAX_SIGNATURE_BYTES && bytes <= MAX_ALL_BYTES;
        if !fits || self.requested >= MAX_SIGNATURES {
            return Ok(());
        }
        (self.requested, self.bytes) = (self.requested + 1, bytes);
        let text = self.repository.small_blob(layer).await;
        let text = self.usable(text)?;
        self.found.extend(text.and_then(|text| String::from_utf8(text).ok()).map(of));
        Ok(())
    }
}

/// Stores a signature of a manifest beside the existing ones.
///
/// # Errors
///
/// Fails if the registry does not answer or refuses.
pub async fn push(
    repository: &Repository,
    of: &Descriptor,
    signature: &Signature,
) -> Result<(), Error> {
    match signature {
        Signature::Bundle(text) => {
            let layer = Descriptor::of(bundle::MEDIA_TYPE, text.as_bytes());
            let config = Descriptor::of(EMPTY, EMPTY_BYTES);
            repository.push_blob(&layer, Blob::Bytes(text.as_bytes())).await?;
            repository.push_blob(&config, Blob::Bytes(EMPTY_BYTES)).await?;
            let annotations = BTreeMap::from([
                ("dev.sigstore.bundle.content".to_owned(), "dsse-envelope".to_owned()),
                ("dev.sigstore.bundle.predicateType".to_owned(), bundle::PREDICATE.to_owned()),
            ]);
            let manifest = manifest(config, vec![layer]);
            let manifest = Manifest {
                artifact_type: Some(bundle::MEDIA_TYPE.to_owned()),
                subject: Some(of.clone()),
                annotations: Some(annotations),
                ..manifest
            };
            repository.push_referrer(of.digest, &json(&manifest)?).await
        }
        Signature::Simple { payload, signature } => {
            let mut layer = Descriptor::of(SIMPLE, payload.as_bytes());
            repository.push_blob(&layer, Blob::Bytes(payload.as_bytes())).await?;
            let annotation = (SIMPLE_SIGNATURE.to_owned(), signature.clone());
            layer.annotations = Some([annotation].into());
            let known = tagged(repository, of.digest).await?;
            let mut layers = known.map(|known| known.layers).unwrap_or_default();
            layers.push(layer);
            let config = config_of(&layers);
            let descriptor = Descriptor::of(OCI_CONFIG, &config);
            repository.push_blob(&descriptor, Blob::Bytes(&config)).await?;
            let manifest = json(&manifest(descriptor, layers))?;
            repository.push_manifest(&tag(of.digest), artifact::MANIFEST, &manifest).await
        }
    }
}

fn manifest(config: Descriptor, layers: Vec<Descriptor>) -> Manifest {
    Manifest {
        schema_version: 2,
        media_type: Some(artifact::MANIFEST.to_owned()),
        artifact_type: None,
        config,
        layers,
        subject: None,
        annotations: None,
    }
}

/// Returns an image configuration without a program, which registries require.
fn config_of(layers: &[Descriptor]) -> Vec<u8> {
    let digests: Vec<Digest> = layers.iter().map(|layer| layer.digest).collect();
    let config = serde_json::json!({
        "architecture": "", "os": "", "config": {},
        "rootfs": {"type": "layers", "diff_ids": digests},
    });
    config.to_string().into_bytes()
}

/// Returns the manifest of the signatures under the tag, if there is one.
async fn tagged(repository: &Repository, of: Digest) -> Result<Option<Manifest>, Error> {
    let document = if_found(repository.manifest(&tag(of)).await)?;
    Ok(document.and_then(|document| serde_json::from_slice(&document.bytes).ok()))
}

fn tag(of: Digest) -> String {
    format!("sha256-{}.sig", of.hex())
}

fn json(manifest: &Manifest) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(manifest).map_err(|error| Error::Disk {
        what: "a manifest cannot be written".to_owned(),
        source: error.into(),
    })
}
