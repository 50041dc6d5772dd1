use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

const CREATED: &str = "2026-01-01T00:00:00Z";
const NOW: &str = "2026-01-01T01:00:00Z";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn condition(status: &str, observed: Option<i64>) -> AppCondition {
    AppCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: "AsDesired".to_owned(),
        message: "all is well".to_owned(),
        observed_generation: observed,
        last_transition_time: Time(time(CREATED)),
    }
}

fn status(condition: AppCondition) -> EventSourcedAppStatus {
    EventSourcedAppStatus {
        conditions: vec![condition],
        leader: Some("orders-0".to_owned()),
        active_replicas: Some(3),
        ..EventSourcedAppStatus::default()
    }
}

fn report(generation: i64, status: Option<&EventSourcedAppStatus>) -> AppReport {
    let facts = AppFacts {
        namespace: "shop",
        name: "orders",
        generation: Some(generation),
        created: Some(time(CREATED)),
        replicas: 3,
        image: "orders:1",
        status,
    };
    AppReport::from_facts(&facts, time(NOW))
}

fn cluster(name: &str, state: ClusterState, apps: Vec<AppReport>) -> ClusterReport {
    ClusterReport {
        name: name.to_owned(),
        state,
        reason: None,
        message: None,
        last_seen: Some(time(NOW)),
        version: Some("v1.36.3".to_owned()),
        apps,
    }
}

#[test]
fn an_app_is_as_ready_as_its_condition_says_of_its_latest_generation() {
    let verdicts = [
        ("True", Some(2)),
        ("False", Some(2)),
        ("Unknown", Some(2)),
        ("True", None),
        ("True", Some(1)),
    ]
    .map(|(text, observed)| report(2, Some(&status(condition(text, observed)))).ready);
    assert_eq!(
        verdicts,
        [Ready::True, Ready::False, Ready::Unknown, Ready::True, Ready::Unknown]
    );
}

#[test]
fn a_change_that_nobody_has_looked_at_is_called_that() {
    let report = report(2, Some(&status(condition("True", Some(1)))));
    assert_eq!(report.reason.as_deref(), Some("NotObserved"));
    assert_eq!(
        report.message.as_deref(),
        Some("the latest change (generation 2) has not been observed yet; the status is of generation 1")
    );
}

#[test]
fn an_app_without_a_status_is_unknown() {
    let report = report(1, None);
    assert_eq!(
        (report.ready, report.reason.as_deref()),
        (Ready::Unknown, Some("NoStatus"))
    );
}

#[test]
fn the_json_has_exactly_the_keys_of_the_contract() {
    let report = report(1, Some(&status(condition("True", Some(1)))));
    let listing = FleetListing::new(vec![cluster("eu", ClusterState::Connected, vec![report])], time(NOW));
    assert_eq!(
        serde_json::to_value(&listing).unwrap(),
        serde_json::json!({
            "generatedAt": NOW,
            "clusters": [{
                "name": "eu", "state": "Connected", "reason": null, "message": null, "lastSeen": NOW,
                "version": "v1.36.3", "apps": {"total": 1, "ready": 1},
            }],
            "apps": [{
                "cluster": "eu", "namespace": "shop", "name": "orders", "replicas": 3, "activeReplicas": 3,
                "leader": "orders-0", "image": "orders:1", "ready": "True", "reason": "AsDesired",
                "message": "all is well", "age": 3600, "lastConfirmed": NOW,
            }],
        })
    );
}

#[test]
fn a_controllers_listing_survives_the_way_over_the_wire() {
    let mut listing = FleetListing::new(vec![cluster("eu", ClusterState::Paused, Vec::new())], time(NOW));
    listing.leadership = Some(LeadershipRow {
        identity: "esfleet-0_1".to_owned(),
        leads: true,
        holder: Some("esfleet-0_1".to_owned()),
        term: Some(7),
        since: Some(time(CREATED)),
        error: None,
    });
    listing.zookeeper_sessions = Some(vec![SessionRow {
        ensemble: "zk:2181".to_owned(),
        state: "Connected".to_owned(),
        since: Some(time(CREATED)),
        apps: 1,
    }]);
    let text = serde_json::to_string(&listing).unwrap();
    assert_eq!(serde_json::from_str::<FleetListing>(&text).unwrap(), listing);
}

#[test]
fn rows_are_sorted_by_member_namespace_and_name() {
    let app = |namespace: &str, name: &str| AppReport {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..report(1, None)
    };
    let listing = FleetListing::new(
        vec![
            cluster("us", ClusterState::Connected, vec![app("a", "z")]),
            cluster(
                "eu",
                ClusterState::Connected,
                vec![app("b", "a"), app("a", "b"), app("a", "a")],
            ),
        ],
        time(NOW),
    );
    let clusters: Vec<&str> = listing.clusters.iter().map(|row| row.name.as_str()).collect();
    let apps: Vec<String> = listing
        .apps
        .iter()
        .map(|row| format!("{}/{}/{}", row.cluster, row.namespace, row.name))
        .collect();
    assert_eq!(clusters, ["eu", "us"]);
    assert_eq!(apps, ["eu/a/a", "eu/a/b", "eu/b/a", "us/a/z"]);
}

#[test]
fn no_app_of_a_silent_member_is_called_ready() {
    let ready = report(1, Some(&status(condition("True", Some(1)))));
    let listing = FleetListing::new(vec![cluster("eu", ClusterState::Unreachable, vec![ready])], time(NOW));
    let row = &listing.apps[0];
    assert_eq!(
        (row.ready, row.reason.as_deref(), row.message.as_deref()),
        (
            Ready::Unknown,
            Some("Stale"),
            Some("its member does not answer; it was ready when confirmed last, at 2026-01-01T01:00:00Z")
        )
    );
    assert_eq!(listing.clusters[0].apps, AppCounts { total: 1, ready: 0 });
    assert!(!listing.is_healthy());
}

#[test]
fn a_fleet_is_healthy_when_every_member_and_every_app_is() {
    let ready = report(1, Some(&status(condition("True", Some(1)))));
    let unready = report(1, Some(&status(condition("False", Some(1)))));
    let healthy = |state, app: &AppReport| {
        FleetListing::new(vec![cluster("eu", state, vec![app.clone()])], time(NOW)).is_healthy()
    };
    assert_eq!(
        [
            healthy(ClusterState::Connected, &ready),
            healthy(ClusterState::Paused, &ready),
            healthy(ClusterState::Degraded, &ready),
            healthy(ClusterState::Unknown, &ready),
            healthy(ClusterState::Connected, &unready),
            healthy(ClusterState::Connected, &report(1, None)),
        ],
        [true, true, false, false, false, false]
    );
}

#[test]
fn what_others_wrote_is_made_harmless() {
    let raw = AppReport {
        leader: Some("\u{1b}[2Jorders-0".to_owned()),
        message: Some("line\nbreak".to_owned()),
        ..report(1, None)
    };
    let listing = FleetListing::new(vec![cluster("eu", ClusterState::Connected, vec![raw])], time(NOW));
    assert_eq!(listing.apps[0].leader.as_deref(), Some("\\u{1b}[2Jorders-0"));
    assert_eq!(listing.apps[0].message.as_deref(), Some("line\\u{a}break"));
}
