//! What an API server makes of our applies is told from its answer alone: the digest of what we own
//! is the digest of what we sent, and is not once somebody has changed a field of ours.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "support/server.rs"]
mod server;

use esfleet::api::{EventSourcedApp, EventSourcedAppSpec};
use esfleet::app::ChildKind;
use esfleet::app::digest::{owned_digest, wanted_digest};
use esfleet::app::plan::ABSENT;
use esfleet::app::resources::{Target, wanted};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

/// A namespace with an app that owns the test's objects, as objects without a living owner are collected.
struct Place {
    server: server::World,
    uid: String,
}

async fn place(namespace: &str) -> Place {
    let server = server::world(namespace).await;
    let mut app = EventSourcedApp::new("orders", spec(&json!({})));
    app.metadata.namespace = Some(server.namespace.clone());
    let apps: Api<EventSourcedApp> = Api::namespaced(server.client.clone(), &server.namespace);
    let uid = apps
        .create(&PostParams::default(), &app)
        .await
        .unwrap()
        .metadata
        .uid
        .unwrap();
    Place { server, uid }
}

const KINDS: [ChildKind; 3] = [ChildKind::Service, ChildKind::StatefulSet, ChildKind::Budget];

fn spec(extra: &Value) -> EventSourcedAppSpec {
    let mut spec = json!({
        "replicas": 3,
        "image": "localhost/ledger:1",
        "zookeeperConnectString": "zk-0.zookeeper:2181",
        "zookeeperRootPath": "/orders",
    });
    spec.as_object_mut()
        .unwrap()
        .extend(extra.as_object().cloned().unwrap_or_default());
    serde_json::from_value(spec).unwrap()
}

/// An overlay of many kinds of field: defaulted, atomic, merged by key, rewritten, empty.
fn rich() -> Value {
    let claim = json!({"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}});
    json!({
        "volumeClaimTemplates": [claim],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
        "template": {
            "metadata": {"annotations": {"a": "b"}, "labels": {"tier": "x"}},
            "spec": {
                "nodeSelector": {"disk": "ssd"},
                "hostNetwork": false,
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": false,
                "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
                    {"key": "l", "value": "v"}],
                "securityContext": {"runAsUser": 0, "fsGroup": 7, "supplementalGroups": [1, 2],
                    "seccompProfile": {"type": "RuntimeDefault"}},
                "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1,
                    "podAffinityTerm": {"topologyKey": "zone", "namespaceSelector": {},
                        "labelSelector": {"matchLabels": {"app": "orders"}}}}]}},
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
                    "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "orders"}}}],
                "imagePullSecrets": [{"name": "pull"}],
                "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a", "b"]}],
                "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
                "volumes": volumes(),
                "initContainers": [{"name": "init", "image": "i", "command": ["true"], "resources": {}}],
                "containers": [container(), {"name": "sidecar", "image": "s", "args": ["x"], "stdin": false}],
            },
        },
    })
}

fn volumes() -> Value {
    json!([
        {"name": "scratch", "emptyDir": {"sizeLimit": "1.5Gi"}},
        {"name": "empty", "emptyDir": {}},
        {"name": "config", "configMap": {"name": "c", "items": [{"key": "a", "path": "b"}]}},
        {"name": "projected", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}},
            {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                {"path": "cpu", "resourceFieldRef": {"containerName": "es-app", "resource": "limits.cpu"}}]}}]}},
        {"name": "ephemeral", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}}},
    ])
}

fn container() -> Value {
    json!({
        "name": "es-app",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": 0.5, "memory": "512Mi"}, "limits": {"cpu": 1, "memory": "1024Mi"}},
        "ports": [{"containerPort": 9090, "name": "metrics"}],
        "env": [
            {"name": "EMPTY", "value": ""},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": false}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        ],
        "envFrom": [{"configMapRef": {"name": "c"}}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "initialDelaySeconds": 0},
        "livenessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 5},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": false}, {"name": "scratch", "mountPath": "/tmp"}],
    })
}

fn path(kind: ChildKind, namespace: &str) -> String {
    let resources = match kind {
        ChildKind::Service => "api/v1/namespaces/{}/services",
        ChildKind::StatefulSet => "apis/apps/v1/namespaces/{}/statefulsets",
        ChildKind::Budget => "apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    };
    format!("/{}/orders", resources.replace("{}", namespace))
}

/// A PATCH; the answer, or the status code of a refusal.
async fn patch(world: &Place, kind: ChildKind, query: &str, form: &str, body: &Value) -> Result<Value, u16> {
    let uri = format!("{}?{query}", path(kind, &world.server.namespace));
    let request = http::Request::patch(uri)
        .header("content-type", form)
        .body(serde_json::to_vec(body).unwrap());
    match world.server.client.request::<Value>(request.unwrap()).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(refused)) => Err(refused.code),
        Err(error) => panic!("{kind}: {error}"),
    }
}

async fn apply(world: &Place, kind: ChildKind, body: &Value) -> Result<Value, u16> {
    patch(
        world,
        kind,
        "fieldManager=esfleet&force=true",
        "application/apply-patch+yaml",
        body,
    )
    .await
}

async fn edit(world: &Place, kind: ChildKind, body: &Value) -> Value {
    patch(
        world,
        kind,
        "fieldManager=kubectl-edit",
        "application/merge-patch+json",
        body,
    )
    .await
    .unwrap()
}

fn target<'a>(world: &'a Place, spec: &'a EventSourcedAppSpec) -> Target<'a> {
    Target {
        namespace: &world.server.namespace,
        name: "orders",
        uid: &world.uid,
        spec,
    }
}

/// Applies, and compares what we own with what we sent; the answer.
async fn settles(world: &Place, kind: ChildKind, spec: &EventSourcedAppSpec) -> Value {
    let wanted = wanted(kind, target(world, spec));
    let answer = apply(world, kind, &wanted).await.unwrap();
    let (owned, sent) = (owned_digest(kind, &answer), Some(wanted_digest(kind, &wanted)));
    assert_eq!(owned, sent, "{kind}\nsent: {wanted}\nanswer: {answer}");
    answer
}

#[tokio::test]
async fn what_we_own_after_an_apply_is_what_we_sent() {
    let world = place("digest-plain").await;
    for extra in [
        json!({}),
        json!({"template": {"spec": {"nodeSelector": {}, "tolerations": []}}}),
        json!({"replicas": 5}),
    ] {
        for kind in KINDS {
            settles(&world, kind, &spec(&extra)).await;
        }
    }
}

#[tokio::test]
async fn that_holds_for_an_overlay_with_everything_in_it() {
    let world = place("digest-rich").await;
    for kind in KINDS {
        settles(&world, kind, &spec(&rich())).await;
    }
}

#[tokio::test]
async fn a_field_of_ours_that_is_edited_shows_and_comes_back() {
    let world = place("digest-edit").await;
    let spec = spec(&json!({}));
    let variables = json!([{"name": "POD_NAME", "value": "mine"}]);
    for (kind, change) in [
        (ChildKind::Service, json!({"spec": {"publishNotReadyAddresses": false}})),
        (ChildKind::Service, json!({"metadata": {"labels": {"app": "other"}}})),
        (ChildKind::Service, json!({"metadata": {"ownerReferences": null}})),
        (ChildKind::StatefulSet, json!({"spec": {"replicas": 1}})),
        (
            ChildKind::StatefulSet,
            json!({"spec": {"template": {"spec": {"containers":
            [{"name": "es-app", "image": "other", "env": variables}]}}}}),
        ),
        (
            ChildKind::Budget,
            json!({"spec": {"maxUnavailable": null, "minAvailable": 2}}),
        ),
    ] {
        let settled = owned_digest(kind, &settles(&world, kind, &spec).await);
        let edited = edit(&world, kind, &change).await;
        assert_ne!(owned_digest(kind, &edited), settled, "{kind}: {change}");
        settles(&world, kind, &spec).await;
    }
}

#[tokio::test]
async fn a_field_of_others_does_not_show() {
    let world = place("digest-other").await;
    let spec = spec(&json!({}));
    for (kind, change) in [
        (
            ChildKind::Service,
            json!({"metadata": {"labels": {"theirs": "x"}}, "spec": {"sessionAffinity": "ClientIP"}}),
        ),
        (
            ChildKind::StatefulSet,
            json!({"spec": {"minReadySeconds": 3, "template": {"metadata": {"annotations": {"a": "b"}}}}}),
        ),
        (ChildKind::Budget, json!({"metadata": {"annotations": {"a": "b"}}})),
    ] {
        let settled = owned_digest(kind, &settles(&world, kind, &spec).await);
        let edited = edit(&world, kind, &change).await;
        assert_eq!(owned_digest(kind, &edited), settled, "{kind}: {change}");
    }
}

#[tokio::test]
async fn an_apply_with_the_absent_version_creates_and_never_overwrites() {
    let world = place("digest-absent").await;
    let spec = spec(&json!({}));
    for kind in KINDS {
        let mut object = wanted(kind, target(&world, &spec));
        object["metadata"]["resourceVersion"] = json!(ABSENT);
        let first = apply(&world, kind, &object).await;
        assert!(first.is_ok(), "{kind}: {first:?}");
        assert_eq!(apply(&world, kind, &object).await, Err(409), "{kind}");
    }
}
