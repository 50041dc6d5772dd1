//! What is known of an app's part of its ensemble, as the app's status is decided from it.

use jiff::Timestamp;

/// The state of what esfleet knows of an app's root and leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnsembleView {
    /// Nothing has been learnt yet in this term.
    Pending,
    /// What was read last, and is being watched; a session that is being replaced keeps this for up
    /// to the session timeout.
    Known {
        /// The root znode.
        root: RootView,
        /// The leader znode.
        leader: LeaderView,
    },
    /// The ensemble has not answered for longer than the session timeout, or never.
    Unreachable {
        /// A sentence that names the servers and the trouble.
        message: String,
        /// The leader as it was known last.
        last: Option<LastLeader>,
    },
}

/// The root znode as seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootView {
    /// It exists.
    Exists,
    /// It does not exist, and esfleet was asked not to create it.
    Missing,
    /// The ensemble refuses esfleet access to it; the sentence names the path and what was refused.
    Forbidden(String),
    /// It could not be created; the sentence says why.
    Failed(String),
}

/// The leader znode as seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderView {
    /// There is no such znode: nobody leads.
    Absent,
    /// What the app wrote, when it is at most 253 printable characters of UTF-8.
    Named {
        /// The leader's name.
        name: String,
        /// When the znode was created, by the ensemble's clock.
        since: Timestamp,
    },
    /// The znode exists, and what it holds is no name; the sentence says what is wrong, never the bytes.
    Unreadable(String),
    /// The ensemble refuses to let esfleet read it; the sentence names the path.
    Forbidden(String),
    /// It could not be read for another reason; the sentence says why.
    Failed(String),
}

/// A leader that was known before the ensemble stopped answering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastLeader {
    /// The leader's name.
    pub name: String,
    /// When it was confirmed last.
    pub confirmed: Timestamp,
}
