//! Bounds on everything that a guest passes to the host: the arguments of imports, descriptions,
//! outcomes and failures.
//!
//! Guest data is checked here before the host keeps, logs, resolves or requests any of it. The
//! limits of a whole call are in the host's `processor::Limits`. Pure: no I/O, no wasmtime.
//!
//! The constants here are the ones that the host enforces; wit/world.wit states them for authors,
//! and a test compares the two.

mod description;
mod hooks;
mod json;
mod read;
mod returned;
pub mod text;

pub use description::check as check_description;
pub use hooks::{check as check_hooks, shorten_answer};
pub use json::{Entries, MAX_LEVELS, account, account_of, is_deeper_than};
pub use read::{check_get, check_list, get_size, list_size};
pub use returned::shorten_failure;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Bytes that an entry of a list (a field, a condition, a requirement on a label, a write) counts
/// in addition to its texts: about the memory that the host needs for the entry, so that a million
/// empty texts are not free.
pub const ENTRY: usize = 64;

/// Bytes that the arguments of one import may take while they are copied out of the guest. The
/// largest useful arguments are a log line with all its values and a write to standard output, each
/// a quarter of this bound.
pub const IMPORT_COPY: usize = MIB;
/// Bytes of the arguments of one `get` or `list`: a hundred times those of a usual read. A label
/// selector of a thousand names fits.
pub const READ_ARGUMENTS: usize = 64 * KIB;
/// Bytes of the arguments of all reads of one call, from which its run record and its triggers are
/// made: 10,000 reads of 800 bytes each.
pub const CALL_ARGUMENTS: usize = 8 * MIB;
/// Number of fields, and number of conditions in `matching`, of one selection, read or manifest.
pub const FIELDS: usize = 128;
/// Bytes of a path. The longest key of a label or annotation has 317.
pub const PATH: usize = KIB;
/// Steps of a path. JSON that is nested deeper than 128 is not parsed at all, and the host walks
/// paths by recursion.
pub const PATH_STEPS: usize = 64;
/// Pairs of one step `[key=value,…]` of a path: no list in Kubernetes has more than four keys. Each
/// element of a list may be compared with all of them.
pub const PATH_PAIRS: usize = 8;
/// Bytes of a page token. The host's own tokens have 440 at most.
pub const PAGE_TOKEN: usize = KIB;
/// Bytes of the message of a read error, as it is handed to the guest.
pub const READ_ERROR: usize = 8 * KIB;

/// Declared paths of one kind that are indexed. Objects are searched by the others.
pub const INDEXED_PATHS: usize = 32;
/// Label keys of one store that are indexed for one processor. Objects are searched by the others.
pub const INDEXED_LABELS: usize = 32;
/// Values of one object at one path that are indexed: a row of an index takes many times the memory
/// of a short text. An object with more is compared with each query on the path.
pub const INDEXED_VALUES: usize = 1_000;

/// Bytes of standard output or error that are accepted at once; the guest may write again as soon
/// as they are stored.
pub const STREAM_WRITE: usize = 64 * KIB;
/// Random bytes that are returned at once: no useful key is longer.
pub const RANDOM_BYTES: usize = MIB;
/// WASI resources (streams, pollables) that a guest may hold at the same time: each takes memory of
/// the host.
pub const RESOURCES: usize = 1_000;
/// Elements of all tables together, that is functions of a module that can be called through a
/// pointer.
pub const TABLE_ELEMENTS: usize = 1_000_000;

/// Core modules that are instantiated for one call. A guest built for wasm32-wasip2 has 3 to 5, one
/// in Python or TypeScript up to 20.
pub const COMPONENT_INSTANCES: usize = 64;
/// Bytes of the contexts of all these instances and of their tables, which the host allocates
/// before any code of the guest runs. Most guests take 100 KiB, Istio's renderer with its 50,000
/// functions 1.7 MiB.
pub const INSTANCE_BYTES: usize = 8 * MIB;
/// Bytes of the types, imports, exports and functions of a loaded component in the host's tables.
/// Most guests take 250 KiB, those in Python and TypeScript 3 MiB.
pub const LOADED_BYTES: usize = 32 * MIB;

/// Bytes of a log message; the rest is cut.
pub const LOG_MESSAGE: usize = 8 * KIB;
/// Named values of one log line; the rest is dropped.
pub const LOG_FIELDS: usize = 32;
/// Bytes of a named value of a log line; the rest is cut. The value may be an object in JSON.
pub const LOG_VALUE: usize = 64 * KIB;
/// Bytes of the name of a value of a log line; the rest is cut.
pub const LOG_FIELD_NAME: usize = 128;

/// Bytes that the answer of a library may take while it is copied out of it: as much as an outcome.
/// A list counts 40 bytes for each of its elements, since the host keeps them as values.
pub const LIBRARY_ANSWER: usize = 8 * MIB;
/// Bytes of a function's type in a message; the rest is cut.
pub const FUNCTION_TYPE: usize = KIB;

/// Calls to systems outside of the cluster in one call of a processor, refused ones too.
pub const CALLS: usize = 64;
/// Bytes of the URL of a call.
pub const URL: usize = 8 * KIB;
/// Headers of a call, and bytes of their names and values.
pub const CALL_HEADERS: usize = 64;
pub const CALL_HEADER_BYTES: usize = 16 * KIB;
/// Bytes of the body of a call.
pub const CALL_BODY: usize = MIB;
/// Bytes of the value of a credential.
pub const CREDENTIAL: usize = 16 * KIB;
/// Bytes of the text of a call's error; the rest is cut.
pub const CALL_ERROR: usize = KIB;
/// Bytes of a call's URL in a run record; the rest is cut.
pub const RECORDED_URL: usize = 256;

/// Bytes of a note.
pub const NOTE: usize = KIB;
/// Bytes of all notes of a host together; of the namespace that has most, the oldest are dropped.
pub const NOTES: usize = 64 * MIB;

/// Reconcilers of a description: each has its own keys and watch.
pub const RECONCILERS: usize = 64;
/// Declared reads: each may need a watch and access reviews.
pub const READS: usize = 256;
/// Declared writes.
pub const WRITES: usize = 256;
/// Granted rules of a description.
pub const GRANTS: usize = 256;
/// Outbound rules of a description.
pub const OUTBOUND: usize = 32;
/// Credentials of an outbound rule.
pub const OUTBOUND_CREDENTIALS: usize = 16;
/// Bytes of the origin of an outbound rule.
pub const ORIGIN: usize = 300;
/// Entries of one list of a granted rule.
pub const GRANT_ENTRIES: usize = 128;
/// Bytes of a text of a granted rule: the longest name of an object has 253.
pub const GRANT_TEXT: usize = 512;
/// Single rights of all granted rules together, each of which may be a question to the API server.
/// An operator that installs others has some hundreds in its roles.
pub const GRANTED_RIGHTS: usize = 4_096;
/// Bytes of the label selector in a description: the status of the Processor repeats the selector
/// for each finalizer.
pub const SELECTOR: usize = 4 * KIB;
/// Finalizers of one reconciler: each is a claim that is compared with those of other processors.
pub const FINALIZERS: usize = 4;
/// Bytes of the name of a processor or reconciler: Kubernetes' own bound on a DNS label.
pub const NAME: usize = 63;
/// Bytes of a processor's version, which is shown in the status of the Processor and in metrics.
pub const VERSION: usize = 64;
/// Bytes of a description, including the schema of the configuration. An object of the API server
/// holds 1.5 MiB.
pub const DESCRIPTION: usize = 256 * KIB;
/// Bytes of memory that a description may take while it is copied out of the guest. More than
/// `DESCRIPTION`, so that the error can name the part that makes the description too large.
pub const DESCRIPTION_COPY: usize = 16 * MIB;

/// Bytes of the message of a failure or of a refused configuration; the rest is cut. The message is
/// shown in statuses, logs and events.
pub const FAILURE: usize = 8 * KIB;
/// Bytes of a panic's message; the rest is cut. With its backtrace the message is as long as a
/// failure's may be.
pub const PANIC: usize = 4 * KIB;
/// Bytes of a function's name in a backtrace; the rest is cut.
pub const FUNCTION: usize = 240;
/// Bytes that the objects and the status of an outcome may take when they are parsed: their texts, and
/// [`ENTRY`] for each field and item. Istio's 70 objects take some 4 MiB.
pub const OUTCOME_ACCOUNT: usize = 40 * MIB;
/// Owner references of one object; usual objects have one or two.
pub const OWNERS: usize = 64;
/// Selections that an outcome starts.
pub const STARTS: usize = 1_024;
/// Selections that the outcomes of a processor start together: each change of an object may be
/// compared with all of one kind.
pub const STARTED: usize = 4_096;
/// Bytes of these selections, and of an entry for each object and each selection that it asks for.
pub const STARTED_BYTES: usize = 4 * MIB;

/// Distinct denials of one run that are reported; further ones are only counted.
pub const DENIALS: usize = 8;
/// Bytes of a denial's message; the rest is cut.
pub const DENIAL: usize = 512;

/// Kinds whose objects one processor converts.
pub const CONVERSIONS: usize = 16;
/// Versions of one converted kind.
pub const VERSIONS: usize = 16;
/// Objects of one call of `convert`: the overhead of a call is small against that many, and a long
/// list is converted by concurrent calls.
pub const CONVERTED_OBJECTS: usize = 100;
/// Bytes of the objects of one call of `convert`, unless it is a single one.
pub const CONVERTED_BYTES: usize = MIB;
/// Bytes of the answer of a hook: as much as an outcome. Objects may grow when they are converted.
pub const HOOK_ANSWER: usize = 8 * MIB;
/// Hooks of a processor: each is a path that is served.
pub const HOOKS: usize = 16;
/// Seconds that a hook may ask for: Kubernetes' own bound.
pub const HOOK_SECONDS: usize = 30;
/// Warnings of one answer; the rest is dropped.
pub const WARNINGS: usize = 16;
/// Bytes of a warning; the rest is cut. The API server does not pass on longer ones whole.
pub const WARNING: usize = 256;
