//! How often and how long apps are reconciled.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// How one reconciliation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum ReconcileResult {
    /// The app is as it should be, as far as that can be done now.
    Done,
    /// Somebody else was faster with a write; tried again at once.
    Stale,
    /// It failed; tried again later.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    result: ReconcileResult,
}

/// The room's metrics.
#[derive(Debug, Clone)]
pub struct ReconcileMetrics {
    results: Family<Labels, Counter>,
    seconds: Histogram,
}

impl ReconcileMetrics {
    /// Registers them.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            results: Family::default(),
            seconds: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
        };
        registry.register(
            "esfleet_reconciles",
            "Reconciliations of apps by result",
            metrics.results.clone(),
        );
        registry.register(
            "esfleet_reconcile_seconds",
            "Duration of one reconciliation",
            metrics.seconds.clone(),
        );
        metrics
    }

    pub(super) fn record(&self, result: ReconcileResult, took: Duration) {
        self.results.get_or_create(&Labels { result }).inc();
        self.seconds.observe(took.as_secs_f64());
    }
}
