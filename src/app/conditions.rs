//! Conditions of an app: their types, their closed set of reasons, and how they change.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The conditions of an app, in the order in which its status lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The ensemble answers and the root exists.
    ZooKeeperReady,
    /// The objects are as they should be and the pods are Ready.
    WorkloadReady,
    /// The app has written who leads it.
    LeaderElected,
    /// All of the others.
    Ready,
}

impl ConditionType {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [
        Self::ZooKeeperReady,
        Self::WorkloadReady,
        Self::LeaderElected,
        Self::Ready,
    ];

    /// The name in `type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ZooKeeperReady => "ZooKeeperReady",
            Self::WorkloadReady => "WorkloadReady",
            Self::LeaderElected => "LeaderElected",
            Self::Ready => "Ready",
        }
    }
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody can tell.
    Unknown,
}

impl State {
    /// The text in `status`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// Reads the text in `status`; what is neither `True` nor `False` is unknown.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

/// Why a condition is as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Everything is as it should be.
    AllReady,
    /// The root znode exists.
    RootExists,
    /// The root znode does not exist and may not be created now.
    RootMissing,
    /// The root znode could not be created.
    RootFailed,
    /// ZooKeeper refuses esfleet access to the root.
    RootForbidden,
    /// The ensemble does not answer.
    Unreachable,
    /// Nothing has been heard of the ensemble yet.
    Connecting,
    /// All pods are Ready.
    ReplicasReady,
    /// Fewer pods are Ready than should be.
    ReplicasPending,
    /// More pods exist than should.
    ScalingDown,
    /// Not all pods run the newest template yet.
    RollingOut,
    /// The StatefulSet does not exist yet, or its controller has not looked at the newest change.
    Progressing,
    /// The StatefulSet does not exist, and esfleet changes nothing while the app is paused.
    Paused,
    /// An object of the app's name belongs to somebody else.
    Conflict,
    /// An object of an earlier app of this name is still being removed.
    BeingDeleted,
    /// A field differs that can never be changed.
    ImmutableField,
    /// The API server refused a write.
    WriteFailed,
    /// The app's spec cannot be used.
    InvalidSpec,
    /// A pod leads.
    Elected,
    /// No pod leads.
    NoLeader,
    /// The leader znode holds no name.
    LeaderUnreadable,
    /// ZooKeeper refuses to let esfleet read the leader znode.
    LeaderForbidden,
    /// The leader znode could not be read.
    LeaderFailed,
}

impl Reason {
    /// The text in `reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllReady => "AllReady",
            Self::RootExists => "RootExists",
            Self::RootMissing => "RootMissing",
            Self::RootFailed => "RootFailed",
            Self::RootForbidden => "RootForbidden",
            Self::Unreachable => "Unreachable",
            Self::Connecting => "Connecting",
            Self::ReplicasReady => "ReplicasReady",
            Self::ReplicasPending => "ReplicasPending",
            Self::ScalingDown => "ScalingDown",
            Self::RollingOut => "RollingOut",
            Self::Progressing => "Progressing",
            Self::Paused => "Paused",
            Self::Conflict => "Conflict",
            Self::BeingDeleted => "BeingDeleted",
            Self::ImmutableField => "ImmutableField",
            Self::WriteFailed => "WriteFailed",
            Self::InvalidSpec => "InvalidSpec",
            Self::Elected => "Elected",
            Self::NoLeader => "NoLeader",
            Self::LeaderUnreadable => "LeaderUnreadable",
            Self::LeaderForbidden => "LeaderForbidden",
            Self::LeaderFailed => "LeaderFailed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a condition says, before it is dated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it holds.
    pub state: State,
    /// Why.
    pub reason: Reason,
    /// The same for people, with what to do where something is to be done.
    pub message: String,
}

impl Verdict {
    pub(super) fn new(state: State, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            state,
            reason,
            message: message.into(),
        }
    }
}

/// The longest message that a condition may have.
const MESSAGE_MAX: usize = 32_768;

/// The condition of this type in a list.
#[must_use]
pub fn find(conditions: &[Condition], kind: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

/// The condition that a verdict makes of the old one: its time changes only when its status does.
pub(super) fn dated(
    kind: ConditionType,
    verdict: Verdict,
    old: Option<&Condition>,
    generation: i64,
    now: Timestamp,
) -> Condition {
    let status = verdict.state.as_str();
    let last_transition_time = match old {
        Some(old) if old.status == status => old.last_transition_time.clone(),
        Some(_) | None => Time(whole_seconds(now)),
    };
    let mut message = verdict.message;
    shorten(&mut message, MESSAGE_MAX);
    Condition {
        type_: kind.as_str().to_owned(),
        status: status.to_owned(),
        reason: verdict.reason.as_str().to_owned(),
        message,
        observed_generation: Some(generation),
        last_transition_time,
    }
}

/// A time as Kubernetes writes times.
pub(super) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Cuts a text to at most `max` bytes, between characters.
pub(super) fn shorten(text: &mut String, max: usize) {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or_default());
}
