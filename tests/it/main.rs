//! Guests, host and embedded API together: one binary, since each links wasmtime again.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        reason = "tests stand for other people, who write as they like"
    )
)]

#[cfg(test)]
mod cases;
#[cfg(test)]
mod chart;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod cosign;
#[cfg(test)]
mod crds;
#[cfg(test)]
mod goldens;
#[cfg(test)]
mod guests;
#[cfg(test)]
mod guides;
#[cfg(test)]
mod host;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod istio_client;
#[cfg(test)]
mod konnect;
#[cfg(test)]
mod kubectl;
#[cfg(test)]
mod languages;
#[cfg(test)]
mod registry;
#[cfg(test)]
mod simulate;
