//! Loads a module's bytes as a component that is ready to be instantiated: checks, compiles (or
//! takes from the cache), and links it.

use std::{collections::BTreeSet, fs::File, io, sync::Arc, time::Instant};

use tracing::warn;
use wasmtime::component::{Component, InstancePre};

use super::{
    Digest,
    bindings::exports::mortise::host::{admission, conversion, reconciliation},
    cache::{self, Verified},
    compiler::CompileError,
    content::Content,
    engine::{Engine, Lane, Size},
    instances::{Instances, ModuleCharge},
    library::{self, Library},
    precompiled,
    state::State,
};
use crate::wasm::child::{self, Cancelled};

/// The reason why a module was not loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The module is not WebAssembly.
    #[error(
        "module `{module}` is not WebAssembly: it starts with {start}; a component (`cargo build --target wasm32-wasip2`) is accepted"
    )]
    NotWasm { module: String, start: String },

    /// The module is a core module, not a component.
    #[error(
        "module `{module}` is a core module, not a component; build it for the target wasm32-wasip2, or make a component of it with `wasm-tools component new`"
    )]
    NotAComponent { module: String },

    /// The module is damaged, or uses features that this host does not support.
    #[error("module `{module}` is not a component that this host can compile")]
    Malformed { module: String, source: wasmtime::Error },

    /// The module would take too much memory beside that of its calls.
    #[error("module `{module}` is not loaded: {found}")]
    TooLarge { module: String, found: String },

    /// The namespace has too many or too large modules for the memory of the host.
    #[error(
        "module `{module}` is not loaded: the calls and the loaded modules of its namespace would have {asked} bytes, of the {limit} that those of all namespaces may have together (--call-memory-mib)"
    )]
    OutOfMemory { module: String, asked: usize, limit: usize },

    /// The module was built with another version of the contract.
    #[error("module `{module}` was built for `{found}`; this host accepts `{accepted}`")]
    OtherVersion { module: String, found: String, accepted: &'static str },

    /// The module is a component, but not a processor.
    #[error(
        "module `{module}` is not a processor: it does not export `{wanted}`; it exports {found}"
    )]
    NotAProcessor { module: String, wanted: &'static str, found: String },

    /// The module imports interfaces that are not granted.
    #[error("module `{module}` imports {imports}, which is not granted; it may import {accepted}")]
    NotGranted { module: String, imports: String, accepted: &'static str },

    /// The module cannot be a library for this interface.
    #[error("module `{module}` is no library of `{interface}`: {found}")]
    LibraryInvalid { module: String, interface: String, found: String },

    /// The module imports a library's function with another type than the library exports.
    #[error("module `{module}` imports {imported}; the library {exported}")]
    LibraryOtherTypes { module: String, imported: String, exported: String },

    /// A function has other types than in the contract.
    #[error("module `{module}` does not fit the contract `{contract}`")]
    OtherTypes { module: String, contract: &'static str, source: wasmtime::Error },

    /// The bytes of the module cannot be read.
    #[error("module `{module}` cannot be read")]
    Unreadable { module: String, source: io::Error },

    /// Compiling failed, though the module may be a valid component.
    #[error("module `{module}` cannot be compiled")]
    CompileFailed { module: String, source: CompileError },

    /// The thread that compiled the module panicked or was aborted.
    #[error("compiling module `{module}` was broken off")]
    BrokenOff { module: String, source: tokio::task::JoinError },
}

// === impl LoadError ===

impl LoadError {
    /// Returns the module if this host cannot load it, whatever it is used for and with.
    pub fn unusable(&self) -> Option<&str> {
        match self {
            Self::NotWasm { module, .. }
            | Self::NotAComponent { module }
            | Self::Malformed { module, .. }
            | Self::TooLarge { module, .. }
            | Self::OtherVersion { module, .. }
            | Self::NotAProcessor { module, .. }
            | Self::OtherTypes { module, .. } => Some(module),
            Self::CompileFailed { module, source } if !source.passes() => Some(module),
            _ => None,
        }
    }
}

/// A component with its imports linked.
pub(super) struct Linked {
    pub(super) digest: Digest,
    pub(super) size: Size,
    pub(super) names: Names,
    pub(super) libraries: Vec<Arc<Library>>,
    pub(super) instances: Instances,
    pub(super) exports: Exports,
}

/// The exports of a component that the host calls.
pub(super) struct Exports {
    pub(super) reconciliation: reconciliation::GuestIndices,
    /// The exports for conversion; `None` if the component converts nothing.
    pub(super) conversion: Option<conversion::GuestIndices>,
    /// The exports for admission; `None` if the component has no hooks.
    pub(super) admission: Option<admission::GuestIndices>,
}

/// The first bytes of every WebAssembly file; the version field follows.
const MAGIC: &[u8] = b"\0asm";
const CORE_MODULE: &[u8] = &[1, 0, 0, 0];
/// The size of the header that tells the format.
const FORMAT_BYTES: usize = 8;
/// Metrics label of a cache entry that was found and not used.
const REFUSED: &str = "refused";
const CONTRACT: &str = "mortise:host@0.1.0";
const CONTRACT_PACKAGE: &str = "mortise:host";
const CONTRACT_TRACK: &str = "0.1.";
const EXPORT: &str = "mortise:host/reconciliation";
const CONVERSION: &str = "mortise:host/conversion";
const ADMISSION: &str = "mortise:host/admission";
const WASI: [&str; 6] =
    ["wasi:io", "wasi:clocks", "wasi:random", "wasi:cli", "wasi:filesystem", "wasi:sockets"];
const WASI_TRACK: &str = "0.2.";
const ACCEPTED: &str = "`mortise:host@0.1.0` (cluster, clock, log, outbound, types), WASI 0.2 (io, clocks, random, cli, filesystem, sockets), and the interfaces of the libraries that are named beside it (`spec.libraries`, `--library`)";

/// The result of looking up a module's code before compiling.
pub(super) enum Found {
    /// The code was in the cache.
    Compiled(Compiled),
    /// The code has to be compiled.
    Missing(Missing),
}

/// A module without usable code in the cache.
pub(super) struct Missing {
    digest: Digest,
    charge: ModuleCharge,
    /// The requested lane.
    size: Size,
    /// True if the cache holds an entry for the module that must not be used.
    is_refused: bool,
}

/// A module and the machine code made of it.
pub(super) struct Compiled {
    pub(super) digest: Digest,
    pub(super) charge: ModuleCharge,
    pub(super) placed: Placed,
}

/// Checks a module, charges it to its namespace, and takes its code from the cache if it is there.
/// Blocks, so it must not run on an async worker thread; nor must [`make`] and [`link`].
pub(super) fn find(
    engine: &Engine,
    module: &str,
    content: &Content,
    size: Size,
    namespace: Option<&str>,
) -> Result<Found, LoadError> {
    let unreadable = |source| LoadError::Unreadable { module: module.to_owned(), source };
    check_format(module, &content.start(FORMAT_BYTES).map_err(unreadable)?)?;
    let charge = ModuleCharge::new(engine, module, content, namespace)?;
    let digest = content.digest();
    let (found, result) = match engine.cache().map(|cache| cache.get(digest)) {
        Some(cache::Found::Code(code)) => match from_code(engine, size, &code) {
            Ok(found) => (Some(found), "hit"),
            Err(error) => {
                let error = format!("{error:#}");
                warn!(%digest, error, "wasmtime refuses an entry of the code cache, compiling again");
                (None, REFUSED)
            }
        },
        Some(cache::Found::Refused) => (None, REFUSED),
        Some(cache::Found::Nothing) | None => (None, "miss"),
    };
    engine.metrics().code_looked_up(result);
    Ok(match found {
        Some(placed) => Found::Compiled(Compiled { digest, charge, placed }),
        None => Found::Missing(Missing { digest, charge, size, is_refused: result == REFUSED }),
    })
}

/// Compiles a module.
pub(super) fn make(
    engine: &Engine,
    module: &str,
    Missing { digest, charge, size, is_refused }: Missing,
    content: &Content,
    cancelled: &Cancelled,
) -> Result<Compiled, LoadError> {
    // While this module was queued, the same one may have been compiled for another processor.
    if !is_refused && let Some(placed) = cached(engine, digest, size) {
        return Ok(Compiled { digest, charge, placed });
    }
    let start = Instant::now();
    let compiled = compile(engine, module, (digest, content), size, cancelled);
    let result = match &compiled {
        Ok(_) => "success",
        Err(LoadError::CompileFailed { source, .. }) => source.reason(),
        Err(_) => "refused",
    };
    engine.metrics().compiled(start.elapsed(), result);
    Ok(Compiled { digest, charge, placed: compiled? })
}

fn compile(
    engine: &Engine,
    module: &str,
    (digest, content): (Digest, &Content),
    size: Size,
    cancelled: &Cancelled,
) -> Result<Placed, LoadError> {
    let malformed = |source| LoadError::Malformed { module: module.to_owned(), source };
    let Some(code) = compile_in_child(engine, (digest, content), cancelled) else {
        let unreadable = |source| LoadError::Unreadable { module: module.to_owned(), source };
        let bytes = content.bytes().map_err(unreadable)?;
        return compile_here(engine, digest, &bytes, size).map_err(malformed);
    };
    let code = match code {
        Ok(file) => Verified::just_compiled(file),
        Err(CompileError::Refused(cause)) => return Err(malformed(wasmtime::Error::msg(cause))),
        Err(source) => return Err(LoadError::CompileFailed { module: module.to_owned(), source }),
    };
    from_code(engine, size, &code).map_err(malformed)
}

/// Returns the code that a child compiled from a module; `None` if this process compiles.
fn compile_in_child(
    engine: &Engine,
    (digest, content): (Digest, &Content),
    cancelled: &Cancelled,
) -> Option<Result<File, CompileError>> {
    let compiler = engine.compiler();
    // The kernel can reclaim mapped pages of a file in the cache, but not those of a memory file.
    if let Some(cache) = engine.cache()
        && let Some(mut entry) = cache.begin()
    {
        match compiler.run_child(content, entry.file(), cancelled)? {
            Ok(()) => return Some(cache.finish(digest, entry).map_err(CompileError::NotRun)),
            // The disk of the cache is full.
            Err(error @ CompileError::NotWritten { .. }) => {
                cache.not_kept(&io::Error::other(error));
            }
            Err(error) => return Some(Err(error)),
        }
    }
    let output = match child::memory_file("output") {
        Ok(output) => output,
        Err(error) => return Some(Err(CompileError::NotRun(error))),
    };
    let ran = compiler.run_child(content, &output, cancelled)?;
    Some(ran.map(|()| output))
}

fn compile_here(
    engine: &Engine,
    digest: Digest,
    bytes: &[u8],
    size: Size,
) -> wasmtime::Result<Placed> {
    let compiled = in_a_lane(engine, size, |lane| Component::from_binary(&lane.engine, bytes))?;
    let Some(cache) = engine.cache() else { return Ok(compiled) };
    // Code from the cache is mapped from a file and takes less memory than freshly compiled code.
    let is_cached = cache.put(digest, compiled.component.serialize()?.as_slice());
    let found = is_cached.then(|| cached(engine, digest, size)).flatten();
    Ok(found.unwrap_or(compiled))
}

/// A component in the lane that it runs in.
pub(super) struct Placed {
    pub(super) size: Size,
    pub(super) component: Component,
}

/// Returns the component from the cache, if a usable entry exists now.
fn cached(engine: &Engine, digest: Digest, size: Size) -> Option<Placed> {
    match engine.cache()?.get(digest) {
        cache::Found::Code(code) => from_code(engine, size, &code).ok(),
        cache::Found::Nothing | cache::Found::Refused => None,
    }
}

fn from_code(engine: &Engine, size: Size, code: &Verified) -> wasmtime::Result<Placed> {
    in_a_lane(engine, size, |lane| precompiled::component(&lane.engine, code))
}

/// Creates a component in a lane. A small module that exceeds the limits of the pool (tables, parts
/// of a component) is placed in the big lane, where only the limits of [`ModuleCharge`] apply.
fn in_a_lane(
    engine: &Engine,
    size: Size,
    component: impl Fn(&Lane) -> wasmtime::Result<Component>,
) -> wasmtime::Result<Placed> {
    let place = |size| Ok(Placed { size, component: component(engine.lane(size))? });
    match size {
        Size::Small => place(Size::Small).or_else(|_| place(Size::Big)),
        Size::Big => place(Size::Big),
    }
}

/// Links a processor's module with the host's functions and with its libraries.
pub(super) fn link(
    engine: &Engine,
    module: &str,
    Compiled { digest, charge, placed: Placed { size, component } }: Compiled,
    libraries: Vec<Arc<Library>>,
) -> Result<Linked, LoadError> {
    let lane = engine.lane(size);
    let names = Names::of(lane, &component);
    let has_only_types = library::instances_of_types(&lane.engine, &component);
    let is_provided = |name: &str| {
        has_only_types.contains(name) || libraries.iter().any(|library| library.interface() == name)
    };
    check_names(module, &names, is_provided)?;
    let unfit =
        |source| LoadError::OtherTypes { module: module.to_owned(), contract: CONTRACT, source };
    let instantiated = if libraries.is_empty() {
        lane.linker.instantiate_pre(&component)
    } else {
        let mut linker = lane.linker.clone();
        for library in &libraries {
            library::link(engine, &mut linker, (module, &component), library)?;
        }
        linker.instantiate_pre(&component)
    };
    let pre = instantiated.map_err(unfit)?;
    let exports = Exports::of(&pre, &names).map_err(unfit)?;
    // Otherwise the first call would do this, on an async worker thread: a large module's data
    // takes time.
    component.initialize_copy_on_write_image().map_err(unfit)?;
    Ok(Linked { digest, size, names, libraries, instances: Instances::new(pre, charge), exports })
}

/// Refuses invalid formats before compiling.
fn check_format(module: &str, bytes: &[u8]) -> Result<(), LoadError> {
    let module = module.to_owned();
    let Some(form) = bytes.strip_prefix(MAGIC) else {
        let start = bytes.get(..bytes.len().min(8)).unwrap_or_default();
        let start =
            if start.is_empty() { "nothing".into() } else { format!("{}", start.escape_ascii()) };
        return Err(LoadError::NotWasm { module, start: format!("`{start}`") });
    };
    if form.starts_with(CORE_MODULE) {
        return Err(LoadError::NotAComponent { module });
    }
    Ok(())
}

/// The names of a component's imports and exports, such as `mortise:host/cluster@0.1.0`.
#[derive(Debug, Default)]
pub struct Names {
    /// The imported interfaces.
    pub imports: BTreeSet<String>,
    /// The exported interfaces.
    pub exports: BTreeSet<String>,
}

// === impl Names ===

impl Names {
    pub(super) fn of(lane: &Lane, component: &Component) -> Self {
        let types = component.component_type();
        let imports = types.imports(&lane.engine).map(|(name, _)| name.to_owned()).collect();
        let exports = types.exports(&lane.engine).map(|(name, _)| name.to_owned()).collect();
        Self { imports, exports }
    }

    /// Returns the version of the contract that the component was built for, such as
    /// `mortise:host@0.1.0`.
    pub fn contract(&self) -> Option<String> {
        let versions = self.exports.iter().map(|name| split(name));
        let mut ours = versions.filter(|(path, _)| *path == EXPORT);
        ours.next().map(|(_, version)| format!("{CONTRACT_PACKAGE}@{version}"))
    }
}

// === impl Exports ===

impl Exports {
    /// Looks up the exports of a component; only `reconciliation` is required.
    fn of(pre: &InstancePre<State>, names: &Names) -> wasmtime::Result<Self> {
        let has = |path: &str| names.exports.iter().any(|name| split(name).0 == path);
        Ok(Self {
            reconciliation: reconciliation::GuestIndices::new(pre)?,
            conversion: has(CONVERSION).then(|| conversion::GuestIndices::new(pre)).transpose()?,
            admission: has(ADMISSION).then(|| admission::GuestIndices::new(pre)).transpose()?,
        })
    }
}

/// Fails if the names are not those of a processor that this host can run. `is_provided` returns
/// whether an interface of another package may be imported.
fn check_names(
    module: &str,
    names: &Names,
    is_provided: impl Fn(&str) -> bool,
) -> Result<(), LoadError> {
    let all = || names.imports.iter().chain(&names.exports);
    if let Some(other) = all().find(|name| is_other_version(name)) {
        return Err(LoadError::OtherVersion {
            module: module.to_owned(),
            found: other.clone(),
            accepted: CONTRACT,
        });
    }
    let refused = names.imports.iter().map(String::as_str);
    let refused: Vec<&str> =
        refused.filter(|name| !is_granted(name) && !is_provided(name)).collect();
    if !refused.is_empty() {
        return Err(LoadError::NotGranted {
            module: module.to_owned(),
            imports: quoted(&refused),
            accepted: ACCEPTED,
        });
    }
    if !names.exports.iter().any(|name| split(name).0 == EXPORT) {
        let found: Vec<&str> = names.exports.iter().map(String::as_str).collect();
        return Err(LoadError::NotAProcessor {
            module: module.to_owned(),
            wanted: "mortise:host/reconciliation@0.1.0",
            found: if found.is_empty() { "nothing".into() } else { quoted(&found) },
        });
    }
    Ok(())
}

/// Splits a name into `package/interface` and version; the version is "" if the name has none.
pub(super) fn split(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

pub(super) fn package(path: &str) -> &str {
    path.split_once('/').map_or(path, |(package, _)| package)
}

fn is_other_version(name: &str) -> bool {
    let (path, version) = split(name);
    package(path) == CONTRACT_PACKAGE && !version.starts_with(CONTRACT_TRACK)
}

pub(super) fn is_granted(name: &str) -> bool {
    let (path, version) = split(name);
    let contract = ["cluster", "clock", "log", "outbound", "types"];
    match path.split_once('/') {
        Some((CONTRACT_PACKAGE, interface)) => contract.contains(&interface),
        Some((package, _)) => WASI.contains(&package) && version.starts_with(WASI_TRACK),
        None => false,
    }
}

pub(super) fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(imports: &[&str], exports: &[&str]) -> Names {
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Names { imports: set(imports), exports: set(exports) }
    }

    const RECONCILIATION: &str = "mortise:host/reconciliation@0.1.0";

    #[test]
    fn a_processor_imports_the_contract_and_wasi() {
        let imports =
            ["mortise:host/cluster@0.1.0", "mortise:host/types@0.1.0", "wasi:io/poll@0.2.6"];
        check_names("m", &names(&imports, &[RECONCILIATION]), |_| false).unwrap();
    }

    #[test]
    fn a_module_with_unsupported_imports_or_exports_is_refused_by_name() {
        let cases = [
            (
                "egress",
                names(&["wasi:http/outgoing-handler@0.2.6"], &[RECONCILIATION]),
                "`wasi:http/outgoing-handler@0.2.6`, which is not granted",
            ),
            (
                "unknown",
                names(&["acme:kv/store"], &[RECONCILIATION]),
                "`acme:kv/store`, which is not granted",
            ),
            ("function", names(&["run"], &[RECONCILIATION]), "`run`, which is not granted"),
            (
                "no such interface",
                names(&["mortise:host/memo@0.1.0"], &[RECONCILIATION]),
                "`mortise:host/memo@0.1.0`",
            ),
            (
                "newer wasi",
                names(&["wasi:cli/stdout@0.3.0"], &[RECONCILIATION]),
                "`wasi:cli/stdout@0.3.0`",
            ),
            (
                "newer export",
                names(&[], &["mortise:host/reconciliation@0.2.0"]),
                "built for `mortise:host/reconciliation@0.2.0`; this host accepts `mortise:host@0.1.0`",
            ),
            (
                "newer import",
                names(&["mortise:host/cluster@0.10.0"], &[RECONCILIATION]),
                "built for `mortise:host/cluster@0.10.0`",
            ),
            ("a command", names(&[], &["wasi:cli/run@0.2.6"]), "it exports `wasi:cli/run@0.2.6`"),
            ("nothing", names(&[], &[]), "it exports nothing"),
        ];
        for (case, names, expected) in cases {
            let message = check_names("m.wasm", &names, |_| false).unwrap_err().to_string();
            assert!(message.contains(expected), "{case}: {message}");
        }
    }

    #[test]
    fn bytes_that_are_not_a_component_are_refused_with_their_format() {
        let cases: [(&str, &[u8], &str); 4] = [
            ("empty", b"", "starts with `nothing`"),
            ("text", b"(component)", "starts with `(compone`"),
            ("core module", b"\0asm\x01\0\0\0", "is a core module"),
            ("elf", b"\x7fELF", "starts with `\\x7fELF`"),
        ];
        for (case, bytes, expected) in cases {
            let message = check_format("m.wasm", bytes).unwrap_err().to_string();
            assert!(message.contains(expected), "{case}: {message}");
        }
        check_format("m.wasm", b"\0asm\x0d\0\x01\0").unwrap();
    }
}
