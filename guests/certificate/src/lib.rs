//! X.509 certificates for servers in a cluster: made, read and checked.
//!
//! The functions get the time, and take random bytes from the system. Certificates are made with
//! ECDSA over P-256, which takes milliseconds in a component; certificates with RSA are read.
//!
//! | module | holds |
//! | --- | --- |
//! | [`issue`] | a new authority, and a certificate of it for a server |
//! | [`chain`] | a chain of certificates that exists, and its checks |

pub mod chain;
pub mod issue;

pub use chain::{Chain, Fault};
pub use issue::{Issued, Server};
