//! The sample app against a real ZooKeeper server: nothing acknowledged is lost, nothing is applied twice.

#![allow(clippy::unwrap_used, reason = "all of this crate is test code")]

#[path = "sample_support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use support::{Bank, LIMIT, PERSISTENT, SESSION_TIMEOUT, deposit, eventually, post};

const ALL: [usize; 3] = [0, 1, 2];

/// The pods other than this one.
fn others(place: usize) -> Vec<usize> {
    ALL.into_iter().filter(|other| *other != place).collect()
}

#[tokio::test]
async fn an_event_taken_by_the_leader_appears_at_all() {
    let bank = Bank::start(1000).await;
    let (leads, epoch) = bank.leader(&ALL, 0).await;
    let answer = bank.pods[leads].post(&deposit(Some("first"), "alice")).await;
    assert_eq!(
        answer,
        Some((201, json!({"number": 1, "epoch": epoch, "duplicate": false})))
    );
    let again = bank.pods[leads].post(&deposit(Some("first"), "alice")).await;
    assert_eq!(
        again,
        Some((200, json!({"number": 1, "epoch": epoch, "duplicate": true})))
    );
    let agreed = bank.agreement(&ALL, 1).await;
    assert_eq!(agreed["applied"], 1);
    for pod in &bank.pods {
        assert_eq!(pod.accounts().await, json!({"alice": 1}));
        assert_eq!(pod.state().await.unwrap()["version"], "test-1");
    }
    let client = bank.client().await;
    let (name, stat) = client.get_data(&format!("{}/leader", Bank::ROOT)).await.unwrap();
    assert_eq!(String::from_utf8(name).unwrap(), bank.pods[leads].name);
    assert_ne!(stat.ephemeral_owner, 0);
    let (text, stat) = client.get_data(&format!("{}/epoch", Bank::ROOT)).await.unwrap();
    assert_eq!(
        (String::from_utf8(text).unwrap(), i64::from(stat.version)),
        (epoch.to_string(), epoch)
    );
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused_with_the_reason() {
    let bank = Bank::start(1000).await;
    let (leads, _) = bank.leader(&ALL, 0).await;
    let overdraft = json!({"command": {"withdraw": {"account": "alice", "amount": 5}}});
    let refused = json!({"appended": false, "error": "account \"alice\" has 0, 5 needed"});
    assert_eq!(bank.pods[leads].post(&overdraft).await, Some((422, refused)));
    let (status, body) = bank.pods[leads].post(&json!({"command": "none"})).await.unwrap();
    assert_eq!(
        (
            status,
            body["error"].as_str().map(|error| error.starts_with("not an event: "))
        ),
        (400, Some(true))
    );
    let leader = &bank.pods[leads].name;
    for place in others(leads) {
        let expected = json!({"appended": false, "leader": leader, "error": format!("{leader} leads, not this pod")});
        assert_eq!(
            bank.pods[place].post(&deposit(None, "alice")).await,
            Some((421, expected))
        );
    }
    assert_eq!(bank.agreement(&ALL, 0).await["applied"], 0);
}

/// Sends events from several clients at once; each client goes on after every answer until it has sent its share.
struct Stream {
    acknowledged: Arc<AtomicUsize>,
    clients: JoinSet<Vec<(String, bool)>>,
}

impl Stream {
    const CLIENTS: usize = 8;
    const EACH: usize = 40;

    /// Clients with an even number give ids and retry until the event is acknowledged; the others never send twice.
    fn start(bank: &Bank) -> Self {
        let addresses: Vec<String> = bank.pods.iter().map(|pod| pod.address.clone()).collect();
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let mut clients = JoinSet::new();
        for client in 0..Self::CLIENTS {
            let (addresses, acknowledged) = (addresses.clone(), Arc::clone(&acknowledged));
            clients.spawn(async move {
                let mut sent = Vec::new();
                for event in 0..Self::EACH {
                    let account = format!("client-{client}.event-{event}");
                    let done = Self::send(&addresses, client % 2 == 0, &account).await;
                    acknowledged.fetch_add(usize::from(done), Ordering::Relaxed);
                    sent.push((account, done));
                }
                sent
            });
        }
        Self { acknowledged, clients }
    }

    async fn send(addresses: &[String], retry: bool, account: &str) -> bool {
        let event = deposit(retry.then_some(account), account);
        let deadline = Instant::now() + LIMIT;
        for address in addresses.iter().cycle() {
            match post(address, &event).await {
                Some((200 | 201, _)) => return true,
                // Certainly not in the log, so sending it elsewhere cannot make two of it.
                Some((_, body)) if body["appended"] == json!(false) => {}
                _ if !retry => return false,
                _ => {}
            }
            assert!(Instant::now() < deadline, "{account} was never acknowledged");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        false
    }

    async fn acknowledged(&self, count: usize) {
        eventually("events are acknowledged", async || {
            (self.acknowledged.load(Ordering::Relaxed) >= count).then_some(())
        })
        .await;
    }

    /// Waits for all clients: every account, and whether its deposit was acknowledged.
    async fn finish(self) -> Vec<(String, bool)> {
        self.clients.join_all().await.into_iter().flatten().collect()
    }
}

/// Asserts that acknowledged deposits are in the state once, and the others at most once; the number of deposits there.
fn assert_exactly_once(sent: &[(String, bool)], accounts: &Value) -> u64 {
    let wrong: Vec<_> = sent
        .iter()
        .map(|(account, acknowledged)| (account, *acknowledged, accounts[account].as_u64().unwrap_or(0)))
        .filter(|(_, acknowledged, balance)| *balance > 1 || (*acknowledged && *balance == 0))
        .collect();
    assert_eq!(wrong, []);
    sent.iter().filter_map(|(account, _)| accounts[account].as_u64()).sum()
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_leader_is_killed() {
    let mut bank = Bank::start(50).await;
    let (leads, epoch) = bank.leader(&ALL, 0).await;
    let stream = Stream::start(&bank);
    stream.acknowledged(60).await;
    bank.pods[leads].signal("KILL").await;
    assert_eq!(bank.pods[leads].ended().await, None);
    let (next, _) = bank.leader(&others(leads), epoch).await;
    assert_ne!(next, leads);
    let sent = stream.finish().await;
    let retried = sent
        .iter()
        .filter(|(account, done)| *done && account.starts_with("client-0."))
        .count();
    assert_eq!(retried, Stream::EACH);
    let name = bank.pods[leads].name.clone();
    bank.pods[leads] = bank.start_pod(&name).await;
    bank.leader(&ALL, epoch).await;
    let agreed = bank.agreement(&ALL, 60).await;
    for pod in &bank.pods {
        let deposits = assert_exactly_once(&sent, &pod.accounts().await);
        assert_eq!(agreed["applied"], deposits);
    }
}

#[tokio::test]
async fn a_leader_told_to_end_resigns_at_once_and_loses_nothing() {
    let mut bank = Bank::start(50).await;
    let (leads, epoch) = bank.leader(&ALL, 0).await;
    let stream = Stream::start(&bank);
    stream.acknowledged(60).await;
    let told = Instant::now();
    bank.pods[leads].signal("TERM").await;
    assert_eq!(bank.pods[leads].ended().await, Some(0));
    let ended = told.elapsed();
    bank.leader(&others(leads), epoch).await;
    let led = told.elapsed();
    assert!(
        led < SESSION_TIMEOUT,
        "ended after {ended:?}, another led after {led:?}: the node was left to time out"
    );
    let sent = stream.finish().await;
    let agreed = bank.agreement(&others(leads), 60).await;
    for place in others(leads) {
        assert_eq!(
            agreed["applied"],
            assert_exactly_once(&sent, &bank.pods[place].accounts().await)
        );
    }
}

#[tokio::test]
async fn a_leader_frozen_past_its_session_acknowledges_nothing() {
    let bank = Bank::start(1000).await;
    let (leads, epoch) = bank.leader(&ALL, 0).await;
    bank.pods[leads].signal("STOP").await;
    let mut late = JoinSet::new();
    for number in 0..10 {
        let address = bank.pods[leads].address.clone();
        late.spawn(async move { post(&address, &deposit(None, &format!("late-{number}"))).await });
    }
    let (next, _) = bank.leader(&others(leads), epoch).await;
    assert_eq!(
        bank.pods[next]
            .post(&deposit(None, "early"))
            .await
            .map(|(status, _)| status),
        Some(201)
    );
    bank.pods[leads].signal("CONT").await;
    let statuses: Vec<_> = late
        .join_all()
        .await
        .into_iter()
        .flatten()
        .map(|(status, _)| status)
        .collect();
    assert_eq!(statuses.len(), 10);
    assert!(
        statuses.iter().all(|status| matches!(status, 421 | 503)),
        "{statuses:?}"
    );
    bank.leader(&ALL, epoch).await;
    bank.agreement(&ALL, 1).await;
    for pod in &bank.pods {
        assert_eq!(pod.accounts().await, json!({"early": 1}));
    }
}

#[tokio::test]
async fn a_leader_whose_epoch_has_passed_appends_nothing() {
    let bank = Bank::start(1000).await;
    let (leads, epoch) = bank.leader(&ALL, 0).await;
    let client = bank.client().await;
    client
        .set_data(&format!("{}/epoch", Bank::ROOT), b"usurped", None)
        .await
        .unwrap();
    let (status, body) = bank.pods[leads].post(&deposit(None, "late")).await.unwrap();
    assert_eq!((status, &body["appended"]), (503, &json!(false)));
    let (next, after) = bank.leader(&ALL, epoch + 1).await;
    assert_eq!(
        bank.pods[next].post(&deposit(None, "early")).await,
        Some((201, json!({"number": 1, "epoch": after, "duplicate": false})))
    );
}

/// Kills the server; every pod says so well before its session would have timed out.
async fn kill_zookeeper(bank: &mut Bank) {
    let killed = Instant::now();
    bank.zookeeper.kill().await;
    for pod in &bank.pods {
        eventually("a pod without ZooKeeper says so", async || {
            let state = pod.state().await?;
            (state["role"] == "disconnected" && state["healthy"] == false && !state["error"].is_null()).then_some(())
        })
        .await;
    }
    let noticed = killed.elapsed();
    assert!(
        noticed < SESSION_TIMEOUT,
        "noticed after {noticed:?}: a lost connection counted only once it had timed out"
    );
}

#[tokio::test]
async fn all_recover_when_zookeeper_is_killed_and_restarted() {
    let mut bank = Bank::start(1000).await;
    let (_, first) = bank.leader(&ALL, 0).await;
    let stream = Stream::start(&bank);
    stream.acknowledged(60).await;
    kill_zookeeper(&mut bank).await;
    bank.zookeeper.restart().await;
    let (_, second) = bank.leader(&ALL, first).await;
    let sent = stream.finish().await;
    let agreed = bank.agreement(&ALL, 60).await;
    // With nothing in flight, only the session itself can tell.
    kill_zookeeper(&mut bank).await;
    bank.zookeeper.restart().await;
    bank.leader(&ALL, second).await;
    assert_eq!(bank.agreement(&ALL, 60).await, agreed);
    for pod in &bank.pods {
        assert_eq!(agreed["applied"], assert_exactly_once(&sent, &pod.accounts().await));
    }
}

#[tokio::test]
async fn segments_roll_over_and_are_replayed() {
    let mut bank = Bank::start(5).await;
    let (leads, _) = bank.leader(&ALL, 0).await;
    let mut posts = JoinSet::new();
    for number in 0..23 {
        let address = bank.pods[leads].address.clone();
        posts.spawn(async move { post(&address, &deposit(None, &format!("account-{number}"))).await });
    }
    let statuses: Vec<_> = posts
        .join_all()
        .await
        .into_iter()
        .flatten()
        .map(|(status, _)| status)
        .collect();
    assert_eq!(statuses, [201; 23]);
    let agreed = bank.agreement(&ALL, 23).await;
    let client = bank.client().await;
    let mut segments = Vec::new();
    for segment in 0..6 {
        let path = format!("{}/events/{segment:012}", Bank::ROOT);
        let mut records = client.list_children(&path).await.unwrap_or_default();
        records.sort();
        segments.push(records);
    }
    let numbers: Vec<String> = (1..=23).map(|number| format!("{number:012}")).collect();
    let expected: Vec<Vec<String>> = numbers.chunks(5).map(<[String]>::to_vec).chain([Vec::new()]).collect();
    assert_eq!(segments, expected);
    let follower = others(leads)[0];
    let name = bank.pods[follower].name.clone();
    bank.pods[follower] = bank.start_pod(&name).await;
    assert_eq!(bank.agreement(&ALL, 23).await, agreed);
}

#[tokio::test]
async fn a_root_made_late_or_wiped_is_waited_for() {
    let mut bank = Bank::without_root(1000).await;
    bank.start_pods().await;
    for pod in &bank.pods {
        let line = format!("waiting for {} to be made", Bank::ROOT);
        eventually("a pod waits for the root", async || {
            pod.log().contains(&line).then_some(())
        })
        .await;
        assert_eq!(pod.state().await.unwrap()["role"], "awaitingRoot");
    }
    bank.make_root().await;
    let (leads, _) = bank.leader(&ALL, 0).await;
    assert_eq!(
        bank.pods[leads]
            .post(&deposit(None, "before"))
            .await
            .map(|(status, _)| status),
        Some(201)
    );
    bank.agreement(&ALL, 1).await;
    wipe(&bank).await;
    bank.make_root().await;
    let accepted = eventually("a leader of the new root takes an event", async || {
        for pod in &bank.pods {
            if let Some((201, answer)) = pod.post(&deposit(None, "after")).await {
                return Some(answer["number"].clone());
            }
        }
        None
    })
    .await;
    assert_eq!(accepted, 1);
    bank.leader(&ALL, 0).await;
    bank.agreement(&ALL, 1).await;
    for pod in &bank.pods {
        assert_eq!(pod.accounts().await, json!({"after": 1}));
    }
}

#[tokio::test]
async fn a_log_that_was_replaced_is_read_from_its_start() {
    let bank = Bank::start(1000).await;
    let (leads, epoch) = bank.leader(&ALL, 0).await;
    assert_eq!(
        bank.pods[leads]
            .post(&deposit(Some("id"), "before"))
            .await
            .map(|(status, _)| status),
        Some(201)
    );
    bank.agreement(&ALL, 1).await;
    let events = format!("{}/events", Bank::ROOT);
    let segment = format!("{events}/{:012}", 0);
    let client = bank.client().await;
    let mut replace = client.new_multi_writer();
    for path in [
        format!("{segment}/{:012}", 1),
        segment,
        events.clone(),
        format!("{}/leader", Bank::ROOT),
    ] {
        replace.add_delete(&path, None).unwrap();
    }
    replace
        .add_create(&events, br#"{"log": "other", "segmentSize": 10}"#, &PERSISTENT)
        .unwrap();
    replace.commit().await.unwrap();
    let (next, _) = bank.leader(&ALL, epoch).await;
    let answer = bank.pods[next].post(&deposit(Some("id"), "after")).await.unwrap();
    assert_eq!((answer.0, &answer.1["number"]), (201, &json!(1)));
    bank.agreement(&ALL, 1).await;
    for pod in &bank.pods {
        assert_eq!(pod.state().await.unwrap()["log"], "other");
        assert_eq!(pod.accounts().await, json!({"after": 1}));
    }
}

/// Deletes the root with all below, again and again while pods add to it.
async fn wipe(bank: &Bank) {
    let client = bank.client().await;
    eventually("the root is gone", async || {
        let mut paths = vec![Bank::ROOT.to_owned()];
        let mut next = 0;
        while next < paths.len() {
            let parent = paths[next].clone();
            let children = client.list_children(&parent).await.unwrap_or_default();
            paths.extend(children.into_iter().map(|child| format!("{parent}/{child}")));
            next += 1;
        }
        for path in paths.iter().rev() {
            let _ = client.delete(path, None).await;
        }
        client.check_stat(Bank::ROOT).await.unwrap().is_none().then_some(())
    })
    .await;
    // The parent stays, as it is not the app's.
    assert!(client.create("/apps", b"", &PERSISTENT).await.is_err());
}
