//! What the room counts.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::telemetry::Registry;

/// How an ensemble's session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum SessionState {
    /// It is being opened.
    Connecting,
    /// It is open.
    Connected,
    /// It could not be opened; the next attempt waits for its time.
    Waiting,
}

/// Why a session ended though it was still needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum LossReason {
    /// The connection was lost.
    Disconnected,
    /// The ensemble has expired it.
    Expired,
    /// The ensemble refused its credentials.
    AuthFailed,
    /// A request was not answered in time.
    Unanswered,
    /// The client ended by itself.
    Closed,
}

/// What was asked of an ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Operation {
    /// Open a session.
    Connect,
    /// Ask whether a znode exists.
    Exists,
    /// Read a znode.
    Read,
    /// Create a znode.
    Create,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Outcome {
    /// It was done.
    Done,
    /// The znode does not exist.
    Absent,
    /// The znode exists already.
    Present,
    /// The ensemble refused it for want of rights.
    Forbidden,
    /// No answer came in time.
    Unanswered,
    /// The session ended before the answer.
    Lost,
    /// The term ended before the answer, and the request with it.
    TermEnded,
    /// Anything else.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: SessionState,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LossLabel {
    reason: LossReason,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    operation: Operation,
    result: Outcome,
}

/// The room's metrics; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ZooKeeperMetrics {
    sessions: Family<StateLabel, Gauge>,
    losses: Family<LossLabel, Counter>,
    requests: Family<RequestLabels, Counter>,
}

impl ZooKeeperMetrics {
    /// Makes the metrics known to `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "esfleet_zookeeper_sessions",
            "ZooKeeper sessions, one for each ensemble in use",
            metrics.sessions.clone(),
        );
        registry.register(
            "esfleet_zookeeper_session_losses",
            "ZooKeeper sessions that ended though they were needed",
            metrics.losses.clone(),
        );
        registry.register(
            "esfleet_zookeeper_requests",
            "Requests to ZooKeeper; pings are not counted",
            metrics.requests.clone(),
        );
        metrics
    }

    pub(super) fn session_entered(&self, state: SessionState) {
        self.sessions.get_or_create(&StateLabel { state }).inc();
    }

    pub(super) fn session_left(&self, state: SessionState) {
        self.sessions.get_or_create(&StateLabel { state }).dec();
    }

    pub(super) fn session_lost(&self, reason: LossReason) {
        self.losses.get_or_create(&LossLabel { reason }).inc();
    }

    pub(super) fn requested(&self, operation: Operation, result: Outcome) {
        self.requests.get_or_create(&RequestLabels { operation, result }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_exported_under_closed_labels() {
        let mut registry = Registry::default();
        let metrics = ZooKeeperMetrics::register(&mut registry);
        metrics.session_entered(SessionState::Connected);
        metrics.session_entered(SessionState::Waiting);
        metrics.session_left(SessionState::Waiting);
        metrics.session_lost(LossReason::Expired);
        metrics.requested(Operation::Read, Outcome::Absent);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let mut values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        values.sort_unstable();
        assert_eq!(
            values,
            [
                "esfleet_zookeeper_requests_total{operation=\"Read\",result=\"Absent\"} 1",
                "esfleet_zookeeper_session_losses_total{reason=\"Expired\"} 1",
                "esfleet_zookeeper_sessions{state=\"Connected\"} 1",
                "esfleet_zookeeper_sessions{state=\"Waiting\"} 0",
            ]
        );
    }
}
