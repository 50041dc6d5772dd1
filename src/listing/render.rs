//! The listing as text.

use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, Color, ContentArrangement, Table};
use jiff::Timestamp;
use thiserror::Error;

use super::snapshot::{AppRow, ClusterRow, ClusterState, FleetListing, Ready};
use crate::support::yaml::{self, YamlError};

/// How a listing looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Two aligned tables: members and apps.
    #[default]
    Table,
    /// The same with more columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Why a listing could not be rendered.
#[derive(Debug, Error)]
pub enum RenderError {
    /// It has no JSON form.
    #[error("the listing cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It has no YAML form.
    #[error("the listing cannot be written as YAML: {0}")]
    Yaml(#[from] YamlError),
}

/// Renders a listing, ending with a line break; colours only when asked for, and only in tables.
///
/// # Errors
/// [`RenderError`] when the listing has no such form, which cannot happen to one that esfleet made.
pub fn render(listing: &FleetListing, format: Format, colours: bool) -> Result<String, RenderError> {
    Ok(match format {
        Format::Table => tables(listing, false, colours),
        Format::Wide => tables(listing, true, colours),
        Format::Json => serde_json::to_string_pretty(listing)? + "\n",
        Format::Yaml => yaml::to_string(listing)?,
    })
}

fn tables(listing: &FleetListing, wide: bool, colours: bool) -> String {
    let now = listing.generated_at;
    let mut text = clusters(&listing.clusters, wide, now, colours);
    text.push('\n');
    if listing.apps.is_empty() {
        text.push_str("No apps found.\n");
    } else {
        text.push_str(&apps(&listing.apps, wide, now, colours));
    }
    text
}

fn clusters(rows: &[ClusterRow], wide: bool, now: Timestamp, colours: bool) -> String {
    let mut header = vec!["CLUSTER", "STATE", "APPS", "READY"];
    if wide {
        header.extend(["VERSION", "LAST SEEN"]);
    }
    header.extend(["REASON", "MESSAGE"]);
    let mut table = table(header, colours);
    for row in rows {
        let mut cells = vec![
            Cell::new(&row.name),
            Cell::new(row.state.as_str()).fg(state_colour(row.state)),
            Cell::new(row.apps.total),
            Cell::new(row.apps.ready),
        ];
        if wide {
            cells.push(Cell::new(row.version.as_deref().unwrap_or(NONE)));
            cells.push(Cell::new(
                row.last_seen.map_or_else(|| "never".to_owned(), |at| ago(at, now)),
            ));
        }
        cells.push(Cell::new(row.reason.as_deref().unwrap_or_default()));
        cells.push(Cell::new(row.message.as_deref().unwrap_or_default()));
        table.add_row(cells);
    }
    finish(&table)
}

fn apps(rows: &[AppRow], wide: bool, now: Timestamp, colours: bool) -> String {
    let mut header = vec![
        "CLUSTER",
        "NAMESPACE",
        "NAME",
        "READY",
        "ACTIVE",
        "LEADER",
        "AGE",
        "REASON",
    ];
    if wide {
        header.extend(["IMAGE", "CONFIRMED", "MESSAGE"]);
    }
    let mut table = table(header, colours);
    for row in rows {
        let active = row
            .active_replicas
            .map_or_else(|| "?".to_owned(), |count| count.to_string());
        let mut cells = vec![
            Cell::new(&row.cluster),
            Cell::new(&row.namespace),
            Cell::new(&row.name),
            Cell::new(row.ready.as_str()).fg(ready_colour(row.ready)),
            Cell::new(format!("{active}/{}", row.replicas)),
            Cell::new(row.leader.as_deref().unwrap_or(NONE)),
            Cell::new(row.age.map_or_else(|| NONE.to_owned(), duration)),
            Cell::new(row.reason.as_deref().unwrap_or_default()),
        ];
        if wide {
            cells.push(Cell::new(&row.image));
            cells.push(Cell::new(ago(row.last_confirmed, now)));
            cells.push(Cell::new(row.message.as_deref().unwrap_or_default()));
        }
        table.add_row(cells);
    }
    finish(&table)
}

/// What kubectl prints where there is nothing.
const NONE: &str = "<none>";

fn table(header: Vec<&str>, colours: bool) -> Table {
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    if colours {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table
}

fn finish(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn state_colour(state: ClusterState) -> Color {
    match state {
        ClusterState::Connected => Color::Green,
        ClusterState::Paused => Color::Blue,
        ClusterState::Degraded | ClusterState::Unknown => Color::Yellow,
        ClusterState::Unreachable => Color::Red,
    }
}

fn ready_colour(ready: Ready) -> Color {
    match ready {
        Ready::True => Color::Green,
        Ready::False => Color::Red,
        Ready::Unknown => Color::Yellow,
    }
}

fn ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", duration(now.duration_since(at).as_secs().max(0)))
}

/// Seconds as kubectl shows ages: at most two units, coarser with age.
fn duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |unit: i64, name: &str, below: i64, below_name: &str| {
        let (whole, rest) = (seconds / unit, seconds % unit / below);
        if rest == 0 {
            format!("{whole}{name}")
        } else {
            format!("{whole}{name}{rest}{below_name}")
        }
    };
    match seconds {
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(MINUTE, "m", 1, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(HOUR, "h", MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(DAY, "d", HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(YEAR, "y", DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

#[cfg(test)]
mod tests;
