use super::*;
use crate::app::fixtures::{app, app_with, applied, budget, service, stateful_set};

/// The three objects as they are after our applies.
struct World {
    service: Value,
    stateful_set: Value,
    budget: Value,
}

impl World {
    fn settled(app: &ObservedApp) -> Self {
        Self {
            service: applied(ChildKind::Service, app),
            stateful_set: applied(ChildKind::StatefulSet, app),
            budget: applied(ChildKind::Budget, app),
        }
    }

    fn plan(&self, app: &ObservedApp) -> Plan {
        self.plan_beside(app, &[])
    }

    fn plan_beside(&self, app: &ObservedApp, others: &[ObservedBudget]) -> Plan {
        let (service, set, budget) = (
            service(&self.service),
            stateful_set(&self.stateful_set),
            budget(&self.budget),
        );
        let children = ObservedChildren {
            service: Some(&service),
            stateful_set: Some(&set),
            budget: Some(&budget),
            budgets: others.iter().collect(),
        };
        plan(app, &children, &Memo::default())
    }
}

fn conflict(kind: ChildKind, owner: Option<&str>) -> Step {
    Step::Conflict(Conflict {
        kind,
        name: "orders".to_owned(),
        owner: owner.map(str::to_owned),
    })
}

fn other_budget(labels: Value) -> ObservedBudget {
    budget(&json!({
        "metadata": {"namespace": "shop", "name": "theirs", "uid": "u", "resourceVersion": "1"},
        "spec": {"selector": {"matchLabels": labels}},
    }))
}

#[test]
fn a_new_app_gets_three_objects_that_must_not_be_there_yet() {
    let plan = plan(&app(), &ObservedChildren::default(), &Memo::default());
    for (kind, step) in plan.steps() {
        let Step::Create(write) = step else {
            panic!("{kind}: {step:?}")
        };
        assert_eq!(write.object["kind"], kind.as_str());
        assert_eq!(write.object["metadata"]["name"], "orders");
        assert_eq!(write.object["metadata"]["resourceVersion"], ABSENT);
    }
}

#[test]
fn objects_that_are_as_they_should_be_are_left_alone() {
    let app = app();
    assert_eq!(World::settled(&app).plan(&app), Plan::nothing());
}

#[test]
fn a_change_of_the_spec_is_applied_to_the_object_that_was_observed() {
    let world = World::settled(&app());
    let plan = world.plan(&app_with(&json!({"replicas": 5, "image": "ledger:2"})));
    let Step::Change {
        write,
        why: Why::Differs,
    } = &plan.stateful_set
    else {
        panic!("{plan:?}")
    };
    assert_eq!(write.object["metadata"]["uid"], "StatefulSet-uid");
    assert_eq!(write.object["metadata"]["resourceVersion"], "11");
    assert_eq!(write.object["spec"]["replicas"], 5);
    assert_eq!(
        write.object["spec"]["template"]["spec"]["containers"][0]["image"],
        "ledger:2"
    );
    assert_eq!((plan.service, plan.budget), (Step::Nothing, Step::Nothing));
}

#[test]
fn a_field_of_ours_that_somebody_took_over_is_applied_again() {
    let app = app();
    let mut world = World::settled(&app);
    world.service["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"] = json!({"f:clusterIP": {}});
    assert!(matches!(
        world.plan(&app).service,
        Step::Change { why: Why::Differs, .. }
    ));
}

#[test]
fn an_object_that_is_not_the_apps_is_a_conflict() {
    let app = app();
    let mut world = World::settled(&app);
    world.service["metadata"]["ownerReferences"] = Value::Null;
    world.stateful_set["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "x/v1", "kind": "Database", "name": "main", "uid": "u", "controller": true}]);
    let plan = world.plan(&app);
    assert_eq!(plan.service, conflict(ChildKind::Service, None));
    assert_eq!(
        plan.stateful_set,
        conflict(ChildKind::StatefulSet, Some("Database main"))
    );
    let said: Vec<_> = plan.conflicts().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "Service orders does not belong to this app and is left alone",
            "StatefulSet orders belongs to Database main and is left alone"
        ]
    );
}

#[test]
fn an_object_that_is_going_is_waited_for_whether_of_this_app_or_of_an_earlier_one() {
    let app = app();
    let mut world = World::settled(&app);
    world.service["metadata"]["deletionTimestamp"] = json!("2026-12-01T10:00:00Z");
    world.stateful_set["metadata"]["ownerReferences"][0]["uid"] = json!("an-earlier-app");
    let plan = world.plan(&app);
    assert_eq!((plan.service, plan.stateful_set), (Step::Wait, Step::Wait));
}

#[test]
fn one_replica_has_no_budget() {
    let app = app_with(&json!({"replicas": 1}));
    let world = World::settled(&app);
    let gone = Step::Delete {
        uid: "PodDisruptionBudget-uid".to_owned(),
        resource_version: "11".to_owned(),
    };
    assert_eq!(world.plan(&app).budget, gone);
    assert_eq!(
        plan(&app, &ObservedChildren::default(), &Memo::default()).budget,
        Step::Nothing
    );
}

#[test]
fn there_is_no_budget_of_ours_where_another_selects_the_pods() {
    let app = app_with(&json!({"template": {"metadata": {"labels": {"team": "a"}}}}));
    let world = World::settled(&app);
    assert!(matches!(
        world.plan_beside(&app, &[other_budget(json!({"team": "a"}))]).budget,
        Step::Delete { .. }
    ));
    assert_eq!(
        world.plan_beside(&app, &[other_budget(json!({"team": "b"}))]).budget,
        Step::Nothing
    );
}

#[test]
fn a_foreign_budget_of_the_apps_name_counts_as_another_when_it_selects_the_pods() {
    let app = app();
    let mut world = World::settled(&app);
    world.budget["metadata"]["ownerReferences"] = Value::Null;
    assert_eq!(world.plan(&app).budget, Step::Nothing);
    world.budget["spec"]["selector"] = json!({"matchLabels": {"app": "other"}});
    assert_eq!(world.plan(&app).budget, conflict(ChildKind::Budget, None));
}

#[test]
fn a_paused_app_is_only_looked_at() {
    let paused = app_with(&json!({"paused": true, "replicas": 5}));
    let mut world = World::settled(&app());
    world.service["metadata"]["ownerReferences"] = Value::Null;
    let expected = Plan {
        service: conflict(ChildKind::Service, None),
        ..Plan::nothing()
    };
    assert_eq!(world.plan(&paused), expected);
    assert_eq!(
        plan(&paused, &ObservedChildren::default(), &Memo::default()),
        Plan::nothing()
    );
}

#[test]
fn an_app_that_is_going_or_has_no_usable_spec_is_left_alone() {
    let mut going = app();
    going.deleting = true;
    let broken = app_with(&json!({"zookeeperRootPath": "/orders/"}));
    for app in [going, broken] {
        assert_eq!(
            plan(&app, &ObservedChildren::default(), &Memo::default()),
            Plan::nothing()
        );
    }
}

#[test]
fn immutable_fields_that_differ_are_named_and_change_nothing() {
    let app = app();
    let mut world = World::settled(&app);
    world.stateful_set["spec"]["podManagementPolicy"] = json!("OrderedReady");
    world.stateful_set["spec"]["serviceName"] = json!("other");
    world.stateful_set["spec"]["selector"]["matchLabels"]["x"] = json!("y");
    world.stateful_set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}}]);
    world.service["spec"]["clusterIP"] = json!("10.96.0.9");
    let fixed = vec![
        FixedField::Selector,
        FixedField::ServiceName,
        FixedField::PodManagementPolicy,
        FixedField::VolumeClaimTemplates,
        FixedField::ClusterIp,
    ];
    assert_eq!(
        world.plan(&app),
        Plan {
            fixed,
            ..Plan::nothing()
        }
    );
}

#[test]
fn a_change_beside_an_immutable_difference_needs_the_live_object() {
    let mut world = World::settled(&app());
    world.stateful_set["spec"]["podManagementPolicy"] = json!("OrderedReady");
    let plan = world.plan(&app_with(&json!({"image": "ledger:2"})));
    assert_eq!(plan.stateful_set, Step::NeedsLive(Why::Differs));
}

#[test]
fn an_object_that_esfleet_never_applied_is_taken_over() {
    let app = app();
    let mut world = World::settled(&app);
    for object in [&mut world.service, &mut world.stateful_set, &mut world.budget] {
        object["metadata"]["managedFields"][0]["manager"] = json!("peer");
    }
    let plan = world.plan(&app);
    assert!(matches!(plan.service, Step::Change { why: Why::Adopt, .. }));
    assert_eq!(plan.stateful_set, Step::NeedsLive(Why::Adopt));
    assert!(matches!(plan.budget, Step::Change { why: Why::Adopt, .. }));
}

#[test]
fn what_an_apply_led_to_is_not_applied_again_though_the_digests_differ() {
    let app = app();
    let mut world = World::settled(&app);
    world.service["spec"]["ports"][0]["port"] = json!(8081);
    let Step::Change { write, .. } = world.plan(&app).service else {
        panic!("no change")
    };
    let observed = service(&world.service);
    let mut memo = Memo::default();
    memo.remember(ChildKind::Service, write.wanted, observed.child.digest);
    let children = ObservedChildren {
        service: Some(&observed),
        ..ObservedChildren::default()
    };
    assert_eq!(plan(&app, &children, &memo).service, Step::Nothing);
}
