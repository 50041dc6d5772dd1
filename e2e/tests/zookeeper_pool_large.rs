//! The session pool with ten thousand apps on one ensemble: where zookeeper-client by itself loses its watches for good.
#![allow(clippy::unwrap_used, reason = "a scenario ends at its first surprise")]

#[path = "support/pool_world.rs"]
#[allow(dead_code, reason = "shared with the smaller scenarios, which use all of it")]
mod pool_world;
#[path = "support/zookeeper_server.rs"]
#[allow(dead_code, reason = "shared with the smaller scenarios, which use all of it")]
mod zookeeper_server;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use esfleet::api::{ConnectString, RootPath};
use esfleet::app::ensemble::EnsembleView;
use esfleet::zookeeper::{Changed, PoolConfig, Target};
use futures::{StreamExt, stream};
use pool_world::{World, app, is_led_by, lead, resign, root, until};
use tokio::time::Instant;
use zookeeper_client::Client;
use zookeeper_server::TestServer;

const APPS: usize = 10_000;
const LIMIT: Duration = Duration::from_secs(120);

/// Resident memory of this process, in kB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn all_led_by(world: &World, leader: Option<&str>) -> Duration {
    let seen = async || (0..APPS).all(|number| is_led_by(&world.pool.view(&app(number)), leader));
    until(&format!("all are led by {leader:?}"), LIMIT, seen).await
}

async fn all_lead(client: &Client) {
    stream::iter(0..APPS)
        .for_each_concurrent(256, async |number| lead(client, &root(number), b"the-leader-0").await)
        .await;
}

async fn all_resign(client: &Client) {
    stream::iter(0..APPS)
        .for_each_concurrent(256, async |number| resign(client, &root(number)).await)
        .await;
}

/// Registers all apps, and counts how often one of them is shown as unreachable.
fn register_all(world: &World, connect: &str) -> Arc<AtomicUsize> {
    let unreachable = Arc::new(AtomicUsize::new(0));
    let count = unreachable.clone();
    let pool = Arc::downgrade(&world.pool);
    let changed: Changed = Arc::new(move |key| {
        let view = pool.upgrade().map(|pool| pool.view(key));
        if matches!(view, Some(EnsembleView::Unreachable { .. })) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let connect = ConnectString::parse(connect).unwrap();
    for number in 0..APPS {
        let target = Target {
            connect: connect.clone(),
            root: RootPath::parse(&root(number)).unwrap(),
            may_create: true,
        };
        world.pool.register(app(number), target, changed.clone());
    }
    unreachable
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_after_a_crash_are_seen_for_ten_thousand_apps() {
    let mut server = TestServer::start().await.unwrap();
    let world = World::new(PoolConfig {
        session_timeout: LIMIT,
        ..PoolConfig::default()
    });
    let before = resident();
    let began = Instant::now();
    let unreachable = register_all(&world, &server.connect_string());
    all_led_by(&world, None).await;
    let created = began.elapsed();
    let memory = resident().saturating_sub(before);
    assert_eq!(server.connections().await.unwrap().len(), 1);

    server.kill().unwrap();
    server.restart().await.unwrap();
    let began = Instant::now();
    let client = server.client().await.unwrap();
    all_lead(&client).await;
    let first = all_led_by(&world, Some("the-leader-0")).await;
    let recovered = began.elapsed();
    all_resign(&client).await;
    let second = all_led_by(&world, None).await;
    all_lead(&client).await;
    all_led_by(&world, Some("the-leader-0")).await;
    let memory_later = resident().saturating_sub(before);
    assert_eq!(unreachable.load(Ordering::Relaxed), 0);
    drop(client);
    until("one connection is left", LIMIT, async || {
        server.connections().await.unwrap().len() == 1
    })
    .await;
    let began = Instant::now();
    world.pool.close().await;
    let closed = began.elapsed();
    assert_eq!(server.sessions().await.unwrap(), 0);
    assert!(memory / 4 < APPS as u64, "{memory} kB for {APPS} apps");
    println!(
        "{APPS} apps: registered and created in {created:?}, {memory} kB more, {memory_later} kB later; after the crash \
         all led in {recovered:?} ({first:?} after the last write), then none {second:?} after the last write; \
         closed in {closed:?}"
    );
}
