//! `esfleet run`: arguments and environment to [`RunOptions`].

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;

use super::CommandError;
use super::flags::{FleetConfigFlag, HubFlags, LogFormatFlag, duration};
use crate::run::RunOptions;
use crate::telemetry::logs::LogFormat;

/// The longest session timeout that ZooKeeper's protocol can carry is far above what makes sense.
const SESSION_TIMEOUT_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    fleet_config: FleetConfigFlag,

    #[command(flatten)]
    hub: HubFlags,

    /// This replica's name in the Lease [default: $POD_NAME, else the host's name]
    #[arg(long, value_name = "NAME", env = "ESFLEET_IDENTITY")]
    identity: Option<String>,

    /// How long the Lease is valid after a renewal; whole seconds, longer than the renew deadline
    #[arg(long, value_name = "DURATION", env = "ESFLEET_LEASE_DURATION", default_value = "15s", value_parser = duration)]
    lease_duration: Duration,

    /// How long a replica may write after it sent a renewal; longer than the retry period
    #[arg(long, value_name = "DURATION", env = "ESFLEET_RENEW_DEADLINE", default_value = "10s", value_parser = duration)]
    renew_deadline: Duration,

    /// The pause between attempts on the Lease
    #[arg(long, value_name = "DURATION", env = "ESFLEET_RETRY_PERIOD", default_value = "2s", value_parser = duration)]
    retry_period: Duration,

    /// Where /livez, /readyz, /metrics and /api/v1/fleet are served
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "ESFLEET_HTTP_ADDR",
        default_value = "127.0.0.1:8080"
    )]
    http_addr: SocketAddr,

    /// The ZooKeeper session timeout, from 1s to 1h; what is known of leaders is cleared when it is older
    #[arg(long, value_name = "DURATION", env = "ESFLEET_SESSION_TIMEOUT", default_value = "30s", value_parser = duration)]
    session_timeout: Duration,

    /// The pause between two probes of a member; three that fail in a row make it Unreachable
    #[arg(long, value_name = "DURATION", env = "ESFLEET_PROBE_INTERVAL", default_value = "10s", value_parser = duration)]
    probe_interval: Duration,

    /// How log lines look; RUST_LOG says which there are
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        env = "ESFLEET_LOG_FORMAT",
        default_value = "text"
    )]
    log_format: LogFormatFlag,
}

impl RunArguments {
    /// The options, checked against each other.
    pub(super) fn parse(self) -> Result<(RunOptions, LogFormat), CommandError> {
        let hub = self.hub.source();
        let options = RunOptions {
            fleet_config: self.fleet_config.fleet_config,
            hub,
            lease_namespace: self.hub.lease_namespace,
            lease_name: self.hub.lease_name,
            identity: self.identity.unwrap_or_else(default_identity),
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
            http_addr: self.http_addr,
            session_timeout: self.session_timeout,
            probe_interval: self.probe_interval,
        };
        check(&options).map_err(CommandError::Usage)?;
        let log_format = match self.log_format {
            LogFormatFlag::Text => LogFormat::Text,
            LogFormatFlag::Json => LogFormat::Json,
        };
        Ok((options, log_format))
    }
}

fn check(options: &RunOptions) -> Result<(), String> {
    let RunOptions {
        lease_duration,
        renew_deadline,
        retry_period,
        session_timeout,
        identity,
        ..
    } = options;
    if lease_duration.subsec_nanos() != 0 {
        return Err(format!(
            "--lease-duration {lease_duration:?} must be whole seconds, as Leases hold no others"
        ));
    }
    if renew_deadline >= lease_duration {
        return Err(format!(
            "--renew-deadline {renew_deadline:?} must be shorter than --lease-duration {lease_duration:?}, or two replicas could write"
        ));
    }
    if retry_period >= renew_deadline {
        return Err(format!(
            "--retry-period {retry_period:?} must be shorter than --renew-deadline {renew_deadline:?}, or no renewal comes in time"
        ));
    }
    if *session_timeout < Duration::from_secs(1) || *session_timeout > SESSION_TIMEOUT_MAX {
        return Err(format!("--session-timeout {session_timeout:?} must be from 1s to 1h"));
    }
    if options.probe_interval.is_zero() {
        return Err("--probe-interval must be longer than nothing".to_owned());
    }
    if identity.is_empty() || identity.len() > 200 || identity.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(format!(
            "--identity {identity:?} must be 1 to 200 characters without spaces"
        ));
    }
    Ok(())
}

fn default_identity() -> String {
    std::env::var("POD_NAME")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| gethostname::gethostname().to_string_lossy().into_owned())
}
