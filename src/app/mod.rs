//! Pure decisions: no client, no async, no clock, no environment.

pub mod ensemble;
