//! Logs and the metrics registry. Each room registers its own metrics here.

pub mod logs;
pub mod process;

pub use prometheus_client::registry::Registry;
