//! What the process is told by its environment.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use clap::Parser;

use crate::layout::MAX_SEGMENT_SIZE;

/// Where an image may say its version, so that one binary serves as several versions of the app.
const VERSION_FILE: &str = "/etc/es-sample/version";

/// An event-sourced ledger on ZooKeeper: the sample app that esfleet runs.
#[derive(Debug, Clone, Parser)]
#[command(name = "es-sample", version)]
pub struct Config {
    /// This pod's name: what the leader node says while this process leads.
    #[arg(long, env = "POD_NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub pod_name: String,

    /// The ensemble: `host:port[,host:port...][/chroot]`.
    #[arg(long, env = "ZK_CONNECT_STRING", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub zk_connect_string: String,

    /// The znode under which this app keeps everything; somebody else makes it.
    #[arg(long, env = "ZK_ROOT_PATH", value_parser = parse_root)]
    pub zk_root_path: String,

    /// Where to serve HTTP.
    #[arg(long, env = "LISTEN", default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,

    /// How many records a segment of a new log holds; an existing log keeps what it began with.
    #[arg(long, env = "SEGMENT_SIZE", default_value = "1000", value_parser = parse_segment_size)]
    pub segment_size: NonZeroU32,

    /// How long the ensemble keeps our leader node without hearing from us, in milliseconds.
    #[arg(long, env = "SESSION_TIMEOUT_MS", default_value = "6000", value_parser = clap::value_parser!(u32).range(100..))]
    session_timeout_ms: u32,

    /// The version to report; else what the image says in `/etc/es-sample/version`, else the program's own.
    #[arg(long, env = "APP_VERSION")]
    app_version: Option<String>,
}

impl Config {
    /// The session timeout to ask the ensemble for.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.session_timeout_ms))
    }

    /// The version to report.
    #[must_use]
    pub fn version(&self) -> String {
        let given = self
            .app_version
            .clone()
            .or_else(|| std::fs::read_to_string(VERSION_FILE).ok());
        given
            .map(|version| version.trim().to_owned())
            .filter(|version| !version.is_empty())
            .unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned())
    }
}

fn parse_root(text: &str) -> Result<String, String> {
    if text.starts_with('/') && !text.ends_with('/') {
        Ok(text.to_owned())
    } else {
        Err("must start with a slash and not end with one".to_owned())
    }
}

fn parse_segment_size(text: &str) -> Result<NonZeroU32, String> {
    text.parse()
        .ok()
        .filter(|size: &NonZeroU32| size.get() <= MAX_SEGMENT_SIZE)
        .ok_or_else(|| format!("must be a number from 1 to {MAX_SEGMENT_SIZE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(more: &[&str]) -> Result<Config, clap::error::ErrorKind> {
        let needed = [
            "es-sample",
            "--pod-name",
            "bank-0",
            "--zk-connect-string",
            "zk:2181/chroot",
        ];
        Config::try_parse_from(needed.iter().chain(more)).map_err(|error| error.kind())
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        let config = parse(&["--zk-root-path", "/apps/bank"]).unwrap();
        assert_eq!(config.listen, SocketAddr::from(([0, 0, 0, 0], 8080)));
        assert_eq!(config.segment_size.get(), 1000);
        assert_eq!(config.session_timeout(), Duration::from_secs(6));
        assert_eq!(config.version(), env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn a_given_version_is_reported_without_its_line_end() {
        let config = parse(&["--zk-root-path", "/r", "--app-version", "2.0\n"]).unwrap();
        assert_eq!(config.version(), "2.0");
    }

    #[test]
    fn values_that_cannot_work_are_refused() {
        for bad in [
            ["--zk-root-path", "apps"],
            ["--zk-root-path", "/"],
            ["--zk-root-path", "/apps/"],
            ["--segment-size", "0"],
            ["--segment-size", "10001"],
            ["--session-timeout-ms", "0"],
        ] {
            assert_eq!(
                parse(&bad).unwrap_err(),
                clap::error::ErrorKind::ValueValidation,
                "{bad:?}"
            );
        }
    }
}
