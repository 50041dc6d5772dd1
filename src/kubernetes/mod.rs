//! Clients with deadlines, watches reduced to slim projections, guarded writes and Events.

pub mod client;
pub mod events;
pub mod fault;
pub mod permissions;
pub mod projection;
pub mod scope;
pub mod store;
pub mod trouble;
pub mod watch;
pub mod writer;
