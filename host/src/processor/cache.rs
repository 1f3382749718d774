//! Compiled code, kept between starts.
//!
//! An entry is named by the digest of the module and by a hash of everything about the engine and the machine that the code
//! depends on, and ends with its own digest: one that was cut short or damaged is compiled again. The directory is reached
//! through a handle, so no name can lead out of it. Entries are never changed where they lie, only replaced: running
//! components have them mapped.

use std::hash::{Hash, Hasher};
use std::io::{self, Read as _, Write as _};

use cap_std::fs::{Dir, File};
use sha2::{Digest as _, Sha256};
use tracing::{debug, warn};
use wasmtime::component::Component;
use xxhash_rust::xxh3::Xxh3;

use super::component::Digest;
use super::precompiled;

/// Bytes of the digest behind the code.
const CHECKSUM: usize = 32;

/// A directory of compiled components.
#[derive(Debug)]
pub(super) struct Cache {
    dir: Dir,
}

/// A file of code as this program wrote it: made only by [`verify`].
pub(super) struct Verified {
    pub(super) file: File,
}

// === impl Cache ===

impl Cache {
    pub(super) fn new(dir: Dir) -> Self {
        Self { dir }
    }

    /// The compiled component, if it is there and whole.
    pub(super) fn get(&self, engine: &wasmtime::Engine, module: Digest) -> Option<Component> {
        let name = entry_name(engine, module);
        let code = match self.dir.open(&name).and_then(verify) {
            Ok(Some(code)) => code,
            Ok(None) => {
                warn!(%module, "damaged entry of the code cache, compiling again");
                return None;
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    warn!(%module, %error, "cannot read the code cache");
                }
                return None;
            }
        };
        match precompiled::component(engine, &code) {
            Ok(component) => Some(component),
            Err(error) => {
                warn!(%module, error = format!("{error:#}"), "useless entry of the code cache, compiling again");
                None
            }
        }
    }

    /// Keeps a compiled component. Not to keep it costs a compilation at the next start, nothing else.
    pub(super) fn put(&self, engine: &wasmtime::Engine, module: Digest, component: &Component) {
        let kept = component.serialize().map_err(|error| format!("{error:#}")).and_then(|code| {
            self.write(&entry_name(engine, module), &code).map_err(|error| error.to_string())
        });
        match kept {
            Ok(()) => debug!(%module, "kept compiled code"),
            Err(error) => warn!(%module, error, "cannot write the code cache"),
        }
    }

    /// Writes beside the entry first, so that nobody sees half of it. Two hosts that write the same write the same bytes.
    fn write(&self, name: &str, code: &[u8]) -> io::Result<()> {
        let unfinished = format!("{name}.{}", std::process::id());
        let mut file = self.dir.create(&unfinished)?;
        file.write_all(code)?;
        file.write_all(&Sha256::digest(code))?;
        drop(file);
        self.dir.rename(&unfinished, &self.dir, name)
    }
}

/// The file, if it is as it was written.
fn verify(mut file: File) -> io::Result<Option<Verified>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let whole = bytes
        .split_last_chunk::<CHECKSUM>()
        .is_some_and(|(code, checksum)| Sha256::digest(code).as_slice() == checksum);
    Ok(whole.then_some(Verified { file }))
}

fn entry_name(engine: &wasmtime::Engine, module: Digest) -> String {
    let mut hasher = Xxh3::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    let module = module.to_string().replace(':', "-");
    format!("{module}-{:016x}.code", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest component there is: `(component)`.
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    struct Fixture {
        directory: tempfile::TempDir,
        cache: Cache,
        engine: wasmtime::Engine,
    }

    fn fixture() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(directory.path(), cap_std::ambient_authority()).unwrap();
        Fixture { directory, cache: Cache::new(dir), engine: wasmtime::Engine::default() }
    }

    #[test]
    fn compiled_code_is_found_again() {
        let Fixture { directory, cache, engine } = fixture();
        let module = Digest::of(EMPTY);
        assert!(cache.get(&engine, module).is_none());
        cache.put(&engine, module, &Component::new(&engine, EMPTY).unwrap());
        assert!(cache.get(&engine, module).is_some());
        assert!(cache.get(&engine, Digest::of(b"other")).is_none());
        assert_eq!(directory.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn code_for_other_settings_is_not_taken() {
        let Fixture { cache, engine, .. } = fixture();
        let module = Digest::of(EMPTY);
        cache.put(&engine, module, &Component::new(&engine, EMPTY).unwrap());
        let mut config = wasmtime::Config::new();
        config.epoch_interruption(true);
        let other = wasmtime::Engine::new(&config).unwrap();
        assert!(cache.get(&other, module).is_none());
    }

    #[test]
    fn a_damaged_entry_is_not_taken() {
        let Fixture { directory, cache, engine } = fixture();
        let module = Digest::of(EMPTY);
        cache.put(&engine, module, &Component::new(&engine, EMPTY).unwrap());
        let path = directory.path().join(entry_name(&engine, module));
        let whole = std::fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        let cut = &whole[..whole.len() - 1];
        for (case, bytes) in [("flipped", flipped.as_slice()), ("cut", cut), ("empty", &[])] {
            std::fs::write(&path, bytes).unwrap();
            assert!(cache.get(&engine, module).is_none(), "{case}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert!(cache.get(&engine, module).is_some());
    }
}
