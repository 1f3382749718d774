//! Writes to a repository: blobs, manifests, and referrers.

use std::{fs::File, io, os::unix::fs::FileExt as _, sync::Arc};

use bytes::Bytes;
use futures::{Stream, stream};
use http::{
    HeaderMap, HeaderValue, Method,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;

use super::{Asked, Repository, nothing, referrer};
use crate::{
    http::{Body, Policy},
    oci::{
        Digest, Error,
        artifact::{self, Descriptor, INDEX, Index, Manifest},
    },
};

/// The size of the chunks in which a file is sent.
const CHUNK_BYTES: usize = 64 << 10;

/// The bytes of a blob to be uploaded.
#[derive(Debug, Clone, Copy)]
pub enum Blob<'a> {
    /// In memory.
    Bytes(&'a [u8]),
    /// In a file, which is read as it is sent.
    File(&'a Arc<File>),
}

impl Repository {
    /// Uploads a blob, unless the registry already has it.
    ///
    /// # Errors
    ///
    /// Fails if the registry does not answer or refuses.
    pub async fn push_blob(&self, of: &Descriptor, blob: Blob<'_>) -> Result<(), Error> {
        let what = format!("the blob {}", of.digest);
        let asked = Asked { method: Method::HEAD, headers: HeaderMap::new(), body: &nothing, what };
        match self.ask(&self.at(&format!("blobs/{}", of.digest))?, &asked).await {
            Ok(_) => return Ok(()),
            Err(Error::Refused { status: 404, .. }) => {}
            Err(error) => return Err(error),
        }
        let what = "the start of an upload".to_owned();
        let headers = [(CONTENT_LENGTH, HeaderValue::from(0))].into_iter().collect();
        let asked = Asked { method: Method::POST, headers, body: &nothing, what };
        let started = self.ask(&self.at("blobs/uploads/")?, &asked).await?;
        let location = started.header("location").and_then(|location| started.from.join(location));
        let Some(to) = location else {
            return Err(self.invalid(asked.what, "it names no place for it".to_owned()));
        };
        let to = to.with_query("digest", &of.digest.to_string());
        let octets = HeaderValue::from_static("application/octet-stream");
        let headers = [(CONTENT_TYPE, octets), (CONTENT_LENGTH, HeaderValue::from(of.size))];
        let what = format!("the upload of {}", of.digest);
        let body = || blob.body();
        let headers = headers.into_iter().collect();
        let asked = Asked { method: Method::PUT, headers, body: &body, what };
        let policy = Policy { loopback: started.is_loopback, ..Policy::default() };
        self.ask_from(&started.from, policy, &to, &asked).await?;
        Ok(())
    }

    /// Stores a manifest under a tag, or under its digest.
    ///
    /// # Errors
    ///
    /// Fails if the registry does not answer or refuses.
    pub async fn push_manifest(
        &self,
        name: &str,
        media_type: &str,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let content_type = HeaderValue::try_from(media_type);
        let content_type = content_type
            .map_err(|_| self.invalid(media_type.to_owned(), "it is no media type".to_owned()))?;
        let headers =
            [(CONTENT_TYPE, content_type), (CONTENT_LENGTH, HeaderValue::from(bytes.len()))];
        let body = || Blob::Bytes(bytes).body();
        let what = format!("PUT manifests/{name}");
        let headers = headers.into_iter().collect();
        let asked = Asked { method: Method::PUT, headers, body: &body, what };
        self.ask(&self.at(&format!("manifests/{name}"))?, &asked).await?;
        Ok(())
    }

    /// Pushes a manifest as a referrer of another one. If the registry does not list it, the index
    /// under the referrers tag is updated.
    ///
    /// # Errors
    ///
    /// Fails if the registry does not answer or refuses.
    pub async fn push_referrer(&self, subject: Digest, manifest: &[u8]) -> Result<(), Error> {
        let descriptor = Descriptor::of(artifact::MANIFEST, manifest);
        let name = descriptor.digest.to_string();
        self.push_manifest(&name, artifact::MANIFEST, manifest).await?;
        let mut known = self.referrers(subject).await?;
        if known.iter().any(|of| of.digest == descriptor.digest) {
            return Ok(());
        }
        let artifact_type = serde_json::from_slice::<Manifest>(manifest);
        let artifact_type = artifact_type.ok().and_then(|manifest| manifest.artifact_type);
        known.push(Descriptor { artifact_type, ..descriptor });
        let media_type = Some(INDEX.to_owned());
        let index = Index { schema_version: 2, media_type, manifests: known };
        let index = serde_json::to_vec(&index)
            .map_err(|error| self.invalid("a list".to_owned(), error.to_string()))?;
        self.push_manifest(&referrer::tag(subject), INDEX, &index).await
    }
}

// === impl Blob ===

impl Blob<'_> {
    fn body(self) -> Body {
        match self {
            Self::Bytes(bytes) => {
                let bytes = Bytes::copy_from_slice(bytes);
                Full::new(bytes).map_err(|never| match never {}).boxed()
            }
            Self::File(file) => StreamBody::new(frames(Arc::clone(file))).boxed(),
        }
    }
}

/// Returns the content of a file in chunks.
fn frames(file: Arc<File>) -> impl Stream<Item = io::Result<Frame<Bytes>>> + Send + Sync {
    stream::try_unfold((file, 0), |(file, at)| async move {
        let mut part = vec![0; CHUNK_BYTES];
        let read = file.read_at(&mut part, at)?;
        part.truncate(read);
        let next = (file, at + read as u64);
        Ok((read > 0).then(|| (Frame::data(part.into()), next)))
    })
}
