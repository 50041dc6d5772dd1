//! Starts all members side by side and keeps each running, whatever becomes of the others.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::identity::Identities;
use super::member::Member;
use crate::api::{ClusterName, FleetConfig};
use crate::support::supervise::keep_running;

/// When members are probed and tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between two probes.
    pub probe_interval: Duration,
    /// The deadline of a probe.
    pub probe_deadline: Duration,
    /// How many probes in a row fail before a member is unreachable.
    pub probe_failures: u32,
    /// The shortest wait before a connection is tried again.
    pub retry_min: Duration,
    /// The longest.
    pub retry_max: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            probe_interval: Duration::from_secs(10),
            probe_deadline: Duration::from_secs(10),
            probe_failures: 3,
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_secs(60),
        }
    }
}

/// The fleet: its members, each living its own life.
pub struct Fleet {
    /// The fleet's name.
    pub name: ClusterName,
    /// The members, in the order of the config.
    pub members: Vec<Arc<Member>>,
}

impl Fleet {
    /// Starts every member; returns at once. The tasks end with `cancel` and are waited for in `tasks`.
    #[must_use]
    pub fn start(config: FleetConfig, timing: Timing, tasks: &TaskTracker, cancel: &CancellationToken) -> Self {
        let identities = Arc::new(Identities::default());
        let members: Vec<Arc<Member>> = config
            .clusters
            .into_iter()
            .enumerate()
            .map(|(position, entry)| Member::new(entry, position))
            .collect();
        for member in &members {
            let (member, identities, cancel) = (member.clone(), identities.clone(), cancel.clone());
            tasks.spawn(async move {
                let name = format!("member {}", member.config.name);
                keep_running(&name, &cancel, || {
                    let (member, identities, cancel) = (member.clone(), identities.clone(), cancel.clone());
                    async move { member.run(&identities, timing, &cancel).await }
                })
                .await;
            });
        }
        Self {
            name: config.name,
            members,
        }
    }
}
