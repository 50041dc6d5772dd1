//! What a controller remembers of its own writes until the watch confirms them.

use std::collections::BTreeMap;
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;

use crate::api::EventSourcedAppStatus;
use crate::app::ChildKind;
use crate::app::digest::Digest;
use crate::app::plan::Memo;
use crate::kubernetes::projection::ObjectKey;
use crate::kubernetes::writer::RequestError;
use crate::support::retry::Backoff;

/// The shortest and the longest wait before an app that failed is tried again.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The shortest and the longest wait before an app is tried again after somebody else was faster.
const STALE_RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// One controller's memory; it ends with the controller, and everything in it can be found out anew.
#[derive(Default)]
pub struct Memory {
    failures: DashMap<ObjectKey, Failures>,
    stale: DashMap<ObjectKey, Backoff>,
    memos: DashMap<ObjectKey, Memo>,
    reported: DashMap<ObjectKey, Reported>,
}

/// What failed of an app's last round, and when the next one is due.
struct Failures {
    backoff: Backoff,
    due: Option<Instant>,
    /// The writes, by the digest of what was wanted (none: a deletion).
    writes: BTreeMap<ChildKind, (Option<Digest>, RequestError)>,
}

impl Default for Failures {
    fn default() -> Self {
        Self {
            backoff: Backoff::new(RETRY.0, RETRY.1),
            due: None,
            writes: BTreeMap::new(),
        }
    }
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
    /// How long to wait before an app that failed once more is tried again. A round that comes before
    /// that time (something of the app changed meanwhile) does not move it.
    pub fn failed(&self, key: &ObjectKey) -> Duration {
        let mut failures = self.failures.entry(key.clone()).or_default();
        let now = Instant::now();
        if let Some(due) = failures.due.filter(|due| *due > now) {
            return due - now;
        }
        let delay = failures.backoff.next_delay();
        failures.due = Some(now + delay);
        delay
    }

    /// How long to wait after somebody else was faster once more.
    pub fn stale(&self, key: &ObjectKey) -> Duration {
        self.stale
            .entry(key.clone())
            .or_insert_with(|| Backoff::new(STALE_RETRY.0, STALE_RETRY.1))
            .next_delay()
    }

    /// Remembers what became of a write of `wanted` (none: of a deletion).
    pub fn tried(&self, key: &ObjectKey, kind: ChildKind, wanted: Option<Digest>, result: Result<(), &RequestError>) {
        match result {
            Err(error) if !error.is_passing() => {
                let mut failures = self.failures.entry(key.clone()).or_default();
                failures.writes.insert(kind, (wanted, error.clone()));
            }
            Ok(()) | Err(_) => {
                if let Some(mut failures) = self.failures.get_mut(key) {
                    failures.writes.remove(&kind);
                }
            }
        }
    }

    /// Why the same write failed, as long as it is not due again. Our own status that tells of the
    /// failure comes back as a change of the app, and must not cause the next attempt.
    #[must_use]
    pub fn refused(&self, key: &ObjectKey, kind: ChildKind, wanted: Option<Digest>) -> Option<RequestError> {
        let failures = self.failures.get(key)?;
        failures.due.filter(|due| *due > Instant::now())?;
        let (tried, error) = failures.writes.get(&kind)?;
        (*tried == wanted).then(|| error.clone())
    }

    /// Forgets an app's failures.
    pub fn succeeded(&self, key: &ObjectKey) {
        self.failures.remove(key);
        self.stale.remove(key);
    }

    /// Forgets an app that is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.succeeded(key);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::app::digest::wanted_digest;

    const KIND: ChildKind = ChildKind::StatefulSet;

    fn key() -> ObjectKey {
        ObjectKey {
            namespace: "orders".to_owned(),
            name: "ledger".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_failed_is_not_tried_again_before_its_time() {
        let (memory, key) = (Memory::default(), key());
        let [wanted, other] = ["x:1", "x:2"].map(|image| Some(wanted_digest(KIND, &json!({ "spec": { "a": image } }))));
        let error = RequestError::Failed("read tcp 127.0.0.1:40814: connection reset".to_owned());
        memory.tried(&key, KIND, wanted, Err(&error));
        let delay = memory.failed(&key);
        tokio::time::advance(delay / 2).await;
        assert_eq!(memory.refused(&key, KIND, wanted), Some(error));
        assert_eq!(memory.refused(&key, KIND, other), None, "another spec is tried at once");
        assert!(memory.failed(&key) < delay, "an early round does not move the time");
        tokio::time::advance(delay).await;
        assert_eq!(memory.refused(&key, KIND, wanted), None);
        assert!(memory.failed(&key) > Duration::ZERO);
        memory.succeeded(&key);
        assert_eq!(memory.refused(&key, KIND, wanted), None);
    }

    #[test]
    fn who_is_always_late_is_tried_again_ever_more_seldom() {
        let (memory, key) = (Memory::default(), key());
        assert!(memory.stale(&key) < Duration::from_secs(1));
        let last = (0..30).map(|_| memory.stale(&key)).max();
        assert!(last > Some(Duration::from_secs(5)), "{last:?}");
        memory.succeeded(&key);
        assert!(memory.stale(&key) < Duration::from_secs(1));
    }
}
