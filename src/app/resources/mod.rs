//! What an app should have: typed objects, made from its name, its UID and its spec alone.

mod budget;
mod overlay;
mod service;
mod stateful_set;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource;
use serde_json::Value;

pub use budget::budget;
pub use overlay::merged_template;
pub use service::service;
pub use stateful_set::stateful_set;

use super::ChildKind;
use crate::api::{EventSourcedApp, EventSourcedAppSpec, FIELD_MANAGER};

/// What an app should have of a kind, as it is sent to the API server.
///
/// Where Kubernetes lets only one of two fields be set, the other is sent as null: if somebody has
/// set that one, an apply of ours alone would set both, and be refused for ever.
#[must_use]
#[expect(clippy::expect_used, reason = "states the invariant")]
pub fn wanted(kind: ChildKind, target: Target<'_>) -> Value {
    let object = match kind {
        ChildKind::Service => serde_json::to_value(service(target)),
        ChildKind::StatefulSet => serde_json::to_value(stateful_set(target)),
        ChildKind::Budget => serde_json::to_value(budget(target)),
    };
    let mut object = object.expect("a Kubernetes object has only text keys, so it is always JSON");
    match kind {
        ChildKind::Service => {}
        ChildKind::Budget => object["spec"]["minAvailable"] = Value::Null,
        ChildKind::StatefulSet => {
            for containers in ["containers", "initContainers"] {
                let containers = object["spec"]["template"]["spec"].get_mut(containers);
                containers
                    .and_then(Value::as_array_mut)
                    .into_iter()
                    .flatten()
                    .for_each(one_source_each);
            }
        }
    }
    object
}

/// Gives each variable of a container an explicit null for the source that it has not.
fn one_source_each(container: &mut Value) {
    let variables = container.get_mut("env").and_then(Value::as_array_mut);
    for variable in variables.into_iter().flatten().filter_map(Value::as_object_mut) {
        for source in ["value", "valueFrom"] {
            variable.entry(source).or_insert(Value::Null);
        }
    }
}

/// The name of the app's container in each pod.
pub const CONTAINER: &str = "es-app";
/// The port on which an app serves HTTP.
pub const PORT: i32 = 8080;
/// The name of that port.
pub const PORT_NAME: &str = "http";
/// The label by which an app's pods are selected, for ever.
pub const APP_LABEL: &str = "app";

/// The app that objects are made for.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name, which all its objects bear.
    pub name: &'a str,
    /// Its UID, by which it owns them.
    pub uid: &'a str,
    /// What it should be.
    pub spec: &'a EventSourcedAppSpec,
}

impl Target<'_> {
    /// Metadata of an object that goes with the app.
    ///
    /// `blockOwnerDeletion` is not set: it would need a permission on the app's finalizers, and
    /// nothing waits for the objects to go first.
    fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            namespace: Some(self.namespace.to_owned()),
            name: Some(self.name.to_owned()),
            labels: Some(self.labels()),
            owner_references: Some(vec![OwnerReference {
                api_version: EventSourcedApp::api_version(&()).into_owned(),
                kind: EventSourcedApp::kind(&()).into_owned(),
                name: self.name.to_owned(),
                uid: self.uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        }
    }

    /// The labels of everything that is the app's, its pods included.
    fn labels(&self) -> BTreeMap<String, String> {
        [
            (APP_LABEL, self.name),
            ("app.kubernetes.io/name", self.name),
            ("app.kubernetes.io/instance", self.name),
            ("app.kubernetes.io/managed-by", FIELD_MANAGER),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    /// The labels that select its pods.
    fn selector_labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(APP_LABEL.to_owned(), self.name.to_owned())])
    }

    fn selector(&self) -> LabelSelector {
        LabelSelector {
            match_labels: Some(self.selector_labels()),
            match_expressions: None,
        }
    }
}

#[cfg(test)]
mod tests;
