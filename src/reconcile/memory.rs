//! What a controller remembers of its own writes until the watch confirms them.

use std::time::Duration;

use dashmap::DashMap;

use crate::api::EventSourcedAppStatus;
use crate::app::ChildKind;
use crate::app::digest::Digest;
use crate::app::plan::Memo;
use crate::kubernetes::projection::ObjectKey;
use crate::support::retry::Backoff;

/// The shortest and the longest wait before an app that failed is tried again.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// One controller's memory; it ends with the controller, and everything in it can be found out anew.
#[derive(Default)]
pub struct Memory {
    failures: DashMap<ObjectKey, Backoff>,
    memos: DashMap<ObjectKey, Memo>,
    reported: DashMap<ObjectKey, Reported>,
}

/// A status that the store does not show yet.
struct Reported {
    /// The app's resource version in our store when the status was written.
    seen: String,
    /// The app's resource version since.
    version: String,
    status: EventSourcedAppStatus,
}

impl Memory {
    /// How long to wait before an app that failed once more is tried again.
    pub fn failed(&self, key: &ObjectKey) -> Duration {
        self.failures
            .entry(key.clone())
            .or_insert_with(|| Backoff::new(RETRY.0, RETRY.1))
            .next_delay()
    }

    /// Forgets an app's failures.
    pub fn succeeded(&self, key: &ObjectKey) {
        self.failures.remove(key);
    }

    /// Forgets an app that is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.failures.remove(key);
        self.reported.remove(key);
        self.memos.remove(key);
    }

    /// What applies to an app's objects have led to.
    #[must_use]
    pub fn memo(&self, key: &ObjectKey) -> Memo {
        self.memos.get(key).map(|memo| memo.clone()).unwrap_or_default()
    }

    /// Remembers what an object looks like after `wanted` was applied.
    pub fn applied(&self, key: &ObjectKey, kind: ChildKind, wanted: Digest, answer: Option<Digest>) {
        if answer != Some(wanted) || self.memos.contains_key(key) {
            self.memos
                .entry(key.clone())
                .or_default()
                .remember(kind, wanted, answer);
        }
    }

    /// Remembers a status that was written when the store had the app at version `seen`.
    pub fn reported(&self, key: &ObjectKey, seen: &str, version: &str, status: EventSourcedAppStatus) {
        let reported = Reported {
            seen: seen.to_owned(),
            version: version.to_owned(),
            status,
        };
        self.reported.insert(key.clone(), reported);
    }

    /// The app's resource version and status since our last write, when the store, still at version
    /// `seen`, cannot know them yet.
    #[must_use]
    pub fn last_report(&self, key: &ObjectKey, seen: &str) -> Option<(String, EventSourcedAppStatus)> {
        self.reported.remove_if(key, |_, reported| reported.seen != seen); // the store has caught up
        self.reported
            .get(key)
            .map(|reported| (reported.version.clone(), reported.status.clone()))
    }
}
