//! What `/metrics` says about leadership.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::term::TermEnd;
use crate::telemetry::Registry;

/// Why an attempt on the Lease failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum FailureReason {
    /// Somebody else wrote the Lease first.
    Conflict,
    /// We may not do this to the Lease.
    Forbidden,
    /// Our credentials are refused.
    Unauthorized,
    /// The namespace of the Lease does not exist.
    NamespaceMissing,
    /// The hub asks us to slow down.
    Throttled,
    /// The hub found the Lease that we wrote invalid.
    Invalid,
    /// The hub answered with an error of its own.
    Server,
    /// The hub did not answer in time.
    Timeout,
    /// The hub could not be reached.
    Connection,
    /// The answer made no sense.
    Unexpected,
}

/// The label of failed attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FailureLabels {
    reason: FailureReason,
}

/// The label of ended terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EndLabels {
    reason: TermEnd,
}

/// The metrics of this room; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LeadershipMetrics {
    leads: Gauge,
    term: Gauge,
    holder_changes: Counter,
    terms_ended: Family<EndLabels, Counter>,
    failures: Family<FailureLabels, Counter>,
    last_handover: Gauge<f64, AtomicU64>,
}

impl LeadershipMetrics {
    /// Makes the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let m = metrics.clone();
        registry.register(
            "esfleet_leadership_leads",
            "1 while this replica leads, else 0",
            m.leads,
        );
        registry.register(
            "esfleet_leadership_term",
            "Number of the term that the Lease shows",
            m.term,
        );
        registry.register(
            "esfleet_leadership_holder_changes",
            "Changes of the holder of the Lease that this replica saw",
            m.holder_changes,
        );
        registry.register(
            "esfleet_leadership_terms_ended",
            "Terms of this replica that ended, by reason",
            m.terms_ended,
        );
        registry.register(
            "esfleet_leadership_attempt_failures",
            "Attempts to acquire, renew or release the Lease that failed, by reason",
            m.failures,
        );
        registry.register(
            "esfleet_leadership_last_handover_seconds",
            "From the last sign of the previous holder until this replica won its latest term",
            m.last_handover,
        );
        metrics
    }

    pub(super) fn set_leads(&self, leads: bool) {
        self.leads.set(i64::from(leads));
    }

    pub(super) fn set_term(&self, number: i64) {
        self.term.set(number);
    }

    /// The election counts; this follows it.
    pub(super) fn set_holder_changes(&self, times: u64) {
        self.holder_changes
            .inc_by(times.saturating_sub(self.holder_changes.get()));
    }

    pub(super) fn term_ended(&self, reason: TermEnd) {
        self.terms_ended.get_or_create(&EndLabels { reason }).inc();
    }

    pub(super) fn failed(&self, reason: FailureReason) {
        self.failures.get_or_create(&FailureLabels { reason }).inc();
    }

    pub(super) fn handed_over(&self, seconds: f64) {
        self.last_handover.set(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_are_written_under_their_names() {
        let mut registry = Registry::default();
        let metrics = LeadershipMetrics::register(&mut registry);
        metrics.set_leads(true);
        metrics.set_term(7);
        metrics.set_holder_changes(2);
        metrics.set_holder_changes(2);
        metrics.term_ended(TermEnd::Lost);
        metrics.failed(FailureReason::Forbidden);
        metrics.handed_over(1.5);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let values: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "esfleet_leadership_leads 1",
            "esfleet_leadership_term 7",
            "esfleet_leadership_holder_changes_total 2",
            "esfleet_leadership_terms_ended_total{reason=\"Lost\"} 1",
            "esfleet_leadership_attempt_failures_total{reason=\"Forbidden\"} 1",
            "esfleet_leadership_last_handover_seconds 1.5",
        ];
        assert_eq!(values, expected);
    }
}
