//! What becomes of apps when ZooKeeper comes late, goes, comes back with less than it had, or says no.
//!
//! Pods are of no concern here, so none is scheduled; the scenarios write the leader znodes themselves.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use esfleet::api::EventSourcedApp;
use esfleet_e2e::audit::Mark;
use esfleet_e2e::{Replica, TestContext, ZooKeeper, eventually};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

/// How long anything may take that ought to be there soon, on a busy machine.
const SOON: Duration = Duration::from_secs(45);
/// The longest time from a change of a leader znode to the status.
const LEADER_SEEN: Duration = Duration::from_secs(1);

/// An app whose pods no node takes, on an ensemble.
fn app_on(context: &TestContext, name: &str, connect: &str) -> EventSourcedApp {
    let mut app = context.app(name);
    connect.clone_into(&mut app.spec.zookeeper_connect_string);
    if let Some(spec) = app.spec.template.as_mut().and_then(|template| template.spec.as_mut()) {
        let nowhere = BTreeMap::from([("es.your.domain/nowhere".to_owned(), "true".to_owned())]);
        spec.node_selector = Some(nowhere);
    }
    app
}

/// The reason of a condition of the app's present generation.
fn reason(app: &EventSourcedApp, kind: &str) -> Option<String> {
    condition(app, kind, |condition| condition.reason.clone())
}

fn message(app: &EventSourcedApp, kind: &str) -> String {
    condition(app, kind, |condition| condition.message.clone()).unwrap_or_default()
}

fn condition<T>(app: &EventSourcedApp, kind: &str, part: impl Fn(&esfleet::api::app::AppCondition) -> T) -> Option<T> {
    let conditions = &app.status.as_ref()?.conditions;
    let condition = conditions.iter().find(|condition| condition.type_ == kind)?;
    (condition.observed_generation == app.metadata.generation).then(|| part(condition))
}

fn leader(app: &EventSourcedApp) -> Option<&str> {
    app.status.as_ref()?.leader.as_deref()
}

/// Waits until the app's root is there and its pod is known, after which its status has no reason to change.
async fn settled(context: &TestContext, cluster: &str, name: &str) -> Result<EventSourcedApp> {
    context
        .wait_app(cluster, name, "settled", |app| {
            let replicas = app.status.as_ref().and_then(|status| status.replicas);
            reason(app, "ZooKeeperReady").as_deref() == Some("RootExists")
                && reason(app, "WorkloadReady").as_deref() == Some("ReplicasPending")
                && replicas == Some(app.spec.replicas)
        })
        .await
}

async fn led_by(context: &TestContext, cluster: &str, name: &str, wanted: Option<&str>) -> Result<EventSourcedApp> {
    let what = format!("led by {wanted:?}");
    context
        .wait_app(cluster, name, &what, |app| {
            let known = reason(app, "ZooKeeperReady").as_deref() == Some("RootExists");
            known && leader(app) == wanted
        })
        .await
}

/// Makes a pod lead, in place of another if there is one.
async fn lead(client: &Client, root: &str, leader: &str) -> Result<()> {
    let path = format!("{root}/leader");
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    match client.create(&path, leader.as_bytes(), &open).await {
        Err(zookeeper_client::Error::NodeExists) => client.set_data(&path, leader.as_bytes(), None).await.map(drop),
        created => created.map(drop),
    }
    .with_context(|| format!("{leader} cannot lead at {path}"))
}

async fn resign(client: &Client, root: &str) -> Result<()> {
    client
        .delete(&format!("{root}/leader"), None)
        .await
        .with_context(|| format!("nobody leads at {root}"))
}

async fn root_exists(client: &Client, root: &str) -> Result<()> {
    eventually(SOON, &format!("{root} exists"), || async {
        ensure!(client.check_stat(root).await?.is_some(), "it does not");
        Ok(())
    })
    .await
}

/// The sessions of an ensemble, each with its server.
async fn sessions(zookeeper: &ZooKeeper) -> Result<Vec<usize>> {
    let mut servers = Vec::new();
    for index in 0..zookeeper.len() {
        let answer = zookeeper.word(index, "cons").await.unwrap_or_default(); // a server that is down has none
        let held = answer
            .lines()
            .filter(|line| line.contains("sid=0x") && !line.contains("sid=0x0,"));
        servers.extend(held.map(|_| index));
    }
    Ok(servers)
}

async fn wait_sessions(zookeeper: &ZooKeeper, count: usize) -> Result<Vec<usize>> {
    eventually(SOON, &format!("the ensemble holds {count} sessions"), || async {
        let servers = sessions(zookeeper).await?;
        ensure!(servers.len() == count, "they are on servers {servers:?}");
        Ok(servers)
    })
    .await
}

/// How often a replica wrote each app's status since `mark`.
fn status_writes(
    context: &TestContext,
    replica: &Replica,
    cluster: &str,
    mark: Mark,
) -> Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for event in replica.writes_since(&*context.cluster(cluster)?, mark)? {
        if event.namespace == context.id() && event.resource == "eventsourcedapps/status" {
            *counts.entry(event.name).or_default() += 1;
        }
    }
    Ok(counts)
}

/// The Events about an app, in order.
async fn events(context: &TestContext, cluster: &str, name: &str) -> Result<Vec<String>> {
    let all: Api<Event> = context.api(cluster).await?;
    let mut events: Vec<Event> = all.list(&ListParams::default()).await?.items;
    events.retain(|event| event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some(name));
    events.retain(|event| event.reporting_controller.as_deref() == Some("es.your.domain/esfleet"));
    events.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
    Ok(events.into_iter().filter_map(|event| event.reason).collect())
}

fn runs_on(replica: &Replica) -> Result<()> {
    let ended = replica.process.exited()?;
    ensure!(ended.is_none(), "{} ended: {ended:?}", replica.identity);
    Ok(())
}

/// An ensemble that is down at the start does not hold up the workload and is taken up when it comes; a loss that is
/// shorter than the session timeout is seen by nobody; a root that is deleted, and all of a wiped ensemble, returns.
pub async fn an_ensemble_that_comes_late_goes_for_a_moment_or_is_wiped(context: &TestContext) -> Result<()> {
    let zookeeper = context.own_zookeeper(1).await?;
    zookeeper.kill(0).await?;
    let esfleet = context.esfleet()?.with(context.member("alpha").await?).start().await?;
    let replica = esfleet.replica(0)?;
    context
        .apply_app("alpha", &app_on(context, "orders", zookeeper.connect_string()))
        .await?;
    let down = context
        .wait_app("alpha", "orders", "ZooKeeper is missed", |app| {
            reason(app, "ZooKeeperReady").as_deref() == Some("Unreachable")
        })
        .await?;
    let told = message(&down, "ZooKeeperReady");
    let address = zookeeper.address(0)?;
    ensure!(
        told.contains(&format!("{address}: the connection is refused")),
        "the server is not named: {told}"
    );
    assert_eq!(reason(&down, "LeaderElected").as_deref(), Some("Unreachable"));
    ensure!(message(&down, "LeaderElected").ends_with("none was ever seen"));
    context.api::<Service>("alpha").await?.get("orders").await?;
    context.api::<StatefulSet>("alpha").await?.get("orders").await?;

    zookeeper.restart(0).await?;
    settled(context, "alpha", "orders").await?;
    let root = context.root("orders");
    lead(&zookeeper.client().await?, &root, "orders-0").await?;
    led_by(context, "alpha", "orders", Some("orders-0")).await?;

    let mark = context.cluster("alpha")?.audit()?.mark()?;
    wait_sessions(&zookeeper, 1).await?;
    zookeeper.kill(0).await?;
    zookeeper.restart(0).await?;
    wait_sessions(&zookeeper, 1).await?;
    lead(&zookeeper.client().await?, &root, "orders-1").await?;
    led_by(context, "alpha", "orders", Some("orders-1")).await?;
    let writes = status_writes(context, replica, "alpha", mark)?;
    assert_eq!(
        writes,
        BTreeMap::from([("orders".to_owned(), 1)]),
        "the loss was to be seen by nobody"
    );

    let client = zookeeper.client().await?;
    resign(&client, &root).await?;
    led_by(context, "alpha", "orders", None).await?;
    client.delete(&root, None).await?;
    root_exists(&client, &root).await?;
    lead(&client, &root, "orders-0").await?;
    led_by(context, "alpha", "orders", Some("orders-0")).await?;
    drop(client);

    zookeeper.wipe().await?;
    let client = zookeeper.client().await?;
    root_exists(&client, &root).await?;
    led_by(context, "alpha", "orders", None).await?;
    lead(&client, &root, "orders-2").await?;
    led_by(context, "alpha", "orders", Some("orders-2")).await?;
    runs_on(replica)
}

/// What is older than the session timeout is no longer shown, and told with its name and time; a server that is back,
/// or that goes on after it let the session expire, brings it back. The rest of the app goes on meanwhile.
pub async fn a_leader_older_than_the_session_timeout_is_cleared_and_comes_back(context: &TestContext) -> Result<()> {
    let zookeeper = context.own_zookeeper(1).await?;
    let esfleet = context.esfleet()?.with(context.member("alpha").await?);
    let esfleet = esfleet.argument("--session-timeout").argument("4s").start().await?;
    let replica = esfleet.replica(0)?;
    let mut app = app_on(context, "orders", zookeeper.connect_string());
    context.apply_app("alpha", &app).await?;
    settled(context, "alpha", "orders").await?;
    let root = context.root("orders");
    lead(&zookeeper.client().await?, &root, "orders-0").await?;
    let before = led_by(context, "alpha", "orders", Some("orders-0")).await?;

    zookeeper.kill(0).await?;
    let cleared = cleared(context, "orders").await?;
    let told = message(&cleared, "LeaderElected");
    ensure!(
        told.contains("; orders-0 led at 20"),
        "name and time are missing: {told}"
    );
    app.spec.replicas = 2;
    context.apply_app("alpha", &app).await?;
    let sets: Api<StatefulSet> = context.api("alpha").await?;
    eventually(SOON, "the StatefulSet is scaled without ZooKeeper", || async {
        let replicas = sets.get("orders").await?.spec.and_then(|spec| spec.replicas);
        ensure!(replicas == Some(2), "it has {replicas:?}");
        Ok(())
    })
    .await?;
    zookeeper.restart(0).await?;
    let after = led_by(context, "alpha", "orders", Some("orders-0")).await?;
    let since = |app: &EventSourcedApp| app.status.as_ref().and_then(|status| status.leader_since.clone());
    assert_eq!(since(&after), since(&before));

    zookeeper.server(0)?.freeze()?;
    let frozen = self::cleared(context, "orders").await;
    zookeeper.server(0)?.resume()?;
    frozen?;
    led_by(context, "alpha", "orders", Some("orders-0")).await?;
    lead(&zookeeper.client().await?, &root, "orders-1").await?;
    led_by(context, "alpha", "orders", Some("orders-1")).await?;
    runs_on(replica)?;

    let mut told = events(context, "alpha", "orders").await?;
    told.retain(|reason| reason.starts_with("ZooKeeper"));
    let each = ["ZooKeeperNotReady", "ZooKeeperRecovered"];
    assert_eq!(told, [each, each].concat());
    Ok(())
}

async fn cleared(context: &TestContext, name: &str) -> Result<EventSourcedApp> {
    context
        .wait_app("alpha", name, "its leader is cleared", |app| {
            let unreachable = |kind| reason(app, kind).as_deref() == Some("Unreachable");
            unreachable("ZooKeeperReady") && unreachable("LeaderElected") && leader(app).is_none()
        })
        .await
}

/// However two members spell an ensemble, it holds one session of esfleet, wherever the apps' roots lie below a chroot;
/// the loss of the server that holds it is seen by nobody, later leaders are seen, and it ends with the last app.
pub async fn spellings_share_a_session_that_outlives_a_server_and_ends_with_the_last_app(
    context: &TestContext,
) -> Result<()> {
    let zookeeper = context.own_zookeeper(3).await?;
    let servers: Vec<&str> = zookeeper.connect_string().split(',').collect();
    let [a, b, c] = servers[..] else { bail!("three servers") };
    let id = context.id();
    let apps = [
        ("alpha", "plain", format!("{a},{b},{c}"), String::new()),
        ("alpha", "turned", format!("{c},{a},{b}"), String::new()),
        (
            "alpha",
            "below",
            format!("{b},{a},{c}/{id}/fleet"),
            format!("/{id}/fleet"),
        ),
        ("beta", "spaced", format!(" {b} , {c},{a}"), String::new()),
        ("beta", "twice", format!("{a},{b},{a},{c}/{id}"), format!("/{id}")),
    ];
    let esfleet = context.esfleet()?.with(context.member("alpha").await?);
    let esfleet = esfleet.with(context.member("beta").await?).start().await?;
    let replica = esfleet.replica(0)?;
    for (cluster, name, connect, _) in &apps {
        context.apply_app(cluster, &app_on(context, name, connect)).await?;
    }
    for (cluster, name, _, _) in &apps {
        settled(context, cluster, name).await?;
    }
    let held_by = wait_sessions(&zookeeper, 1).await?;
    let client = zookeeper.client().await?;
    for (cluster, name, _, chroot) in &apps {
        lead(&client, &format!("{chroot}{}", context.root(name)), "first").await?;
        led_by(context, cluster, name, Some("first")).await?;
    }
    drop(client);

    let marks = (
        context.cluster("alpha")?.audit()?.mark()?,
        context.cluster("beta")?.audit()?.mark()?,
    );
    let lost = *held_by.first().context("a session is held by a server")?;
    zookeeper.kill(lost).await?;
    wait_sessions(&zookeeper, 1).await?;
    let client = zookeeper.client().await?;
    for (cluster, name, _, chroot) in &apps {
        lead(&client, &format!("{chroot}{}", context.root(name)), "second").await?;
        led_by(context, cluster, name, Some("second")).await?;
    }
    drop(client);
    let once =
        |names: &[&str]| -> BTreeMap<String, usize> { names.iter().map(|name| ((*name).to_owned(), 1)).collect() };
    assert_eq!(
        status_writes(context, replica, "alpha", marks.0)?,
        once(&["below", "plain", "turned"])
    );
    assert_eq!(
        status_writes(context, replica, "beta", marks.1)?,
        once(&["spaced", "twice"])
    );

    zookeeper.restart(lost).await?;
    for (cluster, name, _, _) in &apps {
        wait_sessions(&zookeeper, 1).await?;
        let api: Api<EventSourcedApp> = context.api(cluster).await?;
        api.delete(name, &DeleteParams::default()).await?;
    }
    wait_sessions(&zookeeper, 0).await?;
    let shown = replica.fleet().await?["zookeeperSessions"].clone();
    assert_eq!(shown, serde_json::json!([]));
    Ok(())
}

/// A leader that is absent, unreachable, forbidden or unreadable is each a condition of its own, as is a root that may
/// not be made; none keeps the workload from being made, and what is allowed later is seen.
pub async fn each_reason_not_to_know_a_leader_is_told_and_stops_nothing_else(context: &TestContext) -> Result<()> {
    let zookeeper = context.world().single_zookeeper();
    let connect = zookeeper.connect_string();
    let client = zookeeper.client().await?;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let all_but_read = Permission::WRITE | Permission::CREATE | Permission::DELETE | Permission::ADMIN;
    let blind = [Acl::new(all_but_read, AuthId::anyone())];
    let barred = [Acl::new(Permission::READ | Permission::ADMIN, AuthId::anyone())];
    client.mkdir(&context.root("hidden"), &open).await?;
    client
        .create(
            &format!("{}/leader", context.root("hidden")),
            b"hidden-0",
            &CreateMode::Persistent.with_acls(Acls::new(&blind)),
        )
        .await?;
    client.mkdir(&context.root("binary"), &open).await?;
    client
        .create(
            &format!("{}/leader", context.root("binary")),
            b"\xac\xed\x00\x05",
            &open,
        )
        .await?;
    let locked = format!("/{}/locked", context.id());
    client
        .create(&locked, b"", &CreateMode::Persistent.with_acls(Acls::new(&barred)))
        .await?;

    let esfleet = context.esfleet()?.with(context.member("alpha").await?).start().await?;
    let mut barred = app_on(context, "barred", connect);
    barred.spec.zookeeper_root_path = format!("{locked}/barred");
    let lost = app_on(context, "lost", "127.0.0.1:1"); // nothing listens there
    for app in [
        app_on(context, "absent", connect),
        app_on(context, "hidden", connect),
        app_on(context, "binary", connect),
        barred,
        lost,
    ] {
        context.apply_app("alpha", &app).await?;
    }
    for (name, zookeeper, elected) in [
        ("absent", "RootExists", "NoLeader"),
        ("hidden", "RootExists", "LeaderForbidden"),
        ("binary", "RootExists", "LeaderUnreadable"),
        ("barred", "RootForbidden", "NoLeader"),
        ("lost", "Unreachable", "Unreachable"),
    ] {
        context
            .wait_app("alpha", name, &format!("{zookeeper}, {elected}, and a pod"), |app| {
                reason(app, "ZooKeeperReady").as_deref() == Some(zookeeper)
                    && reason(app, "LeaderElected").as_deref() == Some(elected)
                    && reason(app, "WorkloadReady").as_deref() == Some("ReplicasPending")
                    && leader(app).is_none()
            })
            .await?;
    }
    let everybody = [Acl::new(Permission::ALL, AuthId::anyone())];
    client
        .set_acl(&format!("{}/leader", context.root("hidden")), &everybody, None)
        .await?;
    client.set_acl(&locked, &everybody, None).await?;
    led_by(context, "alpha", "hidden", Some("hidden-0")).await?;
    settled(context, "alpha", "barred").await?;
    runs_on(esfleet.replica(0)?)
}

/// Nobody, a, nobody, a: each is in the status within a second of the znode, in one write, and told by one Event.
pub async fn each_change_of_a_leader_is_in_the_status_within_a_second(context: &TestContext) -> Result<()> {
    let zookeeper = context.world().single_zookeeper();
    let esfleet = context.esfleet()?.with(context.member("alpha").await?).start().await?;
    context
        .apply_app("alpha", &app_on(context, "orders", zookeeper.connect_string()))
        .await?;
    settled(context, "alpha", "orders").await?;
    let client = zookeeper.client().await?;
    let root = context.root("orders");
    let mark = context.cluster("alpha")?.audit()?.mark()?;
    let apps: Api<EventSourcedApp> = context.api("alpha").await?;
    let mut times = Vec::new();
    for wanted in [Some("a"), None, Some("a"), None, Some("b"), Some("a"), None] {
        match wanted {
            Some(name) => lead(&client, &root, name).await?,
            None => resign(&client, &root).await?,
        }
        let changed = Instant::now();
        while leader(&apps.get("orders").await?) != wanted {
            let elapsed = changed.elapsed();
            ensure!(
                elapsed < LEADER_SEEN,
                "{wanted:?} is not in the status after {elapsed:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        times.push(changed.elapsed());
    }
    eprintln!("from the leader's znode to the status: {times:.3?}");
    let writes = status_writes(context, esfleet.replica(0)?, "alpha", mark)?;
    assert_eq!(writes, BTreeMap::from([("orders".to_owned(), times.len())]));
    let told = |reasons: Vec<String>| -> Vec<String> {
        reasons
            .into_iter()
            .filter(|reason| reason.starts_with("Leader"))
            .collect()
    };
    let wanted = [
        "LeaderElected",
        "LeaderLost",
        "LeaderElected",
        "LeaderLost",
        "LeaderElected",
        "LeaderChanged",
        "LeaderLost",
    ];
    eventually(SOON, "each change is told by one Event", || async {
        let told = told(events(context, "alpha", "orders").await?);
        ensure!(told == wanted, "{told:?}");
        Ok(())
    })
    .await
}
