//! The types that users write, and the names in them, each parsed once into a type that cannot be wrong.

pub mod app;
pub mod connect_string;
pub mod crd;
pub mod fleet_config;
pub mod names;
pub mod root_path;

pub use app::{AppCondition, EventSourcedApp, EventSourcedAppSpec, EventSourcedAppStatus};
pub use connect_string::ConnectString;
pub use fleet_config::FleetConfig;
pub use names::{AppKey, ClusterName};
pub use root_path::RootPath;

/// The API group of `EventSourcedApp` and `FleetConfig`.
pub const GROUP: &str = "es.your.domain";
/// The version of that group that esfleet serves.
pub const VERSION: &str = "v1alpha1";
/// The field manager of everything that esfleet applies, and the value of `app.kubernetes.io/managed-by`.
pub const FIELD_MANAGER: &str = "esfleet";
