//! Figures for the report.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Adds a row to the report's table, and says it.
pub fn figure(what: &str, value: &str) -> Result<()> {
    eprintln!("{what}: {value}");
    let Some(path) = std::env::var_os("ESFLEET_LONG_REPORT") else {
        return Ok(());
    };
    let file = std::fs::File::options().create(true).append(true).open(&path);
    writeln!(file.context("the report")?, "| {what} | {value} |").context("the report")
}

/// A size that the environment may change, to try a scenario out.
pub fn size(variable: &str, default: usize) -> Result<usize> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable}={text} is no number")),
        Err(_) => Ok(default),
    }
}

/// Seconds, as the report writes them.
pub fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// Percentiles of some times, by the nearest rank.
pub fn percentiles(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let rank = |percent: usize| {
        let rank = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(rank).copied().map_or_else(|| "none".to_owned(), seconds)
    };
    format!("{} / {} / {} / {}", rank(50), rank(90), rank(99), rank(100))
}
