//! What this replica knows, as every listing shows it.

use std::sync::Arc;

use jiff::Timestamp;

use crate::fleet::{Member, MemberState};
use crate::kubernetes::scope::ProjectedApp;
use crate::leadership::LeadershipView;
use crate::listing::snapshot::{
    AppFacts, AppReport, ClusterReport, ClusterState, FleetListing, LeadershipRow, Ready, SessionRow,
};
use crate::zookeeper::{SessionState, SessionView};

/// The listing that `/api/v1/fleet` answers.
#[must_use]
pub fn listing(
    members: &[Arc<Member>],
    leadership: &LeadershipView,
    sessions: &[SessionView],
    now: Timestamp,
) -> FleetListing {
    let mut listing = FleetListing::new(members.iter().map(|member| cluster(member, now)).collect(), now);
    listing.leadership = Some(LeadershipRow {
        identity: leadership.identity.clone(),
        leads: leadership.leads,
        holder: leadership.holder.clone(),
        term: leadership.term,
        since: leadership.since,
        error: leadership.error.clone(),
    });
    listing.zookeeper_sessions = Some(sessions.iter().map(session).collect());
    listing
}

/// What keeps this replica from being ready; nothing when it is. A follower is as ready as a leader.
#[must_use]
pub fn not_ready(members: &[Arc<Member>], leadership: &LeadershipView) -> Vec<String> {
    let unsettled = members.iter().filter(|member| !member.is_settled());
    let mut reasons: Vec<String> = unsettled
        .map(|member| format!("member {} has not been reached yet", member.config.name))
        .collect();
    if leadership.holder.is_none() && !leadership.leads {
        reasons.push(match &leadership.error {
            Some(error) => format!("nobody leads: {error}"),
            None => "nobody leads yet".to_owned(),
        });
    }
    reasons
}

fn cluster(member: &Member, now: Timestamp) -> ClusterReport {
    let status = member.status();
    let confirmed = status.last_seen.unwrap_or(now);
    let apps = member.scopes.iter().flat_map(|scope| scope.apps.state());
    let message = Some(status.message).filter(|message| !message.is_empty());
    ClusterReport {
        name: member.config.name.to_string(),
        state: match status.state {
            MemberState::Unknown => ClusterState::Unknown,
            MemberState::Connected => ClusterState::Connected,
            MemberState::Degraded => ClusterState::Degraded,
            MemberState::Unreachable => ClusterState::Unreachable,
            MemberState::Paused => ClusterState::Paused,
        },
        reason: status.reason.map(|reason| reason.to_string()),
        message,
        last_seen: status.last_seen,
        version: status.version,
        apps: apps.map(|app| report(&app, confirmed, status.state)).collect(),
    }
}

/// An app's row. Of a member that does not answer nothing is known now, whatever its apps said last.
fn report(app: &ProjectedApp, confirmed: Timestamp, member: MemberState) -> AppReport {
    let key = app.key();
    let facts = match &app.data {
        Ok(observed) => AppFacts {
            namespace: &key.namespace,
            name: &key.name,
            generation: Some(observed.generation),
            created: observed.created,
            replicas: observed.spec.as_ref().map_or(0, |spec| spec.raw.replicas),
            image: observed.spec.as_ref().map_or("", |spec| spec.raw.image.as_str()),
            status: Some(&observed.status),
        },
        Err(_) => AppFacts {
            namespace: &key.namespace,
            name: &key.name,
            generation: None,
            created: None,
            replicas: 0,
            image: "",
            status: None,
        },
    };
    let mut report = AppReport::from_facts(&facts, confirmed);
    let unreadable = match &app.data {
        Err(reason) => Some(reason.clone()),
        Ok(observed) => observed.spec.as_ref().err().map(ToString::to_string),
    };
    if let Some(reason) = unreadable {
        (report.ready, report.reason, report.message) = (Ready::False, Some("Unreadable".to_owned()), Some(reason));
    }
    if matches!(member, MemberState::Unreachable | MemberState::Unknown) {
        report.ready = Ready::Unknown;
        report.reason = Some("ClusterUnreachable".to_owned());
        report.message = Some(format!("last confirmed {confirmed}; the member does not answer"));
    }
    report
}

fn session(session: &SessionView) -> SessionRow {
    SessionRow {
        ensemble: session.ensemble.clone(),
        state: match session.state {
            SessionState::Connecting => "Connecting",
            SessionState::Connected => "Connected",
            SessionState::Waiting => "Waiting",
        }
        .to_owned(),
        since: Some(session.since),
        apps: session.apps,
    }
}
