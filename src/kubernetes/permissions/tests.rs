use super::*;

fn names(objects: &[Value]) -> Vec<String> {
    objects
        .iter()
        .map(|object| {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
            format!(
                "{} {}/{}",
                text("/kind"),
                text("/metadata/namespace"),
                text("/metadata/name")
            )
        })
        .collect()
}

#[test]
fn a_member_without_namespaces_gets_one_cluster_role() {
    assert_eq!(
        names(&member_objects("esfleet", &[])),
        [
            "Namespace -/esfleet",
            "ServiceAccount esfleet/esfleet",
            "ClusterRole -/esfleet",
            "ClusterRoleBinding -/esfleet",
        ]
    );
}

#[test]
fn a_member_with_namespaces_gets_a_role_in_each_and_the_identity_only_cluster_wide() {
    let objects = member_objects("ops", &["a".to_owned(), "b".to_owned()]);
    assert_eq!(
        names(&objects),
        [
            "Namespace -/ops",
            "ServiceAccount ops/esfleet",
            "ClusterRole -/esfleet-cluster-identity",
            "ClusterRoleBinding -/esfleet-cluster-identity",
            "Role a/esfleet",
            "RoleBinding a/esfleet",
            "Role b/esfleet",
            "RoleBinding b/esfleet",
        ]
    );
    assert_eq!(
        objects[2]["rules"],
        serde_json::json!([{"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]}])
    );
    assert_eq!(
        objects[5]["subjects"],
        serde_json::json!([{"kind": "ServiceAccount", "name": "esfleet", "namespace": "ops"}])
    );
}

#[test]
fn the_rules_are_exactly_what_the_code_does() {
    let objects = member_objects("esfleet", &[]);
    let all = ["get", "list", "watch", "create", "patch"];
    assert_eq!(
        objects[2]["rules"],
        serde_json::json!([
            {"apiGroups": ["es.your.domain"], "resources": ["eventsourcedapps"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["es.your.domain"], "resources": ["eventsourcedapps/status"], "verbs": ["update"]},
            {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": all},
            {"apiGroups": [""], "resources": ["services"], "verbs": all},
            {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]},
        ])
    );
}

#[test]
fn the_hub_grants_leases_in_one_namespace_only() {
    let objects = hub_objects("esfleet");
    assert_eq!(
        names(&objects),
        [
            "Namespace -/esfleet",
            "ServiceAccount esfleet/esfleet",
            "Role esfleet/esfleet-lease",
            "RoleBinding esfleet/esfleet-lease",
        ]
    );
    assert_eq!(
        objects[2]["rules"],
        serde_json::json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch", "create", "patch"]}])
    );
}
