//! What a real API server makes of the CRD: which apps it refuses, and in which words.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "tables/apps.rs"]
mod apps;
#[path = "support/server.rs"]
mod server;

use esfleet::api::EventSourcedApp;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn object(namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "es.your.domain/v1alpha1",
        "kind": "EventSourcedApp",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    })
}

fn dynamic(client: &kube::Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(
        client.clone(),
        namespace,
        &kube::api::ApiResource::erase::<EventSourcedApp>(&()),
    )
}

/// Creates under strict validation, without persisting.
async fn create(client: &kube::Client, namespace: &str, name: &str, spec: Value) -> Result<(), String> {
    let path = format!(
        "/apis/es.your.domain/v1alpha1/namespaces/{namespace}/eventsourcedapps?fieldValidation=Strict&dryRun=All"
    );
    let body = serde_json::to_vec(&object(namespace, name, spec)).unwrap();
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    client
        .request::<Value>(request)
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn bad_apps_are_refused_with_a_message_that_names_the_field() {
    let world = server::world("crd-bad").await;
    let mut faults = Vec::new();
    for case in apps::refused() {
        match create(&world.client, &world.namespace, &case.name, apps::spec_with(&case.spec)).await {
            Ok(()) => faults.push(format!("{}: accepted", case.what)),
            Err(said) if said.contains(case.message) => {}
            Err(said) => faults.push(format!("{}: {said}", case.what)),
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[tokio::test]
async fn good_apps_are_accepted() {
    let world = server::world("crd-good").await;
    let mut faults = Vec::new();
    for (what, spec) in apps::accepted() {
        if let Err(said) = create(&world.client, &world.namespace, "orders", apps::spec_with(&spec)).await {
            faults.push(format!("{what} {spec}: {said}"));
        }
    }
    let longest = "a".repeat(52);
    if let Err(said) = create(&world.client, &world.namespace, &longest, apps::good_spec()).await {
        faults.push(format!("a name of 52 characters: {said}"));
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[tokio::test]
async fn a_root_path_can_never_be_changed() {
    let world = server::world("crd-root").await;
    let apps = dynamic(&world.client, &world.namespace);
    let app = serde_json::from_value(object(&world.namespace, "orders", apps::good_spec())).unwrap();
    apps.create(&PostParams::default(), &app).await.unwrap();
    let patch = json!({"spec": {"zookeeperRootPath": "/orders/us"}});
    let refused = apps
        .patch("orders", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("zookeeperRootPath is immutable"),
        "{refused}"
    );
    apps.delete("orders", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn no_change_makes_a_good_app_bad() {
    let world = server::world("crd-change").await;
    let api = dynamic(&world.client, &world.namespace);
    let app = serde_json::from_value(object(&world.namespace, "orders", apps::good_spec())).unwrap();
    api.create(&PostParams::default(), &app).await.unwrap();
    for case in apps::refused().iter().filter(|case| case.name == "orders") {
        let unset = case.spec.as_object().unwrap().values().any(Value::is_null);
        let is_strict = case.message.contains("unknown field");
        if unset || is_strict || case.spec.get("zookeeperRootPath").is_some() {
            continue; // such a patch asks for something else
        }
        let patch = Patch::Merge(json!({"spec": case.spec}));
        let refused = api.patch("orders", &PatchParams::default(), &patch).await;
        let said = refused.map(|_| ()).unwrap_err().to_string();
        assert!(said.contains(case.message), "{}: {said}", case.what);
    }
    api.delete("orders", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn the_scale_subresource_drives_the_replicas() {
    let world = server::world("crd-scale").await;
    let apps = dynamic(&world.client, &world.namespace);
    let app = serde_json::from_value(object(&world.namespace, "orders", apps::good_spec())).unwrap();
    apps.create(&PostParams::default(), &app).await.unwrap();
    let status = json!({"status": {"replicas": 3, "selector": "app=orders"}});
    apps.patch_status("orders", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    let scale = json!({"spec": {"replicas": 5}});
    let answer = apps
        .patch_scale("orders", &PatchParams::default(), &Patch::Merge(scale))
        .await
        .unwrap();
    assert_eq!(
        serde_json::to_value(&answer.status).unwrap(),
        json!({"replicas": 3, "selector": "app=orders"})
    );
    assert_eq!(apps.get("orders").await.unwrap().data["spec"]["replicas"], 5);
    let none = json!({"spec": {"replicas": 0}});
    let refused = apps
        .patch_scale("orders", &PatchParams::default(), &Patch::Merge(none))
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("spec.replicas: Invalid value"),
        "{refused}"
    );
    apps.delete("orders", &DeleteParams::default()).await.unwrap();
}
