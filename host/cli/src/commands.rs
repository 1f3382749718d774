//! The commands for the authors of processors, one file each.

pub mod bench;
pub mod completion;
pub mod dev;
pub mod inspect;
pub mod new;
pub mod pull;
pub mod push;
pub mod simulate;
pub mod test;
