use super::*;
use crate::api::EventSourcedAppStatus;
use crate::api::connect_string::InvalidConnectString;
use crate::api::root_path::InvalidRootPath;
use crate::app::fixtures::{app, app_value, applied, service, stateful_set};
use serde_json::json;

#[test]
fn a_stateful_set_is_reduced_to_what_decides() {
    let mut object = applied(ChildKind::StatefulSet, &app());
    object["status"] = json!({"observedGeneration": 3, "replicas": 4, "readyReplicas": 2, "updatedReplicas": 1,
        "currentRevision": "a", "updateRevision": "b"});
    object["metadata"]["annotations"] = json!({ADOPTED_TEMPLATE: "x"});
    let digest = owned_digest(ChildKind::StatefulSet, &object);
    assert!(digest.is_some());
    let expected = ObservedStatefulSet {
        child: Child {
            namespace: "shop".to_owned(),
            name: "orders".to_owned(),
            uid: "StatefulSet-uid".to_owned(),
            resource_version: "11".to_owned(),
            deleting: false,
            owner: Owner::App("app-uid".to_owned()),
            digest,
        },
        generation: 4,
        observed_generation: 3,
        spec_replicas: 3,
        replicas: 4,
        ready_replicas: 2,
        updated_replicas: 1,
        revisions_differ: true,
        fixed: FixedFields {
            selector_is_ours: true,
            service_name_is_ours: true,
            is_parallel: true,
            volume_claim_templates: claims_digest(None),
        },
        adopted_template: Some("x".into()),
    };
    assert_eq!(stateful_set(&object), expected);
}

#[test]
fn only_a_controller_owns_and_an_app_only_what_bears_its_name() {
    let owner = |kind: &str, version: &str, name: &str, controller: bool| {
        let mut object = applied(ChildKind::Service, &app());
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": controller}]);
        service(&object).child.owner
    };
    let other = |text: &str| Owner::Other(text.to_owned());
    let (kind, version) = ("EventSourcedApp", "es.your.domain/v1alpha1");
    assert_eq!(owner(kind, version, "orders", true), Owner::App("u".to_owned()));
    assert_eq!(
        owner(kind, "es.your.domain/v1", "orders", true),
        Owner::App("u".to_owned())
    );
    assert_eq!(owner(kind, version, "other", true), other("EventSourcedApp other"));
    assert_eq!(owner(kind, "other/v1", "orders", true), other("EventSourcedApp orders"));
    assert_eq!(owner(kind, version, "orders", false), Owner::None);
}

#[test]
fn a_service_has_an_address_or_none() {
    for (address, expected) in [
        (json!("None"), false),
        (json!(null), false),
        (json!(""), false),
        (json!("10.96.0.9"), true),
    ] {
        let mut object = applied(ChildKind::Service, &app());
        object["spec"]["clusterIP"] = address;
        assert_eq!(service(&object).has_cluster_ip, expected);
    }
}

#[test]
fn an_app_of_an_older_shape_is_kept_with_the_reason() {
    let cases: [(&str, Value, SpecFault); 7] = [
        ("/metadata/name", json!("a.b"), SpecFault::Name),
        ("/metadata/name", json!("a".repeat(53)), SpecFault::Name),
        ("/spec/replicas", json!(0), SpecFault::Replicas),
        (
            "/spec/replicas",
            json!("3"),
            SpecFault::Shape("invalid type: string \"3\", expected i32".to_owned()),
        ),
        ("/spec/image", json!(""), SpecFault::Image),
        (
            "/spec/zookeeperConnectString",
            json!(" "),
            SpecFault::ConnectString(InvalidConnectString::Empty),
        ),
        (
            "/spec/zookeeperRootPath",
            json!("/a/"),
            SpecFault::RootPath(InvalidRootPath::TrailingSlash),
        ),
    ];
    for (pointer, value, fault) in cases {
        let mut object = app_value();
        *object.pointer_mut(pointer).unwrap() = value;
        assert_eq!(ObservedApp::from_value(&object).unwrap().spec, Err(fault), "{pointer}");
    }
}

#[test]
fn a_status_that_does_not_parse_counts_as_never_told() {
    let mut object = app_value();
    object["status"] = json!({"replicas": "many", "leader": "x"});
    assert_eq!(
        ObservedApp::from_value(&object).unwrap().status,
        EventSourcedAppStatus::default()
    );
}

#[test]
fn an_object_without_identity_is_refused() {
    for field in ["name", "namespace", "uid", "resourceVersion"] {
        let mut object = app_value();
        object["metadata"][field] = Value::Null;
        assert_eq!(
            ObservedApp::from_value(&object),
            Err(format!("metadata.{field} is missing"))
        );
    }
}

#[test]
fn what_is_kept_of_an_object_stays_small() {
    let sizes = [
        size_of::<ObservedStatefulSet>(),
        size_of::<ObservedService>(),
        size_of::<ObservedBudget>(),
    ];
    assert!(sizes.iter().all(|size| *size <= 256), "{sizes:?}");
}
