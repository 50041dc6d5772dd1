//! What another operator made, and what nobody can change.

use anyhow::{Context as _, Result, bail, ensure};
use esfleet::api::EventSourcedApp;
use esfleet_e2e::TestContext;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::app_place::{PODS, Place, SOON, condition, same};

/// The objects that the Go operator makes: the StatefulSet alone (`--minimal`) or all three.
async fn as_the_go_operator(place: &Place<'_>, name: &str, full: bool) -> Result<()> {
    let app = place.app(name).await?;
    let (labels, ports) = (
        json!({"app": name}),
        json!([{"name": "http", "port": 8080, "protocol": "TCP", "targetPort": 8080}]),
    );
    let owner = json!([{"apiVersion": "es.your.domain/v1alpha1", "kind": "EventSourcedApp", "name": name,
        "uid": app.metadata.uid, "controller": true, "blockOwnerDeletion": true}]);
    let params = PostParams {
        field_manager: Some("peer".to_owned()),
        ..PostParams::default()
    };
    let mut set = json!({
        "metadata": {"name": name, "labels": labels, "ownerReferences": owner},
        "spec": {"replicas": app.spec.replicas, "selector": {"matchLabels": labels}, "serviceName": name,
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{
                "name": "es-app", "image": app.spec.image, "ports": [{"containerPort": 8080, "name": "http"}],
                "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "ZK_CONNECT_STRING", "value": app.spec.zookeeper_connect_string},
                    {"name": "ZK_ROOT_PATH", "value": app.spec.zookeeper_root_path}]}]}}},
    });
    if full {
        set["spec"]["podManagementPolicy"] = json!("Parallel");
        let service: Service = serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": owner},
            "spec": {"clusterIP": "None", "selector": labels, "ports": ports, "publishNotReadyAddresses": true}}))?;
        place.api().await?.create(&params, &service).await?;
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": name, "ownerReferences": owner}, "spec": {"selector": {"matchLabels": labels},
                "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}}))?;
        place.api().await?.create(&params, &budget).await?;
    }
    let set: StatefulSet = serde_json::from_value(set)?;
    place.api().await?.create(&params, &set).await?;
    let status = json!({"status": {"leader": format!("{name}-0"), "activeReplicas": 2, "conditions": [
        {"type": "ZookeeperReady", "status": "True", "reason": "Connected", "message": "root znode exists",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}]}});
    let merge = PatchParams {
        field_manager: Some("peer".to_owned()),
        ..PatchParams::default()
    };
    place
        .api::<EventSourcedApp>()
        .await?
        .patch_status(name, &merge, &Patch::Merge(status))
        .await?;
    Ok(())
}

/// What the Go operator made is taken over without a pod restarting; the next image brings our whole template.
pub async fn objects_of_the_go_operator_are_taken_over_without_a_restart(context: &TestContext) -> Result<()> {
    let place = Place {
        context,
        cluster: "alpha",
    };
    let mut esfleet = context
        .esfleet()?
        .with(context.member("alpha").await?)
        .prepare()
        .await?;
    let mut apps = Vec::new();
    for (name, full) in [("minimal", false), ("full", true)] {
        let mut app = context.app(name);
        (app.spec.replicas, app.spec.template) = (2, None);
        let root = zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
        context.zookeeper().await?.mkdir(&context.root(name), &root).await?;
        context.apply_app("alpha", &app).await?;
        as_the_go_operator(&place, name, full).await?;
        apps.push(app);
    }
    let mut before = Vec::new();
    for app in &apps {
        let ready = |set: &Value| match set["status"]["readyReplicas"] == 2 {
            true => Ok(()),
            false => bail!("{}", set["status"]),
        };
        let set = place
            .becomes::<StatefulSet>(PODS, &app.name_any(), "pods are Ready", ready)
            .await?;
        before.push((set, place.pods(&app.name_any()).await?));
    }

    let index = esfleet.add_replica().await?;
    esfleet.replica(index)?.serves().await?;
    for (app, (set, pods)) in apps.iter().zip(&before) {
        let name = app.name_any();
        let taken = context.wait_ready("alpha", &name).await?;
        place.made(&name).await?;
        let told: Vec<String> = place
            .told(&taken)
            .await?
            .into_iter()
            .map(|(_, reason, _)| reason)
            .collect();
        ensure!(told.first().is_some_and(|first| first == "TakenOver"), "{told:?}");
        place.looked_at(&esfleet, &name, 2).await?;
        let now = place.get::<StatefulSet>(&name).await?;
        same("the spec", &now["spec"], &set["spec"])?;
        same(
            "the generation",
            &now["metadata"]["generation"],
            &set["metadata"]["generation"],
        )?;
        ensure!(
            now["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "esfleet",
            "{}",
            now["metadata"]
        );
        ensure!(place.pods(&name).await? == *pods, "pods of {name} restarted");
    }

    for app in &mut apps {
        app.spec.image = context.world().sample_image(2);
        context.apply_app("alpha", app).await?;
    }
    for (app, (_, pods)) in apps.iter().zip(&before) {
        let name = app.name_any();
        context
            .wait_app("alpha", &name, "runs the new image", |app| {
                condition(app, "Ready").is_some_and(|(state, ..)| state == "True")
            })
            .await?;
        let set = place.get::<StatefulSet>(&name).await?;
        let template = &set["spec"]["template"];
        let container = &template["spec"]["containers"][0];
        let names: Vec<&str> = container["env"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it["name"].as_str())
            .collect();
        assert_eq!(
            names,
            ["POD_NAME", "POD_NAMESPACE", "ZK_CONNECT_STRING", "ZK_ROOT_PATH"]
        );
        same("the image", &container["image"], &json!(app.spec.image))?;
        same(
            "the labels",
            &template["metadata"]["labels"],
            &json!({"app": name, "app.kubernetes.io/name": name,
            "app.kubernetes.io/instance": name, "app.kubernetes.io/managed-by": "esfleet"}),
        )?;
        let now = place.has_pods(&name, 2).await?;
        ensure!(
            now.iter().all(|pod| !pods.contains(pod)),
            "{name} did not roll: {now:?}"
        );
    }
    Ok(())
}

/// A field that can never be changed is named in a condition and in one Event, and tried never.
pub async fn a_field_that_cannot_be_changed_is_named_and_not_tried(context: &TestContext) -> Result<()> {
    let (place, esfleet) = Place::with_esfleet(context, "beta").await?;
    let mut wanted = place.app_without_nodes("orders", 2);
    let claims = |size: &str| {
        serde_json::from_value(json!([{"metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}}]))
    };
    wanted.spec.volume_claim_templates = claims("1Gi")?;
    context.apply_app("beta", &wanted).await?;
    place.made("orders").await?;
    place
        .condition("orders", "WorkloadReady", "False", "ReplicasPending")
        .await?;
    wanted.spec.volume_claim_templates = claims("2Gi")?;
    context.apply_app("beta", &wanted).await?;
    let app = place
        .condition("orders", "WorkloadReady", "False", "ImmutableField")
        .await?;
    let message = condition(&app, "Ready").context("Ready")?.2;
    ensure!(
        message.contains("spec.volumeClaimTemplates of StatefulSet orders differs and can never be changed"),
        "{message}"
    );

    place.told_last(&app, "ImmutableField").await?;
    let mark = place.cluster()?.audit()?.mark()?;
    place.looked_at(&esfleet, "orders", 4).await?;
    let mut writes = place.writes(&esfleet, mark)?;
    ensure!(writes.is_empty(), "nothing can be done, but {writes:?}");
    wanted.spec.replicas = 3;
    context.apply_app("beta", &wanted).await?;
    let scaled = |set: &Value| same("replicas", &set["spec"]["replicas"], &json!(3));
    place
        .becomes::<StatefulSet>(SOON, "orders", "what can be changed is", scaled)
        .await?;
    place
        .condition("orders", "WorkloadReady", "False", "ImmutableField")
        .await?;
    writes = place.writes(&esfleet, mark)?;
    writes.retain(|write| write.resource == "statefulsets");
    ensure!(writes.len() == 1, "one change, one write: {writes:?}");
    ensure!(
        place.told_of(&app, "ImmutableField").await?.len() == 1,
        "{:?}",
        place.told(&app).await?
    );

    place
        .api::<StatefulSet>()
        .await?
        .delete("orders", &DeleteParams::orphan())
        .await?;
    place
        .condition("orders", "WorkloadReady", "False", "ReplicasPending")
        .await?;
    let set = place.get::<StatefulSet>("orders").await?;
    same(
        "the claim",
        &set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"],
        &json!("2Gi"),
    )?;

    wanted.spec.paused = true; // so that the Service is not made anew before ours is there
    context.apply_app("beta", &wanted).await?;
    let is_paused = |app: &EventSourcedApp| condition(app, "Ready").is_some_and(|(.., said)| said.contains("paused"));
    context.wait_app("beta", "orders", "is paused", is_paused).await?;
    let services = place.api::<Service>().await?;
    let mut service = services.get("orders").await?;
    services.delete("orders", &DeleteParams::default()).await?;
    let addressed = json!({"selector": {"app": "orders"}, "ports": [{"name": "http", "port": 8080}]});
    service.spec = Some(serde_json::from_value(addressed)?);
    (service.metadata.resource_version, service.metadata.uid) = (None, None);
    services.create(&PostParams::default(), &service).await?;
    wanted.spec.paused = false;
    context.apply_app("beta", &wanted).await?;
    let app = place
        .condition("orders", "WorkloadReady", "False", "ImmutableField")
        .await?;
    let message = condition(&app, "Ready").context("Ready")?.2;
    ensure!(message.contains("spec.clusterIP of Service orders"), "{message}");
    services.delete("orders", &DeleteParams::default()).await?;
    place
        .condition("orders", "WorkloadReady", "False", "ReplicasPending")
        .await
        .map(drop)
}
