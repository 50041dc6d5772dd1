use super::*;
use crate::app::fixtures::{app, app_with, applied, own};

/// A StatefulSet of the Go operator, as an API server returns it.
fn foreign(app: &ObservedApp) -> Value {
    let mut set = applied(ChildKind::StatefulSet, app);
    set["metadata"]["managedFields"] = json!([{"manager": "peer", "operation": "Update", "fieldsV1": {"f:spec": {}}}]);
    set["spec"]["podManagementPolicy"] = json!("OrderedReady");
    set["spec"]["template"] = json!({
        "metadata": {"labels": {"app": "orders"}},
        "spec": {
            "restartPolicy": "Always",
            "containers": [{
                "name": "es-app", "image": "ledger:1", "imagePullPolicy": "IfNotPresent",
                "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
                "env": [
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                    {"name": "ZK_CONNECT_STRING", "value": "zk:2181"},
                    {"name": "ZK_ROOT_PATH", "value": "/orders"},
                ],
            }],
        },
    });
    set
}

fn change(app: &ObservedApp, live: &Value) -> Value {
    match resolve(app, live, &Memo::default()) {
        Ok(Step::Change { write, .. }) => write.object,
        step => panic!("{step:?}"),
    }
}

/// The StatefulSet after that apply.
fn after(live: &Value, applied: &Value) -> Value {
    let mut after = live.clone();
    after["metadata"]["annotations"] = applied["metadata"]["annotations"].clone();
    after["spec"] = applied["spec"].clone();
    own(&mut after);
    after
}

#[test]
fn taking_over_applies_what_the_template_has_already() {
    let app = app();
    let live = foreign(&app);
    let object = change(&app, &live);
    let mut kept = live["spec"]["template"].clone();
    kept["spec"].as_object_mut().unwrap().remove("restartPolicy");
    kept["spec"]["containers"][0]
        .as_object_mut()
        .unwrap()
        .remove("imagePullPolicy");
    assert_eq!(object["spec"]["template"], kept);
    assert_eq!(object["spec"]["podManagementPolicy"], "OrderedReady");
    assert!(object["metadata"]["annotations"][ADOPTED_TEMPLATE].is_string());
    assert_eq!(object["metadata"]["resourceVersion"], "11");
}

#[test]
fn what_was_taken_over_stays_so_until_the_inputs_of_the_template_change() {
    let live = foreign(&app());
    let taken = after(&live, &change(&app(), &live));
    assert_eq!(resolve(&app(), &taken, &Memo::default()), Ok(Step::Nothing));
    let scaled = change(&app_with(&json!({"replicas": 4})), &taken);
    assert_eq!(scaled["spec"]["template"], taken["spec"]["template"]);
    for inputs in [
        json!({"image": "ledger:2"}),
        json!({"zookeeperConnectString": "zk2"}),
        json!({"template": {"spec": {"priorityClassName": "high"}}}),
    ] {
        let object = change(&app_with(&inputs), &taken);
        let names: Vec<_> = object["spec"]["template"]["spec"]["containers"][0]["env"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["POD_NAME", "POD_NAMESPACE", "ZK_CONNECT_STRING", "ZK_ROOT_PATH"],
            "{inputs}"
        );
        assert_eq!(object["metadata"].get("annotations"), None, "{inputs}");
    }
}

#[test]
fn a_template_that_lacks_nothing_needs_no_mark() {
    let app = app();
    let mut live = applied(ChildKind::StatefulSet, &app);
    live["metadata"]["managedFields"] = json!([]);
    assert_eq!(change(&app, &live)["metadata"].get("annotations"), None);
}

#[test]
fn a_template_that_is_not_what_the_spec_asks_for_is_changed_at_once() {
    for (spec, pointer, value) in [
        (json!({}), "/spec/template/spec/containers/0/image", json!("ledger:0")),
        (
            json!({}),
            "/spec/template/spec/containers/0/env/1/value",
            json!("elsewhere"),
        ),
        (
            json!({"template": {"spec": {"nodeSelector": {"a": "b"}}}}),
            "/spec/template/spec/nodeSelector",
            json!({"a": "b", "c": "d"}),
        ),
        (
            json!({"template": {"spec": {"hostNetwork": true}}}),
            "/spec/template/spec/dnsPolicy",
            json!("Default"),
        ),
    ] {
        let app = app_with(&spec);
        let mut live = foreign(&app);
        live["spec"]["template"]["spec"]["nodeSelector"] = json!({});
        live["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
        *live.pointer_mut(pointer).unwrap() = value;
        assert_eq!(change(&app, &live)["metadata"].get("annotations"), None, "{pointer}");
    }
}

#[test]
fn an_overlay_that_the_template_has_already_restarts_nothing() {
    let app = app_with(&json!({"template": {"spec": {"containers": [
        {"name": "es-app", "resources": {"requests": {"cpu": "0.5"}}}, {"name": "side", "image": "s"}]}}}));
    let mut live = foreign(&app);
    let containers = &mut live["spec"]["template"]["spec"]["containers"];
    containers[0]["resources"] = json!({"requests": {"cpu": "500m"}});
    containers
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "side", "image": "s", "imagePullPolicy": "Always"}));
    let object = change(&app, &live);
    let kept = &object["spec"]["template"]["spec"]["containers"];
    assert_eq!(kept[0]["resources"], json!({"requests": {"cpu": "500m"}}));
    assert_eq!(kept[1], json!({"name": "side", "image": "s"}));
    assert!(object["metadata"]["annotations"][ADOPTED_TEMPLATE].is_string());
}

#[test]
fn claims_and_selector_of_an_existing_stateful_set_are_sent_as_they_are() {
    let app = app_with(&json!({"volumeClaimTemplates": [{"metadata": {"name": "new"}}]}));
    let mut live = applied(ChildKind::StatefulSet, &app);
    live["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "old"}}]);
    live["spec"]["selector"]["matchLabels"]["track"] = json!("a");
    live["spec"]["replicas"] = json!(1);
    let object = change(&app, &live);
    assert_eq!(
        object["spec"]["volumeClaimTemplates"],
        json!([{"metadata": {"name": "old"}}])
    );
    assert_eq!(object["spec"]["selector"], live["spec"]["selector"]);
    assert_eq!(object["spec"]["template"]["metadata"]["labels"]["track"], "a");
}

#[test]
fn an_object_that_has_become_somebody_elses_since_is_a_conflict() {
    let app = app();
    let mut live = foreign(&app);
    live["metadata"]["ownerReferences"] = Value::Null;
    assert!(matches!(resolve(&app, &live, &Memo::default()), Ok(Step::Conflict(_))));
}
