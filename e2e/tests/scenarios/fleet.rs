//! Many clusters: each served on its own, whatever becomes of the others.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use esfleet::api::EventSourcedApp;
use esfleet_e2e::member::{ACCOUNT, Access, Member, grant};
use esfleet_e2e::{Proxy, Replica, TestContext, eventually};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use zookeeper_client::{Acls, CreateMode};

use super::fleet_place::{
    SOON, but_the_lease, check_member, file, has_replicas, member_is, order, prove_audit_is_live, quick, ready,
    resting_app, row, scale, served, told,
};

/// How late members that answer may be served, whatever the others do.
const SERVED_WITHIN: Duration = Duration::from_secs(5);

/// Two members have an app of the same name on one ensemble: both are served, and neither is taken for the other.
pub async fn equally_named_apps_of_two_members_are_both_served(context: &TestContext) -> Result<()> {
    let (alpha, beta) = (context.member("alpha").await?, context.member("beta").await?);
    let esfleet = quick(context)?.with(alpha).with(beta).start().await?;
    for (cluster, replicas) in [("alpha", 1), ("beta", 2)] {
        let mut app = resting_app(context, cluster, "orders");
        app.spec.replicas = replicas;
        context.apply_app(cluster, &app).await?;
    }
    let zookeeper = context.zookeeper().await?;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for cluster in ["alpha", "beta"] {
        served(context, cluster, "orders").await?;
        let root = context.root(&format!("{cluster}/orders"));
        let leader = format!("orders-of-{cluster}");
        zookeeper
            .create(&format!("{root}/leader"), leader.as_bytes(), &open)
            .await?;
        context
            .wait_app(cluster, "orders", "led", |app| {
                app.status.as_ref().and_then(|status| status.leader.as_deref()) == Some(&leader)
            })
            .await?;
        let set = context.api::<StatefulSet>(cluster).await?.get("orders").await?;
        let written = serde_json::to_string(&set.spec)?;
        ensure!(written.contains(&format!("{root:?}")), "no {root} in {written}");
    }
    let rows = |listing: &Value| -> Vec<Value> {
        let apps = listing["apps"].as_array().cloned().unwrap_or_default();
        let row = |app: &Value| json!([app["cluster"], app["name"], app["replicas"], app["leader"]]);
        apps.iter().map(row).collect()
    };
    let wanted = [
        json!(["alpha", "orders", 1, "orders-of-alpha"]),
        json!(["beta", "orders", 2, "orders-of-beta"]),
    ];
    ensure!(
        rows(&esfleet.status().await?) == wanted,
        "{:?}",
        esfleet.status().await?
    );
    let replica = esfleet.replica(0)?;
    eventually(SOON, "the running replica lists both", || async {
        let listing = replica.fleet().await?;
        ensure!(rows(&listing) == wanted, "{listing}");
        ensure!(
            listing["zookeeperSessions"].as_array().map(Vec::len) == Some(1),
            "{listing}"
        );
        ensure!(listing["zookeeperSessions"][0]["apps"] == 2, "{listing}");
        Ok(())
    })
    .await
}

/// A kubeconfig of a member's own whose server is somewhere else.
fn elsewhere(context: &TestContext, access: &Access, name: &str, server: SocketAddr) -> Result<PathBuf> {
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&access.kubeconfig)?)?;
    config["clusters"][0]["cluster"]["server"] = json!(format!("https://{server}"));
    file(context, &format!("{name}.kubeconfig"), &config.to_string())
}

/// Started while one member refuses connections and another never answers: the third is served within 5 s, readiness
/// waits for no more than their deadlines, their rows say why, and what comes up is served without anybody's help.
pub async fn members_that_are_down_at_the_start_hold_up_nobody(context: &TestContext) -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0").await?; // the kernel accepts, and nobody reads
    let proxy = Proxy::to(context.cluster("beta")?.address().await?).await?;
    proxy.refuse();
    let granted = context.member_kubeconfig("beta").await?;
    let silent = (elsewhere(context, &granted, "silent", silent.local_addr()?)?, silent);
    for cluster in ["alpha", "beta"] {
        grant(&*context.cluster(cluster)?, &[context.namespace(cluster).await?], false).await?;
        context
            .apply_app(cluster, &resting_app(context, cluster, "orders"))
            .await?;
    }
    let (alpha, beta) = (context.member("alpha").await?, context.member("beta").await?);
    let builder = quick(context)?.with(alpha).with(beta).via(proxy.address());
    let mut esfleet = builder.member_file("silent", &silent.0).prepare().await?;
    let index = esfleet.add_replica().await?;
    let start = Instant::now();
    let sets = context.api::<StatefulSet>("alpha").await?;
    eventually(SOON, "alpha's app is reconciled", || async {
        Ok(sets.get("orders").await?)
    })
    .await?;
    let took = start.elapsed();
    ensure!(took < SERVED_WITHIN, "it took {took:?}");
    let replica = esfleet.replica(index)?;
    ready(replica).await?;
    let refused = member_is(replica, "beta", "Unreachable", Some("NotAnswering")).await?;
    ensure!(told(&refused)?.contains("Connection refused"), "{refused}");
    let hung = member_is(replica, "silent", "Unreachable", Some("NotAnswering")).await?;
    ensure!(!told(&hung)?.is_empty() && hung["lastSeen"].is_null(), "{hung}");
    let alpha = member_is(replica, "alpha", "Connected", None).await?;
    ensure!(alpha["apps"]["total"] == 1, "{alpha}");
    ensure!(
        context
            .api::<StatefulSet>("beta")
            .await?
            .get_opt("orders")
            .await?
            .is_none()
    );

    proxy.heal();
    served(context, "beta", "orders").await?;
    member_is(replica, "beta", "Connected", None).await.map(drop)
}

/// A member refuses, then hangs, then has all its connections cut: each time the other goes on, its own row says what
/// it is, and what was asked for meanwhile is done once it is back.
pub async fn a_member_that_is_lost_comes_back_and_the_other_goes_on(context: &TestContext) -> Result<()> {
    let proxy = Proxy::to(context.cluster("beta")?.address().await?).await?;
    let (alpha, beta) = (context.member("alpha").await?, context.member("beta").await?);
    let esfleet = quick(context)?
        .with(alpha)
        .with(beta)
        .via(proxy.address())
        .start()
        .await?;
    let replica = esfleet.replica(0)?;
    for cluster in ["alpha", "beta"] {
        context
            .apply_app(cluster, &resting_app(context, cluster, "orders"))
            .await?;
    }
    served(context, "alpha", "orders").await?;
    served(context, "beta", "orders").await?;

    proxy.refuse();
    lost_and_back(context, replica, &proxy, 2, true).await?;
    proxy.drop_connections();
    scale(context, "beta", "orders", 3).await?;
    member_is(replica, "beta", "Connected", None).await?;
    proxy.hang();
    lost_and_back(context, replica, &proxy, 4, true).await?;
    let status = esfleet.status().await?;
    check_member(&status, "alpha", "Connected", None)?;
    check_member(&status, "beta", "Connected", None).map(drop)
}

async fn lost_and_back(
    context: &TestContext,
    replica: &Replica,
    proxy: &Proxy,
    replicas: i32,
    stale: bool,
) -> Result<()> {
    order(context, "beta", "orders", replicas).await?;
    let start = Instant::now();
    scale(context, "alpha", "orders", replicas).await?;
    ensure!(
        start.elapsed() < SERVED_WITHIN,
        "alpha was disturbed: {:?}",
        start.elapsed()
    );
    let lost = member_is(replica, "beta", "Unreachable", Some("NotAnswering")).await?;
    ensure!(!lost["lastSeen"].is_null() && !told(&lost)?.is_empty(), "{lost}");
    let listing = replica.fleet().await?;
    check_member(&listing, "alpha", "Connected", None)?;
    let rows = listing["apps"].as_array().context("rows")?;
    let of_beta = rows
        .iter()
        .find(|row| row["cluster"] == "beta")
        .context("its row stays")?;
    ensure!(
        !stale || (of_beta["ready"] == "Unknown" && of_beta["reason"] == "Stale"),
        "{of_beta}"
    );
    ready(replica).await?; // a lost member is no reason to restart esfleet
    proxy.heal();
    has_replicas(context, "beta", "orders", replicas).await?;
    member_is(replica, "beta", "Connected", None).await.map(drop)
}

/// A replica is ended and another starts: no pod restarts, and nothing is written but the Lease.
pub async fn a_restart_writes_nothing_but_the_lease(context: &TestContext) -> Result<()> {
    let (alpha, beta) = (context.member("alpha").await?, context.member("beta").await?);
    let mut esfleet = quick(context)?.with(alpha).with(beta).start().await?;
    context.apply_app("alpha", &context.app("orders")).await?;
    context
        .apply_app("beta", &resting_app(context, "beta", "resting"))
        .await?;
    context.wait_ready("alpha", "orders").await?;
    served(context, "beta", "resting").await?;
    let before = pods(context).await?;
    ensure!(before.len() == 1, "{before:?}");

    esfleet.replica(0)?.process.terminate()?;
    let status = esfleet.replica(0)?.process.wait(SOON).await?;
    ensure!(status.success(), "{status}");
    let clusters = [context.cluster("alpha")?, context.cluster("beta")?];
    let marks = [clusters[0].audit()?.mark()?, clusters[1].audit()?.mark()?];
    let index = esfleet.add_replica().await?;
    ensure!(esfleet.leader().await? == index);
    let replica = esfleet.replica(index)?;
    eventually(
        SOON,
        "both apps are reconciled anew, and their leaders known",
        || async {
            let done = replica.metric("esfleet_reconciles_total", "").await?;
            let reads = replica.metric("esfleet_zookeeper_requests_total", "Read").await?;
            let waiting = replica.metric("esfleet_reconcile_queue_depth", "").await?;
            ensure!(
                done >= 2.0 && reads >= 2.0 && waiting == 0.0,
                "{done} reconciles, {reads} reads, {waiting} waiting"
            );
            Ok(())
        },
    )
    .await?;
    // the last of what a restart could cause: a change of another kind is done, so what was due before it is too
    order(context, "beta", "resting", 2).await?;
    has_replicas(context, "beta", "resting", 2).await?;
    for name in ["alpha", "beta"] {
        prove_audit_is_live(context, name).await?;
    }
    let in_alpha = but_the_lease(replica.writes_since(&clusters[0], marks[0])?);
    ensure!(in_alpha.is_empty(), "a restart wrote to alpha: {in_alpha:?}");
    let in_beta = replica.writes_since(&clusters[1], marks[1])?;
    let first = in_beta.first().context("the change in beta was not written")?;
    ensure!(
        in_beta
            .iter()
            .all(|event| event.name.starts_with("resting") || event.resource == "events"),
        "{in_beta:?}"
    );
    ensure!(
        ["statefulsets", "poddisruptionbudgets"].contains(&&*first.resource) && in_beta.len() <= 6,
        "more was written to beta than the change took: {in_beta:?}"
    );
    ensure!(pods(context).await? == before, "pods restarted");
    Ok(())
}

/// UID and restarts of the scenario's pods in alpha.
async fn pods(context: &TestContext) -> Result<Vec<(Option<String>, i32)>> {
    let pods = context.api::<Pod>("alpha").await?.list(&ListParams::default()).await?;
    let restarts = |pod: &Pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
        statuses
            .unwrap_or_default()
            .iter()
            .map(|status| status.restart_count)
            .sum()
    };
    Ok(pods
        .items
        .iter()
        .map(|pod| (pod.metadata.uid.clone(), restarts(pod)))
        .collect())
}

/// With `namespaces`, permissions and work end there; a member that is paused is watched, and nothing is written to it.
pub async fn namespaces_and_pauses_are_respected(context: &TestContext) -> Result<()> {
    let mut paused = context.member("beta").await?;
    paused.paused = true;
    paused.labels.insert("region".to_owned(), "eu".to_owned());
    let builder = quick(context)?.with(context.member("alpha").await?).with(paused);
    let esfleet = builder.start().await?;
    let (alpha, beta) = (context.cluster("alpha")?, context.cluster("beta")?);
    let other = format!("{}-other", context.id());
    let namespaces: Api<Namespace> = Api::all(context.client("alpha").await?);
    let object = serde_json::from_value(json!({"metadata": {"name": other}}))?;
    namespaces.create(&PostParams::default(), &object).await?;
    let account = format!("--as=system:serviceaccount:{}:{}", ACCOUNT.0, ACCOUNT.1);
    for verb in ["list", "patch"] {
        let answer = alpha
            .kubectl(&[
                "auth",
                "can-i",
                verb,
                "eventsourcedapps.es.your.domain",
                "-n",
                &other,
                &account,
            ])
            .await;
        ensure!(answer.is_err(), "esfleet may {verb} apps of {other}");
    }
    let marks = (alpha.audit()?.mark()?, beta.audit()?.mark()?);
    let elsewhere: Api<EventSourcedApp> = Api::namespaced(context.client("alpha").await?, &other);
    let app = resting_app(context, "elsewhere", "orders");
    elsewhere.create(&PostParams::default(), &app).await?;
    for cluster in ["beta", "alpha"] {
        context
            .apply_app(cluster, &resting_app(context, cluster, "orders"))
            .await?;
    }
    served(context, "alpha", "orders").await?;
    let replica = esfleet.replica(0)?;
    member_is(replica, "beta", "Paused", None).await?;
    eventually(SOON, "the paused member's app is listed", || async {
        let rows = replica.fleet().await?["apps"].clone();
        let rows: Vec<_> = rows
            .as_array()
            .context("rows")?
            .iter()
            .map(|row| row["cluster"].clone())
            .collect();
        ensure!(rows == ["alpha", "beta"], "{rows:?}");
        Ok(())
    })
    .await?;
    for cluster in ["alpha", "beta"] {
        prove_audit_is_live(context, cluster).await?;
    }
    let in_beta = replica.writes_since(&beta, marks.1)?;
    ensure!(in_beta.is_empty(), "written to a paused member: {in_beta:?}");
    let in_alpha = but_the_lease(replica.writes_since(&alpha, marks.0)?);
    ensure!(
        in_alpha
            .iter()
            .all(|event| event.namespace == context.id() && event.code < 300),
        "{in_alpha:?}"
    );
    let zookeeper = context.zookeeper().await?;
    for untouched in ["beta/orders", "elsewhere/orders"] {
        let root = context.root(untouched);
        ensure!(zookeeper.check_stat(&root).await?.is_none(), "{root} was made");
    }
    ensure!(elsewhere.get("orders").await?.status.is_none());
    let status = esfleet.status().await?;
    check_member(&status, "beta", "Paused", None)?;
    namespaces.delete(&other, &DeleteParams::default()).await?;
    Ok(())
}

/// One cluster under two names is served once, under the first; the other row says so, and `esfleet check` too.
pub async fn one_cluster_under_two_names_is_engaged_once(context: &TestContext) -> Result<()> {
    let named = |name: &str, member: &Member| Member {
        name: name.to_owned(),
        ..member.clone()
    };
    let member = context.member("beta").await?;
    let builder = quick(context)?.with(named("zeta", &member)).with(named("eta", &member));
    let esfleet = builder.start().await?;
    let replica = esfleet.replica(0)?;
    context
        .apply_app("beta", &resting_app(context, "beta", "orders"))
        .await?;
    served(context, "beta", "orders").await?;
    member_is(replica, "zeta", "Connected", None).await?;
    let other = member_is(replica, "eta", "Degraded", Some("DuplicateCluster")).await?;
    ensure!(
        told(&other)?.contains("same cluster as zeta") && told(&other)?.contains("remove one"),
        "{other}"
    );
    let listing = replica.fleet().await?;
    ensure!(listing["apps"].as_array().map(Vec::len) == Some(1), "{listing}");
    ensure!(row(&listing, "apps", "orders")?["cluster"] == "zeta", "{listing}");
    let output = esfleet.command("check", &["--without-hub"]).await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.code() == Some(1), "{text}");
    ensure!(
        text.lines()
            .any(|line| line.starts_with("FAIL   eta") && line.contains("same cluster as zeta")),
        "{text}"
    );
    Ok(())
}
