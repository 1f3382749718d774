//! APIRule.
