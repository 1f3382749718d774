//! The commands for the authors of processors, one file each.

pub mod bench;
pub mod completion;
pub mod dev;
pub mod diff;
pub mod inspect;
pub mod new;
pub mod pull;
pub mod push;
pub mod sign;
pub mod simulate;
pub mod test;
pub mod verify;
