//! The processor of Konnect with its fake: kills, secrets, load.

mod frozen;
mod hand_over;
mod kept;
mod killed;
mod objects;
mod rig;
mod secrets;
mod trap;
mod watched;
