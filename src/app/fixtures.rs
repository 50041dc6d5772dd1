//! Objects for tests, in YAML and through the real types.

use serde_json::{Value, json};

use super::ChildKind;
use super::observed::{ObservedApp, ObservedBudget, ObservedService, ObservedStatefulSet};
use super::plan::target;
use super::resources::wanted;
use crate::support::yaml;

pub(super) const APP: &str = "
apiVersion: es.your.domain/v1alpha1
kind: EventSourcedApp
metadata:
  {name: orders, namespace: shop, uid: app-uid, resourceVersion: '7', generation: 2, creationTimestamp: '2026-12-01T10:00:00Z'}
spec:
  replicas: 3
  image: ledger:1
  zookeeperConnectString: zk:2181
  zookeeperRootPath: /orders
";

pub(super) fn app_value() -> Value {
    yaml::from_str(APP).unwrap()
}

/// The app, with some fields of its spec replaced.
pub(super) fn app_with(spec: &Value) -> ObservedApp {
    let mut app = app_value();
    app["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    ObservedApp::from_value(&app).unwrap()
}

pub(super) fn app() -> ObservedApp {
    app_with(&json!({}))
}

/// An object as an API server would return it after our apply: ours are all fields, one by one.
pub(super) fn applied(kind: ChildKind, app: &ObservedApp) -> Value {
    let mut object = wanted(kind, target(app, app.spec.as_ref().unwrap()));
    own(&mut object);
    object["metadata"]["uid"] = json!(format!("{kind}-uid"));
    object["metadata"]["resourceVersion"] = json!("11");
    object["metadata"]["generation"] = json!(4);
    object["status"] = json!({"observedGeneration": 4, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3});
    object
}

/// Makes esfleet the manager of all that the object says.
pub(super) fn own(object: &mut Value) {
    let fields = json!({
        "f:metadata": {"f:labels": {}, "f:ownerReferences": {}, "f:annotations": {}},
        "f:spec": {},
    });
    object["metadata"]["managedFields"] = json!([{"manager": "esfleet", "operation": "Apply", "fieldsV1": fields}]);
}

pub(super) fn stateful_set(object: &Value) -> ObservedStatefulSet {
    ObservedStatefulSet::from_value(object).unwrap()
}

pub(super) fn service(object: &Value) -> ObservedService {
    ObservedService::from_value(object).unwrap()
}

pub(super) fn budget(object: &Value) -> ObservedBudget {
    ObservedBudget::from_value(object).unwrap()
}
