//! Structured logs on standard error.

use std::io::IsTerminal;

use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// What is logged when RUST_LOG is not set: our own events, and of libraries what a person has to know.
/// `kube_client` reports every failed request as an error, which our own events tell with their context.
pub const DEFAULT_FILTER: &str = "info,kube_client=off,kube_runtime=error,kube_leader_election=warn,hyper=warn,hyper_util=warn,rustls=warn,tower=warn,zookeeper_client=error";

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// One line that a person understands.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, Error)]
pub enum LogError {
    /// RUST_LOG cannot be parsed.
    #[error("RUST_LOG {value:?} is no filter: {reason}; use levels as in \"info,esfleet=debug\"")]
    Filter {
        /// What stands in RUST_LOG.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Logging has been set up before in this process.
    #[error("logging is set up twice: {0}")]
    Twice(String),
}

/// Sets up logging for the process; RUST_LOG overrides [`DEFAULT_FILTER`].
///
/// # Errors
/// [`LogError`] when RUST_LOG is no filter, or logging has been set up before.
pub fn init(format: LogFormat) -> Result<(), LogError> {
    let value = std::env::var("RUST_LOG").unwrap_or_default();
    let registry = tracing_subscriber::registry().with(filter(&value)?);
    let outcome = match format {
        LogFormat::Text => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
            let layer = fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(colour)
                .with_target(false);
            registry.with(layer).try_init()
        }
        LogFormat::Json => {
            let layer = fmt::layer().json().flatten_event(true).with_writer(std::io::stderr);
            registry.with(layer).try_init()
        }
    };
    outcome.map_err(|error| LogError::Twice(error.to_string()))
}

fn filter(value: &str) -> Result<EnvFilter, LogError> {
    let value = if value.trim().is_empty() { DEFAULT_FILTER } else { value };
    EnvFilter::try_new(value).map_err(|error| LogError::Filter {
        value: value.to_owned(),
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_filter_is_a_filter() {
        assert!(filter("").is_ok());
    }

    #[test]
    fn a_broken_filter_is_an_error_that_quotes_it() {
        let error = filter("esfleet=loud").unwrap_err().to_string();
        assert!(error.starts_with("RUST_LOG \"esfleet=loud\" is no filter: "), "{error}");
    }
}
