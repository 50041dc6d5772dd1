//! The members: from the config to living connections, each isolated from the others' troubles.

pub mod identity;
pub mod member;
pub mod metrics;
pub mod supervisor;

pub use member::{Connection, Member, MemberReason, MemberState, MemberStatus};
pub use supervisor::{Fleet, Timing};
