//! The Events of an app: the transitions that a person would want to know of.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::conditions::{ConditionType, Reason, State, find, shorten};
use crate::api::EventSourcedAppStatus;

/// The longest note that an Event may have, in bytes.
const NOTE_MAX: usize = 1024;

/// An Event to be written about an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Whether somebody should look.
    pub severity: Severity,
    /// What happened, as a name.
    pub reason: NoticeReason,
    /// What happened, for people: at most 1024 bytes.
    pub note: String,
}

/// The type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// All is as it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

/// The reason of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoticeReason {
    /// esfleet made the app's objects.
    Created,
    /// esfleet took the app over from another controller.
    TakenOver,
    /// A pod leads where none did.
    LeaderElected,
    /// Another pod leads, or the same one was elected again.
    LeaderChanged,
    /// No pod leads any more.
    LeaderLost,
    /// The leader znode does not say who leads.
    LeaderUnreadable,
    /// ZooKeeper, or the root in it, cannot be used.
    ZooKeeperNotReady,
    /// It can be used again.
    ZooKeeperRecovered,
    /// Pods that were Ready are not.
    Degraded,
    /// An object of the app's name belongs to somebody else.
    Conflict,
    /// A field differs that can never be changed.
    ImmutableField,
    /// The API server refused a write.
    WriteFailed,
    /// The app's spec cannot be used.
    InvalidSpec,
}

impl NoticeReason {
    /// The text in `reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::TakenOver => "TakenOver",
            Self::LeaderElected => "LeaderElected",
            Self::LeaderChanged => "LeaderChanged",
            Self::LeaderLost => "LeaderLost",
            Self::LeaderUnreadable => "LeaderUnreadable",
            Self::ZooKeeperNotReady => "ZooKeeperNotReady",
            Self::ZooKeeperRecovered => "ZooKeeperRecovered",
            Self::Degraded => "Degraded",
            Self::Conflict => "Conflict",
            Self::ImmutableField => "ImmutableField",
            Self::WriteFailed => "WriteFailed",
            Self::InvalidSpec => "InvalidSpec",
        }
    }
}

impl Severity {
    /// The text in `type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The Events that lead from the old status to the new one; one at most for an app that had none.
#[must_use]
pub fn transitions(old: &EventSourcedAppStatus, new: &EventSourcedAppStatus) -> Vec<Notice> {
    if old.observed_generation.is_none() {
        return first_notice(old, new).into_iter().collect();
    }
    [workload(old, new), zookeeper(old, new), leader(old, new)]
        .into_iter()
        .flatten()
        .collect()
}

fn notice(severity: Severity, reason: NoticeReason, note: &str) -> Notice {
    let mut note = note.to_owned();
    shorten(&mut note, NOTE_MAX);
    Notice { severity, reason, note }
}

/// The trouble with a workload that is worth an Event of its own.
fn trouble(condition: &Condition) -> Option<NoticeReason> {
    [
        (Reason::Conflict, NoticeReason::Conflict),
        (Reason::ImmutableField, NoticeReason::ImmutableField),
        (Reason::WriteFailed, NoticeReason::WriteFailed),
        (Reason::InvalidSpec, NoticeReason::InvalidSpec),
    ]
    .into_iter()
    .find_map(|(reason, notice)| (condition.reason == reason.as_str()).then_some(notice))
}

/// Whether the app's objects were not made: it is paused, or those of an earlier app of its name are still going.
fn awaits_objects(condition: &Condition) -> bool {
    [Reason::Paused, Reason::BeingDeleted]
        .iter()
        .any(|reason| condition.reason == reason.as_str())
}

fn created() -> Notice {
    let note = "made Service, StatefulSet and, for more than one replica, PodDisruptionBudget";
    notice(Severity::Normal, NoticeReason::Created, note)
}

/// What is said of an app that esfleet sees for the first time; nothing as long as it has to wait for its objects.
fn first_notice(old: &EventSourcedAppStatus, new: &EventSourcedAppStatus) -> Option<Notice> {
    let workload = find(&new.conditions, ConditionType::WorkloadReady);
    let zookeeper = find(&new.conditions, ConditionType::ZooKeeperReady);
    if let Some((condition, reason)) = workload.and_then(|condition| Some((condition, trouble(condition)?))) {
        return Some(notice(Severity::Warning, reason, &condition.message));
    }
    if workload.is_some_and(awaits_objects) {
        return None;
    }
    if let Some(condition) = zookeeper.filter(|condition| condition.status == State::False.as_str()) {
        return Some(notice(
            Severity::Warning,
            NoticeReason::ZooKeeperNotReady,
            &condition.message,
        ));
    }
    let message = workload.map_or("", |condition| condition.message.as_str());
    Some(if *old == EventSourcedAppStatus::default() {
        created()
    } else {
        let note = format!("taken over from another controller: {message}");
        notice(Severity::Normal, NoticeReason::TakenOver, &note)
    })
}

fn workload(old: &EventSourcedAppStatus, new: &EventSourcedAppStatus) -> Option<Notice> {
    let before = find(&old.conditions, ConditionType::WorkloadReady)?;
    let after = find(&new.conditions, ConditionType::WorkloadReady)?;
    if let Some(reason) = trouble(after) {
        let known = before.reason == after.reason && before.message == after.message;
        return (!known).then(|| notice(Severity::Warning, reason, &after.message));
    }
    if awaits_objects(before) && !awaits_objects(after) {
        return Some(created());
    }
    let same_spec = before.observed_generation == after.observed_generation;
    let fell = before.status == State::True.as_str() && after.reason == Reason::ReplicasPending.as_str();
    (fell && same_spec).then(|| notice(Severity::Warning, NoticeReason::Degraded, &after.message))
}

fn zookeeper(old: &EventSourcedAppStatus, new: &EventSourcedAppStatus) -> Option<Notice> {
    let before = find(&old.conditions, ConditionType::ZooKeeperReady)?;
    let after = find(&new.conditions, ConditionType::ZooKeeperReady)?;
    match State::parse(&after.status) {
        State::False if before.status != after.status || before.reason != after.reason => Some(notice(
            Severity::Warning,
            NoticeReason::ZooKeeperNotReady,
            &after.message,
        )),
        State::True if before.status == State::False.as_str() => {
            let leads = find(&new.conditions, ConditionType::LeaderElected).map_or("", |c| c.message.as_str());
            let note = format!("{}; {leads}", after.message);
            Some(notice(Severity::Normal, NoticeReason::ZooKeeperRecovered, &note))
        }
        State::False | State::True | State::Unknown => None,
    }
}

fn leader(old: &EventSourcedAppStatus, new: &EventSourcedAppStatus) -> Option<Notice> {
    let before = find(&old.conditions, ConditionType::LeaderElected)?;
    let after = find(&new.conditions, ConditionType::LeaderElected)?;
    if after.reason == Reason::LeaderUnreadable.as_str() || after.reason == Reason::LeaderForbidden.as_str() {
        return (before.reason != after.reason)
            .then(|| notice(Severity::Warning, NoticeReason::LeaderUnreadable, &after.message));
    }
    // After an outage nobody knows what was missed; that ZooKeeper is back says who leads.
    let was_out = before.reason == Reason::Unreachable.as_str();
    match (&old.leader, &new.leader) {
        (None, Some(leader)) if !was_out => Some(notice(
            Severity::Normal,
            NoticeReason::LeaderElected,
            &format!("{leader} leads"),
        )),
        (Some(was), Some(leader)) if was != leader => Some(notice(
            Severity::Normal,
            NoticeReason::LeaderChanged,
            &format!("{leader} leads, after {was}"),
        )),
        (Some(_), Some(leader)) if old.leader_since != new.leader_since => Some(notice(
            Severity::Normal,
            NoticeReason::LeaderChanged,
            &format!("{leader} was elected again"),
        )),
        (Some(was), None) if after.reason == Reason::NoLeader.as_str() => Some(notice(
            Severity::Warning,
            NoticeReason::LeaderLost,
            &format!("nobody leads; {was} did"),
        )),
        (None | Some(_), None | Some(_)) => None,
    }
}

#[cfg(test)]
mod tests;
