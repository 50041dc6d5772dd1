//! What the replica and HTTP share: the ledger, and how this process stands.

use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use crate::ledger::{Event, Ledger, Refusal};

/// How long a replica may lag behind the log and still call itself healthy.
const TOLERATED_LAG: Duration = Duration::from_secs(5);

/// What this process is to its app at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// It has no session with the ensemble.
    #[default]
    Disconnected,
    /// It has a session, and the root does not exist.
    AwaitingRoot,
    /// It applies what others append.
    Follower,
    /// It appends.
    Leader,
    /// It was told to end.
    Stopping,
}

/// How far this process is with the log, as far as it knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Progress {
    /// It has not yet seen the log's end in this session.
    #[default]
    Replaying,
    /// It had reached the end before, and knows since then that there is more.
    Behind(Instant),
    /// It has applied all that it knows of.
    CaughtUp,
}

/// How this process stands.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// What it is.
    pub role: Role,
    /// The pod that the leader node names.
    pub leader: Option<String>,
    /// The epoch as last read.
    pub epoch: Option<i32>,
    /// The identity of the log that the ledger was made from.
    pub log: Option<String>,
    /// How far it is.
    pub progress: Progress,
    /// Why the last session ended or failed, until all is well again.
    pub error: Option<String>,
    /// Where the leader takes events; there only while this process leads.
    pub submit: Option<mpsc::Sender<Submission>>,
}

impl View {
    /// Whether this process serves, and what it serves is fresh within reason.
    #[must_use]
    pub fn healthy(&self) -> bool {
        let serves = match self.role {
            Role::Follower | Role::Leader => true,
            Role::Disconnected | Role::AwaitingRoot | Role::Stopping => false,
        };
        serves
            && match self.progress {
                Progress::Replaying => false,
                Progress::Behind(since) => since.elapsed() < TOLERATED_LAG,
                Progress::CaughtUp => true,
            }
    }
}

/// An event on its way to the leader's appender.
#[derive(Debug)]
pub struct Submission {
    /// The event.
    pub event: Event,
    /// Where the answer goes; nobody may be waiting any more.
    pub answer: oneshot::Sender<Answer>,
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is in the log for good, by this submission.
    Appended { number: u64, epoch: i32 },
    /// It was in the log before.
    Duplicate { number: u64, epoch: i32 },
    /// It breaks a rule.
    Refused(Refusal),
    /// It is not in the log: this process does not lead any more.
    NotAppended,
    /// It may be in the log: the ensemble did not answer.
    Unknown,
}

/// The ledger and the view, always read and changed together.
#[derive(Debug, Default)]
pub struct Standing {
    /// The state.
    pub ledger: Ledger,
    /// How this process stands.
    pub view: View,
}

/// Shared by the replica, which alone changes it, and HTTP. No guard leaves this type, so none is held over an await.
#[derive(Debug, Default)]
pub struct Shared(RwLock<Standing>);

impl Shared {
    /// Looks at the standing.
    pub fn read<T>(&self, look: impl FnOnce(&Standing) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the standing.
    pub fn update<T>(&self, change: impl FnOnce(&mut Standing) -> T) -> T {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy(role: Role, progress: Progress) -> bool {
        View {
            role,
            progress,
            ..View::default()
        }
        .healthy()
    }

    #[test]
    fn only_who_serves_is_healthy() {
        let roles = [
            Role::Disconnected,
            Role::AwaitingRoot,
            Role::Follower,
            Role::Leader,
            Role::Stopping,
        ];
        assert_eq!(
            roles.map(|role| healthy(role, Progress::CaughtUp)),
            [false, false, true, true, false]
        );
    }

    #[test]
    fn lagging_for_long_or_replaying_is_not_healthy() {
        let now = Instant::now();
        let progress = [Some(now), now.checked_sub(TOLERATED_LAG)].map(|since| Progress::Behind(since.unwrap()));
        assert_eq!(
            progress.map(|progress| healthy(Role::Follower, progress)),
            [true, false]
        );
        assert!(!healthy(Role::Follower, Progress::Replaying));
    }
}
