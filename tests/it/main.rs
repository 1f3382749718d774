//! Guests, host and embedded API together: one binary, since each links wasmtime again.

#[cfg(test)]
mod crds;
#[cfg(test)]
mod goldens;
#[cfg(test)]
mod guests;
#[cfg(test)]
mod host;
