//! The bytes of a component: in memory, or in a file.

use std::{
    fs::File,
    io::{self, Read as _},
    ops::Range,
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
    sync::Arc,
};

use bytes::Bytes;

use super::{Digest, child};

/// The bytes of a component. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Content {
    Memory(Bytes),
    /// In a file that is never modified, so that a large module takes no memory.
    File {
        file: Arc<File>,
        /// The digest of its bytes, as computed by the caller.
        digest: Digest,
        /// The number of its bytes.
        length: u64,
    },
}

// === impl Content ===

impl Content {
    /// Returns the digest of the bytes.
    pub fn digest(&self) -> Digest {
        match self {
            Self::Memory(bytes) => Digest::of(bytes),
            Self::File { digest, .. } => *digest,
        }
    }

    /// Returns the number of bytes.
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }

    /// Returns the first bytes, up to `count`.
    pub(super) fn start(&self, count: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::Memory(bytes) => {
                Ok(bytes.get(..count.min(bytes.len())).unwrap_or_default().into())
            }
            Self::File { file, .. } => {
                let mut start = vec![0; count];
                let read = file.read_at(&mut start, 0)?;
                start.truncate(read);
                Ok(start)
            }
        }
    }

    /// Returns the bytes of a range; fails if it is not within the content.
    pub(super) fn part(&self, of: Range<u64>) -> io::Result<Bytes> {
        let place = |at| usize::try_from(at).map_err(io::Error::other);
        let (start, end) = (place(of.start)?, place(of.end)?);
        match self {
            Self::Memory(bytes) if start <= end && end <= bytes.len() => {
                Ok(bytes.slice(start..end))
            }
            Self::Memory(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Self::File { file, .. } => {
                let mut part = vec![0; end.saturating_sub(start)];
                file.read_exact_at(&mut part, of.start)?;
                Ok(part.into())
            }
        }
    }

    /// Returns all bytes, read into memory.
    pub(super) fn bytes(&self) -> io::Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes.clone()),
            Self::File { .. } => {
                let mut bytes = Vec::new();
                self.input()?.read_to_end(&mut bytes)?;
                Ok(bytes.into())
            }
        }
    }

    /// Returns a file with the bytes, positioned at its start, for one reader.
    pub(super) fn input(&self) -> io::Result<File> {
        match self {
            Self::Memory(bytes) => child::input(bytes),
            // A separate handle: the read position belongs to the handle.
            Self::File { file, .. } => File::open(format!("/proc/self/fd/{}", file.as_raw_fd())),
        }
    }
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Memory(bytes)
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Memory(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_is_read_as_bytes_in_memory_are() {
        let bytes = b"\0asm and more".as_slice();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let (digest, length) = (Digest::of(bytes), bytes.len() as u64);
        let in_file = Content::File { file: Arc::new(file), digest, length };
        for content in [Content::from(bytes.to_vec()), in_file] {
            assert_eq!((content.digest(), content.length()), (digest, length));
            assert_eq!(content.start(4).unwrap(), b"\0asm");
            assert_eq!(content.start(99).unwrap(), bytes);
            assert_eq!(content.part(1..4).unwrap(), b"asm".as_slice());
            assert!(content.part(1..99).is_err());
            let (mut one, mut other) = (content.input().unwrap(), content.input().unwrap());
            let mut read = Vec::new();
            one.read_to_end(&mut read).unwrap();
            other.read_to_end(&mut read).unwrap();
            assert_eq!(read, [bytes, bytes].concat(), "no reader moves another one");
            assert_eq!(content.bytes().unwrap(), bytes);
        }
    }
}
