//! Outcomes that the host must refuse.

use mortise_sdk::{
    Level, Manifest, Outcome, Request, bindings::mortise::host::log, kubernetes::ConfigMap,
    object::Metadata,
};
use serde_json::json;

/// Larger than any outcome may be.
const HUGE: usize = 12 * 1000 * 1000;

pub(crate) fn nameless() -> Outcome {
    let metadata = json!({"namespace": "default"});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    Outcome::new().apply(Manifest::json(&object))
}

pub(crate) fn undeclared_kind(request: &Request) -> Outcome {
    let metadata = json!({"name": "stolen", "namespace": request.ref_.namespace});
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
    Outcome::new().apply(Manifest::json(&object))
}

pub(crate) fn huge(request: &Request) -> Outcome {
    let map = ConfigMap {
        metadata: Metadata::new("huge").namespace(request.ref_.namespace.as_deref().unwrap_or("")),
        ..ConfigMap::default()
    };
    // Not as a value: serialising one takes its memory more than once, and this is not a test of
    // memory.
    let mut text = String::with_capacity(HUGE + 1024);
    text.push_str(&Manifest::of(&map).object);
    text.extend(std::iter::repeat_n(' ', HUGE));
    Outcome::new().apply(Manifest::text(text))
}

pub(crate) fn not_json() -> Outcome {
    Outcome::new().apply(Manifest::text("apiVersion: v1\nkind: ConfigMap\n".into()))
}

/// Returns a thousand texts that share the same megabyte: little memory here, a gigabyte for a host
/// that copies them.
#[expect(
    unsafe_code,
    clippy::same_length_and_capacity,
    reason = "a guest that lies about its memory is what this is for"
)]
fn aliases() -> Vec<String> {
    let text: &'static mut str = Box::leak("x".repeat(1 << 20).into_boxed_str());
    let length = text.len();
    let start = text.as_mut_ptr();
    // SAFETY: none. If the texts were ever dropped, the same memory would be freed a thousand
    // times; the host must end the guest before.
    (0..1000).map(|_| unsafe { String::from_raw_parts(start, length, length) }).collect()
}

pub(crate) fn endless() -> Outcome {
    Outcome::new().finalizers(aliases())
}

/// Passes the same texts as the argument of an import.
pub(crate) fn endless_argument() -> Outcome {
    let fields: Vec<(String, String)> =
        aliases().into_iter().map(|text| (String::new(), text)).collect();
    log::write(Level::Info, "endless", &fields);
    std::mem::forget(fields);
    Outcome::new()
}
