//! The world itself: what the other scenarios take for granted.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use esfleet_e2e::{TestContext, eventually};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

/// A pod runs in a full cluster, and ZooKeeper keeps what it is told.
pub async fn pods_run_and_zookeeper_answers(context: &TestContext) -> Result<()> {
    let set: StatefulSet = serde_json::from_value(json!({
        "metadata": {"name": "sleeper"},
        "spec": {
            "serviceName": "sleeper", "replicas": 1, "selector": {"matchLabels": {"app": "sleeper"}},
            "template": {"metadata": {"labels": {"app": "sleeper"}}, "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "sleeper", "image": "localhost/pause:1", "imagePullPolicy": "Never"}],
            }},
        },
    }))?;
    let sets: Api<StatefulSet> = context.api("alpha").await?;
    sets.create(&PostParams::default(), &set).await?;
    eventually(Duration::from_secs(60), "the StatefulSet's pod is Ready", || async {
        let ready = sets
            .get("sleeper")
            .await?
            .status
            .and_then(|status| status.ready_replicas);
        ensure!(ready == Some(1), "ready replicas: {ready:?}");
        Ok(())
    })
    .await?;

    let zookeeper = context.zookeeper().await?;
    let open = zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
    zookeeper.mkdir(&context.root("smoke"), &open).await?;
    let (children, _) = zookeeper.get_children(&format!("/{}", context.id())).await?;
    assert_eq!(children, ["smoke"]);
    Ok(())
}

/// A light cluster keeps its objects when its API server is killed, counts every write, and collects garbage.
pub async fn a_light_cluster_survives_the_death_of_its_api_server(context: &TestContext) -> Result<()> {
    let cluster = context.light_cluster("gamma", &[]).await?;
    let maps: Api<ConfigMap> = context.api("gamma").await?;
    let mark = cluster.audit()?.mark()?;
    let map = |name: &str, owner: serde_json::Value| -> Result<ConfigMap> {
        Ok(serde_json::from_value(
            json!({"metadata": {"name": name, "ownerReferences": owner}}),
        )?)
    };
    let owner = maps.create(&PostParams::default(), &map("owner", json!([]))?).await?;
    let uid = owner.metadata.uid.context("an object has a UID")?;
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
    maps.create(&PostParams::default(), &map("owned", reference)?).await?;
    let written = cluster.audit()?.since(mark)?;
    let maps_written = written
        .iter()
        .filter(|event| event.resource == "configmaps" && event.namespace == context.id());
    assert_eq!(
        maps_written
            .filter(|event| event.user == "admin" && event.code == 201)
            .count(),
        2
    );

    let server = cluster.component("kube-apiserver")?;
    server.kill().await?;
    ensure!(maps.get("owned").await.is_err(), "a killed API server answers");
    server.start()?;
    eventually(Duration::from_secs(60), "the API server is back", || async {
        Ok(maps.get("owned").await?)
    })
    .await?;
    maps.delete("owner", &DeleteParams::background()).await?;
    eventually(Duration::from_secs(60), "what it owned is collected", || async {
        ensure!(maps.get_opt("owned").await?.is_none(), "it is still there");
        Ok(())
    })
    .await
}
