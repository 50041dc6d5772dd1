//! What the watches keep of each object: what plans and statuses are decided from, and no more.
//!
//! Each type is built from an object as the API server sent it; a text says why that cannot be done.

mod app;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::ChildKind;
use super::digest::{Digest, Part, claims_digest, owned_digest};
use crate::api::{GROUP, app::KIND};

pub use app::{AppSpec, ObservedApp, SpecFault};

/// The annotation of a StatefulSet that was taken over and keeps its template for now; see
/// [`crate::app::plan`].
pub const ADOPTED_TEMPLATE: &str = "es.your.domain/adopted-template";

/// What identifies a watched object of ours, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object's UID.
    pub uid: String,
    /// The object's resource version.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Who controls it.
    pub owner: Owner,
    /// The digest of what esfleet owns of it; none when esfleet never applied it.
    pub digest: Option<Digest>,
}

/// Who controls an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// Nobody.
    None,
    /// The app of this UID, which has the object's name: the present app, or an earlier one.
    App(String),
    /// Something else, as "Kind name".
    Other(String),
}

/// A watched StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedStatefulSet {
    /// Which object, and whose.
    pub child: Child,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`; 0 when its controller has not looked at it.
    pub observed_generation: i64,
    /// `spec.replicas`.
    pub spec_replicas: i32,
    /// `status.replicas`: pods that exist.
    pub replicas: i32,
    /// `status.readyReplicas`.
    pub ready_replicas: i32,
    /// `status.updatedReplicas`.
    pub updated_replicas: i32,
    /// Whether its current and its update revision differ.
    pub revisions_differ: bool,
    /// The fields that can never change.
    pub fixed: FixedFields,
    /// The annotation [`ADOPTED_TEMPLATE`].
    pub adopted_template: Option<Box<str>>,
}

/// A StatefulSet's immutable fields, as far as esfleet compares them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedFields {
    /// Whether the selector is exactly `app: NAME`.
    pub selector_is_ours: bool,
    /// Whether the governing Service is `NAME`.
    pub service_name_is_ours: bool,
    /// Whether `podManagementPolicy` is `Parallel`.
    pub is_parallel: bool,
    /// The digest of `volumeClaimTemplates`.
    pub volume_claim_templates: Part,
}

/// A watched Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedService {
    /// Which object, and whose.
    pub child: Child,
    /// Whether it has a cluster address of its own, which can never be taken from it.
    pub has_cluster_ip: bool,
}

/// A watched PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedBudget {
    /// Which object, and whose.
    pub child: Child,
    /// The pods that it is about; none selects none.
    pub selector: Option<Box<LabelSelector>>,
}

impl Child {
    fn from_value(kind: ChildKind, object: &Value) -> Result<Self, String> {
        let metadata = &object["metadata"];
        Ok(Self {
            namespace: text(metadata, "namespace")?,
            name: text(metadata, "name")?,
            uid: text(metadata, "uid")?,
            resource_version: text(metadata, "resourceVersion")?,
            deleting: !metadata["deletionTimestamp"].is_null(),
            owner: Owner::from_metadata(metadata),
            digest: owned_digest(kind, object),
        })
    }
}

impl Owner {
    fn from_metadata(metadata: &Value) -> Self {
        let controller = metadata["ownerReferences"]
            .as_array()
            .and_then(|owners| owners.iter().find(|owner| owner["controller"] == true));
        let Some(owner) = controller else { return Self::None };
        let [kind, name, uid, version] =
            ["kind", "name", "uid", "apiVersion"].map(|field| owner[field].as_str().unwrap_or_default());
        let is_of_its_name = metadata["name"] == name;
        if kind == KIND && version.split('/').next() == Some(GROUP) && is_of_its_name {
            Self::App(uid.to_owned())
        } else {
            Self::Other(format!("{kind} {name}"))
        }
    }
}

impl ObservedStatefulSet {
    /// Reduces a StatefulSet.
    ///
    /// # Errors
    /// A sentence when it has no name, UID or resource version.
    pub fn from_value(object: &Value) -> Result<Self, String> {
        let child = Child::from_value(ChildKind::StatefulSet, object)?;
        let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        let only_our_label = serde_json::json!({ "app": child.name });
        let selector = &spec["selector"];
        let fixed = FixedFields {
            selector_is_ours: selector["matchLabels"] == only_our_label && selector["matchExpressions"].is_null(),
            service_name_is_ours: spec["serviceName"] == child.name.as_str(),
            is_parallel: spec["podManagementPolicy"] == "Parallel",
            volume_claim_templates: claims_digest(spec.get("volumeClaimTemplates")),
        };
        Ok(Self {
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            observed_generation: status["observedGeneration"].as_i64().unwrap_or_default(),
            spec_replicas: number(&spec["replicas"]).unwrap_or(1),
            replicas: number(&status["replicas"]).unwrap_or_default(),
            ready_replicas: number(&status["readyReplicas"]).unwrap_or_default(),
            updated_replicas: number(&status["updatedReplicas"]).unwrap_or_default(),
            revisions_differ: status["currentRevision"] != status["updateRevision"],
            fixed,
            adopted_template: metadata["annotations"][ADOPTED_TEMPLATE].as_str().map(Into::into),
            child,
        })
    }
}

impl ObservedService {
    /// Reduces a Service.
    ///
    /// # Errors
    /// A sentence when it has no name, UID or resource version.
    pub fn from_value(object: &Value) -> Result<Self, String> {
        let address = object["spec"]["clusterIP"].as_str().unwrap_or_default();
        Ok(Self {
            child: Child::from_value(ChildKind::Service, object)?,
            has_cluster_ip: !matches!(address, "" | "None"),
        })
    }
}

impl ObservedBudget {
    /// Reduces a PodDisruptionBudget.
    ///
    /// # Errors
    /// A sentence when it has no name, UID or resource version, or when its selector is none.
    pub fn from_value(object: &Value) -> Result<Self, String> {
        let selector = match &object["spec"]["selector"] {
            Value::Null => None,
            selector => Some(Box::new(
                serde_json::from_value(selector.clone()).map_err(|e| format!("spec.selector: {e}"))?,
            )),
        };
        Ok(Self {
            child: Child::from_value(ChildKind::Budget, object)?,
            selector,
        })
    }
}

/// A text that every object has.
fn text(metadata: &Value, field: &str) -> Result<String, String> {
    match metadata[field].as_str() {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("metadata.{field} is missing")),
    }
}

fn number(value: &Value) -> Option<i32> {
    i32::try_from(value.as_i64()?).ok()
}

#[cfg(test)]
mod tests;
