use super::*;
use crate::listing::snapshot::{AppCounts, AppReport, ClusterReport};

const NOW: &str = "2026-01-01T01:00:00Z";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn app(name: &str, ready: Ready, leader: Option<&str>) -> AppReport {
    AppReport {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        replicas: 3,
        active_replicas: (ready != Ready::Unknown).then_some(2),
        leader: leader.map(str::to_owned),
        image: "registry.example/orders:1.2.3".to_owned(),
        ready,
        reason: Some(
            if ready == Ready::True {
                "AsDesired"
            } else {
                "PodsNotReady"
            }
            .to_owned(),
        ),
        message: Some("2 of 3 pods are ready".to_owned()),
        created: Some(time("2025-12-29T00:00:00Z")),
        last_confirmed: time("2026-01-01T00:59:58Z"),
    }
}

fn listing() -> FleetListing {
    let cluster = |name: &str, state, apps| ClusterReport {
        name: name.to_owned(),
        state,
        reason: None,
        message: None,
        last_seen: Some(time("2026-01-01T00:59:57Z")),
        version: Some("v1.36.3".to_owned()),
        apps,
    };
    let dead = ClusterReport {
        reason: Some("KubeconfigMissing".to_owned()),
        message: Some("kubeconfig /keys/us does not exist; put it there or correct its path".to_owned()),
        last_seen: None,
        version: None,
        ..cluster("us-east", ClusterState::Unreachable, Vec::new())
    };
    let apps = vec![
        app("payments", Ready::False, None),
        app("orders", Ready::True, Some("orders-0")),
        app("a-much-longer-name", Ready::Unknown, Some("größe-0")),
    ];
    FleetListing::new(vec![dead, cluster("eu-west", ClusterState::Connected, apps)], time(NOW))
}

#[test]
fn a_table_is_aligned_and_says_why_a_member_is_missing() {
    insta::assert_snapshot!(render(&listing(), Format::Table, false).unwrap());
}

#[test]
fn a_wide_table_has_images_messages_and_ages() {
    insta::assert_snapshot!(render(&listing(), Format::Wide, false).unwrap());
}

#[test]
fn colours_appear_only_when_asked_for() {
    let plain = render(&listing(), Format::Table, false).unwrap();
    let coloured = render(&listing(), Format::Table, true).unwrap();
    assert!(!plain.contains('\u{1b}'));
    assert!(coloured.contains("\u{1b}["));
}

#[test]
fn yaml_and_json_say_the_same() {
    let json: serde_json::Value = serde_json::from_str(&render(&listing(), Format::Json, true).unwrap()).unwrap();
    let yaml: serde_json::Value = yaml::from_str(&render(&listing(), Format::Yaml, true).unwrap()).unwrap();
    assert_eq!(json, yaml);
    assert_eq!(
        json["clusters"][0]["apps"],
        serde_json::json!(AppCounts { total: 3, ready: 1 })
    );
}

#[test]
fn a_fleet_without_apps_says_so() {
    let text = render(&FleetListing::new(Vec::new(), time(NOW)), Format::Table, false).unwrap();
    assert_eq!(
        text,
        "CLUSTER   STATE   APPS   READY   REASON   MESSAGE\n\nNo apps found.\n"
    );
}

#[test]
fn ages_are_shown_as_kubectl_shows_them() {
    for (seconds, text) in [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (3_599, "59m"),
        (10_800, "3h"),
        (11_100, "3h5m"),
        (100_000, "27h"),
        (183_600, "2d3h"),
        (864_000, "10d"),
        (70_000_000, "2y80d"),
        (315_360_000, "10y"),
    ] {
        assert_eq!(duration(seconds), text);
    }
}
