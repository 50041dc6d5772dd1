//! The fleet config: the file that lists the member clusters.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::names::ClusterName;

/// A fleet config whose every part has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetConfig {
    /// The fleet's name (`metadata.name`): a DNS label.
    pub name: ClusterName,
    /// The members, in the order of the file; names are unique.
    pub clusters: Vec<MemberConfig>,
}

/// One entry of `clusters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberConfig {
    /// The member's name.
    pub name: ClusterName,
    /// How the member is reached.
    pub source: MemberSource,
    /// The namespaces whose apps esfleet looks after; empty: all.
    pub namespaces: Vec<String>,
    /// Labels for selecting members.
    pub labels: BTreeMap<String, String>,
    /// While true, nothing is written to the member.
    pub paused: bool,
}

/// Where a member's connection comes from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub enum MemberSource {
    /// A kubeconfig file; the path is absolute or relative to the fleet config's directory.
    Kubeconfig {
        /// The file, already joined with the fleet config's directory.
        path: PathBuf,
        /// The context to use; none: the file's current one.
        context: Option<String>,
    },
    /// The ServiceAccount of the pod that esfleet runs in.
    InCluster,
}
