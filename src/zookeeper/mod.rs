//! ZooKeeper: pooled, disposable sessions; the apps' roots and leaders.
//!
//! [`Pool`] is what the rooms above use. Below it, from top to bottom: one task per registered app (`app_watch`, with
//! `root` and `app_leader`), one task per ensemble that keeps its session (`ensemble`), the requests of a session
//! (`session`), and the opening of one (`dial`).

mod app_leader;
mod app_watch;
mod dial;
mod ensemble;
mod key;
mod metrics;
mod pool;
mod root;
mod session;

pub use metrics::{SessionState, ZooKeeperMetrics};
pub use pool::{Changed, Pool, PoolConfig, SessionView, Target};
