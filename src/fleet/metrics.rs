//! The members' states, counted when they are asked for.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::member::{Member, MemberState};

/// The room's metrics.
#[derive(Debug)]
pub struct FleetMetrics {
    members: Members,
}

struct Members(Vec<Arc<Member>>);

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} members", self.0.len())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, EncodeLabelValue)]
enum State {
    Unknown,
    Connected,
    Degraded,
    Unreachable,
    Paused,
}

#[derive(Debug, EncodeLabelSet)]
struct Labels {
    state: State,
}

const STATES: [(State, MemberState); 5] = [
    (State::Unknown, MemberState::Unknown),
    (State::Connected, MemberState::Connected),
    (State::Degraded, MemberState::Degraded),
    (State::Unreachable, MemberState::Unreachable),
    (State::Paused, MemberState::Paused),
];

impl FleetMetrics {
    /// Registers them.
    pub fn register(registry: &mut Registry, members: Vec<Arc<Member>>) {
        registry.register_collector(Box::new(Self {
            members: Members(members),
        }));
    }
}

impl Collector for FleetMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let states: Vec<MemberState> = self.members.0.iter().map(|member| member.status().state).collect();
        let mut members = encoder.encode_descriptor(
            "esfleet_members",
            "Members by state",
            None,
            prometheus_client::metrics::MetricType::Gauge,
        )?;
        for (label, state) in STATES {
            let count = i64::try_from(states.iter().filter(|known| **known == state).count()).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(members.encode_family(&Labels { state: label })?)?;
        }
        let waiting: usize = self
            .members
            .0
            .iter()
            .flat_map(|member| &member.scopes)
            .map(|scope| scope.dirty.len())
            .sum();
        let depth = ConstGauge::new(i64::try_from(waiting).unwrap_or(i64::MAX));
        let queue = encoder.encode_descriptor(
            "esfleet_reconcile_queue_depth",
            "Apps that wait to be reconciled",
            None,
            depth.metric_type(),
        )?;
        depth.encode(queue)
    }
}
