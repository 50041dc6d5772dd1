//! The session pool against a real ZooKeeper server that crashes, hangs, loses its data, and comes back.
#![allow(clippy::unwrap_used, reason = "a scenario ends at its first surprise")]

#[path = "support/frozen_relay.rs"]
mod frozen_relay;
#[path = "support/pool_world.rs"]
mod pool_world;
#[path = "support/zookeeper_server.rs"]
mod zookeeper_server;

use std::time::Duration;

use esfleet::app::ensemble::{EnsembleView, LastLeader, LeaderView, RootView};
use esfleet::zookeeper::{PoolConfig, SessionState};
use frozen_relay::Relay;
use pool_world::{SOON, World, app, app_in, is_led_by, lead, quick, resign, root, until};
use tokio::time::{Instant, sleep};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};
use zookeeper_server::TestServer;

async fn exists(client: &Client, path: &str) -> bool {
    client.check_stat(path).await.unwrap().is_some()
}

#[tokio::test]
async fn all_spellings_of_an_ensemble_share_one_session() {
    let server = TestServer::start().await.unwrap();
    let world = World::new(quick());
    let plain = server.connect_string();
    let spellings = [
        (plain.clone(), "/apps/app-0"),
        (format!(" {plain} "), "/apps/app-1"),
        (format!("{plain},{plain}"), "/apps/app-2"),
        (format!("{plain}/fleet"), "/fleet/apps/app-3"),
        (format!("{plain}/fleet/eu/"), "/fleet/eu/apps/app-4"),
    ];
    for (number, (spelling, _)) in spellings.iter().enumerate() {
        world.register(
            &app_in(if number % 2 == 0 { "eu" } else { "us" }, number),
            spelling,
            &root(number),
        );
    }
    for number in 0..spellings.len() {
        world
            .leader(&app_in(if number % 2 == 0 { "eu" } else { "us" }, number), None)
            .await;
    }
    assert_eq!(server.connections().await.unwrap().len(), 1);
    let sessions = world.pool.sessions();
    assert_eq!(
        sessions
            .iter()
            .map(|s| (s.ensemble.as_str(), s.state, s.apps))
            .collect::<Vec<_>>(),
        [(plain.as_str(), SessionState::Connected, spellings.len())]
    );
    let client = server.client().await.unwrap();
    for (spelling, path) in &spellings {
        assert!(exists(&client, path).await, "{spelling}: no {path}");
    }
}

#[tokio::test]
async fn a_leader_that_comes_goes_and_comes_again_is_seen_each_time() {
    let server = TestServer::start().await.unwrap();
    let world = World::new(quick());
    world.register(&app(0), &server.connect_string(), &root(0));
    world.leader(&app(0), None).await;
    let client = server.client().await.unwrap();
    for _ in 0..3 {
        let began = Instant::now();
        lead(&client, &root(0), b"app-0-0").await;
        world.leader(&app(0), Some("app-0-0")).await;
        resign(&client, &root(0)).await;
        world.leader(&app(0), None).await;
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
    lead(&client, &root(0), b"app-0-0").await;
    world.leader(&app(0), Some("app-0-0")).await;
    client
        .set_data(&format!("{}/leader", root(0)), b"app-0-1\n", None)
        .await
        .unwrap();
    world.leader(&app(0), Some("app-0-1")).await;
    let leaders: Vec<bool> = world.shown(&app(0)).iter().map(|view| is_led_by(view, None)).collect();
    assert_eq!(leaders, [true, false, true, false, true, false, true, false, false]);
}

#[tokio::test]
async fn changes_after_a_crash_within_the_session_timeout_are_seen() {
    let mut server = TestServer::start().await.unwrap();
    let world = World::new(PoolConfig {
        session_timeout: SOON,
        ..PoolConfig::default()
    });
    for number in 0..10 {
        world.register(&app(number), &server.connect_string(), &root(number));
    }
    for number in 0..10 {
        world.leader(&app(number), None).await;
    }
    server.kill().unwrap();
    server.restart().await.unwrap();
    let client = server.client().await.unwrap();
    for number in 0..10 {
        lead(&client, &root(number), b"first").await;
    }
    for number in 0..10 {
        world.leader(&app(number), Some("first")).await;
        resign(&client, &root(number)).await;
        world.leader(&app(number), None).await;
        let views = world.shown(&app(number));
        assert!(
            !views
                .iter()
                .any(|view| matches!(view, EnsembleView::Unreachable { .. })),
            "{views:?}"
        );
    }
    drop(client);
    until("one connection is left", SOON, async || {
        server.connections().await.unwrap().len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_known_leader_outlives_the_session_by_its_timeout_and_is_then_unreachable() {
    let mut server = TestServer::start().await.unwrap();
    let world = World::new(quick());
    world.register(&app(0), &server.connect_string(), &root(0));
    world.leader(&app(0), None).await;
    lead(&server.client().await.unwrap(), &root(0), b"app-0-0").await;
    world.leader(&app(0), Some("app-0-0")).await;
    let killed = Instant::now();
    server.kill().unwrap();
    let view = world
        .view(&app(0), "unreachable", |view| {
            matches!(view, EnsembleView::Unreachable { .. })
        })
        .await;
    let after = killed.elapsed();
    assert!(
        after >= Duration::from_millis(3900) && after < Duration::from_secs(6),
        "{after:?}"
    );
    let EnsembleView::Unreachable {
        message,
        last: Some(LastLeader { name, .. }),
    } = view
    else {
        panic!("{view:?}");
    };
    let connect = server.connect_string();
    assert_eq!(name, "app-0-0");
    assert_eq!(
        message,
        format!("cannot reach ZooKeeper at {connect}: {connect}: the connection is refused")
    );
    server.restart().await.unwrap();
    world.leader(&app(0), Some("app-0-0")).await;
}

#[tokio::test]
async fn a_wiped_ensemble_gets_its_roots_again() {
    let mut server = TestServer::start().await.unwrap();
    let world = World::new(quick());
    for number in 0..10 {
        world.register(&app(number), &server.connect_string(), &root(number));
        world.leader(&app(number), None).await;
    }
    server.wipe().unwrap();
    server.restart().await.unwrap();
    let client = server.client().await.unwrap();
    for number in 0..10 {
        until("the root is there again", SOON, async || {
            exists(&client, &root(number)).await
        })
        .await;
        lead(&client, &root(number), b"a").await;
        world.leader(&app(number), Some("a")).await;
    }
}

#[tokio::test]
async fn an_ensemble_that_is_down_at_first_is_unreachable_at_once_and_known_once_it_is_up() {
    let mut server = TestServer::reserve().unwrap();
    let world = World::new(quick());
    let connect = server.connect_string();
    world.register(&app(0), &connect, &root(0));
    let began = Instant::now();
    assert_eq!(
        world.pool.settled(&app(0), SOON).await,
        EnsembleView::Unreachable {
            message: format!("cannot reach ZooKeeper at {connect}: {connect}: the connection is refused"),
            last: None,
        }
    );
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    server.restart().await.unwrap();
    world.leader(&app(0), None).await;
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_said_to_be_one() {
    let world = World::new(quick());
    world.register(&app(0), "zk.invalid", &root(0));
    let view = world.pool.settled(&app(0), SOON).await;
    let EnsembleView::Unreachable { message, last: None } = view else {
        panic!("{view:?}")
    };
    let prefix = "cannot reach ZooKeeper at zk.invalid:2181: zk.invalid:2181: the name does not resolve (";
    assert!(message.starts_with(prefix), "{message}");
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up_and_taken_up_again() {
    let server = TestServer::start().await.unwrap();
    let world = World::new(quick());
    world.register(&app(0), &server.connect_string(), &root(0));
    world.leader(&app(0), None).await;
    server.freeze().unwrap();
    let view = world
        .view(&app(0), "unreachable", |view| {
            matches!(view, EnsembleView::Unreachable { .. })
        })
        .await;
    let connect = server.connect_string();
    let message =
        format!("cannot reach ZooKeeper at {connect}: {connect}: it accepts a connection and does not answer");
    assert_eq!(view, EnsembleView::Unreachable { message, last: None });
    server.thaw().unwrap();
    world.leader(&app(0), None).await;
    lead(&server.client().await.unwrap(), &root(0), b"a").await;
    world.leader(&app(0), Some("a")).await;
}

#[tokio::test]
async fn an_expired_session_is_replaced_and_what_changed_meanwhile_is_seen() {
    let server = TestServer::start().await.unwrap();
    let relay = Relay::start(server.connect_string()).await.unwrap();
    // The connection may be silent for longer than the ensemble keeps the session.
    let world = World::new(PoolConfig {
        session_timeout: Duration::from_secs(20),
        connection_timeout: Duration::from_secs(11),
        ..quick()
    });
    world.register(&app(0), &relay.connect_string(), &root(0));
    world.leader(&app(0), None).await;
    relay.freeze();
    until("the session has expired", SOON, async || {
        server.sessions().await.unwrap() == 0
    })
    .await;
    lead(&server.client().await.unwrap(), &root(0), b"a").await;
    relay.thaw();
    world.leader(&app(0), Some("a")).await;
    resign(&server.client().await.unwrap(), &root(0)).await;
    world.leader(&app(0), None).await;
}

#[tokio::test]
async fn leader_data_that_is_no_name_is_unreadable_until_it_is_one() {
    let server = TestServer::start().await.unwrap();
    let world = World::new(quick());
    world.register(&app(0), &server.connect_string(), &root(0));
    world.leader(&app(0), None).await;
    let client = server.client().await.unwrap();
    lead(&client, &root(0), b"\xac\xed\x00\x05").await;
    let path = format!("{}/leader", root(0));
    for (data, reason) in [
        (None, "/apps/app-0/leader holds 4 bytes that are not UTF-8 text"),
        (Some(b"".as_slice()), "/apps/app-0/leader is empty"),
        (
            Some(b"a\x07"),
            "/apps/app-0/leader holds characters that cannot be printed",
        ),
    ] {
        if let Some(data) = data {
            client.set_data(&path, data, None).await.unwrap();
        }
        let wanted = EnsembleView::Known {
            root: RootView::Exists,
            leader: LeaderView::Unreadable(reason.to_owned()),
        };
        world.view(&app(0), reason, |view| *view == wanted).await;
    }
    client.set_data(&path, b"app-0-0", None).await.unwrap();
    world.leader(&app(0), Some("app-0-0")).await;
}

#[tokio::test]
async fn what_an_access_control_list_forbids_is_forbidden_until_it_allows_it() {
    let server = TestServer::start().await.unwrap();
    let world = World::new(quick());
    let client = Client::connector()
        .with_auth("digest", b"owner:secret")
        .connect(&server.connect_string())
        .await
        .unwrap();
    let owner = [Acl::new(Permission::ALL, AuthId::authed())];
    let closed = CreateMode::Persistent.with_acls(Acls::new(&owner));
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create("/closed", b"", &closed).await.unwrap();
    client.create("/closed/there", b"", &open).await.unwrap();
    client.create("/apps", b"", &open).await.unwrap();
    client.create("/apps/app-0", b"", &open).await.unwrap();
    client.create("/apps/app-0/leader", b"app-0-0", &closed).await.unwrap();

    for (number, path) in [
        (0, "/apps/app-0"),
        (1, "/closed/there"),
        (2, "/closed/missing/deep"),
        (3, "/closed/there/deep"),
    ] {
        world.register(&app(number), &server.connect_string(), path);
    }
    let known = |root, leader| EnsembleView::Known { root, leader };
    let unreadable = LeaderView::Forbidden("ZooKeeper refuses to let esfleet read /apps/app-0/leader".to_owned());
    let refused =
        RootView::Forbidden("ZooKeeper refuses to let esfleet create /closed/missing: access is denied".to_owned());
    for (number, wanted) in [
        (0, known(RootView::Exists, unreadable)),
        (1, known(RootView::Exists, LeaderView::Absent)),
        (2, known(refused, LeaderView::Absent)),
        (3, known(RootView::Exists, LeaderView::Absent)),
    ] {
        world
            .view(&app(number), &format!("{wanted:?}"), |view| *view == wanted)
            .await;
    }
    let anyone = [Acl::new(Permission::ALL, AuthId::anyone())];
    client.set_acl("/apps/app-0/leader", &anyone, None).await.unwrap();
    client.set_acl("/closed", &anyone, None).await.unwrap();
    world.leader(&app(0), Some("app-0-0")).await;
    world.leader(&app(2), None).await;
}

#[tokio::test]
async fn a_root_that_is_deleted_comes_back_unless_the_app_is_paused() {
    let server = TestServer::start().await.unwrap();
    let world = World::new(quick());
    let connect = server.connect_string();
    world.register(&app(0), &connect, &root(0));
    world.register_as(&app(1), &connect, &root(1), false);
    world.leader(&app(0), None).await;
    let missing = EnsembleView::Known {
        root: RootView::Missing,
        leader: LeaderView::Absent,
    };
    world.view(&app(1), "missing", |view| *view == missing).await;
    let client = server.client().await.unwrap();
    client.delete(&root(0), None).await.unwrap();
    until("the root is there again", SOON, async || {
        exists(&client, &root(0)).await
    })
    .await;
    assert!(!exists(&client, &root(1)).await);
    world.register_as(&app(1), &connect, &root(1), true);
    world.leader(&app(1), None).await;
    assert!(exists(&client, &root(1)).await);
}

#[tokio::test]
async fn a_root_under_a_reserved_path_is_refused_without_a_session() {
    let world = World::new(quick());
    world.register(&app(0), "127.0.0.1:1/esfleet", "/a");
    let root = "/esfleet/a is reserved: use a root outside /zookeeper and /esfleet".to_owned();
    assert_eq!(
        world.pool.view(&app(0)),
        EnsembleView::Known {
            root: RootView::Failed(root),
            leader: LeaderView::Absent,
        }
    );
    assert_eq!(world.pool.sessions(), []);
}

#[tokio::test]
async fn the_session_is_closed_soon_after_its_last_app_is_gone() {
    let server = TestServer::start().await.unwrap();
    let world = World::new(PoolConfig {
        grace: Duration::from_secs(1),
        ..PoolConfig::default()
    });
    for number in 0..3 {
        world.register(&app(number), &server.connect_string(), &root(number));
        world.leader(&app(number), None).await;
    }
    world.pool.forget(&app(0));
    world.pool.forget(&app(1));
    assert_eq!(server.sessions().await.unwrap(), 1);
    let began = Instant::now();
    world.pool.forget(&app(2));
    assert_eq!(world.pool.view(&app(2)), EnsembleView::Pending);
    until("no session is left", SOON, async || {
        server.sessions().await.unwrap() == 0
    })
    .await;
    let after = began.elapsed();
    assert!(
        after >= Duration::from_millis(900) && after < Duration::from_secs(3),
        "{after:?}"
    );
    assert_eq!(world.pool.sessions(), []);
    world.register(&app(0), &server.connect_string(), &root(0));
    world.leader(&app(0), None).await;
}

#[tokio::test]
async fn while_nothing_changes_nothing_is_sent_but_pings() {
    let server = TestServer::start().await.unwrap();
    let world = World::new(PoolConfig {
        session_timeout: Duration::from_secs(10),
        ..PoolConfig::default()
    });
    for number in 0..20 {
        world.register(&app(number), &server.connect_string(), &root(number));
    }
    for number in 0..20 {
        world.leader(&app(number), None).await;
    }
    // Each root is looked at when it is missing and once more when it has been made; then nothing is left to do.
    let looks = "esfleet_zookeeper_requests_total{operation=\"Exists\",result=\"Done\"}";
    until("all is watched", SOON, async || world.metric(looks) >= 60).await;
    let received = async || {
        let connections = server.connections().await.unwrap();
        assert_eq!(connections.len(), 1, "{connections:?}");
        let count = connections[0]
            .split("recved=")
            .nth(1)
            .and_then(|rest| rest.split(',').next()?.parse::<u64>().ok());
        (count.unwrap(), connections[0].contains("lop=PING"))
    };
    until("a ping was the last", SOON, async || received().await.1).await;
    let (before, _) = received().await;
    let looked = world.metric(looks);
    sleep(Duration::from_secs(10)).await;
    let (after, pinged) = received().await;
    assert!(pinged);
    assert!(
        (2..=8).contains(&(after - before)),
        "{} packets in ten seconds",
        after - before
    );
    assert_eq!(world.metric(looks), looked);
}

#[tokio::test]
async fn closing_the_pool_ends_its_sessions_at_once() {
    let server = TestServer::start().await.unwrap();
    let world = World::new(PoolConfig::default());
    for number in 0..100 {
        world.register(&app(number), &server.connect_string(), &root(number));
    }
    for number in 0..100 {
        world.leader(&app(number), None).await;
    }
    assert_eq!(server.sessions().await.unwrap(), 1);
    let began = Instant::now();
    world.pool.close().await;
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    assert_eq!(server.sessions().await.unwrap(), 0);
    world.register(&app(0), &server.connect_string(), &root(0));
    assert_eq!(world.pool.view(&app(0)), EnsembleView::Pending);
}

#[tokio::test]
async fn nothing_is_created_once_the_term_has_ended() {
    let server = TestServer::start().await.unwrap();
    let client = server.client().await.unwrap();
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create("/apps", b"", &open).await.unwrap();
    let world = World::new(quick());
    world.term.end();
    world.register(&app(0), &server.connect_string(), &root(0));
    let ended = "esfleet_zookeeper_requests_total{operation=\"Create\",result=\"TermEnded\"}";
    until("the write is refused", SOON, async || world.metric(ended) == 1).await;
    // What was sent before is answered before.
    client.sync("/apps").await.unwrap();
    assert!(!exists(&client, &root(0)).await);
    assert_eq!(world.pool.view(&app(0)), EnsembleView::Pending);
}
