//! Where everything lies under the root. Pure.
//!
//! ```text
//! <root>/leader                       ephemeral: the leading pod's name, plain text
//! <root>/epoch                        persistent, only ever set: its version, and its text, is the epoch
//! <root>/events                       persistent: the log's identity and segment size, as JSON
//! <root>/events/000000000000          segment 0
//! <root>/events/000000000000/000000000001   record 1
//! ```

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// The largest segment: a reply of ZooKeeper is limited to 1 MB, and a child's name takes 16 bytes of it.
pub const MAX_SEGMENT_SIZE: u32 = 10_000;

/// The paths under one root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: String,
}

/// What is written into `<root>/events` when a log begins, and never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogIdentity {
    /// Different for every log that ever began, so that a wiped root is noticed.
    pub log: String,
    /// How many records a segment holds.
    pub segment_size: NonZeroU32,
}

impl Layout {
    /// The layout under `root`, which starts with a slash and ends without one.
    #[must_use]
    pub fn new(root: &str) -> Self {
        Self { root: root.to_owned() }
    }

    /// The app's own znode.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The znode that names the leader.
    #[must_use]
    pub fn leader(&self) -> String {
        format!("{}/leader", self.root)
    }

    /// The znode whose version is the epoch.
    #[must_use]
    pub fn epoch(&self) -> String {
        format!("{}/epoch", self.root)
    }

    /// The log.
    #[must_use]
    pub fn events(&self) -> String {
        format!("{}/events", self.root)
    }

    /// The segment that holds a record.
    #[must_use]
    pub fn segment(&self, log: &LogIdentity, number: u64) -> String {
        let segment = (number - 1) / u64::from(log.segment_size.get());
        format!("{}/events/{segment:012}", self.root)
    }

    /// A record.
    #[must_use]
    pub fn record(&self, log: &LogIdentity, number: u64) -> String {
        format!("{}/{number:012}", self.segment(log, number))
    }
}

impl LogIdentity {
    /// Whether a record is its segment's first, so that the segment is made with it.
    #[must_use]
    pub fn begins_segment(&self, number: u64) -> bool {
        (number - 1).is_multiple_of(u64::from(self.segment_size.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(size: u32) -> LogIdentity {
        LogIdentity {
            log: "l".to_owned(),
            segment_size: NonZeroU32::new(size).unwrap(),
        }
    }

    #[test]
    fn the_contract_s_nodes_are_children_of_the_root() {
        let layout = Layout::new("/apps/bank");
        assert_eq!(
            [
                layout.root().to_owned(),
                layout.leader(),
                layout.epoch(),
                layout.events()
            ],
            [
                "/apps/bank",
                "/apps/bank/leader",
                "/apps/bank/epoch",
                "/apps/bank/events"
            ]
            .map(str::to_owned)
        );
    }

    #[test]
    fn records_fill_one_segment_after_the_other() {
        let layout = Layout::new("/r");
        let paths: Vec<_> = [1, 5, 6, 10, 11].map(|n| layout.record(&log(5), n)).into();
        assert_eq!(
            paths,
            [
                "/r/events/000000000000/000000000001",
                "/r/events/000000000000/000000000005",
                "/r/events/000000000001/000000000006",
                "/r/events/000000000001/000000000010",
                "/r/events/000000000002/000000000011",
            ]
        );
    }

    #[test]
    fn names_sort_as_numbers_do() {
        let layout = Layout::new("/r");
        let numbers = [1, 2, 9, 10, 99, 100, 12_345, 999_999_999_999];
        let paths: Vec<_> = numbers.map(|n| layout.record(&log(7), n)).into();
        let mut sorted = paths.clone();
        sorted.sort();
        assert_eq!(paths, sorted);
    }

    #[test]
    fn only_the_first_record_of_a_segment_begins_it() {
        let begins: Vec<u64> = (1..=11).filter(|n| log(5).begins_segment(*n)).collect();
        assert_eq!(begins, [1, 6, 11]);
        assert!((1..=3).all(|n| log(1).begins_segment(n)));
    }

    #[test]
    fn a_log_s_identity_is_read_back_as_written() {
        let text = serde_json::to_string(&log(5)).unwrap();
        assert_eq!(text, r#"{"log":"l","segmentSize":5}"#);
        assert_eq!(serde_json::from_str::<LogIdentity>(&text).unwrap(), log(5));
        assert!(serde_json::from_str::<LogIdentity>(r#"{"log":"l","segmentSize":0}"#).is_err());
    }
}
