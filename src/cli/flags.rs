//! Flags that several subcommands share, and the values in them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::SignedDuration;

use crate::kubernetes::client::HubSource;

/// How the fleet config is named.
#[derive(Debug, Args)]
pub(super) struct FleetConfigFlag {
    /// The fleet config: the file that lists the member clusters
    #[arg(long, value_name = "FILE", env = "ESFLEET_FLEET_CONFIG")]
    pub fleet_config: PathBuf,
}

/// How the hub is reached, and where the Lease is.
#[derive(Debug, Args)]
pub(super) struct HubFlags {
    /// A kubeconfig for the hub [default: the pod's ServiceAccount, outside a pod $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE", env = "ESFLEET_HUB_KUBECONFIG")]
    pub hub_kubeconfig: Option<PathBuf>,

    /// The context of the hub's kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", env = "ESFLEET_HUB_CONTEXT")]
    pub hub_context: Option<String>,

    /// The namespace of the Lease; it must exist
    #[arg(long, value_name = "NAMESPACE", env = "ESFLEET_LEASE_NAMESPACE", default_value = "esfleet", value_parser = dns_label)]
    pub lease_namespace: String,

    /// The name of the Lease; replicas of one fleet share it
    #[arg(long, value_name = "NAME", env = "ESFLEET_LEASE_NAME", default_value = "esfleet", value_parser = dns_label)]
    pub lease_name: String,
}

impl HubFlags {
    /// Where the hub's client comes from.
    pub(super) fn source(&self) -> HubSource {
        HubSource {
            kubeconfig: self.hub_kubeconfig.clone(),
            context: self.hub_context.clone(),
        }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum LogFormatFlag {
    /// One line that a person understands
    Text,
    /// One JSON object a line
    Json,
}

/// A duration as in `15s`, `500ms` or `2m`; longer than nothing.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration; write one as in 15s, 500ms or 2m");
    // A bare number has no unit, and jiff takes calendar-like forms that nobody means here.
    let parsed: SignedDuration = text.trim().parse().map_err(|_| wrong())?;
    match Duration::try_from(parsed) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(wrong()),
    }
}

/// A name for an object or a namespace of ours.
pub(super) fn dns_label(text: &str) -> Result<String, String> {
    if crate::api::names::is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} is no DNS label; use 1 to 63 lowercase letters, digits and hyphens"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_number_and_a_unit() {
        for (text, duration_wanted) in [
            ("15s", Some(Duration::from_secs(15))),
            ("500ms", Some(Duration::from_millis(500))),
            ("2m", Some(Duration::from_secs(120))),
            ("1m30s", Some(Duration::from_secs(90))),
            ("15", None),
            ("0s", None),
            ("-5s", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(duration(text).ok(), duration_wanted, "{text:?}");
        }
    }
}
