//! A scope: one namespace of a member, or all of them, with what is known there and what has changed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::projection::{ObjectKey, Projected, Projection};
use super::store::ChildStore;
use crate::api::EventSourcedApp;
use crate::app::observed::{ObservedApp, ObservedBudget, ObservedService, ObservedStatefulSet};

/// An app as a scope knows it.
pub type ProjectedApp = Projected<ObservedApp>;

macro_rules! project {
    ($projection:ty, $kind:ty) => {
        impl Projection for $projection {
            type Of = $kind;

            fn from_value(object: &Value) -> Result<Self, String> {
                <$projection>::from_value(object)
            }
        }
    };
}

project!(ObservedApp, EventSourcedApp);
project!(ObservedStatefulSet, StatefulSet);
project!(ObservedService, Service);
project!(ObservedBudget, PodDisruptionBudget);

/// Everything that is known of one scope. It outlives connections and terms.
pub struct Scope {
    /// The namespace; none: all of them.
    pub namespace: Option<String>,
    /// The apps, as `kube::runtime::applier` wants them.
    pub apps: Store<ProjectedApp>,
    /// The apps' StatefulSets, and all others.
    pub stateful_sets: ChildStore<ObservedStatefulSet>,
    /// Services, the apps' and others'.
    pub services: ChildStore<ObservedService>,
    /// PodDisruptionBudgets, the apps' and others'.
    pub budgets: ChildStore<ObservedBudget>,
    /// Apps to look at again.
    pub dirty: DirtyApps,
    pub(super) writer: tokio::sync::Mutex<Writer<ProjectedApp>>,
    listed: tokio::sync::Notify,
}

impl Scope {
    /// An empty scope.
    #[must_use]
    pub fn new(namespace: Option<String>) -> Arc<Self> {
        let (apps, writer) = kube::runtime::reflector::store();
        Arc::new(Self {
            namespace,
            apps,
            stateful_sets: ChildStore::default(),
            services: ChildStore::default(),
            budgets: ChildStore::default(),
            dirty: DirtyApps::default(),
            writer: tokio::sync::Mutex::new(writer),
            listed: tokio::sync::Notify::new(),
        })
    }

    /// The app at `key`.
    #[must_use]
    pub fn app(&self, key: &ObjectKey) -> Option<Arc<ProjectedApp>> {
        self.apps.get(&ObjectRef::new(&key.name).within(&key.namespace))
    }

    /// Whether every kind has been listed.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.stateful_sets.is_ready() && self.services.is_ready() && self.budgets.is_ready() && self.apps_are_ready()
    }

    /// Waits until every kind has been listed: an object that has not been listed yet is not absent.
    pub async fn ready(&self) {
        loop {
            let listed = self.listed.notified();
            if self.is_ready() {
                return;
            }
            listed.await;
        }
    }

    /// Says that a list is complete.
    pub(super) fn list_done(&self) {
        self.listed.notify_waiters();
    }

    fn apps_are_ready(&self) -> bool {
        use futures::FutureExt;
        self.apps
            .wait_until_ready()
            .now_or_never()
            .is_some_and(|ready| ready.is_ok())
    }

    /// Marks the app at `key`, if there is one: all of an app's objects bear its name.
    pub(super) fn mark_app(&self, key: &ObjectKey) {
        if self.app(key).is_some() {
            self.dirty.mark(key);
        }
    }

    /// Marks every app of a namespace.
    pub(super) fn mark_namespace(&self, namespace: &str) {
        for app in self.apps.state() {
            let key = app.key();
            if key.namespace == namespace {
                self.dirty.mark(&key);
            }
        }
    }
}

/// The apps that changed since they were last looked at. It holds nothing between terms: a term
/// begins with all apps.
#[derive(Debug, Default)]
pub struct DirtyApps {
    inner: Mutex<Dirty>,
}

#[derive(Debug, Default)]
struct Dirty {
    pending: HashSet<ObjectKey>,
    sender: Option<UnboundedSender<ObjectKey>>,
}

impl DirtyApps {
    /// Begins a term: what is marked from now on arrives at the receiver, each app once until it is
    /// started. An earlier receiver gets nothing more.
    #[must_use]
    pub fn open(&self) -> UnboundedReceiver<ObjectKey> {
        let (sender, receiver) = unbounded_channel();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        *inner = Dirty {
            pending: HashSet::new(),
            sender: Some(sender),
        };
        receiver
    }

    /// Marks one app.
    pub fn mark(&self, key: &ObjectKey) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = inner.sender.clone() else { return };
        if !inner.pending.contains(key) {
            if sender.send(key.clone()).is_ok() {
                inner.pending.insert(key.clone());
            } else {
                *inner = Dirty::default(); // the term is over
            }
        }
    }

    /// Says that an app is being looked at: what changes from now on marks it anew.
    pub fn started(&self, key: &ObjectKey) {
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pending
            .remove(key);
    }

    /// How many apps wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).pending.len()
    }

    /// Whether no app waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn an_app_waits_once_until_it_is_started() {
        let dirty = DirtyApps::default();
        let mut queue = dirty.open();
        dirty.mark(&key("a"));
        dirty.mark(&key("a"));
        dirty.mark(&key("b"));
        assert_eq!((queue.try_recv(), queue.try_recv()), (Ok(key("a")), Ok(key("b"))));
        assert!(queue.try_recv().is_err());
        dirty.started(&key("a"));
        dirty.mark(&key("a"));
        assert_eq!(queue.try_recv(), Ok(key("a")));
        assert_eq!(dirty.len(), 2);
    }

    #[test]
    fn nothing_is_kept_between_terms() {
        let dirty = DirtyApps::default();
        dirty.mark(&key("a"));
        assert!(dirty.is_empty());
        drop(dirty.open());
        dirty.mark(&key("a"));
        assert!(dirty.is_empty());
        let mut queue = dirty.open();
        assert!(queue.try_recv().is_err());
    }
}
