//! The PodDisruptionBudget.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Target;

/// Lets drains take one pod at a time, and any that is broken anyway.
#[must_use]
pub fn budget(target: Target<'_>) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: target.metadata(),
        spec: Some(PodDisruptionBudgetSpec {
            selector: Some(target.selector()),
            max_unavailable: Some(IntOrString::Int(1)),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}
