//! The processor of Konnect with its fake: kills, secrets, load.

mod secrets;
mod watched;
