//! Before a real control plane: `mortise_tests::cluster` says how there comes to be one.

mod harness;
