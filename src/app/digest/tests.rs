use super::*;
use serde_json::json;

fn body(object: &Value) -> Part {
    wanted_digest(ChildKind::Service, object).body
}

fn owned(object: &Value) -> Option<Part> {
    owned_digest(ChildKind::Service, object).map(|digest| digest.body)
}

fn managed(manager: &str, operation: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "fieldsV1": fields})
}

#[test]
fn what_means_the_same_has_one_digest() {
    for (one, other) in [
        (json!({"a": null, "b": 1}), json!({"b": 1})),
        (
            json!({"env": [{"name": "a", "value": ""}]}),
            json!({"env": [{"name": "a"}]}),
        ),
        (
            json!({"resources": {"limits": {"cpu": "0.5"}}}),
            json!({"resources": {"limits": {"cpu": "500m"}}}),
        ),
        (
            json!({"resources": {"limits": {"cpu": 1}}}),
            json!({"resources": {"limits": {"cpu": "1"}}}),
        ),
        (
            json!({"emptyDir": {"sizeLimit": "1Gi"}}),
            json!({"emptyDir": {"sizeLimit": "1024Mi"}}),
        ),
        (
            json!({"fieldRef": {"fieldPath": "x"}}),
            json!({"fieldRef": {"fieldPath": "x", "apiVersion": "v1"}}),
        ),
        (
            json!({"hostNetwork": false, "nodeSelector": {}, "tolerations": []}),
            json!({}),
        ),
        (
            json!({"volumeClaimTemplates": [{"metadata": {"name": "a"}, "spec": {}}]}),
            json!({"volumeClaimTemplates": [{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"},
                "metadata": {"name": "a", "creationTimestamp": null}, "spec": {"volumeMode": "Filesystem"}}]}),
        ),
    ] {
        assert_eq!(body(&one), body(&other), "{one} {other}");
    }
}

#[test]
fn what_differs_has_another_digest() {
    for (one, other) in [
        (json!({"a": 1}), json!({"a": "1"})),
        (json!({"a": true}), json!({})),
        (json!({"runAsUser": 0}), json!({})),
        (json!({"tolerationSeconds": 0}), json!({})),
        (json!({"allowPrivilegeEscalation": false}), json!({})),
        (json!({"emptyDir": {}}), json!({})),
        (json!({"namespaceSelector": {}}), json!({})),
        (json!({"storageClassName": ""}), json!({})),
        (json!({"args": ["a", "b"]}), json!({"args": ["b", "a"]})),
        (json!({"args": ["ab"]}), json!({"args": ["a", "b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {}, "b": "c"})),
        (
            json!({"fieldRef": {"fieldPath": "x"}}),
            json!({"fieldRef": {"fieldPath": "y"}}),
        ),
    ] {
        assert_ne!(body(&one), body(&other), "{one} {other}");
    }
}

#[test]
fn a_digest_is_of_what_esfleet_owns() {
    let fields = json!({
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {
            "f:ports": {".": {}, "k:{\"port\":8080,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}}},
            "f:finalizers": {"v:\"ours\"": {}},
            "f:selector": {},
            "f:taken": {},
        },
    });
    let live = json!({
        "metadata": {"name": "orders", "labels": {"app": "orders", "theirs": "x"}, "managedFields": [
            managed("esfleet", "Update", json!({"f:spec": {"f:other": {}}})),
            managed("esfleet", "Apply", fields),
        ]},
        "spec": {
            "other": 1,
            "ports": [
                {"port": 9, "protocol": "TCP", "name": "theirs"},
                {"port": 8080, "protocol": "TCP", "name": "http", "nodePort": 3},
            ],
            "finalizers": ["theirs", "ours"],
            "selector": {"a": "b"},
        },
    });
    let wanted = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "orders", "namespace": "shop", "labels": {"app": "orders"}},
        "spec": {"ports": [{"port": 8080, "name": "http"}], "finalizers": ["ours"], "selector": {"a": "b"}},
    });
    assert_eq!(owned(&live), Some(body(&wanted)));
}

#[test]
fn an_object_that_esfleet_never_applied_has_none() {
    let fields = json!({"f:spec": {}});
    let mut of_status = managed("esfleet", "Apply", fields.clone());
    of_status["subresource"] = json!("status");
    for entries in [
        json!(null),
        json!([]),
        json!([
            managed("peer", "Apply", fields.clone()),
            managed("esfleet", "Update", fields),
            of_status
        ]),
    ] {
        assert_eq!(
            owned(&json!({"metadata": {"managedFields": entries}, "spec": {}})),
            None
        );
    }
}

#[test]
fn the_parts_of_a_stateful_set_are_told_apart() {
    let set = |replicas: i32, image: &str, policy: &str| {
        let spec = json!({"replicas": replicas, "template": {"image": image}, "podManagementPolicy": policy});
        wanted_digest(ChildKind::StatefulSet, &json!({"spec": spec}))
    };
    let one = set(1, "a", "Parallel");
    assert_eq!(one, set(1, "a", "OrderedReady"));
    assert_eq!(
        (
            set(2, "a", "").body == one.body,
            set(2, "a", "").template == one.template
        ),
        (false, true)
    );
    assert_eq!(
        (
            set(1, "b", "").body == one.body,
            set(1, "b", "").template == one.template
        ),
        (true, false)
    );
}

#[test]
fn a_part_is_read_as_it_is_written_and_never_changes_between_builds() {
    let part = text_digest("esfleet");
    assert_eq!(Part::parse(&part.to_string()), Some(part));
    assert_eq!(text_digest("").to_string(), "6c62272e07bb014262b821756295c58d");
    assert_eq!(text_digest("a").to_string(), "d228cb696f1a8caf78912b704e4a8964");
    assert_eq!(Part::parse("d228"), None);
}
