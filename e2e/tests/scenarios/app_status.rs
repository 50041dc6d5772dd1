//! What an app is told about itself when something is odd: its leader's znode, its spec, or that it is paused.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use esfleet::api::EventSourcedApp;
use esfleet_e2e::{TestContext, eventually};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use super::app_place::{LeaderLog, Place, SOON, condition, leader, same, substance, write_leader};

/// None, a, none, a: each is in the status within a second; what is no name is named so, and its bytes are shown nowhere.
pub async fn whatever_the_leader_znode_holds_is_told_within_a_second(context: &TestContext) -> Result<()> {
    let (place, esfleet) = Place::with_esfleet(context, "alpha").await?;
    let app = context
        .apply_app("alpha", &place.app_without_nodes("orders", 1))
        .await?;
    let app = {
        place.condition("orders", "LeaderElected", "False", "NoLeader").await?;
        place
            .condition("orders", "WorkloadReady", "False", "ReplicasPending")
            .await?;
        place.app(&app.name_any()).await?
    };
    let zookeeper = context.zookeeper().await?;
    let path = format!("{}/leader", context.root("orders"));
    let mut log = LeaderLog::start(&place, &app).await?;
    for _ in 0..2 {
        for name in [Some("orders-0"), None] {
            let start = SystemTime::now();
            match name {
                Some(name) => drop(write_leader(&zookeeper, &path, name.as_bytes()).await?),
                None => zookeeper.delete(&path, None).await?,
            }
            let late = log
                .next(name)
                .await?
                .saturating_sub(start.duration_since(UNIX_EPOCH)?.as_millis());
            ensure!(late < 1000, "{name:?} was in the status after {late} ms");
        }
    }
    write_leader(&zookeeper, &path, b"orders-0\n").await?;
    log.next(Some("orders-0")).await?;
    let long = "x".repeat(254);
    let odd: [(&[u8], String); 6] = [
        (b"", "is empty".to_owned()),
        (b"   ", "holds nothing but spaces".to_owned()),
        (b"\xac\xed\x00\x05sr\x00\x1fakka", "that are not UTF-8 text".to_owned()),
        (b"a\x1b[31mred", "holds characters that cannot be printed".to_owned()),
        (
            "a\u{202e}b".as_bytes(),
            "holds characters that cannot be printed".to_owned(),
        ),
        (
            long.as_bytes(),
            "holds 254 characters, which is more than the 253 of a name".to_owned(),
        ),
    ];
    for (data, message) in &odd {
        write_leader(&zookeeper, &path, data).await?;
        let wanted = format!("{path} {message}");
        let what = format!("the condition says {wanted:?}");
        let told = context.wait_app("alpha", "orders", &what, |app| {
            let found = condition(app, "LeaderElected").unwrap_or_default();
            found.1 == "LeaderUnreadable" && found.2.starts_with(&path) && found.2.contains(message)
        });
        let told = told.await?;
        ensure!(leader(&told).is_none(), "{:?}", told.status);
        let shown = serde_json::to_string(&told.status)?;
        ensure!(
            !["akka", "red", "\u{202e}", &long]
                .iter()
                .any(|bytes| shown.contains(bytes)),
            "what the znode holds is in the status: {shown}"
        );
    }
    log.next(None).await?;
    write_leader(&zookeeper, &path, "größte-0".as_bytes()).await?;
    log.next(Some("größte-0")).await?;
    zookeeper.delete(&path, None).await?;
    log.next(None).await?;
    let reasons: Vec<String> = place
        .told_last(&app, "LeaderLost")
        .await?
        .into_iter()
        .map(|(_, reason, _)| reason)
        .collect();
    let expected = [
        "Created",
        "LeaderElected",
        "LeaderLost",
        "LeaderElected",
        "LeaderLost",
        "LeaderElected",
        "LeaderUnreadable",
        "LeaderElected",
        "LeaderLost",
    ];
    ensure!(reasons == expected, "{reasons:?}");
    nothing_is_written(&place, &esfleet).await
}

/// A leader that esfleet may not read is another thing than none, and is seen as soon as it may be read or is gone.
pub async fn a_leader_that_may_not_be_read_is_told_as_such(context: &TestContext) -> Result<()> {
    let (place, _esfleet) = Place::with_esfleet(context, "beta").await?;
    let zookeeper = context.zookeeper().await?;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    zookeeper.mkdir(&context.root("orders"), &open).await?;
    let path = format!("{}/leader", context.root("orders"));
    let theirs = AuthId::new("digest", "somebody:qnmsrTXx1J1mbtjZUXSPnOiCMoo=");
    let secret = [
        Acl::new(Permission::ALL, theirs),
        Acl::new(Permission::ADMIN, AuthId::anyone()),
    ];
    let closed = CreateMode::Persistent.with_acls(Acls::new(&secret));
    zookeeper.create(&path, b"orders-0", &closed).await?;
    let app = context.apply_app("beta", &place.app_without_nodes("orders", 2)).await?;
    let told = place
        .condition("orders", "LeaderElected", "Unknown", "LeaderForbidden")
        .await?;
    let message = condition(&told, "LeaderElected").context("the condition")?.2;
    let expected = format!("ZooKeeper refuses to let esfleet read {path}; let esfleet read it by an ACL");
    ensure!(message == expected, "{message}");
    ensure!(leader(&told).is_none(), "{:?}", told.status);
    place.made("orders").await?;
    let everyone = [Acl::new(Permission::ALL, AuthId::anyone())];
    zookeeper.set_acl(&path, &everyone, None).await?;
    place.condition("orders", "LeaderElected", "True", "Elected").await?;
    ensure!(
        leader(&place.app(&app.name_any()).await?) == Some("orders-0"),
        "the leader is not named"
    );
    zookeeper.delete(&path, None).await?;
    place
        .condition("orders", "LeaderElected", "False", "NoLeader")
        .await
        .map(drop)
}

/// With nothing left to do, nothing is written, whatever is touched that is none of ours.
async fn nothing_is_written(place: &Place<'_>, esfleet: &esfleet_e2e::Esfleet) -> Result<()> {
    let mark = place.cluster()?.audit()?.mark()?;
    place.looked_at(esfleet, "orders", 3).await?;
    let writes = place.writes(esfleet, mark)?;
    ensure!(writes.is_empty(), "{writes:?}");
    Ok(())
}

/// An ensemble that cannot be reached is something else than a leader that is absent, and keeps nothing else from being done.
pub async fn an_ensemble_that_is_not_there_stops_nothing_else(context: &TestContext) -> Result<()> {
    let (place, _esfleet) = Place::with_esfleet(context, "alpha").await?;
    let nowhere = esfleet_e2e::esfleet::free_address()?;
    let mut wanted = place.app_without_nodes("orders", 2);
    wanted.spec.zookeeper_connect_string = nowhere.to_string();
    let app = context.apply_app("alpha", &wanted).await?;
    place.made("orders").await?;
    let told = place
        .condition("orders", "ZooKeeperReady", "False", "Unreachable")
        .await?;
    let message = condition(&told, "ZooKeeperReady").context("the condition")?.2;
    ensure!(
        message.contains(&nowhere.to_string()) && message.contains("spec.zookeeperConnectString"),
        "{message}"
    );
    place
        .condition("orders", "LeaderElected", "Unknown", "Unreachable")
        .await?;
    place
        .condition("orders", "WorkloadReady", "False", "ReplicasPending")
        .await?;
    wanted.spec.replicas = 3;
    context.apply_app("alpha", &wanted).await?;
    let scaled = |set: &Value| same("replicas", &set["spec"]["replicas"], &json!(3));
    place
        .becomes::<StatefulSet>(SOON, "orders", "is scaled", scaled)
        .await?;
    ensure!(
        place.told_of(&app, "ZooKeeperNotReady").await?.len() == 1,
        "{:?}",
        place.told(&app).await?
    );
    Ok(())
}

/// A paused app is looked at and told about itself, and nothing is changed; what was put off is done when it goes on.
pub async fn a_paused_app_is_observed_and_not_changed(context: &TestContext) -> Result<()> {
    let (place, esfleet) = Place::with_esfleet(context, "beta").await?;
    let mut wanted = place.app_without_nodes("orders", 2);
    wanted.spec.paused = true;
    context.apply_app("beta", &wanted).await?;
    let app = place.condition("orders", "WorkloadReady", "False", "Paused").await?;
    place
        .condition("orders", "ZooKeeperReady", "False", "RootMissing")
        .await?;
    ensure!(place.objects("orders").await.is_err(), "a paused app got objects");
    ensure!(
        context
            .zookeeper()
            .await?
            .check_stat(&context.root("orders"))
            .await?
            .is_none(),
        "a paused app got a root"
    );
    wanted.spec.paused = false;
    context.apply_app("beta", &wanted).await?;
    let before = place.made("orders").await?;
    place
        .condition("orders", "ZooKeeperReady", "True", "RootExists")
        .await?;

    wanted.spec.paused = true;
    context.apply_app("beta", &wanted).await?;
    context
        .wait_app("beta", "orders", "is paused", |app| {
            condition(app, "Ready").is_some_and(|(.., message)| message.ends_with("(paused: esfleet changes nothing)"))
        })
        .await?;
    let mark = place.cluster()?.audit()?.mark()?;
    place
        .merge::<StatefulSet>("orders", json!({"spec": {"replicas": 1}}))
        .await?;
    place
        .merge::<Service>("orders", json!({"spec": {"publishNotReadyAddresses": false}}))
        .await?;
    place
        .api::<PodDisruptionBudget>()
        .await?
        .delete("orders", &Default::default())
        .await?;
    let path = format!("{}/leader", context.root("orders"));
    write_leader(&context.zookeeper().await?, &path, b"orders-0").await?;
    context
        .wait_app("beta", "orders", "the status goes on", |app| {
            leader(app) == Some("orders-0") && app.status.as_ref().is_some_and(|status| status.replicas == Some(1))
        })
        .await?;
    place.looked_at(&esfleet, "orders", 2).await?;
    let writes = place.object_writes(&esfleet, mark)?;
    ensure!(writes.is_empty(), "{writes:?}");

    wanted.spec.paused = false;
    context.apply_app("beta", &wanted).await?;
    eventually(SOON, "what was put off is done", || async {
        for (now, then) in place.objects("orders").await?.iter().zip(&before) {
            let mut now = substance(now);
            now["annotations"] = then["metadata"]["annotations"].clone(); // the mark of our looks
            same("an object", &now, &substance(then))?;
        }
        Ok(())
    })
    .await?;
    eventually(SOON, "one Event tells that its objects were made", || async {
        let told = place.told_of(&app, "Created").await?;
        ensure!(told.len() == 1, "{told:?}");
        Ok(())
    })
    .await
}

/// Apps that an older definition let through are named and left alone; the others go on, also in the listing.
pub async fn apps_that_do_not_parse_are_reported_and_skipped(context: &TestContext) -> Result<()> {
    let cluster = context.light_cluster("older", &[]).await?;
    let place = Place {
        context,
        cluster: "older",
    };
    cluster.apply(OLDER).await?;
    cluster
        .kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=30s",
            "crd/eventsourcedapps.es.your.domain",
        ])
        .await?;
    let namespace = context.namespace("older").await?;
    let apps: Api<DynamicObject> = Api::namespaced_with(
        context.client("older").await?,
        &namespace,
        &ApiResource::erase::<EventSourcedApp>(&()),
    );
    let good = serde_json::to_value(place.app_without_nodes("x", 2))?["spec"].clone();
    let with = |field: &str, value: Value| {
        let mut spec = good.clone();
        spec[field] = value;
        spec
    };
    let odd = [
        ("a-words", with("replicas", json!("three")), "spec does not parse"),
        ("b-zero", with("replicas", json!(0)), "spec.replicas must be at least 1"),
        ("c-empty", json!({}), "spec does not parse"),
        (
            "d-root",
            with("zookeeperRootPath", json!("/a//b")),
            "spec.zookeeperRootPath",
        ),
        ("e-list", with("template", json!([1, 2])), "spec does not parse"),
    ];
    for (name, spec, _) in &odd {
        let object = json!({"apiVersion": "es.your.domain/v1alpha1", "kind": "EventSourcedApp", "metadata": {"name": name}, "spec": spec});
        eventually(SOON, "the older definition takes it", || async {
            Ok(apps
                .create(&PostParams::default(), &serde_json::from_value(object.clone())?)
                .await?)
        })
        .await?;
    }
    let esfleet = context.esfleet()?.with(context.member("older").await?).start().await?;
    context
        .apply_app("older", &place.app_without_nodes("orders", 2))
        .await?;
    place.made("orders").await?;
    place
        .condition("orders", "ZooKeeperReady", "True", "RootExists")
        .await?;
    for (name, _, reason) in &odd {
        ensure!(!place.exists::<StatefulSet>(name).await?, "{name} got a StatefulSet");
        eventually(SOON, &format!("{name} is told what is wrong"), || async {
            let app = serde_json::to_value(apps.get(name).await?)?;
            let ready = app["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|it| it["type"] == "Ready");
            let ready = ready.with_context(|| format!("{app}"))?;
            let message = ready["message"].as_str().unwrap_or_default();
            ensure!(ready["reason"] == "InvalidSpec" && message.contains(reason), "{ready}");
            Ok(())
        })
        .await?;
    }
    let mark = cluster.audit()?.mark()?;
    place.looked_at(&esfleet, "orders", 2).await?;
    ensure!(
        place.writes(&esfleet, mark)?.is_empty(),
        "{:?}",
        place.writes(&esfleet, mark)?
    );
    let listing = esfleet.status().await?;
    let names: Vec<&str> = listing["apps"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|row| row["name"].as_str())
        .collect();
    ensure!(
        names == ["a-words", "b-zero", "c-empty", "d-root", "e-list", "orders"],
        "{listing}"
    );
    Ok(())
}

/// A definition of ours that checks nothing.
const OLDER: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: eventsourcedapps.es.your.domain}
spec:
  group: es.your.domain
  scope: Namespaced
  names: {kind: EventSourcedApp, plural: eventsourcedapps, singular: eventsourcedapp, shortNames: [esapp]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
