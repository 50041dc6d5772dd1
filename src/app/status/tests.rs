use super::*;
use crate::app::ChildKind;
use crate::app::fixtures::{app, app_with, applied, stateful_set};
use serde_json::json;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    time("2026-12-01T12:00:00.5Z")
}

fn known(leader: LeaderView) -> EnsembleView {
    EnsembleView::Known {
        root: RootView::Exists,
        leader,
    }
}

fn named(name: &str) -> EnsembleView {
    known(LeaderView::Named {
        name: name.to_owned(),
        since: time("2026-12-01T11:00:00.7Z"),
    })
}

fn unreachable() -> EnsembleView {
    let last = LastLeader {
        name: "orders-1".to_owned(),
        confirmed: time("2026-12-01T11:30:00.2Z"),
    };
    EnsembleView::Unreachable {
        message: "zk:2181 does not answer".to_owned(),
        last: Some(last),
    }
}

fn set() -> ObservedStatefulSet {
    stateful_set(&applied(ChildKind::StatefulSet, &app()))
}

fn workload(set: &ObservedStatefulSet) -> WorkloadView<'_> {
    WorkloadView {
        stateful_set: Some(set),
        ..WorkloadView::default()
    }
}

/// Each condition as "Type=Status Reason: message".
fn said(status: &EventSourcedAppStatus) -> Vec<String> {
    let line = |c: &Condition| format!("{}={} {}: {}", c.type_, c.status, c.reason, c.message);
    status.conditions.iter().map(line).collect()
}

fn condition(status: &EventSourcedAppStatus, kind: ConditionType) -> String {
    let condition = find(&status.conditions, kind).unwrap();
    format!("{} {}: {}", condition.status, condition.reason, condition.message)
}

#[test]
fn a_healthy_app_is_told_so_in_full() {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": message, "observedGeneration": 2,
            "lastTransitionTime": "2026-12-01T12:00:00Z"})
    };
    let expected = json!({
        "observedGeneration": 2,
        "conditions": [
            condition("ZooKeeperReady", "RootExists", "the root /orders exists"),
            condition("WorkloadReady", "ReplicasReady", "3 of 3 pods are Ready"),
            condition("LeaderElected", "Elected", "orders-1 leads"),
            condition("Ready", "AllReady", "pods are Ready and one leads"),
        ],
        "leader": "orders-1",
        "leaderSince": "2026-12-01T11:00:00Z",
        "activeReplicas": 3, "replicas": 3, "updatedReplicas": 3,
        "selector": "app=orders",
    });
    let status = status(&app(), &workload(&set()), &named("orders-1"), now());
    assert_eq!(serde_json::to_value(status).unwrap(), expected);
}

#[test]
fn a_status_that_says_the_same_later_is_current() {
    let (set, view) = (set(), named("orders-1"));
    let mut app = app();
    app.status = status(&app, &workload(&set), &view, now());
    let later = status(&app, &workload(&set), &view, time("2026-12-02T00:00:00Z"));
    assert_eq!(later, app.status);
    let mut observed = app.status.clone();
    let foreign = Condition {
        type_: "ZookeeperReady".to_owned(),
        ..observed.conditions[0].clone()
    };
    observed.conditions.insert(0, foreign);
    assert!(is_current(&observed, &later));
    observed.leader = None;
    assert!(!is_current(&observed, &later));
}

#[test]
fn a_time_changes_only_with_its_status() {
    let set = set();
    let mut app = app();
    app.status = status(&app, &workload(&set), &named("orders-1"), now());
    let later = status(
        &app,
        &workload(&set),
        &known(LeaderView::Absent),
        time("2026-12-02T00:00:00Z"),
    );
    let times: Vec<_> = later
        .conditions
        .iter()
        .map(|c| c.last_transition_time.0.to_string())
        .collect();
    let (same, changed) = ("2026-12-01T12:00:00Z", "2026-12-02T00:00:00Z");
    assert_eq!(times, [same, same, changed, changed]);
}

#[test]
fn while_nothing_is_known_of_the_ensemble_what_was_known_stays() {
    let set = set();
    let mut app = app();
    app.status = status(&app, &workload(&set), &named("orders-1"), now());
    assert_eq!(status(&app, &workload(&set), &EnsembleView::Pending, now()), app.status);
}

#[test]
fn an_app_of_which_nothing_is_known_yet_is_connecting() {
    let status = status(&app(), &WorkloadView::default(), &EnsembleView::Pending, now());
    assert_eq!(
        said(&status),
        [
            "ZooKeeperReady=Unknown Connecting: esfleet is connecting to ZooKeeper",
            "WorkloadReady=False Progressing: StatefulSet orders does not exist yet",
            "LeaderElected=Unknown Connecting: esfleet is connecting to ZooKeeper",
            "Ready=False Progressing: StatefulSet orders does not exist yet",
        ]
    );
}

#[test]
fn a_leader_that_nobody_can_confirm_is_cleared_and_named_in_the_message() {
    let set = set();
    let mut app = app();
    app.status = status(&app, &workload(&set), &named("orders-1"), now());
    let status = status(&app, &workload(&set), &unreachable(), now());
    assert_eq!((&status.leader, &status.leader_since), (&None, &None));
    let elsewhere = "zk:2181 does not answer; check spec.zookeeperConnectString and the ensemble";
    assert_eq!(
        said(&status),
        [
            format!("ZooKeeperReady=False Unreachable: {elsewhere}"),
            "WorkloadReady=True ReplicasReady: 3 of 3 pods are Ready".to_owned(),
            "LeaderElected=Unknown Unreachable: ZooKeeper does not answer, so nobody can tell who leads; \
             orders-1 led at 2026-12-01T11:30:00Z"
                .to_owned(),
            format!("Ready=False Unreachable: {elsewhere}"),
        ]
    );
}

#[test]
fn each_state_of_the_leader_znode_is_told_apart() {
    for (view, expected) in [
        (
            LeaderView::Absent,
            "False NoLeader: no pod holds /orders/leader; if this lasts, look at the pods' logs",
        ),
        (
            LeaderView::Unreadable("bytes".to_owned()),
            "False LeaderUnreadable: bytes; the app has to write the leader's name there",
        ),
        (
            LeaderView::Forbidden("no".to_owned()),
            "Unknown LeaderForbidden: no; let esfleet read it by an ACL",
        ),
        (LeaderView::Failed("odd".to_owned()), "Unknown LeaderFailed: odd"),
    ] {
        let status = status(&app(), &workload(&set()), &known(view), now());
        assert_eq!(condition(&status, ConditionType::LeaderElected), expected);
        assert_eq!(status.leader, None);
    }
}

#[test]
fn each_state_of_the_root_is_told_apart() {
    for (root, expected) in [
        (
            RootView::Missing,
            "False RootMissing: the root /orders does not exist, and esfleet creates none while spec.paused is true",
        ),
        (
            RootView::Forbidden("no".to_owned()),
            "False RootForbidden: no; give esfleet access by an ACL on the root or its parent",
        ),
        (RootView::Failed("odd".to_owned()), "False RootFailed: odd"),
    ] {
        let view = EnsembleView::Known {
            root,
            leader: LeaderView::Absent,
        };
        let status = status(&app(), &workload(&set()), &view, now());
        assert_eq!(condition(&status, ConditionType::ZooKeeperReady), expected);
        assert_eq!(condition(&status, ConditionType::Ready), expected);
    }
}

#[test]
fn each_state_of_the_pods_is_told_apart() {
    type Change = fn(&mut ObservedStatefulSet);
    let cases: [(Change, &str); 6] = [
        (
            |set| set.observed_generation = 3,
            "False Progressing: the newest change to StatefulSet orders has not been carried out yet",
        ),
        (
            |set| set.spec_replicas = 2,
            "False Progressing: the newest change to StatefulSet orders has not been carried out yet",
        ),
        (
            |set| set.ready_replicas = 1,
            "False ReplicasPending: 1 of 3 pods are Ready; look at: kubectl -n shop describe pods -l app=orders",
        ),
        (
            |set| (set.revisions_differ, set.updated_replicas) = (true, 1),
            "False RollingOut: 1 of 3 pods run the newest template",
        ),
        (|set| set.replicas = 4, "False ScalingDown: 4 pods exist, 3 are to stay"),
        (
            |set| (set.revisions_differ, set.updated_replicas) = (false, 0),
            "True ReplicasReady: 3 of 3 pods are Ready",
        ),
    ];
    for (change, expected) in cases {
        let mut set = set();
        change(&mut set);
        let status = status(&app(), &workload(&set), &named("orders-1"), now());
        assert_eq!(condition(&status, ConditionType::WorkloadReady), expected);
    }
}

#[test]
fn what_keeps_the_objects_from_being_as_they_should_comes_before_the_pods() {
    let set = set();
    let conflict = Conflict {
        kind: ChildKind::Service,
        name: "orders".to_owned(),
        owner: None,
    };
    let failure = Some("Service orders: forbidden".to_owned());
    for (view, expected) in [
        (
            WorkloadView {
                conflicts: vec![conflict],
                ..workload(&set)
            },
            "False Conflict: Service orders does not belong to this app and is left alone; \
             remove what is in the way, or give the app another name",
        ),
        (
            WorkloadView {
                being_deleted: true,
                ..workload(&set)
            },
            "False BeingDeleted: objects of this name are still being deleted; they are made anew once they are gone",
        ),
        (
            WorkloadView {
                failure,
                ..workload(&set)
            },
            "False WriteFailed: Service orders: forbidden",
        ),
        (
            WorkloadView {
                fixed: vec![FixedField::VolumeClaimTemplates],
                ..workload(&set)
            },
            "False ImmutableField: spec.volumeClaimTemplates of StatefulSet orders differs and can never be changed \
             (to have it made anew: kubectl -n shop delete statefulset orders --cascade=orphan)",
        ),
        (
            WorkloadView {
                fixed: vec![FixedField::PodManagementPolicy],
                ..workload(&set)
            },
            "True ReplicasReady: 3 of 3 pods are Ready; spec.podManagementPolicy of StatefulSet orders differs and can \
             never be changed (to have it made anew: kubectl -n shop delete statefulset orders --cascade=orphan)",
        ),
    ] {
        let status = status(&app(), &view, &named("orders-1"), now());
        assert_eq!(condition(&status, ConditionType::WorkloadReady), expected);
    }
}

#[test]
fn a_spec_that_cannot_be_used_is_named_and_the_rest_is_unknown() {
    let status = status(
        &app_with(&json!({"replicas": 0})),
        &workload(&set()),
        &named("orders-1"),
        now(),
    );
    assert_eq!(
        said(&status),
        [
            "ZooKeeperReady=Unknown InvalidSpec: spec.replicas must be at least 1; correct it",
            "WorkloadReady=False InvalidSpec: spec.replicas must be at least 1; correct it",
            "LeaderElected=Unknown InvalidSpec: spec.replicas must be at least 1; correct it",
            "Ready=False InvalidSpec: spec.replicas must be at least 1; correct it",
        ]
    );
    assert_eq!(status.leader, None);
}

#[test]
fn a_paused_app_says_so() {
    let app = app_with(&json!({"paused": true}));
    let status = status(&app, &WorkloadView::default(), &named("orders-1"), now());
    assert_eq!(
        condition(&status, ConditionType::Ready),
        "False Paused: StatefulSet orders does not exist, and esfleet creates none while spec.paused is true \
         (paused: esfleet changes nothing)"
    );
}
