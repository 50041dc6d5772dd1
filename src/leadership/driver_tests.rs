//! The election as a whole against a hub in memory, with time that the test moves.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::fake_hub::{FakeHub, Fault};
use super::{
    BootClock, Election, ElectionConfig, ElectionError, LeadershipMetrics, LeadershipView, ManualClock, Term, TermEnd,
};

const SECOND: Duration = Duration::from_secs(1);

/// One replica, its hub, and the terms that it was given.
struct Replica {
    hub: FakeHub,
    clock: Arc<ManualClock>,
    view: watch::Receiver<LeadershipView>,
    terms: mpsc::UnboundedReceiver<Arc<Term>>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ElectionError>>,
}

/// How the work of a term takes its end.
#[derive(Clone, Copy)]
enum Work {
    /// It ends so long after the cancellation.
    StopsAfter(Duration),
    /// It does not care.
    NeverStops,
    /// It ends by itself after so long.
    EndsAfter(Duration),
    /// It panics at once.
    Panics,
}

fn start(prepare: impl FnOnce(&FakeHub), work: Work) -> Replica {
    let (hub, client) = FakeHub::start();
    prepare(&hub);
    let clock = Arc::new(ManualClock::new());
    let config = ElectionConfig::new("esfleet", "esfleet", "me");
    let election = Election::new(client, config, LeadershipMetrics::default(), clock.clone());
    let view = election.view();
    let shutdown = CancellationToken::new();
    let (sender, terms) = mpsc::unbounded_channel();
    let noted = hub.clone();
    let lead = move |term: Arc<Term>| {
        sender.send(term.clone()).unwrap();
        let noted = noted.clone();
        async move {
            match work {
                Work::StopsAfter(pause) => {
                    term.cancellation().cancelled().await;
                    noted.note("cancelled");
                    sleep(pause).await;
                    noted.note("stopped");
                }
                Work::NeverStops => std::future::pending().await,
                Work::EndsAfter(pause) => sleep(pause).await,
                Work::Panics => panic!("out of luck"),
            }
        }
    };
    let task = tokio::spawn(election.run(shutdown.clone(), lead));
    Replica {
        hub,
        clock,
        view,
        terms,
        shutdown,
        task,
    }
}

impl Replica {
    /// The next term that is won within `limit`.
    async fn term(&mut self, limit: Duration) -> Arc<Term> {
        timeout(limit, self.terms.recv())
            .await
            .expect("a term is won in time")
            .expect("the election runs")
    }

    async fn wins_nothing_for(&mut self, time: Duration) {
        assert!(timeout(time, self.terms.recv()).await.is_err(), "won a term");
    }

    fn identity(&self) -> String {
        self.view.borrow().identity.clone()
    }
}

fn held_by(holder: &str, transitions: i64) -> Value {
    json!({
        "holderIdentity": holder, "leaseTransitions": transitions, "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
    })
}

/// The log with milliseconds rounded to tenths of a second, as tokio's timers round up.
fn rounded(log: Vec<String>) -> Vec<String> {
    let line = |line: String| {
        let (millis, rest) = line.split_once(' ').unwrap();
        format!("{:.1} {rest}", millis.parse::<f64>().unwrap() / 1000.0)
    };
    log.into_iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn a_missing_lease_is_created_and_renewed_every_two_seconds_and_nothing_else_is_asked() {
    let mut replica = start(|_| {}, Work::StopsAfter(Duration::ZERO));
    let term = replica.term(SECOND).await;
    assert_eq!(term.number(), 0);
    sleep(Duration::from_millis(4500)).await;
    let expected = [
        "0.0 GET",
        "0.0 POST term 0",
        "2.0 GET",
        "2.0 renew",
        "4.0 GET",
        "4.0 renew",
    ];
    assert_eq!(rounded(replica.hub.take_log()), expected);
    assert!(term.remaining() > 9 * SECOND);
    assert_eq!(replica.hub.spec()["holderIdentity"], replica.identity());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_cancels_waits_for_the_writers_and_only_then_releases() {
    let mut replica = start(|hub| hub.set_spec(held_by("", 3)), Work::StopsAfter(SECOND));
    let term = replica.term(SECOND).await;
    assert_eq!(term.number(), 4);
    sleep(SECOND).await;
    replica.shutdown.cancel();
    assert_eq!(replica.task.await.unwrap(), Ok(()));
    let expected = [
        "0.0 GET",
        "0.0 PATCH term 4",
        "1.0 cancelled",
        "2.0 stopped",
        "2.0 GET",
        "2.0 release",
    ];
    assert_eq!(rounded(replica.hub.take_log()), expected);
    let spec = replica.hub.spec();
    assert_eq!(
        (&spec["holderIdentity"], &spec["leaseTransitions"]),
        (&json!(""), &json!(4))
    );
    assert_eq!(term.end_reason(), Some(TermEnd::Shutdown));
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_hangs_ends_the_term_on_the_dot_and_the_writers_are_waited_for() {
    let mut replica = start(|_| {}, Work::StopsAfter(2 * SECOND));
    let term = replica.term(SECOND).await;
    sleep(Duration::from_millis(4500)).await;
    replica.hub.take_log();
    replica.hub.fail(Fault::Hang);
    term.cancellation().cancelled().await;
    sleep(Duration::from_millis(2100)).await;
    let log = rounded(replica.hub.take_log());
    // Renewed last at 4.0; the attempts in between are given up after three seconds each.
    assert_eq!(
        log[..4],
        ["6.0 GET", "9.2 GET", "12.5 GET", "14.0 cancelled"],
        "{log:?}"
    );
    assert_eq!(log[4..], ["16.0 stopped", "16.0 GET"], "{log:?}");
    assert_eq!(term.end_reason(), Some(TermEnd::DeadlinePassed));
    assert!(!replica.view.borrow().leads);
    replica.hub.fail(None);
    let next = replica.term(5 * SECOND).await;
    assert_eq!(next.number(), 1);
    replica.wins_nothing_for(60 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn writers_that_do_not_stop_are_aborted_when_the_lease_is_over() {
    let mut replica = start(|_| {}, Work::NeverStops);
    let started = Instant::now();
    let term = replica.term(SECOND).await;
    replica.hub.fail(Fault::Hang);
    term.cancellation().cancelled().await;
    replica.hub.fail(None);
    let next = replica.term(10 * SECOND).await;
    assert_eq!(next.number(), 1);
    assert!(
        started.elapsed() >= 15 * SECOND && started.elapsed() < 16 * SECOND,
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn throttling_shorter_than_the_renew_deadline_changes_nothing() {
    let mut replica = start(|_| {}, Work::StopsAfter(Duration::ZERO));
    let term = replica.term(SECOND).await;
    replica.hub.fail(Fault::Refuse(429, "TooManyRequests"));
    sleep(9 * SECOND).await;
    assert!(
        replica
            .view
            .borrow()
            .error
            .as_deref()
            .unwrap()
            .contains("refused by the test")
    );
    replica.hub.fail(None);
    sleep(60 * SECOND).await;
    assert!(!term.ended());
    assert_eq!(replica.hub.spec()["leaseTransitions"], 0);
    assert_eq!(replica.view.borrow().error, None);
}

#[tokio::test(start_paused = true)]
async fn throttling_longer_than_the_renew_deadline_is_one_clean_step_down() {
    let mut replica = start(|_| {}, Work::StopsAfter(Duration::ZERO));
    let term = replica.term(SECOND).await;
    replica.hub.fail(Fault::Refuse(429, "TooManyRequests"));
    sleep(30 * SECOND).await;
    assert!(term.ended());
    replica.hub.fail(None);
    assert_eq!(replica.term(3 * SECOND).await.number(), 1);
    replica.wins_nothing_for(60 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_race_is_no_term() {
    let race = |hub: &FakeHub| {
        hub.set_spec(held_by("", 3));
        hub.fail(Fault::Interfere(held_by("winner", 4)));
    };
    let mut replica = start(race, Work::StopsAfter(Duration::ZERO));
    replica.wins_nothing_for(10 * SECOND).await;
    let view = replica.view.borrow().clone();
    assert_eq!(
        (view.leads, view.holder.as_deref(), view.term),
        (false, Some("winner"), Some(4))
    );
    assert_eq!(view.error, None);
    assert_eq!(replica.hub.spec(), held_by("winner", 4));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deletes_ends_the_term_and_the_next_has_a_higher_number() {
    let mut replica = start(|hub| hub.set_spec(held_by("", 6)), Work::StopsAfter(Duration::ZERO));
    let term = replica.term(SECOND).await;
    assert_eq!(term.number(), 7);
    sleep(Duration::from_millis(500)).await;
    replica.hub.delete();
    let next = replica.term(3 * SECOND).await;
    assert_eq!((term.end_reason(), next.number()), (Some(TermEnd::Lost), 8));
    assert_eq!(replica.hub.spec()["leaseTransitions"], 8);
}

#[tokio::test(start_paused = true)]
async fn what_kubectl_and_others_leave_in_a_lease_is_taken_like_a_released_one() {
    let cases = [
        (json!(null), 1),
        (json!({}), 1),
        (json!({"holderIdentity": null, "leaseTransitions": null}), 1),
        (json!({"holderIdentity": "", "leaseTransitions": 5}), 6),
        (
            json!({"leaseTransitions": 2, "renewTime": "2124-01-01T00:00:00.000000Z"}),
            3,
        ),
    ];
    for (spec, number) in cases {
        let mut replica = start(|hub| hub.set_spec(spec.clone()), Work::StopsAfter(Duration::ZERO));
        assert_eq!(replica.term(SECOND).await.number(), number, "{spec}");
        let written = replica.hub.spec();
        let keys: Vec<_> = written.as_object().unwrap().keys().cloned().collect();
        let all = [
            "acquireTime",
            "holderIdentity",
            "leaseDurationSeconds",
            "leaseTransitions",
            "renewTime",
        ];
        assert_eq!(keys, all, "{spec}");
        replica.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_the_deadline_does_not_extend_the_term() {
    let mut replica = start(|_| {}, Work::StopsAfter(Duration::ZERO));
    let term = replica.term(SECOND).await;
    sleep(SECOND).await;
    replica.hub.fail(Fault::AnswerLate(2 * SECOND));
    sleep(Duration::from_millis(2900)).await;
    // The renewal was done at 2.0 s and its answer is on the way; the machine sleeps past the deadline of 10 s.
    replica.clock.suspend(10 * SECOND);
    let next = replica.term(5 * SECOND).await;
    assert_eq!((term.end_reason(), next.number()), (Some(TermEnd::DeadlinePassed), 1));
}

#[tokio::test(start_paused = true)]
async fn a_won_lease_whose_answer_is_lost_is_taken_again_under_a_higher_number() {
    let prepare = |hub: &FakeHub| {
        hub.set_spec(held_by("", 3));
        hub.fail(Fault::LoseAnswer);
    };
    let mut replica = start(prepare, Work::StopsAfter(Duration::ZERO));
    assert_eq!(replica.term(10 * SECOND).await.number(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_with_another_holder_ends_the_term() {
    let mut replica = start(|_| {}, Work::StopsAfter(Duration::ZERO));
    let term = replica.term(SECOND).await;
    replica.hub.fail(Fault::Misreport(held_by("other", 1)));
    term.cancellation().cancelled().await;
    assert_eq!(term.end_reason(), Some(TermEnd::Lost));
    sleep(SECOND).await;
    assert_eq!(replica.hub.spec(), held_by("other", 1));
}

#[tokio::test(start_paused = true)]
async fn a_follower_takes_a_release_at_once_and_asks_nothing_while_the_holder_renews() {
    let mut replica = start(
        |hub| hub.set_spec(held_by("other", 3)),
        Work::StopsAfter(Duration::ZERO),
    );
    sleep(SECOND).await;
    replica.hub.take_log();
    for renewal in 0..10 {
        sleep(2 * SECOND).await;
        let mut spec = held_by("other", 3);
        spec["renewTime"] = json!(format!("2026-01-01T00:00:{:02}.000000Z", 10 + renewal));
        replica.hub.set_spec(spec);
    }
    sleep(SECOND).await;
    assert_eq!(replica.hub.take_log(), Vec::<String>::new());
    replica.hub.set_spec(held_by("", 3));
    assert_eq!(replica.term(Duration::from_millis(10)).await.number(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_follower_takes_an_expired_lease_on_the_dot_with_and_without_a_watch() {
    for watched in [true, false] {
        let prepare = |hub: &FakeHub| {
            hub.set_spec(held_by("dead", 3));
            if !watched {
                hub.break_watch();
            }
        };
        let started = Instant::now();
        let mut replica = start(prepare, Work::StopsAfter(Duration::ZERO));
        assert_eq!(replica.term(20 * SECOND).await.number(), 4);
        let took = started.elapsed();
        assert!(
            took >= 15 * SECOND && took < Duration::from_millis(15_100),
            "watched {watched}: {took:?}"
        );
        let error = replica.view.borrow().error.clone();
        assert_eq!(error.is_none(), watched, "{error:?}");
        replica.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_said_with_its_remedy_and_heals() {
    let mut replica = start(
        |hub| hub.fail(Fault::Refuse(403, "Forbidden")),
        Work::StopsAfter(Duration::ZERO),
    );
    replica.wins_nothing_for(10 * SECOND).await;
    let expected = "Lease esfleet/esfleet: refused by the test; apply what \"esfleet member manifest --hub\" prints \
                    to the hub";
    assert_eq!(replica.view.borrow().error.as_deref(), Some(expected));
    replica.hub.fail(None);
    replica.term(3 * SECOND).await;
    assert_eq!(replica.view.borrow().error, None);
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_by_itself_ends_the_election_with_an_error_and_a_release() {
    let mut replica = start(|_| {}, Work::EndsAfter(3 * SECOND));
    replica.term(SECOND).await;
    assert_eq!(replica.task.await.unwrap(), Err(ElectionError::WorkEnded { term: 0 }));
    assert_eq!(replica.hub.spec()["holderIdentity"], "");
    assert_eq!(replica.view.borrow().last_end, Some(TermEnd::WorkEnded));
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_ends_the_election_with_its_words_and_a_release() {
    let mut replica = start(|_| {}, Work::Panics);
    replica.term(SECOND).await;
    let expected = ElectionError::WorkPanicked {
        term: 0,
        message: "out of luck".to_owned(),
    };
    assert_eq!(replica.task.await.unwrap(), Err(expected));
    assert_eq!(replica.hub.spec()["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_holder_wakes_up_without_a_term() {
    let mut replica = start(|_| {}, Work::StopsAfter(Duration::ZERO));
    let term = replica.term(SECOND).await;
    sleep(Duration::from_millis(500)).await;
    replica.clock.suspend(60 * SECOND);
    replica.hub.set_spec(held_by("other", 1));
    assert!(term.ended());
    replica.wins_nothing_for(10 * SECOND).await;
    assert_eq!(replica.hub.spec(), held_by("other", 1));
    assert!(replica.clock.now() > super::BootInstant::after_boot(3660 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn an_election_task_that_is_gone_takes_its_term_with_it() {
    let mut replica = start(|_| {}, Work::StopsAfter(Duration::ZERO));
    let term = replica.term(SECOND).await;
    replica.task.abort();
    assert!(replica.task.await.unwrap_err().is_cancelled());
    assert!(term.ended() && term.cancellation().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_that_is_answered_with_another_holder_is_no_term() {
    let prepare = |hub: &FakeHub| {
        hub.set_spec(held_by("", 3));
        hub.fail(Fault::Misreport(held_by("other", 4)));
    };
    let mut replica = start(prepare, Work::StopsAfter(Duration::ZERO));
    replica.wins_nothing_for(10 * SECOND).await;
    assert_eq!(replica.view.borrow().holder.as_deref(), Some("other"));
    assert_eq!(replica.hub.spec(), held_by("other", 4));
}
