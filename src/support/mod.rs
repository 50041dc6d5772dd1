//! YAML, retries, deadlines, supervised tasks.

pub mod retry;
