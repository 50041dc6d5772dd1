//! What others may know of the election.

use std::time::Duration;

use jiff::Timestamp;

use super::term::TermEnd;

/// Who leads, as this replica sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeadershipView {
    /// This replica, nonce included.
    pub identity: String,
    /// Whether this replica leads.
    pub leads: bool,
    /// Who holds the Lease, whether or not it is still live; none if it is free, or nothing is known yet.
    pub holder: Option<String>,
    /// The number of the term that the Lease shows.
    pub term: Option<i64>,
    /// Since when the holder holds it (if another: by its own clock).
    pub since: Option<Timestamp>,
    /// What keeps this replica from taking part, with the remedy; none when nothing does.
    pub error: Option<String>,
    /// Why the last term of this replica ended.
    pub last_end: Option<TermEnd>,
    /// From the last sign of the previous holder until this replica won its latest term.
    pub last_handover: Option<Duration>,
}
