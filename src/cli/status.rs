//! `esfleet status`: the fleet straight from the members.

use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;

use super::flags::FleetConfigFlag;
use super::{CommandError, Outcome, output};
use crate::api::FleetConfig;
use crate::listing::FleetListing;
use crate::listing::direct::{Asker, MEMBER_LIMIT, Query};
use crate::listing::render::{Format, render};

/// The pause between two looks of `--watch`.
const WATCH_PERIOD: Duration = Duration::from_secs(2);

/// Clears a terminal and goes to its top left corner.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    #[command(flatten)]
    fleet_config: FleetConfigFlag,

    /// How the listing looks
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: OutputFlag,

    /// Only these members; may be given several times or with commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    cluster: Vec<String>,

    /// Only apps of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Only apps that this label selector matches, as in tier=gold,!canary
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,

    /// Look again every 2 s until interrupted; a terminal is redrawn, a pipe gets a new listing when something changed
    #[arg(short, long)]
    watch: bool,

    /// Exit with 1 if a member or an app of the listing is not healthy
    #[arg(long, conflicts_with = "watch")]
    check: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OutputFlag {
    /// Members and apps, aligned
    Table,
    /// The same with more columns
    Wide,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

impl From<OutputFlag> for Format {
    fn from(flag: OutputFlag) -> Self {
        match flag {
            OutputFlag::Table => Self::Table,
            OutputFlag::Wide => Self::Wide,
            OutputFlag::Json => Self::Json,
            OutputFlag::Yaml => Self::Yaml,
        }
    }
}

pub(super) async fn execute(arguments: StatusArguments) -> Result<Outcome, CommandError> {
    let fleet = FleetConfig::load(&arguments.fleet_config.fleet_config)?;
    let query = Query {
        clusters: arguments.cluster,
        namespace: arguments.namespace,
        selector: arguments.selector,
    };
    let mut asker =
        Asker::new(&fleet, query, MEMBER_LIMIT).map_err(|error| CommandError::Usage(format!("--cluster: {error}")))?;
    let format = arguments.output.into();
    if arguments.watch {
        return watch(&mut asker, format).await;
    }
    let listing = look(&mut asker).await;
    output::print(&show(&listing, format)?)?;
    Ok(if arguments.check && !listing.is_healthy() {
        Outcome::Bad
    } else {
        Outcome::Good
    })
}

async fn look(asker: &mut Asker) -> FleetListing {
    let reports = asker.ask().await;
    FleetListing::new(reports, Timestamp::now())
}

fn show(listing: &FleetListing, format: Format) -> Result<String, CommandError> {
    render(listing, format, output::colours()).map_err(|error| CommandError::Failed(error.to_string()))
}

async fn watch(asker: &mut Asker, format: Format) -> Result<Outcome, CommandError> {
    let terminal = output::is_terminal();
    let mut shown: Option<FleetListing> = None;
    loop {
        let listing = tokio::select! {
            listing = look(asker) => listing,
            _ = tokio::signal::ctrl_c() => return Ok(Outcome::Good),
        };
        let changed = shown.as_ref().is_none_or(|shown| timeless(shown) != timeless(&listing));
        if terminal || changed {
            let text = show(&listing, format)?;
            let text = match (terminal, shown.is_some()) {
                (true, _) => format!("{CLEAR}{text}"),
                (false, true) => format!("{}{text}", separator(format)),
                (false, false) => text,
            };
            if !output::is_read(&text) {
                return Ok(Outcome::Good);
            }
            shown = Some(listing);
        }
        tokio::select! {
            () = tokio::time::sleep(WATCH_PERIOD) => {}
            _ = tokio::signal::ctrl_c() => return Ok(Outcome::Good),
        }
    }
}

/// What stands between two listings in a pipe.
fn separator(format: Format) -> &'static str {
    match format {
        Format::Table | Format::Wide => "\n",
        Format::Json => "",
        Format::Yaml => "---\n",
    }
}

/// The listing without what changes although nothing happens.
fn timeless(listing: &FleetListing) -> FleetListing {
    let mut listing = listing.clone();
    listing.generated_at = Timestamp::UNIX_EPOCH;
    for cluster in &mut listing.clusters {
        cluster.last_seen = None;
    }
    for app in &mut listing.apps {
        app.age = None;
        app.last_confirmed = Timestamp::UNIX_EPOCH;
    }
    listing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::{ClusterReport, ClusterState};

    fn listing(state: ClusterState, at: &str) -> FleetListing {
        let at = at.parse().unwrap();
        let report = ClusterReport {
            name: "eu".to_owned(),
            state,
            reason: None,
            message: None,
            last_seen: Some(at),
            version: None,
            apps: Vec::new(),
        };
        FleetListing::new(vec![report], at)
    }

    #[test]
    fn a_watch_takes_only_real_changes_for_changes() {
        let before = timeless(&listing(ClusterState::Connected, "2026-01-01T00:00:00Z"));
        assert_eq!(
            timeless(&listing(ClusterState::Connected, "2026-01-01T00:00:02Z")),
            before
        );
        assert_ne!(
            timeless(&listing(ClusterState::Unreachable, "2026-01-01T00:00:00Z")),
            before
        );
    }
}
