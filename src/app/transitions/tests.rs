use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::app::ChildKind;
use crate::app::ensemble::{EnsembleView, LeaderView, RootView};
use crate::app::fixtures::{app, applied, stateful_set};
use crate::app::plan::{Conflict, FixedField};
use crate::app::status::{WorkloadView, status};

fn leads(name: &str, since: &str) -> EnsembleView {
    let leader = LeaderView::Named {
        name: name.to_owned(),
        since: since.parse().unwrap(),
    };
    EnsembleView::Known {
        root: RootView::Exists,
        leader,
    }
}

fn seen(leader: LeaderView) -> EnsembleView {
    EnsembleView::Known {
        root: RootView::Exists,
        leader,
    }
}

fn out() -> EnsembleView {
    EnsembleView::Unreachable {
        message: "zk does not answer".to_owned(),
        last: None,
    }
}

/// The status that an ensemble leads to, with all pods ready.
fn healthy(view: &EnsembleView) -> EventSourcedAppStatus {
    troubled(view, &|_| {})
}

fn troubled(view: &EnsembleView, change: &dyn Fn(&mut WorkloadView<'_>)) -> EventSourcedAppStatus {
    let set = stateful_set(&applied(ChildKind::StatefulSet, &app()));
    let mut workload = WorkloadView {
        stateful_set: Some(&set),
        ..WorkloadView::default()
    };
    change(&mut workload);
    status(&app(), &workload, view, Timestamp::UNIX_EPOCH)
}

/// Each notice as "Type Reason: note".
fn said(old: &EventSourcedAppStatus, new: &EventSourcedAppStatus) -> Vec<String> {
    let line = |n: &Notice| format!("{} {}: {}", n.severity.as_str(), n.reason.as_str(), n.note);
    transitions(old, new).iter().map(line).collect()
}

const EARLY: &str = "2026-12-01T10:00:00Z";
const LATE: &str = "2026-12-01T11:00:00Z";

#[test]
fn an_app_that_is_new_gets_one_event() {
    let new = healthy(&leads("a", EARLY));
    assert_eq!(
        said(&EventSourcedAppStatus::default(), &new),
        ["Normal Created: made Service, StatefulSet and, for more than one replica, PodDisruptionBudget"]
    );
    let of_another: EventSourcedAppStatus = serde_json::from_value(json!({"activeReplicas": 3})).unwrap();
    assert_eq!(
        said(&of_another, &new),
        ["Normal TakenOver: taken over from another controller: 3 of 3 pods are Ready"]
    );
}

#[test]
fn the_one_event_of_a_new_app_in_trouble_is_the_trouble() {
    let conflict = Conflict {
        kind: ChildKind::Service,
        name: "orders".to_owned(),
        owner: None,
    };
    let new = troubled(&out(), &|workload| workload.conflicts = vec![conflict.clone()]);
    assert_eq!(
        said(&EventSourcedAppStatus::default(), &new),
        [
            "Warning Conflict: Service orders does not belong to this app and is left alone; \
          remove what is in the way, or give the app another name"
        ]
    );
    assert_eq!(
        said(&EventSourcedAppStatus::default(), &healthy(&out())),
        ["Warning ZooKeeperNotReady: zk does not answer; check spec.zookeeperConnectString and the ensemble"]
    );
}

#[test]
fn nothing_is_called_made_before_it_is() {
    let new = EventSourcedAppStatus::default();
    let view = seen(LeaderView::Absent);
    let going = troubled(&view, &|w| w.being_deleted = true);
    let mut paused = troubled(&view, &|w| w.stateful_set = None);
    let condition = paused
        .conditions
        .iter_mut()
        .find(|c| c.type_ == "WorkloadReady")
        .unwrap();
    condition.reason = Reason::Paused.as_str().to_owned();
    for waiting in [going, paused] {
        assert_eq!(said(&new, &waiting), Vec::<String>::new());
        assert_eq!(
            said(&waiting, &healthy(&view)),
            ["Normal Created: made Service, StatefulSet and, for more than one replica, PodDisruptionBudget"]
        );
    }
}

#[test]
fn each_change_of_the_leader_is_one_event() {
    let none = seen(LeaderView::Absent);
    let bytes = seen(LeaderView::Unreadable(
        "/orders/leader holds bytes that are no name".to_owned(),
    ));
    for (old, new, expected) in [
        (&none, &leads("a", EARLY), "Normal LeaderElected: a leads"),
        (
            &leads("a", EARLY),
            &leads("b", LATE),
            "Normal LeaderChanged: b leads, after a",
        ),
        (
            &leads("a", EARLY),
            &leads("a", LATE),
            "Normal LeaderChanged: a was elected again",
        ),
        (&leads("a", EARLY), &none, "Warning LeaderLost: nobody leads; a did"),
        (
            &leads("a", EARLY),
            &bytes,
            "Warning LeaderUnreadable: /orders/leader holds bytes that are no name; the app has to write the leader's name there",
        ),
    ] {
        assert_eq!(said(&healthy(old), &healthy(new)), [expected]);
    }
}

#[test]
fn what_stays_as_it_is_is_no_event() {
    for view in [
        out(),
        leads("a", EARLY),
        seen(LeaderView::Absent),
        EnsembleView::Pending,
    ] {
        assert_eq!(said(&healthy(&view), &healthy(&view)), Vec::<String>::new(), "{view:?}");
    }
    let kept = troubled(&leads("a", EARLY), &|w| {
        w.fixed = vec![FixedField::VolumeClaimTemplates]
    });
    assert_eq!(said(&kept, &kept), Vec::<String>::new());
}

#[test]
fn an_outage_of_zookeeper_is_one_event_and_its_end_another_that_names_the_leader() {
    let (before, during) = (healthy(&leads("a", EARLY)), healthy(&out()));
    assert_eq!(
        said(&before, &during),
        ["Warning ZooKeeperNotReady: zk does not answer; check spec.zookeeperConnectString and the ensemble"]
    );
    assert_eq!(
        said(&during, &healthy(&leads("b", LATE))),
        ["Normal ZooKeeperRecovered: the root /orders exists; b leads"]
    );
}

#[test]
fn trouble_with_the_objects_is_one_event() {
    let fine = healthy(&leads("a", EARLY));
    type Change = fn(&mut WorkloadView<'_>);
    let cases: [(Change, &str); 2] = [
        (
            |w| w.fixed = vec![FixedField::VolumeClaimTemplates],
            "Warning ImmutableField: spec.volumeClaimTemplates of StatefulSet orders differs and can never be changed \
             (to have it made anew: kubectl -n shop delete statefulset orders --cascade=orphan)",
        ),
        (
            |w| w.failure = Some("Service orders: forbidden".to_owned()),
            "Warning WriteFailed: Service orders: forbidden",
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(said(&fine, &troubled(&leads("a", EARLY), &change)), [expected]);
    }
}

#[test]
fn pods_that_fail_are_an_event_and_pods_that_are_changed_are_none() {
    let mut set = stateful_set(&applied(ChildKind::StatefulSet, &app()));
    set.ready_replicas = 2;
    let view = leads("a", EARLY);
    let workload = WorkloadView {
        stateful_set: Some(&set),
        ..WorkloadView::default()
    };
    let failing = status(&app(), &workload, &view, Timestamp::UNIX_EPOCH);
    let mut fine = healthy(&view);
    assert_eq!(
        said(&fine, &failing),
        ["Warning Degraded: 2 of 3 pods are Ready; look at: kubectl -n shop describe pods -l app=orders"]
    );
    fine.conditions.iter_mut().for_each(|c| c.observed_generation = Some(1));
    assert_eq!(said(&fine, &failing), Vec::<String>::new());
}

#[test]
fn a_note_fits_into_an_event() {
    let failure = "ä".repeat(1000);
    let new = troubled(&out(), &|workload| workload.failure = Some(failure.clone()));
    let notes: Vec<_> = transitions(&healthy(&out()), &new)
        .into_iter()
        .map(|n| n.note.len())
        .collect();
    assert_eq!(notes, [1024]);
}
