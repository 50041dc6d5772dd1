pub mod snapshot;
pub mod text;

pub use snapshot::{AppReport, ClusterReport, ClusterState, FleetListing, Ready};
