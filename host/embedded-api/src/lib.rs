//! An API.
