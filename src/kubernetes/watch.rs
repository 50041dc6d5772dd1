//! The watches that keep a scope current, whoever leads.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::watcher::{Config, Error, Event};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::projection::{ObjectKey, Projected, Projection};
use super::scope::{ProjectedApp, Scope};
use super::store::ChildStore;
use crate::app::observed::{ObservedBudget, ObservedService, ObservedStatefulSet, Owner};
use crate::support::retry::Backoff;

/// How long one watch lasts before it is renewed: the longest that a half-open connection can hide changes.
const WATCH_SECONDS: u32 = 60;
/// The shortest and the longest wait before a watch that failed is tried again; a member that does not answer at all is
/// given up by its probe.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// Objects per page of a list: what bounds the memory that a list of full objects takes.
const PAGE: u32 = 50;

/// A watched kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Watched {
    /// `EventSourcedApp`
    Apps,
    /// `StatefulSet`
    StatefulSets,
    /// `Service`
    Services,
    /// `PodDisruptionBudget`
    Budgets,
}

impl Watched {
    /// The resource's plural name.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Apps => "eventsourcedapps",
            Self::StatefulSets => "statefulsets",
            Self::Services => "services",
            Self::Budgets => "poddisruptionbudgets",
        }
    }
}

/// What keeps a watch from working.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchTrouble {
    /// The API server does not know the resource.
    Unknown,
    /// esfleet may not list or watch it; the API server's words.
    Forbidden(String),
    /// Anything else, in words.
    Failing(String),
}

/// The troubles of a member's watches; empty while all of them work.
#[derive(Debug, Default)]
pub struct WatchHealth {
    troubles: Mutex<BTreeMap<(Watched, Option<String>), WatchTrouble>>,
}

impl WatchHealth {
    /// The first trouble, the apps' before the others'.
    #[must_use]
    pub fn first(&self) -> Option<(Watched, WatchTrouble)> {
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles
            .iter()
            .next()
            .map(|((watched, _), trouble)| (*watched, trouble.clone()))
    }

    /// Forgets all troubles, as when a connection begins.
    pub fn clear(&self) {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Sets or clears one watch's trouble; whether that changed anything.
    fn set(&self, watched: Watched, namespace: Option<&String>, trouble: Option<WatchTrouble>) -> bool {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (watched, namespace.cloned());
        match trouble {
            Some(trouble) => troubles.insert(key, trouble.clone()).as_ref() != Some(&trouble),
            None => troubles.remove(&key).is_some(),
        }
    }
}

/// Keeps a scope current until cancelled.
pub async fn watch_scope(
    member: &str,
    scope: &Scope,
    client: &Client,
    health: &WatchHealth,
    cancel: &CancellationToken,
) {
    let context = Context {
        member,
        scope,
        client,
        health,
    };
    let all = async {
        tokio::join!(
            context.apps(),
            context.children::<ObservedStatefulSet>(Watched::StatefulSets, &scope.stateful_sets),
            context.children::<ObservedService>(Watched::Services, &scope.services),
            context.budgets(),
        )
    };
    tokio::select! {
        _ = all => {}
        () = cancel.cancelled() => {}
    }
}

struct Context<'a> {
    member: &'a str,
    scope: &'a Scope,
    client: &'a Client,
    health: &'a WatchHealth,
}

impl Context<'_> {
    async fn apps(&self) {
        let mut writer = self.scope.writer.lock().await;
        let mut listed: Vec<ObjectKey> = Vec::new();
        self.each(Watched::Apps, |event: Event<ProjectedApp>| {
            match &event {
                Event::Init => listed.clear(),
                Event::InitApply(app) => listed.push(app.key()),
                Event::Apply(_) | Event::Delete(_) | Event::InitDone => {}
            }
            let known: Vec<ObjectKey> = match event {
                Event::InitDone => self.scope.apps.state().iter().map(|app| app.key()).collect(),
                _ => Vec::new(),
            };
            writer.apply_watcher_event(&event);
            match event {
                Event::Apply(app) => {
                    self.report_unreadable(&app);
                    self.scope.dirty.mark(&app.key());
                }
                Event::Delete(app) => self.scope.dirty.mark(&app.key()),
                Event::InitDone => {
                    known.iter().chain(&listed).for_each(|key| self.scope.dirty.mark(key));
                    self.scope
                        .apps
                        .state()
                        .iter()
                        .for_each(|app| self.report_unreadable(app));
                }
                Event::Init | Event::InitApply(_) => {}
            }
        })
        .await;
    }

    fn report_unreadable(&self, app: &ProjectedApp) {
        if let Err(reason) = &app.data {
            tracing::warn!(cluster = self.member, app = %app.key(), "this EventSourcedApp does not parse and is left alone: {reason}");
        }
    }

    async fn children<P: Projection>(&self, watched: Watched, store: &ChildStore<P>) {
        self.each(watched, |event: Event<Projected<P>>| {
            for key in store.take(event) {
                self.scope.mark_app(&key);
            }
        })
        .await;
    }

    /// A budget that no app owns may select any app's pods, so it concerns all apps of its namespace.
    async fn budgets(&self) {
        self.each(Watched::Budgets, |event: Event<Projected<ObservedBudget>>| {
            let foreign_now = match &event {
                Event::Apply(budget) | Event::Delete(budget) => !is_an_apps(budget.data.as_ref().ok()),
                Event::Init | Event::InitApply(_) | Event::InitDone => false,
            };
            let stored = |key: &ObjectKey| self.scope.budgets.get(key).and_then(Result::ok);
            let foreign_before = match &event {
                Event::Apply(budget) | Event::Delete(budget) => {
                    stored(&budget.key()).is_some_and(|known| !is_an_apps(Some(&known)))
                }
                Event::Init | Event::InitApply(_) | Event::InitDone => false,
            };
            for key in self.scope.budgets.take(event) {
                let foreign = stored(&key).is_some_and(|known| !is_an_apps(Some(&known)));
                if foreign || foreign_now || foreign_before {
                    self.scope.mark_namespace(&key.namespace);
                } else {
                    self.scope.mark_app(&key);
                }
            }
        })
        .await;
    }

    /// Feeds every event of one watch to `take`, with backoff after errors, for ever.
    ///
    /// After an error everything is listed again. Going on from the last version would do in most cases, but an API
    /// server whose data was restored from a backup or lost accepts a version from its future and then stays silent.
    async fn each<P: Projection>(&self, watched: Watched, mut take: impl FnMut(Event<Projected<P>>)) {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        let mut events = Box::pin(self.open::<P>());
        loop {
            match events.next().await {
                Some(Ok(event)) => {
                    // Init only says that a list is about to be asked for
                    if !matches!(event, Event::Init) {
                        self.healthy(watched);
                        backoff.reset();
                    }
                    let listed = matches!(event, Event::InitDone);
                    take(event);
                    if listed {
                        self.scope.list_done();
                    }
                }
                Some(Err(error)) => {
                    self.failed(watched, &error);
                    tokio::time::sleep(backoff.next_delay()).await;
                    events = Box::pin(self.open::<P>());
                }
                None => events = Box::pin(self.open::<P>()),
            }
        }
    }

    fn open<P: Projection>(&self) -> impl Stream<Item = Result<Event<Projected<P>>, Error>> + Send + use<P> {
        let api: Api<Projected<P>> = match &self.scope.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        kube::runtime::watcher(api, Config::default().timeout(WATCH_SECONDS).page_size(PAGE))
    }

    fn healthy(&self, watched: Watched) {
        if self.health.set(watched, self.scope.namespace.as_ref(), None) {
            tracing::info!(
                cluster = self.member,
                resource = watched.resource(),
                "the watch works again"
            );
        }
    }

    fn failed(&self, watched: Watched, error: &Error) {
        let trouble = trouble_of(error);
        let words = match &trouble {
            WatchTrouble::Unknown => "the API server does not know this resource".to_owned(),
            WatchTrouble::Forbidden(words) | WatchTrouble::Failing(words) => words.clone(),
        };
        if self.health.set(watched, self.scope.namespace.as_ref(), Some(trouble)) {
            tracing::warn!(
                cluster = self.member,
                resource = watched.resource(),
                "the watch fails: {words}"
            );
        }
    }
}

fn is_an_apps(budget: Option<&ObservedBudget>) -> bool {
    budget.is_some_and(|budget| matches!(budget.child.owner, Owner::App(_)))
}

fn trouble_of(error: &Error) -> WatchTrouble {
    let status = match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status))
        | Error::WatchError(status) => status,
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
            return WatchTrouble::Failing(error.to_string());
        }
        Error::NoResourceVersion => return WatchTrouble::Failing(error.to_string()),
    };
    match status.code {
        404 => WatchTrouble::Unknown,
        403 => WatchTrouble::Forbidden(status.message.clone()),
        _ => WatchTrouble::Failing(status.message.clone()),
    }
}
