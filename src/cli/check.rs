//! `esfleet check`: before going live, is everything there that esfleet needs? It changes nothing.

mod definition;
mod ensembles;
mod hub;
mod member;
mod permissions;

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use futures::future::join_all;

use super::flags::{FleetConfigFlag, HubFlags};
use super::{CommandError, Outcome, output};
use crate::api::FleetConfig;
use crate::listing::text::harmless;
use crate::support::deadline::within;

/// How long the checks of one member, or of the hub, may take together.
const SUBJECT_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    #[command(flatten)]
    fleet_config: FleetConfigFlag,

    #[command(flatten)]
    hub: HubFlags,

    /// Check the members only: no Lease, no hub
    #[arg(long)]
    without_hub: bool,
}

/// How one check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    /// As it should be.
    Ok,
    /// Worth a look, and perhaps right.
    Warn,
    /// esfleet could not do its work.
    Fail,
}

/// The outcome of one check: a line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    grade: Grade,
    /// The member's name, `hub`, or what else was checked.
    subject: String,
    /// What was found, and the remedy.
    what: String,
}

impl Finding {
    fn ok(subject: &str, what: impl Into<String>) -> Self {
        Self::new(Grade::Ok, subject, what)
    }

    fn warn(subject: &str, what: impl Into<String>) -> Self {
        Self::new(Grade::Warn, subject, what)
    }

    fn fail(subject: &str, what: impl Into<String>) -> Self {
        Self::new(Grade::Fail, subject, what)
    }

    fn new(grade: Grade, subject: &str, what: impl Into<String>) -> Self {
        Self {
            grade,
            subject: subject.to_owned(),
            what: what.into(),
        }
    }
}

pub(super) async fn execute(arguments: CheckArguments) -> Result<Outcome, CommandError> {
    let file = &arguments.fleet_config.fleet_config;
    let fleet = FleetConfig::load(file)?;
    let count = fleet.clusters.len();
    let mut findings = vec![Finding::ok(
        "fleet config",
        format!(
            "{} lists {count} {}",
            file.display(),
            if count == 1 { "member" } else { "members" }
        ),
    )];
    let hub = async {
        if arguments.without_hub {
            return Vec::new();
        }
        let checks = hub::check(&arguments.hub);
        bounded("hub", checks).await.unwrap_or_else(|late| vec![late])
    };
    let members = join_all(fleet.clusters.iter().map(async |config| {
        bounded(config.name.as_str(), member::check(config))
            .await
            .unwrap_or_else(member::MemberReport::only)
    }));
    let (hub, members) = tokio::join!(hub, members);
    findings.extend(hub);
    // Also side by side: an ensemble that does not answer takes seconds.
    let named = fleet.clusters.iter().map(|config| config.name.as_str()).zip(members);
    let members = join_all(named.map(async |(name, report)| {
        let ensembles = ensembles::check(name, &report.connect_strings).await;
        (name, report, ensembles)
    }))
    .await;
    let mut seen = Vec::new();
    for (name, report, ensembles) in members {
        findings.extend(report.findings);
        findings.extend(twice(name, report.identity.as_deref(), &seen));
        findings.extend(ensembles);
        seen.extend(report.identity.map(|uid| (uid, name)));
    }
    output::print(&render(&findings))?;
    Ok(if findings.iter().any(|finding| finding.grade == Grade::Fail) {
        Outcome::Bad
    } else {
        Outcome::Good
    })
}

async fn bounded<T>(subject: &str, checks: impl Future<Output = T>) -> Result<T, Finding> {
    within(SUBJECT_LIMIT, "checking it", checks).await.map_err(|late| {
        Finding::fail(
            subject,
            format!("{late}; see that its API server can be reached from here"),
        )
    })
}

/// Whether a cluster of this identity has been listed before.
fn twice(name: &str, identity: Option<&str>, seen: &[(String, &str)]) -> Option<Finding> {
    let (_, first) = seen.iter().find(|(uid, _)| Some(uid.as_str()) == identity)?;
    Some(Finding::fail(
        name,
        format!("is the same cluster as {first}, by the UID of kube-system; list it once"),
    ))
}

fn render(findings: &[Finding]) -> String {
    let width = findings
        .iter()
        .map(|finding| finding.subject.chars().count())
        .max()
        .unwrap_or_default();
    let mut text = String::new();
    for Finding { grade, subject, what } in findings {
        let grade = match grade {
            Grade::Ok => "OK",
            Grade::Warn => "WARN",
            Grade::Fail => "FAIL",
        };
        let _ = writeln!(text, "{grade:<4}   {subject:<width$}   {}", harmless(what));
    }
    let count = |grade| findings.iter().filter(|finding| finding.grade == grade).count();
    let (total, failed, warned) = (findings.len(), count(Grade::Fail), count(Grade::Warn));
    let _ = writeln!(text, "\n{total} checks: {failed} failed, {warned} with a warning");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_aligned_lines_with_a_sum() {
        let findings = [
            Finding::ok("hub", "reached"),
            Finding::warn("eu-west", "odd\u{7}"),
            Finding::fail("us", "gone; bring it back"),
        ];
        assert_eq!(
            render(&findings),
            "OK     hub       reached
WARN   eu-west   odd\\u{7}
FAIL   us        gone; bring it back

3 checks: 1 failed, 1 with a warning
"
        );
    }

    #[test]
    fn one_cluster_under_two_names_is_noticed() {
        let seen = [("uid-1".to_owned(), "a")];
        assert_eq!(
            twice("b", Some("uid-1"), &seen),
            Some(Finding::fail(
                "b",
                "is the same cluster as a, by the UID of kube-system; list it once"
            ))
        );
        assert_eq!(twice("c", Some("uid-2"), &seen), None);
        assert_eq!(twice("d", None, &seen), None);
    }
}
