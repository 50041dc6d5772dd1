//! Real clusters, real ZooKeeper, and what the scenarios need to put esfleet through its paces on them.
//!
//! A [`World`] holds what the scenarios of one run share: the full clusters `alpha` and `beta`, a ZooKeeper ensemble of
//! three servers and a single server. A [`TestContext`] is what one scenario sees of it: namespaces, clients and esfleet
//! replicas of its own. All that is started belongs to this process and goes with it, however it ends.

pub mod audit;
pub mod cluster;
pub mod context;
pub mod esfleet;
pub mod eventually;
pub mod image;
pub mod member;
pub mod paths;
pub mod process;
pub mod proxy;
pub mod report;
pub mod runner;
pub mod server;
pub mod world;
pub mod zookeeper;

pub use audit::{AuditEvent, AuditLog};
pub use cluster::Cluster;
pub use context::TestContext;
pub use esfleet::{Esfleet, EsfleetBuilder, Replica};
pub use eventually::{eventually, holds, step};
pub use member::Member;
pub use process::{Process, Signal};
pub use proxy::Proxy;
pub use runner::{Scenario, run};
pub use world::World;
pub use zookeeper::ZooKeeper;
