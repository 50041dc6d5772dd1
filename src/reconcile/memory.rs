//! What a controller remembers of its own writes until the watch confirms them.

use std::time::Duration;

use dashmap::DashMap;

use crate::api::EventSourcedAppStatus;
use crate::app::ChildKind;
use crate::app::digest::Digest;
use crate::kubernetes::projection::ObjectKey;
use crate::support::retry::Backoff;

/// The shortest and the longest wait before an app that failed is tried again.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// One controller's memory; it ends with the controller, and everything in it can be found out anew.
#[derive(Default)]
pub struct Memory {
    failures: DashMap<ObjectKey, Backoff>,
    converged: DashMap<(ChildKind, ObjectKey), Converged>,
    reported: DashMap<ObjectKey, Reported>,
}

/// What an object that we applied looked like afterwards. Where an API server stores a value in
/// another form than we sent it, this is how we know that there is nothing left to do.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Converged {
    wanted: Digest,
    observed: Option<Digest>,
}

struct Reported {
    /// The app's resource version in our store when the status was written.
    seen: String,
    status: EventSourcedAppStatus,
}

impl Memory {
    /// How long to wait before an app that failed once more is tried again.
    pub fn failed(&self, key: &ObjectKey) -> Duration {
        self.failures.entry(key.clone()).or_insert_with(|| Backoff::new(RETRY.0, RETRY.1)).next_delay()
    }

    /// Forgets an app's failures.
    pub fn succeeded(&self, key: &ObjectKey) {
        self.failures.remove(key);
    }

    /// Forgets an app that is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.failures.remove(key);
        self.reported.remove(key);
        for kind in [ChildKind::StatefulSet, ChildKind::Service, ChildKind::Budget] {
            self.converged.remove(&(kind, key.clone()));
        }
    }

    /// Remembers what an object looks like after `wanted` was applied.
    pub fn applied(&self, kind: ChildKind, key: &ObjectKey, wanted: Digest, observed: Option<Digest>) {
        self.converged.insert((kind, key.clone()), Converged { wanted, observed });
    }

    /// Whether an object that looks like `observed` is what came of applying `wanted`.
    #[must_use]
    pub fn is_converged(&self, kind: ChildKind, key: &ObjectKey, wanted: Digest, observed: Option<Digest>) -> bool {
        let known = self.converged.get(&(kind, key.clone())).map(|known| *known);
        known == Some(Converged { wanted, observed })
    }

    /// Remembers a status that was written when the store had the app at version `seen`.
    pub fn reported(&self, key: &ObjectKey, seen: &str, status: EventSourcedAppStatus) {
        self.reported.insert(key.clone(), Reported { seen: seen.to_owned(), status });
    }

    /// The status that the app has, when the store, still at version `seen`, cannot know it yet.
    #[must_use]
    pub fn last_report(&self, key: &ObjectKey, seen: &str) -> Option<EventSourcedAppStatus> {
        self.reported.get(key).filter(|reported| reported.seen == seen).map(|reported| reported.status.clone())
    }
}
