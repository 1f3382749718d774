//! Bounds on everything that a guest passes to the host: the arguments of imports, descriptions,
//! outcomes and failures.
//!
//! Guest data is checked here before the host keeps, logs, resolves or requests any of it. The
//! limits of a whole call are in [`super::Limits`]. Pure: no I/O, no wasmtime.
//!
//! The constants here are the ones that the host enforces; wit/world.wit states them for authors,
//! and a test compares the two.

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

/// Bytes that an entry of a list (a field, a condition, a requirement on a label, a write) counts
/// in addition to its texts: about the memory that the host needs for the entry, so that a million
/// empty texts are not free.
pub(crate) const ENTRY: usize = 64;

/// Bytes that the arguments of one import may take while they are copied out of the guest. The
/// largest useful arguments are a log line with all its values and a write to standard output, each
/// a quarter of this bound.
pub(crate) const IMPORT_COPY: usize = MIB;
/// Bytes of the arguments of one `get` or `list`: a hundred times those of a usual read. A label
/// selector of a thousand names fits.
pub(crate) const READ_ARGUMENTS: usize = 64 * KIB;
/// Bytes of the arguments of all reads of one call, from which its run record and its triggers are
/// made: 10,000 reads of 800 bytes each.
pub(crate) const CALL_ARGUMENTS: usize = 8 * MIB;
/// Number of fields, and number of conditions in `matching`, of one selection, read or manifest.
pub(crate) const FIELDS: usize = 128;
/// Bytes of a path. The longest key of a label or annotation has 317.
pub(crate) const PATH: usize = KIB;
/// Steps of a path. JSON that is nested deeper than 128 is not parsed at all, and the host walks
/// paths by recursion.
pub(crate) const PATH_STEPS: usize = 64;
/// Bytes of a page token. The host's own tokens have 440 at most.
pub(crate) const PAGE_TOKEN: usize = KIB;
/// Bytes of the message of a read error, as it is handed to the guest.
pub(crate) const READ_ERROR: usize = 8 * KIB;

/// Bytes of standard output or error that are accepted at once; the guest may write again as soon
/// as they are stored.
pub(crate) const STREAM_WRITE: usize = 64 * KIB;
/// Random bytes that are returned at once: no useful key is longer.
pub(crate) const RANDOM_BYTES: usize = MIB;
/// WASI resources (streams, pollables) that a guest may hold at the same time: each takes memory of
/// the host.
pub(crate) const RESOURCES: usize = 1_000;
/// Elements of all tables together, that is functions of a module that can be called through a
/// pointer.
pub(crate) const TABLE_ELEMENTS: usize = 1_000_000;

/// Bytes of a log message; the rest is cut.
pub(crate) const LOG_MESSAGE: usize = 8 * KIB;
/// Named values of one log line; the rest is dropped.
pub(crate) const LOG_FIELDS: usize = 32;
/// Bytes of a named value of a log line; the rest is cut. The value may be an object in JSON.
pub(crate) const LOG_VALUE: usize = 64 * KIB;
/// Bytes of the name of such a value; the rest is cut.
pub(crate) const LOG_FIELD_NAME: usize = 128;

/// Reconcilers of a description: each has its own keys and watch.
pub(crate) const RECONCILERS: usize = 64;
/// Declared reads: each may need a watch and access reviews.
pub(crate) const READS: usize = 256;
/// Declared writes.
pub(crate) const WRITES: usize = 256;
/// Bytes of the label selector in a description: the status of the Processor repeats the selector
/// for each finalizer.
pub(crate) const SELECTOR: usize = 4 * KIB;
/// Finalizers of one reconciler: each is a claim that is compared with those of other processors.
pub(crate) const FINALIZERS: usize = 4;
/// Bytes of the name of a processor or reconciler: Kubernetes' own bound on a DNS label.
pub(crate) const NAME: usize = 63;
/// Bytes of a processor's version, which is shown in the status of the Processor and in metrics.
pub(crate) const VERSION: usize = 64;
/// Bytes of a description, including the schema of the configuration. An object of the API server
/// holds 1.5 MiB.
pub(crate) const DESCRIPTION: usize = 256 * KIB;
/// Bytes of memory that a description may take while it is copied out of the guest. More than
/// `DESCRIPTION`, so that the error can name the part that makes the description too large.
pub(crate) const DESCRIPTION_COPY: usize = 16 * MIB;

/// Bytes of the message of a failure or of a refused configuration; the rest is cut. The message is
/// shown in statuses, logs and events.
pub(crate) const FAILURE: usize = 8 * KIB;
/// Bytes of a panic's message; the rest is cut. With its backtrace the message is as long as a
/// failure's may be.
pub(crate) const PANIC: usize = 4 * KIB;
/// Bytes of a function's name in a backtrace; the rest is cut.
pub(crate) const FUNCTION: usize = 240;
/// Owner references of one object; usual objects have one or two.
pub(crate) const OWNERS: usize = 64;

/// Distinct denials of one run that are reported; further ones are only counted.
pub(crate) const DENIALS: usize = 8;
/// Bytes of a denial's message; the rest is cut.
pub(crate) const DENIAL: usize = 512;
