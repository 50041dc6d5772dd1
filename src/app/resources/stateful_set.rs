//! The StatefulSet.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};

use super::{Target, merged_template};

/// Runs the pods, all at once: with an order, a broken pod 0 would keep a deleted pod 2 away.
#[must_use]
pub fn stateful_set(target: Target<'_>) -> StatefulSet {
    let claims = &target.spec.volume_claim_templates;
    StatefulSet {
        metadata: target.metadata(),
        spec: Some(StatefulSetSpec {
            replicas: Some(target.spec.replicas),
            selector: target.selector(),
            service_name: Some(target.name.to_owned()),
            pod_management_policy: Some("Parallel".to_owned()),
            template: merged_template(target),
            volume_claim_templates: (!claims.is_empty()).then(|| claims.clone()),
            persistent_volume_claim_retention_policy: target.spec.persistent_volume_claim_retention_policy.clone(),
            ..StatefulSetSpec::default()
        }),
        status: None,
    }
}
