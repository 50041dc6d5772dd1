//! The fleet-wide snapshot with its age, rendered as table, JSON and YAML.

pub mod direct;
pub mod render;
pub mod snapshot;
pub mod text;

pub use snapshot::{AppReport, ClusterReport, ClusterState, FleetListing, Ready};
