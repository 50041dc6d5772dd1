//! YAML, retries, deadlines, supervised tasks.

pub mod deadline;
pub mod retry;
pub mod supervise;
pub mod yaml;
