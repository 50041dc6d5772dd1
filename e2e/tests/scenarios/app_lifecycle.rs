//! From an app's creation to its deletion, with pods that run.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use esfleet::api::EventSourcedApp;
use esfleet_e2e::{TestContext, eventually, holds};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::app_place::{LeaderLog, PODS, Place, SOON, Told, condition, leader, same};

/// How late a change of the leader znode may be in the status.
const WITHIN: u128 = 1000;

/// An app gets exactly what the contract says, is told about itself, and follows every change of its spec.
pub async fn an_app_is_made_scaled_and_rolled(context: &TestContext) -> Result<()> {
    let (place, _esfleet) = Place::with_esfleet(context, "alpha").await?;
    let mut wanted = context.app("orders");
    wanted.spec.replicas = 2;
    context.apply_app("alpha", &wanted).await?;
    let app = context.wait_ready("alpha", "orders").await?;
    objects_are_as_the_contract_says(&place, &app).await?;
    status_is_as_the_contract_says(&place, &app, 2)?;
    let told = place.told_last(&app, "LeaderElected").await?;
    let note = "made Service, StatefulSet and, for more than one replica, PodDisruptionBudget";
    ensure!(
        told[0] == ("Normal".to_owned(), "Created".to_owned(), note.to_owned()),
        "{told:?}"
    );
    let others: Vec<&str> = told[1..].iter().map(|(_, reason, _)| &**reason).collect();
    ensure!(others == ["LeaderElected"], "{told:?}");
    columns_are_as_the_contract_says(&place, &app).await?;

    context
        .kubectl("alpha", &["scale", "esapp/orders", "--replicas=1"])
        .await?;
    place.is_there::<PodDisruptionBudget>("orders", false).await?;
    place.has_pods("orders", 1).await?;
    let app = context.wait_ready("alpha", "orders").await?;
    status_is_as_the_contract_says(&place, &app, 1)?;

    wanted.spec.replicas = 2; // `kubectl scale` owns it now, and we take it back
    wanted.spec.image = context.world().sample_image(2);
    context.apply_app("alpha", &wanted).await?;
    let app = context.wait_ready("alpha", "orders").await?;
    status_is_as_the_contract_says(&place, &app, 2)?;
    place.is_there::<PodDisruptionBudget>("orders", true).await?;
    for (pod, _) in place.has_pods("orders", 2).await? {
        let state = eventually(SOON, "the pod answers", || context.pod_get("alpha", &pod, "/state")).await?;
        same("its version", &state["version"], &json!("2"))?;
    }

    let overlay = wanted.spec.template.as_mut().context("the overlay")?;
    let change = json!({"metadata": {"annotations": {"example.com/note": "changed"}}});
    overlay.metadata = serde_json::from_value(change["metadata"].clone())?;
    wanted.spec.replicas = 1;
    context.apply_app("alpha", &wanted).await?;
    context.wait_ready("alpha", "orders").await?;
    let pods = place.has_pods("orders", 1).await?;
    let pod = place.get::<Pod>(&pods[0].0).await?;
    same(
        "the pod's note",
        &pod["metadata"]["annotations"]["example.com/note"],
        &json!("changed"),
    )?;
    ensure!(
        place.told_of(&app, "Degraded").await?.is_empty(),
        "{:?}",
        place.told(&app).await?
    );
    Ok(())
}

async fn objects_are_as_the_contract_says(place: &Place<'_>, app: &EventSourcedApp) -> Result<()> {
    let [service, set, budget] = place.objects("orders").await?;
    let labels = json!({"app": "orders", "app.kubernetes.io/name": "orders", "app.kubernetes.io/instance": "orders",
        "app.kubernetes.io/managed-by": "esfleet"});
    let owners = json!([{"apiVersion": "es.your.domain/v1alpha1", "kind": "EventSourcedApp", "name": "orders",
        "uid": app.metadata.uid, "controller": true}]);
    for object in [&service, &set, &budget] {
        same("the labels", &object["metadata"]["labels"], &labels)?;
        same("the owner", &object["metadata"]["ownerReferences"], &owners)?;
    }
    let spec = &service["spec"];
    same(
        "the Service",
        &json!([
            spec["clusterIP"],
            spec["publishNotReadyAddresses"],
            spec["selector"],
            spec["ports"]
        ]),
        &json!(
        ["None", true, {"app": "orders"}, [{"name": "http", "port": 8080, "protocol": "TCP", "targetPort": 8080}]]),
    )?;
    same(
        "the budget",
        &budget["spec"],
        &json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": "orders"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow"}),
    )?;
    let spec = &set["spec"];
    same(
        "the StatefulSet",
        &json!([
            spec["replicas"],
            spec["selector"],
            spec["serviceName"],
            spec["podManagementPolicy"]
        ]),
        &json!(
        [2, {"matchLabels": {"app": "orders"}}, "orders", "Parallel"]),
    )?;
    same("the pods' labels", &spec["template"]["metadata"]["labels"], &labels)?;
    let container = &spec["template"]["spec"]["containers"][0];
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}});
    let found = json!([
        container["name"],
        container["image"],
        container["ports"],
        container["env"]
    ]);
    same(
        "the container",
        &found,
        &json!(["es-app", app.spec.image,
        [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"),
            {"name": "ZK_CONNECT_STRING", "value": app.spec.zookeeper_connect_string},
            {"name": "ZK_ROOT_PATH", "value": app.spec.zookeeper_root_path}]]),
    )
}

fn status_is_as_the_contract_says(place: &Place<'_>, app: &EventSourcedApp, replicas: i32) -> Result<()> {
    let status = serde_json::to_value(app.status.as_ref().context("a status")?)?;
    let counts = json!([
        status["activeReplicas"],
        status["replicas"],
        status["updatedReplicas"],
        status["selector"],
        status["observedGeneration"]
    ]);
    same(
        "the status",
        &counts,
        &json!([replicas, replicas, replicas, "app=orders", app.metadata.generation]),
    )?;
    let name = leader(app).context("a leader")?;
    ensure!(
        (0..replicas).any(|number| name == format!("orders-{number}")),
        "{name} is no pod of the app"
    );
    let root = place.context.root("orders");
    for (kind, reason, message) in [
        ("ZooKeeperReady", "RootExists", format!("the root {root} exists")),
        (
            "WorkloadReady",
            "ReplicasReady",
            format!("{replicas} of {replicas} pods are Ready"),
        ),
        ("LeaderElected", "Elected", format!("{name} leads")),
        ("Ready", "AllReady", "pods are Ready and one leads".to_owned()),
    ] {
        let found = condition(app, kind).with_context(|| format!("{kind} of the present generation"))?;
        ensure!(
            found == ("True".to_owned(), reason.to_owned(), message),
            "{kind}: {found:?}"
        );
    }
    Ok(())
}

async fn columns_are_as_the_contract_says(place: &Place<'_>, app: &EventSourcedApp) -> Result<()> {
    let table = place
        .context
        .kubectl(place.cluster, &["get", "esapp", "orders", "-o", "wide"])
        .await?;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    ensure!(
        rows[0]
            == [
                "NAME", "REPLICAS", "ACTIVE", "LEADER", "READY", "AGE", "IMAGE", "REASON"
            ],
        "{table}"
    );
    let wanted = [
        "orders",
        "2",
        "2",
        leader(app).unwrap_or_default(),
        "True",
        rows[1][5],
        &app.spec.image,
        "AllReady",
    ];
    ensure!(rows[1] == wanted, "{table}");
    Ok(())
}

/// An autoscaler of the app drives `spec.replicas`, and nothing takes its number back.
pub async fn an_autoscaler_scales_an_app_and_nothing_is_reverted(context: &TestContext) -> Result<()> {
    let (place, esfleet) = Place::with_esfleet(context, "beta").await?;
    context.apply_app("beta", &place.app_without_nodes("orders", 1)).await?;
    place
        .condition("orders", "WorkloadReady", "False", "ReplicasPending")
        .await?;
    let scaler: HorizontalPodAutoscaler = serde_json::from_value(json!({"metadata": {"name": "orders"}, "spec": {
        "minReplicas": 3, "maxReplicas": 5,
        "scaleTargetRef": {"apiVersion": "es.your.domain/v1alpha1", "kind": "EventSourcedApp", "name": "orders"}}}))?;
    place.api().await?.create(&PostParams::default(), &scaler).await?;
    let scaled = |object: &Value| same("replicas", &object["spec"]["replicas"], &json!(3));
    place
        .becomes::<EventSourcedApp>(PODS, "orders", "is scaled by the autoscaler", scaled)
        .await?;
    place.becomes::<StatefulSet>(SOON, "orders", "follows", scaled).await?;
    place.has_pods("orders", 3).await?;
    place.is_there::<PodDisruptionBudget>("orders", true).await?;
    place.looked_at(&esfleet, "orders", 2).await?;
    holds(Duration::from_secs(1), "the autoscaler's number stays", || async {
        scaled(&place.get::<EventSourcedApp>("orders").await?)?;
        scaled(&place.get::<StatefulSet>("orders").await?)
    })
    .await
}

/// When the app's leader dies, another leads, and the status says so within a second of ZooKeeper.
pub async fn the_death_of_an_apps_leader_is_in_its_status_within_a_second(context: &TestContext) -> Result<()> {
    let (place, _esfleet) = Place::with_esfleet(context, "beta").await?;
    let mut wanted = context.app("orders");
    wanted.spec.replicas = 3;
    context.apply_app("beta", &wanted).await?;
    let mut app = context.wait_ready("beta", "orders").await?;
    let zookeeper = context.zookeeper().await?;
    let path = format!("{}/leader", context.root("orders"));
    let log = LeaderLog::start(&place, &app).await?;
    let mut graces = vec![None, Some(0)];
    let mut tries = 0;
    while let Some(grace) = graces.last().copied() {
        tries += 1;
        ensure!(tries <= 8, "the pod that replaces the dead one wins every election");
        let (before, stat) = zookeeper.get_data(&path).await?;
        let dead = String::from_utf8(before)?;
        ensure!(
            leader(&app) == Some(&*dead),
            "{dead} leads, the status says {:?}",
            leader(&app)
        );
        let how = DeleteParams {
            grace_period_seconds: grace,
            ..DeleteParams::default()
        };
        place.api::<Pod>().await?.delete(&dead, &how).await?;
        let (next, elected) = eventually(PODS, "another pod leads", || async {
            let (data, now) = zookeeper.get_data(&path).await?;
            ensure!(now.czxid != stat.czxid, "{dead} still does");
            Ok((String::from_utf8(data)?, now.ctime))
        })
        .await?;
        if next == dead {
            // the pod that took its place and name was the fastest, which is its right; its status need not change
            app = context.wait_ready("beta", "orders").await?;
            continue;
        }
        graces.pop();
        let seen = log.when(Some(&next)).await?;
        let late = seen.saturating_sub(u128::try_from(elected)?);
        eprintln!("the leader's change was in the status after {late} ms");
        ensure!(
            late < WITHIN,
            "{next} leads since {elected}, and the status says so {late} ms later"
        );
        app = context.wait_ready("beta", "orders").await?;
        let changed = ("LeaderChanged".to_owned(), format!("{next} leads, after {dead}"));
        let lost = ("LeaderLost".to_owned(), format!("nobody leads; {dead} did"));
        eventually(SOON, "an Event tells of it", || async {
            let told = place
                .told(&app)
                .await?
                .into_iter()
                .map(|(_, reason, note)| (reason, note));
            let told: Vec<_> = told.collect();
            ensure!(told.contains(&changed) || told.contains(&lost), "{told:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// A deleted app's objects and pods go by cascade and its znodes stay; one made again at once under its name finds them.
pub async fn a_deleted_app_leaves_its_znodes_to_the_next_of_its_name(context: &TestContext) -> Result<()> {
    let (place, _esfleet) = Place::with_esfleet(context, "alpha").await?;
    let mut wanted = context.app("orders");
    wanted.spec.replicas = 2;
    let first = context.apply_app("alpha", &wanted).await?;
    let app = context.wait_ready("alpha", "orders").await?;
    let deposit = json!({"id": "first", "command": {"deposit": {"account": "alice", "amount": 5}}});
    let pod = leader(&app).context("a leader")?;
    eventually(SOON, "an event is taken", || {
        context.pod_post("alpha", pod, "/events", &deposit)
    })
    .await?;
    let old = place.pods("orders").await?;

    let apps = place.api::<EventSourcedApp>().await?;
    apps.delete("orders", &DeleteParams::background()).await?;
    let again = context.apply_app("alpha", &wanted).await?;
    ensure!(again.metadata.uid != first.metadata.uid, "it is the same app");
    let app = context.wait_ready("alpha", "orders").await?;
    ensure!(app.metadata.uid == again.metadata.uid, "it is another app");
    let owners = place
        .objects("orders")
        .await?
        .map(|object| object["metadata"]["ownerReferences"][0]["uid"].clone());
    ensure!(
        owners.iter().all(|owner| *owner == json!(again.metadata.uid)),
        "{owners:?}"
    );
    let pods = place.has_pods("orders", 2).await?;
    ensure!(
        pods.iter().all(|pod| !old.contains(pod)),
        "pods of the first app are left: {pods:?}"
    );
    let told = place.told(&again).await?;
    let only = |(kind, reason, _): &Told| kind == "Normal" || reason == "LeaderLost"; // pods of the first app still led
    ensure!(told.iter().all(only), "{told:?}");
    ensure!(
        told.iter().filter(|(_, reason, _)| reason == "Created").count() == 1,
        "{told:?}"
    );
    let accounts = eventually(SOON, "the pod answers", || {
        context.pod_get("alpha", &pods[0].0, "/accounts")
    })
    .await?;
    same("what the first app's events made", &accounts, &json!({"alice": 5}))?;

    apps.delete("orders", &DeleteParams::background()).await?;
    place.is_there::<StatefulSet>("orders", false).await?;
    place.is_there::<Service>("orders", false).await?;
    place.is_there::<PodDisruptionBudget>("orders", false).await?;
    place.has_pods("orders", 0).await?;
    let (children, _) = context.zookeeper().await?.get_children(&context.root("orders")).await?;
    ensure!(children.iter().any(|child| child == "events"), "{children:?}");
    Ok(())
}
