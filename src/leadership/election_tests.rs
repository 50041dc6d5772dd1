//! The pure election, case by case.

use std::time::Duration;

use super::clock::BootInstant;
use super::election::{Contender, Effect, LeaseRecord, Next, Outcome, Seen, Source, Timing, Verdict};
use super::term::TermEnd;

const ME: &str = "me_11111111";
const TIMING: Timing = Timing {
    lease: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

fn at(seconds: f64) -> BootInstant {
    BootInstant::after_boot(Duration::from_secs(100) + Duration::from_secs_f64(seconds))
}

fn record(holder: &str, transitions: i32, renewed: i64) -> LeaseRecord {
    LeaseRecord {
        holder: holder.to_owned(),
        transitions,
        duration: Some(Duration::from_secs(15)),
        acquired_at: None,
        renewed_at: jiff::Timestamp::from_second(renewed).ok(),
    }
}

fn seen(holder: &str, transitions: i32, renewed: i64) -> Seen {
    Seen::Present(record(holder, transitions, renewed))
}

fn contender() -> Contender {
    Contender::new(ME.to_owned(), TIMING)
}

/// A contender that holds term 4 since second 0.
fn holder() -> Contender {
    let mut contender = contender();
    contender.observe(at(0.0), Source::Read, Some(20), seen("", 3, 0));
    let won = contender.finish(at(0.1), confirmed(0.0, 4, 21));
    assert_eq!(
        won,
        Effect::Won {
            number: 4,
            deadline: at(10.0),
            vacant: Some(Duration::from_millis(100))
        }
    );
    contender
}

fn confirmed(sent: f64, number: i32, version: u64) -> Outcome {
    let record = record(ME, number, sent as i64);
    Outcome::Confirmed {
        sent: at(sent),
        record,
        version: Some(version),
    }
}

#[test]
fn the_first_thing_to_do_is_to_look() {
    assert_eq!(contender().next(at(0.0)), Next::Attempt);
    assert_eq!(contender().verdict(at(0.0)), Verdict::Leave);
}

#[test]
fn what_is_free_is_taken_and_what_is_held_is_left() {
    let cases = [
        (Seen::Absent, Verdict::Take { number: 0 }),
        (seen("", 0, 0), Verdict::Take { number: 1 }),
        (seen("", 7, 0), Verdict::Take { number: 8 }),
        (seen("other_22222222", 7, 0), Verdict::Leave),
        (seen("me_22222222", 7, 0), Verdict::Leave),
        (seen(ME, 7, 0), Verdict::Take { number: 8 }),
        (seen("", i32::MAX, 0), Verdict::Take { number: i32::MAX }),
    ];
    for (seen, verdict) in cases {
        let mut contender = contender();
        contender.observe(at(0.0), Source::Read, Some(1), seen.clone());
        assert_eq!(contender.verdict(at(0.0)), verdict, "{seen:?}");
    }
}

#[test]
fn a_record_expires_by_its_own_duration_after_it_was_last_seen_to_change() {
    let mut contender = contender();
    let other = Seen::Present(LeaseRecord {
        duration: Some(Duration::from_secs(5)),
        ..record("other", 1, 0)
    });
    contender.observe(at(0.0), Source::Read, Some(1), other.clone());
    contender.observe(at(4.0), Source::Read, Some(1), other.clone());
    assert_eq!(contender.verdict(at(4.9)), Verdict::Leave);
    assert_eq!(contender.verdict(at(5.0)), Verdict::Take { number: 2 });
    assert_eq!(contender.next(at(5.0)), Next::Attempt);
    contender.observe(at(5.0), Source::Read, Some(2), seen("other", 1, 99));
    assert_eq!(contender.verdict(at(19.9)), Verdict::Leave);
}

#[test]
fn a_record_without_a_duration_is_respected_for_our_own() {
    let mut contender = contender();
    let other = Seen::Present(LeaseRecord {
        duration: None,
        ..record("other", 1, 0)
    });
    contender.observe(at(0.0), Source::Read, Some(1), other);
    assert_eq!(contender.verdict(at(14.9)), Verdict::Leave);
    assert_eq!(contender.verdict(at(15.0)), Verdict::Take { number: 2 });
}

#[test]
fn deleting_the_lease_does_not_end_the_term_of_another() {
    let mut contender = contender();
    contender.observe(at(0.0), Source::Read, Some(1), seen("other", 5, 0));
    contender.observe(at(3.0), Source::Watch, Some(2), Seen::Absent);
    assert_eq!(contender.verdict(at(14.9)), Verdict::Leave);
    assert_eq!(contender.verdict(at(15.0)), Verdict::Take { number: 6 });
}

#[test]
fn a_watched_follower_reads_only_when_the_holder_falls_silent() {
    let mut contender = contender();
    contender.set_watching(true);
    contender.observe(at(0.0), Source::Read, Some(1), seen("other", 5, 0));
    assert_eq!(contender.next(at(0.0)), Next::WaitUntil(at(4.0)));
    contender.observe(at(2.0), Source::Watch, Some(2), seen("other", 5, 2));
    assert_eq!(contender.next(at(2.0)), Next::WaitUntil(at(6.0)));
    assert_eq!(contender.next(at(6.0)), Next::Attempt);
    contender.observe(at(6.0), Source::Read, Some(2), seen("other", 5, 2));
    assert_eq!(contender.next(at(6.0)), Next::WaitUntil(at(8.0)));
    contender.observe(at(16.5), Source::Read, Some(2), seen("other", 5, 2));
    assert_eq!(
        contender.next(at(16.5)),
        Next::WaitUntil(at(17.0)),
        "not later than it expires"
    );
}

#[test]
fn a_follower_without_a_watch_reads_every_retry() {
    let mut contender = contender();
    contender.observe(at(0.0), Source::Read, Some(1), seen("other", 5, 0));
    assert_eq!(contender.next(at(0.0)), Next::WaitUntil(at(2.0)));
}

#[test]
fn a_failed_attempt_is_followed_by_a_pause_that_a_change_cuts_short() {
    let mut contender = contender();
    contender.begin(at(0.0));
    contender.finish(at(0.1), Outcome::Failed);
    assert_eq!(contender.next(at(0.1)), Next::WaitUntil(at(2.0)));
    contender.begin(at(2.0));
    contender.finish(at(5.0), Outcome::Failed);
    assert_eq!(
        contender.next(at(5.0)),
        Next::WaitUntil(at(5.25)),
        "a hang has paused already"
    );
    contender.observe(at(5.1), Source::Watch, Some(1), seen("", 5, 0));
    assert_eq!(contender.next(at(5.1)), Next::Attempt);
}

#[test]
fn an_older_watch_event_is_no_news() {
    let mut contender = holder();
    contender.observe(at(0.2), Source::Watch, Some(20), seen("", 3, 0));
    contender.observe(at(0.2), Source::Watch, Some(19), seen("other", 2, 0));
    contender.observe(at(0.2), Source::Watch, None, Seen::Absent);
    contender.suspect_absence();
    assert_eq!(contender.next(at(0.2)), Next::WaitUntil(at(2.0)));
}

#[test]
fn a_holder_renews_every_retry_and_each_renewal_moves_the_deadline_from_its_sending() {
    let mut contender = holder();
    assert_eq!(contender.next(at(2.0)), Next::Attempt);
    contender.observe(at(2.5), Source::Read, Some(21), seen(ME, 4, 0));
    assert_eq!(contender.verdict(at(2.5)), Verdict::Renew { number: 4 });
    assert_eq!(
        contender.finish(at(4.9), confirmed(2.0, 4, 22)),
        Effect::Renewed { deadline: at(12.0) }
    );
    assert_eq!(contender.next(at(4.9)), Next::Attempt);
    assert_eq!((contender.term(), contender.lease_until()), (Some(4), Some(at(17.0))));
}

#[test]
fn a_term_that_was_not_renewed_in_time_is_over_even_if_the_answer_comes() {
    let mut contender = holder();
    assert_eq!(contender.finish(at(10.0), confirmed(9.0, 4, 22)), Effect::None);
    assert_eq!(contender.verdict(at(10.0)), Verdict::Leave);
    assert_eq!(contender.next(at(10.0)), Next::StepDown(TermEnd::DeadlinePassed));
    contender.left();
    assert_eq!(contender.next(at(10.0)), Next::Attempt);
    assert_eq!(
        contender.verdict(at(10.0)),
        Verdict::Take { number: 5 },
        "a lapse starts a new term"
    );
}

#[test]
fn a_win_that_is_known_too_late_is_no_term() {
    let mut contender = contender();
    contender.observe(at(0.0), Source::Read, Some(20), seen("", 3, 0));
    assert_eq!(contender.finish(at(10.0), confirmed(0.0, 4, 21)), Effect::None);
    assert_eq!(contender.verdict(at(10.0)), Verdict::Take { number: 5 });
}

#[test]
fn whatever_shows_another_holder_or_another_term_ends_the_term() {
    let cases = [
        ("other", Source::Watch, seen("other", 5, 0)),
        ("released by kubectl", Source::Watch, seen("", 4, 0)),
        ("our name under another number", Source::Read, seen(ME, 5, 0)),
        ("deleted", Source::Watch, Seen::Absent),
        ("not found", Source::Read, Seen::Absent),
    ];
    for (name, source, seen) in cases {
        let mut contender = holder();
        contender.observe(at(1.0), source, Some(30), seen);
        assert_eq!(contender.verdict(at(1.0)), Verdict::Leave, "{name}");
        assert_eq!(contender.next(at(1.0)), Next::StepDown(TermEnd::Lost), "{name}");
        // It does not come back, whatever the Lease shows next.
        contender.observe(at(1.1), Source::Read, Some(31), Seen::Present(record(ME, 4, 1)));
        assert_eq!(contender.next(at(1.1)), Next::StepDown(TermEnd::Lost), "{name}");
    }
}

#[test]
fn numbers_only_grow_though_somebody_sets_them_back() {
    let mut contender = holder();
    contender.left();
    contender.observe(at(20.0), Source::Read, Some(40), seen("", 0, 0));
    assert_eq!(contender.verdict(at(20.0)), Verdict::Take { number: 5 });
    contender.observe(at(20.0), Source::Read, None, Seen::Absent);
    assert_eq!(contender.verdict(at(20.0)), Verdict::Take { number: 5 });
}

#[test]
fn a_holder_that_cannot_renew_tries_more_often_as_its_deadline_nears() {
    let mut contender = holder();
    for (failed, next) in [(2.0, 4.0), (4.0, 5.5), (8.0, 8.5), (9.0, 9.25), (9.9, 10.0)] {
        contender.begin(at(failed));
        contender.finish(at(failed), Outcome::Failed);
        assert_eq!(contender.next(at(failed)), Next::WaitUntil(at(next)));
    }
}

#[test]
fn a_conflict_is_looked_at_again_soon() {
    let mut contender = holder();
    contender.finish(at(2.0), Outcome::Conflict);
    assert_eq!(contender.next(at(2.0)), Next::WaitUntil(at(2.2)));
}

#[test]
fn a_twin_is_one_that_renews_under_our_name_and_not_what_a_former_process_left() {
    let mut contender = contender();
    contender.observe(at(0.0), Source::Read, Some(1), seen("me_22222222", 5, 0));
    contender.observe(at(1.0), Source::Read, Some(1), seen("me_22222222", 5, 0));
    assert_eq!(contender.twin(), None);
    contender.observe(at(2.0), Source::Read, Some(2), seen("me_22222222", 5, 2));
    assert_eq!(contender.twin(), Some("me_22222222"));
    let mut stranger = self::contender();
    stranger.observe(at(0.0), Source::Read, Some(1), seen("you_22222222", 5, 0));
    stranger.observe(at(2.0), Source::Read, Some(2), seen("you_22222222", 5, 2));
    assert_eq!(stranger.twin(), None);
}

#[test]
fn changes_of_the_holder_are_counted_and_releases_are_none() {
    let mut contender = contender();
    for (version, holder) in ["a", "a", "", "a", "b", "", "c"].into_iter().enumerate() {
        contender.observe(
            at(version as f64),
            Source::Read,
            Some(version as u64),
            seen(holder, 1, version as i64),
        );
    }
    assert_eq!(contender.holder_changes(), 2);
}
