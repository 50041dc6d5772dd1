//! The snapshot: what `esfleet status` prints and `/api/v1/fleet` serves, made the same way by both.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::text::harmless;
use crate::api::{AppCondition, EventSourcedApp, EventSourcedAppStatus};

/// What is known of one member, from whoever asked it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterReport {
    /// The member's name in the fleet config.
    pub name: String,
    /// What can be said of it now.
    pub state: ClusterState,
    /// One CamelCase word that tells why it is in this state; none when all is well.
    pub reason: Option<String>,
    /// A sentence that tells what is wrong and what to do; none when all is well.
    pub message: Option<String>,
    /// When it answered last; none: never.
    pub last_seen: Option<Timestamp>,
    /// The API server's version, as in `v1.36.3`.
    pub version: Option<String>,
    /// Its apps, in any order.
    pub apps: Vec<AppReport>,
}

/// What can be said of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ClusterState {
    /// It answers, and esfleet can do its work there.
    Connected,
    /// It answers, and something that esfleet needs there is missing.
    Degraded,
    /// It does not answer.
    Unreachable,
    /// It answers, and the fleet config says that nothing is to be written to it.
    Paused,
    /// It has not been asked yet.
    Unknown,
}

impl ClusterState {
    /// The state as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "Connected",
            Self::Degraded => "Degraded",
            Self::Unreachable => "Unreachable",
            Self::Paused => "Paused",
            Self::Unknown => "Unknown",
        }
    }

    /// Whether nothing is wrong with a member in this state.
    #[must_use]
    pub fn is_healthy(self) -> bool {
        match self {
            Self::Connected | Self::Paused => true,
            Self::Degraded | Self::Unreachable | Self::Unknown => false,
        }
    }

    /// Whether what is known of its apps is current.
    fn is_answering(self) -> bool {
        match self {
            Self::Connected | Self::Degraded | Self::Paused => true,
            Self::Unreachable | Self::Unknown => false,
        }
    }
}

/// What is known of one app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppReport {
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// Wanted pods.
    pub replicas: i32,
    /// Ready pods, as reported last.
    pub active_replicas: Option<i32>,
    /// The pod that leads, as reported last.
    pub leader: Option<String>,
    /// The wanted image.
    pub image: String,
    /// Whether it is ready.
    pub ready: Ready,
    /// Why, in one CamelCase word.
    pub reason: Option<String>,
    /// Why, and what to do, in a sentence.
    pub message: Option<String>,
    /// When the object was created.
    pub created: Option<Timestamp>,
    /// When this was read from the member last.
    pub last_confirmed: Timestamp,
}

/// Whether an app is ready: the status of its condition `Ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Ready {
    /// Root, workload and leader are as they should be.
    True,
    /// Something is not; reason and message say what.
    False,
    /// Nothing current is known.
    Unknown,
}

impl Ready {
    /// The value as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// What an app's object says of itself, as far as the listing shows it.
#[derive(Debug, Clone, Copy)]
pub struct AppFacts<'a> {
    /// The object's namespace.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// The object's generation.
    pub generation: Option<i64>,
    /// When the object was created.
    pub created: Option<Timestamp>,
    /// `spec.replicas`.
    pub replicas: i32,
    /// `spec.image`.
    pub image: &'a str,
    /// `status`.
    pub status: Option<&'a EventSourcedAppStatus>,
}

impl AppReport {
    /// The report of an app whose object was read at `confirmed`.
    #[must_use]
    pub fn of(app: &EventSourcedApp, confirmed: Timestamp) -> Self {
        let facts = AppFacts {
            namespace: app.metadata.namespace.as_deref().unwrap_or_default(),
            name: app.metadata.name.as_deref().unwrap_or_default(),
            generation: app.metadata.generation,
            created: app.metadata.creation_timestamp.as_ref().map(|time| time.0),
            replicas: app.spec.replicas,
            image: &app.spec.image,
            status: app.status.as_ref(),
        };
        Self::from_facts(&facts, confirmed)
    }

    /// The report of an app of which only these facts were kept; they were read at `confirmed`.
    #[must_use]
    pub fn from_facts(facts: &AppFacts<'_>, confirmed: Timestamp) -> Self {
        let ready = facts
            .status
            .and_then(|status| status.conditions.iter().find(|c| c.type_ == "Ready"));
        let (ready, reason, message) = match ready {
            Some(condition) => verdict(condition, facts.generation),
            None => (
                Ready::Unknown,
                "NoStatus".to_owned(),
                "esfleet has not reported on this app yet".to_owned(),
            ),
        };
        Self {
            namespace: facts.namespace.to_owned(),
            name: facts.name.to_owned(),
            replicas: facts.replicas,
            active_replicas: facts.status.and_then(|status| status.active_replicas),
            leader: facts.status.and_then(|status| status.leader.clone()),
            image: facts.image.to_owned(),
            ready,
            reason: Some(reason),
            message: Some(message),
            created: facts.created,
            last_confirmed: confirmed,
        }
    }
}

fn verdict(condition: &AppCondition, generation: Option<i64>) -> (Ready, String, String) {
    match (condition.observed_generation, generation) {
        (Some(observed), Some(current)) if observed < current => (
            Ready::Unknown,
            "NotObserved".to_owned(),
            format!(
                "the latest change (generation {current}) has not been observed yet; the status is of generation {observed}"
            ),
        ),
        _ => {
            let ready = match condition.status.as_str() {
                "True" => Ready::True,
                "False" => Ready::False,
                _ => Ready::Unknown,
            };
            (ready, condition.reason.clone(), condition.message.clone())
        }
    }
}

/// The whole fleet at one moment. Keys are only ever added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetListing {
    /// When this was put together.
    pub generated_at: Timestamp,
    /// Which replica of esfleet leads; only in what a running controller serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leadership: Option<LeadershipRow>,
    /// The members, by name.
    pub clusters: Vec<ClusterRow>,
    /// The apps, by member, namespace and name.
    pub apps: Vec<AppRow>,
    /// The ZooKeeper sessions that this replica holds; only in what a running controller serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zookeeper_sessions: Option<Vec<SessionRow>>,
}

/// Which replica of esfleet leads, as the answering replica sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadershipRow {
    /// The identity of the replica that answers.
    pub identity: String,
    /// Whether that one leads.
    pub leads: bool,
    /// The identity of the replica that leads; none: nobody, or not known.
    pub holder: Option<String>,
    /// The number of the term.
    pub term: Option<i64>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// What keeps the answering replica from seeing or holding the Lease.
    pub error: Option<String>,
}

/// One ZooKeeper session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRow {
    /// The servers.
    pub ensemble: String,
    /// The state of the session, in one word.
    pub state: String,
    /// Since when it is in that state.
    pub since: Option<Timestamp>,
    /// How many apps share it.
    pub apps: usize,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRow {
    /// Its name in the fleet config.
    pub name: String,
    /// What can be said of it now.
    pub state: ClusterState,
    /// Why, in one CamelCase word.
    pub reason: Option<String>,
    /// Why, and what to do, in a sentence.
    pub message: Option<String>,
    /// When it answered last.
    pub last_seen: Option<Timestamp>,
    /// The API server's version.
    pub version: Option<String>,
    /// How many apps it has.
    pub apps: AppCounts,
}

/// How many apps a member has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppCounts {
    /// All of them that are listed.
    pub total: usize,
    /// Those that are ready.
    pub ready: usize,
}

/// One app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppRow {
    /// The member's name.
    pub cluster: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// Wanted pods.
    pub replicas: i32,
    /// Ready pods.
    pub active_replicas: Option<i32>,
    /// The pod that leads.
    pub leader: Option<String>,
    /// The wanted image.
    pub image: String,
    /// Whether it is ready.
    pub ready: Ready,
    /// Why, in one CamelCase word.
    pub reason: Option<String>,
    /// Why, and what to do, in a sentence.
    pub message: Option<String>,
    /// Seconds since the object was created.
    pub age: Option<i64>,
    /// When this row was read from the member last.
    pub last_confirmed: Timestamp,
}

impl FleetListing {
    /// Puts the listing together: sorted, every foreign text harmless, and no app called ready by a member that does not answer.
    #[must_use]
    pub fn new(reports: Vec<ClusterReport>, now: Timestamp) -> Self {
        let mut clusters = Vec::with_capacity(reports.len());
        let mut apps = Vec::new();
        for report in reports {
            let rows: Vec<AppRow> = report.apps.iter().map(|app| app_row(&report, app, now)).collect();
            clusters.push(ClusterRow {
                apps: AppCounts {
                    total: rows.len(),
                    ready: rows.iter().filter(|row| row.ready == Ready::True).count(),
                },
                name: report.name,
                state: report.state,
                reason: report.reason.as_deref().map(harmless),
                message: report.message.as_deref().map(harmless),
                last_seen: report.last_seen,
                version: report.version.as_deref().map(harmless),
            });
            apps.extend(rows);
        }
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        apps.sort_by(|a, b| (&a.cluster, &a.namespace, &a.name).cmp(&(&b.cluster, &b.namespace, &b.name)));
        Self {
            generated_at: now,
            leadership: None,
            clusters,
            apps,
            zookeeper_sessions: None,
        }
    }

    /// Whether every member and every app of the listing is healthy.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.clusters.iter().all(|cluster| cluster.state.is_healthy())
            && self.apps.iter().all(|app| app.ready == Ready::True)
    }
}

fn app_row(cluster: &ClusterReport, app: &AppReport, now: Timestamp) -> AppRow {
    let (ready, reason, message) = if cluster.state.is_answering() {
        (app.ready, app.reason.clone(), app.message.clone())
    } else {
        let message = format!(
            "its member does not answer; it was {} when confirmed last, at {}",
            if app.ready == Ready::True { "ready" } else { "not ready" },
            app.last_confirmed
        );
        (Ready::Unknown, Some("Stale".to_owned()), Some(message))
    };
    AppRow {
        cluster: cluster.name.clone(),
        namespace: harmless(&app.namespace),
        name: harmless(&app.name),
        replicas: app.replicas,
        active_replicas: app.active_replicas,
        leader: app.leader.as_deref().map(harmless),
        image: harmless(&app.image),
        ready,
        reason: reason.as_deref().map(harmless),
        message: message.as_deref().map(harmless),
        age: app.created.map(|created| now.duration_since(created).as_secs().max(0)),
        last_confirmed: app.last_confirmed,
    }
}

#[cfg(test)]
mod tests;
