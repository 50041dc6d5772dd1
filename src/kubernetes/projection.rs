//! Watched objects, reduced as they are decoded: the full object is dropped with the page it came in.

use std::borrow::Cow;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A namespaced object's place in one cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What is kept of a watched kind.
pub trait Projection: Clone + Debug + Send + Sync + 'static {
    /// The kind that is watched.
    type Of: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>;

    /// Reduces one object as the API server sent it.
    ///
    /// # Errors
    /// A sentence that says what does not parse; the object is then kept as unreadable.
    fn from_value(object: &Value) -> Result<Self, String>;
}

/// One watched object: enough metadata to place it, and its projection or the reason why there is none.
///
/// Decoding never fails over what an object holds, so that one odd object cannot stop a watch.
#[derive(Debug, Clone)]
pub struct Projected<P> {
    /// Name, namespace, UID, resource version and generation; nothing else.
    pub metadata: ObjectMeta,
    /// What was kept, or why the object does not parse.
    pub data: Result<P, String>,
}

impl<P> Projected<P> {
    /// The object's place; empty strings where the API server named none.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            namespace: self.metadata.namespace.clone().unwrap_or_default(),
            name: self.metadata.name.clone().unwrap_or_default(),
        }
    }

    /// The resource version as a number; 0 where it is none. API servers count upwards, and it is
    /// only compared with versions of the same object.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.metadata
            .resource_version
            .as_deref()
            .and_then(|v| v.parse().ok())
            .unwrap_or_default()
    }
}

impl<P: Projection> Projected<P> {
    /// Reduces one object.
    #[must_use]
    pub fn from_value(object: &Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        Self {
            metadata: ObjectMeta {
                name: text("name"),
                namespace: text("namespace"),
                uid: text("uid"),
                resource_version: text("resourceVersion"),
                generation: object["metadata"]["generation"].as_i64(),
                ..ObjectMeta::default()
            },
            data: P::from_value(object),
        }
    }
}

impl<'de, P: Projection> Deserialize<'de> for Projected<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|object| Self::from_value(&object))
    }
}

impl<P: Projection> Resource for Projected<P> {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        P::Of::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        P::Of::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        P::Of::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        P::Of::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
