use super::*;
use crate::support::yaml;
use serde_json::json;

fn spec(extra: Value) -> EventSourcedAppSpec {
    let mut spec = json!({
        "replicas": 3, "image": "ledger:1", "zookeeperConnectString": "zk:2181", "zookeeperRootPath": "/orders",
    });
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    serde_json::from_value(spec).unwrap()
}

fn made(kind: ChildKind, extra: Value) -> Value {
    let spec = spec(extra);
    wanted(
        kind,
        Target {
            namespace: "shop",
            name: "orders",
            uid: "u",
            spec: &spec,
        },
    )
}

fn pod(overlay: Value) -> Value {
    made(ChildKind::StatefulSet, json!({"template": overlay}))["spec"]["template"].clone()
}

fn metadata() -> Value {
    json!({
        "name": "orders", "namespace": "shop",
        "labels": {"app": "orders", "app.kubernetes.io/name": "orders", "app.kubernetes.io/instance": "orders",
            "app.kubernetes.io/managed-by": "esfleet"},
        "ownerReferences": [{"apiVersion": "es.your.domain/v1alpha1", "kind": "EventSourcedApp", "name": "orders",
            "uid": "u", "controller": true}],
    })
}

#[test]
fn the_stateful_set_of_a_plain_app() {
    let expected: Value = yaml::from_str(
        "
replicas: 3
serviceName: orders
podManagementPolicy: Parallel
selector: {matchLabels: {app: orders}}
template:
  metadata:
    labels:
      app: orders
      app.kubernetes.io/name: orders
      app.kubernetes.io/instance: orders
      app.kubernetes.io/managed-by: esfleet
  spec:
    containers:
    - name: es-app
      image: ledger:1
      ports: [{name: http, containerPort: 8080, protocol: TCP}]
      env:
      - {name: POD_NAME, value: null, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}
      - {name: POD_NAMESPACE, value: null, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}}
      - {name: ZK_CONNECT_STRING, value: 'zk:2181', valueFrom: null}
      - {name: ZK_ROOT_PATH, value: /orders, valueFrom: null}
",
    )
    .unwrap();
    let set = made(ChildKind::StatefulSet, json!({}));
    assert_eq!((&set["metadata"], &set["spec"]), (&metadata(), &expected));
}

#[test]
fn the_service_is_headless_and_names_pods_before_they_are_ready() {
    let expected = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(),
        "spec": {"type": "ClusterIP", "clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"app": "orders"},
            "ports": [{"name": "http", "port": 8080, "targetPort": 8080, "protocol": "TCP"}]},
    });
    assert_eq!(made(ChildKind::Service, json!({})), expected);
}

#[test]
fn the_budget_lets_one_pod_go_at_a_time_and_broken_ones_always() {
    let expected = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(),
        "spec": {"maxUnavailable": 1, "minAvailable": null, "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {"app": "orders"}}},
    });
    assert_eq!(made(ChildKind::Budget, json!({})), expected);
}

#[test]
fn claims_and_their_policy_are_the_users() {
    let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]);
    let policy = json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
    let set = made(
        ChildKind::StatefulSet,
        json!({"volumeClaimTemplates": claims, "persistentVolumeClaimRetentionPolicy": policy}),
    );
    let got = &set["spec"]["volumeClaimTemplates"][0];
    assert_eq!(
        (&got["metadata"]["name"], &got["spec"]),
        (&json!("data"), &json!({"accessModes": ["ReadWriteOnce"]}))
    );
    assert_eq!(set["spec"]["persistentVolumeClaimRetentionPolicy"], policy);
}

#[test]
fn the_overlay_is_merged_by_the_keys_that_kubernetes_merges_by() {
    let pod = pod(json!({
        "metadata": {"labels": {"tier": "a", "app.kubernetes.io/name": "ledger"}, "annotations": {"x": "y"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "containers": [
                {"name": "es-app", "ports": [{"containerPort": 8080, "name": "web"}, {"containerPort": 9090}],
                 "env": [{"name": "MODE", "value": "x"}], "args": ["run"]},
                {"name": "side", "image": "s"},
            ],
        },
    }));
    assert_eq!(
        pod["metadata"],
        json!({"annotations": {"x": "y"}, "labels": {"app": "orders", "tier": "a", "app.kubernetes.io/name": "ledger",
            "app.kubernetes.io/instance": "orders", "app.kubernetes.io/managed-by": "esfleet"}})
    );
    let ours = &pod["spec"]["containers"][0];
    assert_eq!(
        ours["ports"],
        json!([{"containerPort": 8080, "name": "web", "protocol": "TCP"}, {"containerPort": 9090}])
    );
    let names: Vec<_> = ours["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["POD_NAME", "POD_NAMESPACE", "ZK_CONNECT_STRING", "ZK_ROOT_PATH", "MODE"]
    );
    assert_eq!(
        (&ours["args"], &pod["spec"]["nodeSelector"]),
        (&json!(["run"]), &json!({"disk": "ssd"}))
    );
    assert_eq!(pod["spec"]["containers"][1], json!({"name": "side", "image": "s"}));
}

#[test]
fn the_selectors_label_the_image_and_our_variables_stay_ours() {
    let plain = pod(json!({}));
    let overlaid = pod(json!({
        "metadata": {"labels": {"app": "other"}},
        "spec": {"containers": [{"name": "es-app", "image": "other", "env": [
            {"name": "POD_NAME", "value": "x"},
            {"name": "ZK_ROOT_PATH", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}]},
    }));
    assert_eq!(overlaid, plain);
}
