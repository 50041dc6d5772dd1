//! Logs and the metrics registry. Each room registers its own metrics here.

pub use prometheus_client::registry::Registry;
