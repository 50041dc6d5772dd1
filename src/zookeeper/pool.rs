//! The pool: registered apps, and the ensembles that they share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry as Slot;
use jiff::Timestamp;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::app_watch::{AppWatch, Entry};
use super::ensemble::{EnsembleUse, Shared, Stage};
use super::key::{self, EnsembleKey};
use super::metrics::{SessionState, ZooKeeperMetrics};
use crate::api::{AppKey, ClusterName, ConnectString, RootPath};
use crate::app::ensemble::{EnsembleView, LeaderView, RootView};
use crate::leadership::Term;

/// How long closing the pool may take; sessions that are not closed by then expire.
const CLOSING: Duration = Duration::from_secs(2);

/// Told of every change of an app's view, from a task of the pool, outside any lock.
pub type Changed = Arc<dyn Fn(&AppKey) + Send + Sync>;

/// Times and sizes of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolConfig {
    /// What ensembles are asked for as session timeout, and for how long a view outlives the session it was read in.
    pub session_timeout: Duration,
    /// How long a connection may be silent before it counts as lost.
    pub connection_timeout: Duration,
    /// How long one request, or one attempt to open a session, may take.
    pub request_timeout: Duration,
    /// How long a session is kept after its last app is gone.
    pub grace: Duration,
    /// The shortest delay between two attempts.
    pub shortest_retry: Duration,
    /// The longest delay between two attempts.
    pub longest_retry: Duration,
    /// How many apps of one ensemble send requests at the same time.
    pub requests_in_flight: usize,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            session_timeout: Duration::from_secs(30),
            connection_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(5),
            grace: Duration::from_secs(3),
            shortest_retry: Duration::from_secs(1),
            longest_retry: Duration::from_secs(60),
            requests_in_flight: 64,
        }
    }
}

/// Where an app's root lies, and what may be done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// How the ensemble is reached.
    pub connect: ConnectString,
    /// The root, below the connect string's chroot.
    pub root: RootPath,
    /// Whether a missing root is to be created; false while the app is paused.
    pub may_create: bool,
}

/// One ensemble's session, for listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// The servers, in order, separated by commas.
    pub ensemble: String,
    /// The member within which these names mean something; none if they do everywhere.
    pub member: Option<ClusterName>,
    /// How the session stands.
    pub state: SessionState,
    /// Since when.
    pub since: Timestamp,
    /// What is wrong, if anything.
    pub trouble: Option<String>,
    /// How many apps share it.
    pub apps: usize,
}

/// The ZooKeeper sessions of one term, and the apps that share them. It needs a tokio runtime around it.
pub struct Pool {
    shared: Arc<Shared>,
    apps: DashMap<Arc<AppKey>, Registration>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("apps", &self.apps.len())
            .field("sessions", &self.sessions())
            .finish()
    }
}

/// A registered app. Dropping it ends its task and gives its ensemble back.
struct Registration {
    entry: Arc<Entry>,
    /// None if the target is refused without asking any ensemble.
    active: Option<Active>,
}

struct Active {
    used: EnsembleUse,
    task: AbortHandle,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pool {
    /// A pool whose writes belong to `term`. It opens nothing until an app is registered.
    #[must_use]
    pub fn new(term: Arc<Term>, config: PoolConfig, metrics: ZooKeeperMetrics) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::new(Shared {
                term,
                config,
                metrics,
                shutdown: CancellationToken::new(),
                tasks: TaskTracker::new(),
                broken: CancellationToken::new(),
                ensembles: DashMap::new(),
            }),
            apps: DashMap::new(),
        })
    }

    /// Looks after an app's root and leader from now on: creates the root if it may, watches both, and calls `changed`
    /// after each change of the app's view. Does nothing if that is being done already, however the connect string is
    /// spelt; a target that differs takes the place of the one before.
    pub fn register(&self, key: AppKey, target: Target, changed: Changed) {
        if self.shared.shutdown.is_cancelled() {
            return;
        }
        let ensemble = EnsembleKey::new(&target.connect, &key.cluster);
        let root = key::full_path(&target.connect, &target.root);
        match self.apps.entry(Arc::new(key)) {
            Slot::Vacant(slot) => {
                let key = slot.key().clone();
                let entry = Entry::new(key, root, target.may_create, changed, EnsembleView::Pending);
                slot.insert(self.start(ensemble, entry));
            }
            Slot::Occupied(mut slot) => {
                let known = slot.get();
                let same_root = known.reaches(&ensemble, &root);
                if same_root && known.entry.may_create == target.may_create {
                    return;
                }
                let view = if same_root {
                    known.entry.view()
                } else {
                    EnsembleView::Pending
                };
                let entry = Entry::new(slot.key().clone(), root, target.may_create, changed, view);
                let replaced = slot.insert(self.start(ensemble, entry));
                replaced.entry.published().notify_waiters();
            }
        }
    }

    fn start(&self, ensemble: EnsembleKey, entry: Entry) -> Registration {
        if key::is_reserved(&entry.root) {
            let view = refused(&entry.root);
            let entry = Entry::new(entry.key, entry.root, false, entry.changed, view);
            return Registration {
                entry: Arc::new(entry),
                active: None,
            };
        }
        let entry = Arc::new(entry);
        let used = EnsembleUse::new(&self.shared, ensemble);
        let watch = Box::new(AppWatch::new(
            entry.clone(),
            self.shared.clone(),
            used.ensemble().name(),
            used.ensemble().link(),
        ));
        let task = self.shared.tasks.spawn(watch.run()).abort_handle();
        Registration {
            entry,
            active: Some(Active { used, task }),
        }
    }

    /// Looks after the app no longer. Its root stays; a session that no app needs is closed after a grace.
    pub fn forget(&self, key: &AppKey) {
        self.apps.remove(key);
    }

    /// What is known of the app: [`EnsembleView::Pending`] when nothing is yet, or it is not registered.
    #[must_use]
    pub fn view(&self, key: &AppKey) -> EnsembleView {
        self.entry(key).map_or(EnsembleView::Pending, |entry| entry.view())
    }

    /// Waits until something is known of the app, at most for `limit`; at once if it is not registered.
    pub async fn settled(&self, key: &AppKey, limit: Duration) -> EnsembleView {
        let deadline = Instant::now() + limit;
        while let Some(entry) = self.entry(key) {
            let published = entry.published().notified();
            let mut published = std::pin::pin!(published);
            published.as_mut().enable();
            let view = entry.view();
            if view != EnsembleView::Pending || timeout_at(deadline, published).await.is_err() {
                return view;
            }
        }
        EnsembleView::Pending
    }

    /// The sessions in use, in the order of their ensembles.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionView> {
        let ensembles: Vec<_> = self
            .shared
            .ensembles
            .iter()
            .map(|ensemble| ensemble.value().clone())
            .collect();
        let mut views: Vec<SessionView> = ensembles
            .iter()
            .map(|ensemble| {
                let link = ensemble.link();
                let link = link.borrow();
                let trouble = match &link.stage {
                    Stage::Opening { trouble } => trouble.as_deref(),
                    Stage::Up(_) => None,
                    Stage::Down { trouble } => Some(&**trouble),
                };
                SessionView {
                    ensemble: ensemble.key().to_string(),
                    member: ensemble.key().member().cloned(),
                    state: link.stage.state(),
                    since: link.since,
                    trouble: trouble.map(str::to_owned),
                    apps: ensemble.users(),
                }
            })
            .collect();
        views.sort_unstable_by(|a, b| (&a.ensemble, &a.member).cmp(&(&b.ensemble, &b.member)));
        views
    }

    /// Ends when a task of the pool has panicked, which is a fault of esfleet: the pool is of no use any more, and the
    /// term should end with it.
    pub async fn failed(&self) {
        self.shared.broken.cancelled().await;
    }

    /// Closes all sessions at once and forgets all apps; what is registered later is ignored.
    pub async fn close(&self) {
        self.shared.shutdown.cancel();
        self.shared.tasks.close();
        // An app's task ends with its ensemble's: were it aborted first, thousands of watches would be removed one by
        // one before the session is closed.
        let _ = timeout(CLOSING, self.shared.tasks.wait()).await;
        self.apps.clear();
        self.shared.ensembles.clear();
    }

    fn entry(&self, key: &AppKey) -> Option<Arc<Entry>> {
        self.apps.get(key).map(|registration| registration.entry.clone())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.shutdown.cancel();
    }
}

impl Registration {
    fn reaches(&self, ensemble: &EnsembleKey, root: &str) -> bool {
        let same_ensemble = self
            .active
            .as_ref()
            .is_none_or(|active| active.used.ensemble().key() == ensemble);
        same_ensemble && self.entry.root == root
    }
}

/// What is shown of a root that esfleet leaves alone.
fn refused(root: &str) -> EnsembleView {
    EnsembleView::Known {
        root: RootView::Failed(format!(
            "{root} is reserved: use a root outside /zookeeper and /esfleet"
        )),
        leader: LeaderView::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn key() -> AppKey {
        AppKey {
            cluster: ClusterName::parse("eu").unwrap(),
            namespace: "apps".to_owned(),
            name: "orders".to_owned(),
        }
    }

    /// Nothing listens at port 1.
    fn target(connect: &str) -> Target {
        Target {
            connect: ConnectString::parse(connect).unwrap(),
            root: RootPath::parse("/orders").unwrap(),
            may_create: true,
        }
    }

    fn pool() -> Arc<Pool> {
        let (term, _ender) = Term::for_tests(SOON);
        Pool::new(term, PoolConfig::default(), ZooKeeperMetrics::default())
    }

    #[tokio::test]
    async fn a_panic_in_a_task_is_told() {
        let pool = pool();
        pool.register(
            key(),
            target("127.0.0.1:1"),
            Arc::new(|_| panic!("a fault in the callback")),
        );
        assert_eq!(timeout(SOON, pool.failed()).await, Ok(()));
    }

    #[tokio::test]
    async fn a_forgotten_app_is_pending_at_once() {
        let pool = pool();
        pool.register(key(), target("127.0.0.1:1"), Arc::new(|_| {}));
        pool.forget(&key());
        assert_eq!(
            timeout(SOON, pool.settled(&key(), SOON * 2)).await,
            Ok(EnsembleView::Pending)
        );
    }

    #[tokio::test]
    async fn registering_again_in_another_spelling_keeps_what_is_known() {
        let pool = pool();
        pool.register(key(), target("127.0.0.1:1"), Arc::new(|_| {}));
        let known = pool.settled(&key(), SOON).await;
        assert_ne!(known, EnsembleView::Pending);
        pool.register(key(), target(" 127.0.0.1:01 "), Arc::new(|_| {}));
        assert_eq!(pool.view(&key()), known);
        assert_eq!(
            pool.sessions().iter().map(|session| session.apps).collect::<Vec<_>>(),
            [1]
        );
    }

    #[tokio::test]
    async fn another_ensemble_takes_the_place_of_the_one_before() {
        let pool = pool();
        pool.register(key(), target("127.0.0.1:1"), Arc::new(|_| {}));
        pool.settled(&key(), SOON).await;
        pool.register(key(), target("127.0.0.2:1"), Arc::new(|_| {}));
        assert_eq!(pool.view(&key()), EnsembleView::Pending);
        let apps: Vec<(String, usize)> = pool
            .sessions()
            .into_iter()
            .map(|view| (view.ensemble, view.apps))
            .collect();
        assert_eq!(apps, [("127.0.0.1:1".to_owned(), 0), ("127.0.0.2:1".to_owned(), 1)]);
    }
}
