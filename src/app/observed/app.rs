//! What is kept of an `EventSourcedApp`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use crate::api::connect_string::InvalidConnectString;
use crate::api::names::is_dns_label;
use crate::api::root_path::InvalidRootPath;
use crate::api::{ConnectString, EventSourcedAppSpec, EventSourcedAppStatus, RootPath};

/// The longest name of an app, so that the names of its pods and their revisions stay legal labels.
const NAME_MAX: usize = 52;

/// A watched `EventSourcedApp`.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedApp {
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object's UID.
    pub uid: String,
    /// The object's resource version.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it should be, or why that cannot be told.
    pub spec: Result<Box<AppSpec>, SpecFault>,
    /// What it was last told about itself; what does not parse counts as never told.
    pub status: EventSourcedAppStatus,
}

/// An app's spec, with its names parsed.
#[derive(Debug, Clone, PartialEq)]
pub struct AppSpec {
    /// `spec` as written.
    pub raw: EventSourcedAppSpec,
    /// `spec.zookeeperConnectString`.
    pub connect: ConnectString,
    /// `spec.zookeeperRootPath`.
    pub root: RootPath,
}

/// Why the spec of a stored object cannot be used. The API server refuses new ones like it; an older
/// CRD let them through.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecFault {
    /// The name does not serve as the name of a Service and as a label.
    #[error("metadata.name must be a DNS label of at most {NAME_MAX} characters that starts with a letter")]
    Name,
    /// The spec is of another shape.
    #[error("spec does not parse: {0}")]
    Shape(String),
    /// `spec.replicas` is less than 1.
    #[error("spec.replicas must be at least 1")]
    Replicas,
    /// `spec.image` is empty.
    #[error("spec.image must not be empty")]
    Image,
    /// The connect string is none.
    #[error("spec.zookeeperConnectString {0}")]
    ConnectString(InvalidConnectString),
    /// The root path is none.
    #[error("spec.zookeeperRootPath {0}")]
    RootPath(InvalidRootPath),
}

impl ObservedApp {
    /// Reduces an app.
    ///
    /// # Errors
    /// A sentence when it has no name, UID or resource version. A spec that does not parse is no error.
    pub fn from_value(object: &Value) -> Result<Self, String> {
        let metadata = &object["metadata"];
        let name = super::text(metadata, "name")?;
        Ok(Self {
            namespace: super::text(metadata, "namespace")?,
            uid: super::text(metadata, "uid")?,
            resource_version: super::text(metadata, "resourceVersion")?,
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            deleting: !metadata["deletionTimestamp"].is_null(),
            created: metadata["creationTimestamp"].as_str().and_then(|t| t.parse().ok()),
            labels: serde_json::from_value(metadata["labels"].clone()).unwrap_or_default(),
            spec: AppSpec::parse(&name, &object["spec"]).map(Box::new),
            status: serde_json::from_value(object["status"].clone()).unwrap_or_default(),
            name,
        })
    }
}

impl AppSpec {
    fn parse(name: &str, spec: &Value) -> Result<Self, SpecFault> {
        if !is_dns_label(name) || name.len() > NAME_MAX || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(SpecFault::Name);
        }
        let raw: EventSourcedAppSpec =
            serde_json::from_value(spec.clone()).map_err(|e| SpecFault::Shape(e.to_string()))?;
        if raw.replicas < 1 {
            return Err(SpecFault::Replicas);
        }
        if raw.image.is_empty() {
            return Err(SpecFault::Image);
        }
        Ok(Self {
            connect: ConnectString::parse(&raw.zookeeper_connect_string).map_err(SpecFault::ConnectString)?,
            root: RootPath::parse(&raw.zookeeper_root_path).map_err(SpecFault::RootPath)?,
            raw,
        })
    }
}
