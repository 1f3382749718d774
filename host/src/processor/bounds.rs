//! Bounds on everything that a guest hands over: the arguments of imports, descriptions, outcomes and failures.
//!
//! Each is looked at here before anything of it is kept, logged, resolved or asked for. What one call may use as a whole is in
//! [`super::Limits`]. Pure: no I/O, nothing of wasmtime.
//!
//! The constants are the host's; wit/world.wit names them to authors, and a test compares the two.

mod description;
mod read;
mod returned;
#[cfg(test)]
mod tests;
pub(crate) mod text;

pub(super) use description::check as check_description;
pub(super) use read::{check_get, check_list, get_size, list_size};
pub(super) use returned::shorten_failure;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Bytes that an entry of a list (a field, a condition, a requirement on a label, a write) counts beside its texts: about the memory
/// that the host needs for it, so that a million empty texts are not free.
pub(crate) const ENTRY: usize = 64;

/// Bytes that the arguments of one import may take while they are copied out of the guest. The largest that are of use are a line of
/// log with all its values and a write of standard output, each a quarter of this.
pub(crate) const IMPORT_COPY: usize = MIB;
/// Bytes of the arguments of one `get` or `list`. A hundred times those of a usual read; a label selector of a thousand names fits.
pub(crate) const READ_ARGUMENTS: usize = 64 * KIB;
/// Bytes of the arguments of all reads of one call: what its record and its triggers are made from. 10,000 reads of 800 bytes each.
pub(crate) const CALL_ARGUMENTS: usize = 8 * MIB;
/// Fields, and conditions of `matching`, each, of one selection, read or manifest.
pub(crate) const FIELDS: usize = 128;
/// Bytes of a path. The longest key of a label or annotation has 317.
pub(crate) const PATH: usize = KIB;
/// Steps of a path: JSON that is nested deeper than 128 is not read at all, and the host walks paths by recursion.
pub(crate) const PATH_STEPS: usize = 64;
/// Bytes of a page token: the host's own have 440 at most.
pub(crate) const PAGE_TOKEN: usize = KIB;
/// Bytes of the message of a read error, as it is handed to the guest.
pub(crate) const READ_ERROR: usize = 8 * KIB;

/// Bytes of standard output or error that are taken at once; a guest writes on as soon as they are.
pub(crate) const STREAM_WRITE: usize = 64 * KIB;
/// Random bytes that are given at once: nobody draws a longer key.
pub(crate) const RANDOM_BYTES: usize = MIB;
/// WASI resources (streams, pollables) that a guest may hold at the same time: each takes memory of the host.
pub(crate) const RESOURCES: usize = 1_000;
/// Elements of all tables together: functions of a module that can be called through a pointer.
pub(crate) const TABLE_ELEMENTS: usize = 1_000_000;

/// Bytes of a message of the log; the rest is cut.
pub(crate) const LOG_MESSAGE: usize = 8 * KIB;
/// Named values of one line of log; the rest is left out.
pub(crate) const LOG_FIELDS: usize = 32;
/// Bytes of such a value; the rest is cut. It may be an object in JSON.
pub(crate) const LOG_VALUE: usize = 64 * KIB;
/// Bytes of the name of such a value; the rest is cut.
pub(crate) const LOG_FIELD_NAME: usize = 128;

/// Reconcilers of a description: each has keys and a watch of its own.
pub(crate) const RECONCILERS: usize = 64;
/// Declared reads: each may need a watch and questions about rights.
pub(crate) const READS: usize = 256;
/// Declared writes.
pub(crate) const WRITES: usize = 256;
/// Bytes of the label selector of a description: with each finalizer it stands in the status of the Processor.
pub(crate) const SELECTOR: usize = 4 * KIB;
/// Finalizers of one reconciler: each is a claim that others are compared with.
pub(crate) const FINALIZERS: usize = 4;
/// Bytes of the name of a processor or reconciler: Kubernetes' own bound on a DNS label.
pub(crate) const NAME: usize = 63;
/// Bytes of a processor's version: it stands in the status of the Processor and in metrics.
pub(crate) const VERSION: usize = 64;
/// Bytes of a description, the schema of the configuration included: an object of the API server holds 1.5 MiB.
pub(crate) const DESCRIPTION: usize = 256 * KIB;
/// Bytes of memory that a description may take while it is copied out of the guest, so that one that is too large can still be told
/// by the part that makes it so.
pub(crate) const DESCRIPTION_COPY: usize = 16 * MIB;

/// Bytes of the message of a failure or of a refused configuration; the rest is cut. It stands in statuses, logs and events.
pub(crate) const FAILURE: usize = 8 * KIB;
/// Bytes of a panic's message; the rest is cut. With its backtrace it is as long as a failure may be.
pub(crate) const PANIC: usize = 4 * KIB;
/// Bytes of the name of a function in a backtrace; the rest is cut.
pub(crate) const FUNCTION: usize = 240;
/// Owner references of one object: it has one or two.
pub(crate) const OWNERS: usize = 64;

/// What one run is told to have been denied, each once; the rest is counted.
pub(crate) const DENIALS: usize = 8;
/// Bytes of a denial's message; the rest is cut.
pub(crate) const DENIAL: usize = 512;
