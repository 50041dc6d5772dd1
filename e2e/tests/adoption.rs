//! Taking over what the Go operator made: no template changes until the app's spec asks for it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "support/server.rs"]
mod server;

use esfleet::api::EventSourcedApp;
use esfleet::app::live::resolve;
use esfleet::app::observed::{ADOPTED_TEMPLATE, ObservedApp, ObservedStatefulSet};
use esfleet::app::plan::{FixedField, Memo, ObservedChildren, Step, Why, Write, plan};
use esfleet::kubernetes::projection::ObjectKey;
use esfleet::kubernetes::writer::Writer;
use esfleet::leadership::Term;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

struct Place {
    apps: Api<DynamicObject>,
    sets: Api<DynamicObject>,
}

async fn place(namespace: &str) -> Place {
    let server = server::world(namespace).await;
    let api = |resource: ApiResource| Api::namespaced_with(server.client.clone(), &server.namespace, &resource);
    let apps = api(ApiResource::erase::<EventSourcedApp>(&()));
    let sets = api(ApiResource::from_gvk(&GroupVersionKind::gvk(
        "apps",
        "v1",
        "StatefulSet",
    )));
    Place { apps, sets }
}

impl Place {
    async fn create_app(&self, spec: Value) -> ObservedApp {
        let app = json!({"apiVersion": "es.your.domain/v1alpha1", "kind": "EventSourcedApp",
            "metadata": {"name": "orders"}, "spec": spec});
        self.apps
            .create(&PostParams::default(), &serde_json::from_value(app).unwrap())
            .await
            .unwrap();
        self.app().await
    }

    async fn app(&self) -> ObservedApp {
        ObservedApp::from_value(&serde_json::to_value(self.apps.get("orders").await.unwrap()).unwrap()).unwrap()
    }

    async fn change_app(&self, spec: Value) -> ObservedApp {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.apps
            .patch("orders", &PatchParams::default(), &patch)
            .await
            .unwrap();
        self.app().await
    }

    async fn set(&self) -> Value {
        serde_json::to_value(self.sets.get("orders").await.unwrap()).unwrap()
    }

    /// The step for the StatefulSet as it is, and the fields that cannot be changed.
    async fn step(&self, app: &ObservedApp) -> (Step, Vec<FixedField>) {
        let live = self.set().await;
        let observed = ObservedStatefulSet::from_value(&live).unwrap();
        let children = ObservedChildren {
            stateful_set: Some(&observed),
            ..ObservedChildren::default()
        };
        let plan = plan(app, &children, &Memo::default());
        match plan.stateful_set {
            Step::NeedsLive(_) => (resolve(app, &live, &Memo::default()).unwrap(), plan.fixed),
            step => (step, plan.fixed),
        }
    }

    async fn apply(&self, write: &Write) -> Value {
        let ours = PatchParams::apply("esfleet").force();
        let answer = self
            .sets
            .patch("orders", &ours, &Patch::Apply(&write.object))
            .await
            .unwrap();
        serde_json::to_value(answer).unwrap()
    }
}

fn spec() -> Value {
    json!({"replicas": 3, "image": "localhost/ledger:1", "zookeeperConnectString": "zk:2181", "zookeeperRootPath": "/orders"})
}

/// What the Go operator creates.
fn of_the_go_operator(app: &ObservedApp) -> Value {
    let labels = json!({"app": "orders"});
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "orders", "labels": labels, "ownerReferences": [{"apiVersion": "es.your.domain/v1alpha1",
            "kind": "EventSourcedApp", "name": "orders", "uid": app.uid, "controller": true, "blockOwnerDeletion": true}]},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": labels}, "serviceName": "orders",
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{
                "name": "es-app", "image": "localhost/ledger:1", "ports": [{"containerPort": 8080, "name": "http"}],
                "env": [
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "ZK_CONNECT_STRING", "value": "zk:2181"},
                    {"name": "ZK_ROOT_PATH", "value": "/orders"}]}]}},
        },
    })
}

fn written(step: Step, expected: Why) -> Write {
    match step {
        Step::Change { write, why } if why == expected => write,
        step => panic!("{step:?}"),
    }
}

#[tokio::test]
async fn a_stateful_set_of_the_go_operator_keeps_its_template_until_the_spec_changes() {
    let place = place("adopt").await;
    let app = place.create_app(spec()).await;
    let theirs = serde_json::from_value(of_the_go_operator(&app)).unwrap();
    place
        .sets
        .create(
            &PostParams {
                field_manager: Some("peer".to_owned()),
                ..PostParams::default()
            },
            &theirs,
        )
        .await
        .unwrap();
    let before = place.set().await;

    let (step, fixed) = place.step(&app).await;
    assert_eq!(fixed, [FixedField::PodManagementPolicy]);
    let adopted = place.apply(&written(step, Why::Adopt)).await;
    assert_eq!(adopted["spec"], before["spec"]);
    assert_eq!(adopted["metadata"]["generation"], before["metadata"]["generation"]);
    assert_eq!(
        place.step(&app).await,
        (Step::Nothing, vec![FixedField::PodManagementPolicy])
    );

    let app = place.change_app(json!({"replicas": 4})).await;
    let scaled = place.apply(&written(place.step(&app).await.0, Why::Differs)).await;
    assert_eq!(scaled["spec"]["template"], before["spec"]["template"]);
    assert_eq!(place.step(&app).await.0, Step::Nothing);

    let app = place.change_app(json!({"image": "localhost/ledger:2"})).await;
    let full = place.apply(&written(place.step(&app).await.0, Why::Differs)).await;
    let names: Vec<_> = full["spec"]["template"]["spec"]["containers"][0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["name"].clone())
        .collect();
    assert_eq!(
        names,
        ["POD_NAME", "POD_NAMESPACE", "ZK_CONNECT_STRING", "ZK_ROOT_PATH"]
    );
    assert_eq!(full["metadata"]["annotations"][ADOPTED_TEMPLATE], Value::Null);
    assert_eq!(
        place.step(&app).await,
        (Step::Nothing, vec![FixedField::PodManagementPolicy])
    );
}

#[tokio::test]
async fn one_whose_image_is_not_the_one_that_the_spec_asks_for_gets_the_whole_template() {
    let place = place("adopt-image").await;
    let app = place.create_app(spec()).await;
    let mut theirs = of_the_go_operator(&app);
    theirs["spec"]["template"]["spec"]["containers"][0]["image"] = json!("localhost/ledger:0");
    place
        .sets
        .create(&PostParams::default(), &serde_json::from_value(theirs).unwrap())
        .await
        .unwrap();
    let full = place.apply(&written(place.step(&app).await.0, Why::Adopt)).await;
    assert_eq!(
        full["spec"]["template"]["spec"]["containers"][0]["image"],
        "localhost/ledger:1"
    );
    assert_eq!(full["metadata"]["annotations"], Value::Null);
    assert_eq!(place.step(&app).await.0, Step::Nothing);
}

#[tokio::test]
async fn claims_that_the_spec_changes_stay_as_they_are_and_the_rest_is_carried_over() {
    let place = place("claims").await;
    let claim = |size: &str| {
        json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}}}}])
    };
    let mut spec = spec();
    spec["volumeClaimTemplates"] = claim("1Gi");
    let app = place.create_app(spec).await;
    let absent = plan(&app, &ObservedChildren::default(), &Memo::default());
    let Step::Create(write) = absent.stateful_set else {
        panic!("{absent:?}")
    };
    place.apply(&write).await;
    assert_eq!(place.step(&app).await, (Step::Nothing, vec![]));

    let app = place.change_app(json!({"volumeClaimTemplates": claim("2Gi")})).await;
    assert_eq!(
        place.step(&app).await,
        (Step::Nothing, vec![FixedField::VolumeClaimTemplates])
    );
    let app = place.change_app(json!({"image": "localhost/ledger:2"})).await;
    let answer = place.apply(&written(place.step(&app).await.0, Why::Differs)).await;
    assert_eq!(
        answer["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"],
        "1Gi"
    );
    assert_eq!(
        answer["spec"]["template"]["spec"]["containers"][0]["image"],
        "localhost/ledger:2"
    );
    assert_eq!(
        place.step(&app).await,
        (Step::Nothing, vec![FixedField::VolumeClaimTemplates])
    );
}

#[tokio::test]
async fn what_another_manager_wrote_into_the_status_goes() {
    let place = place("status").await;
    place.create_app(spec()).await;
    let condition = json!({
        "type": "ZookeeperReady", "status": "True", "reason": "Connected", "message": "root znode exists",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let theirs = json!({"status": {"leader": "orders-0", "activeReplicas": 1, "conditions": [condition]}});
    let peer = PatchParams {
        field_manager: Some("peer".to_owned()),
        ..PatchParams::default()
    };
    place
        .apps
        .patch_status("orders", &peer, &Patch::Merge(theirs))
        .await
        .unwrap();
    let (term, _ender) = Term::for_tests(std::time::Duration::from_secs(60));
    let writer = Writer::new(term, place.apps.clone().into_client());
    for leader in [Some("orders-0"), None] {
        let app = place.app().await;
        let mut status = app.status.clone();
        status.leader = leader.map(str::to_owned);
        status.active_replicas = Some(1);
        status.conditions.clear();
        let key = ObjectKey {
            namespace: app.namespace,
            name: app.name,
        };
        writer
            .replace_status(&key, &app.uid, &app.resource_version, &status)
            .await
            .unwrap();
        assert_eq!(place.app().await.status, status);
    }
}
