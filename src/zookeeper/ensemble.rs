//! One ensemble in use: a task that keeps one session open as long as an app needs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use zookeeper_client::{Client, SessionState as ClientState, StateWatcher};

use super::dial::{Dialled, Limits, dial};
use super::key::EnsembleKey;
use super::metrics::{LossReason, Operation, Outcome, SessionState, ZooKeeperMetrics};
use super::pool::PoolConfig;
use super::session::{Loss, Session};
use crate::leadership::Term;
use crate::support::retry::Backoff;

/// How long a session is given to be closed at the ensemble before its connection is cut.
const CLOSING: Duration = Duration::from_secs(1);

/// What all tasks of a pool share.
pub struct Shared {
    pub term: Arc<Term>,
    pub config: PoolConfig,
    pub metrics: ZooKeeperMetrics,
    pub shutdown: CancellationToken,
    pub tasks: TaskTracker,
    /// Fires when a task has panicked: nobody looks after its apps any more.
    pub broken: CancellationToken,
    pub ensembles: DashMap<EnsembleKey, Arc<Ensemble>>,
}

impl Shared {
    /// To be called when a task's own state is dropped.
    pub fn dropped(&self) {
        if std::thread::panicking() {
            self.broken.cancel();
        }
    }
}

/// How an ensemble's session stands, as its apps hear of it.
#[derive(Clone)]
pub struct Link {
    /// Since when it stands so.
    pub since: Timestamp,
    /// How it stands.
    pub stage: Stage,
}

/// The stages of an ensemble's session.
#[derive(Clone)]
pub enum Stage {
    /// It is being opened, for the first time or after a loss.
    Opening {
        /// Why the one before ended.
        trouble: Option<Arc<str>>,
    },
    /// It is open.
    Up(Arc<Session>),
    /// It could not be opened; that is tried again.
    Down {
        /// What is wrong with each server.
        trouble: Arc<str>,
    },
}

impl Stage {
    /// The stage without what belongs to it.
    pub fn state(&self) -> SessionState {
        match self {
            Stage::Opening { .. } => SessionState::Connecting,
            Stage::Up(_) => SessionState::Connected,
            Stage::Down { .. } => SessionState::Waiting,
        }
    }
}

/// One ensemble in use.
pub struct Ensemble {
    key: EnsembleKey,
    name: Arc<str>,
    users: AtomicUsize,
    released: Notify,
    link: watch::Receiver<Link>,
}

impl Ensemble {
    /// What is reached.
    pub fn key(&self) -> &EnsembleKey {
        &self.key
    }

    /// Its servers as text, shared by all who name it.
    pub fn name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// How many apps use it.
    pub fn users(&self) -> usize {
        self.users.load(Ordering::Acquire)
    }

    /// How its session stands, now and later.
    pub fn link(&self) -> watch::Receiver<Link> {
        self.link.clone()
    }
}

/// One app's use of an ensemble, which lasts until this is dropped.
pub struct EnsembleUse(Arc<Ensemble>);

impl EnsembleUse {
    /// Uses the ensemble that `key` names; the first use opens its session.
    pub fn new(shared: &Arc<Shared>, key: EnsembleKey) -> Self {
        // The count moves under the map's lock, as does the removal of an ensemble without users.
        let ensemble = shared
            .ensembles
            .entry(key.clone())
            .or_insert_with(|| Keeper::start(shared, key));
        ensemble.users.fetch_add(1, Ordering::AcqRel);
        Self(ensemble.clone())
    }

    /// What is used.
    pub fn ensemble(&self) -> &Ensemble {
        &self.0
    }
}

impl Drop for EnsembleUse {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.released.notify_one();
        }
    }
}

/// A session and what keeps it alive.
struct Live {
    session: Arc<Session>,
    client: Arc<Client>,
    task: JoinHandle<()>,
}

impl Live {
    /// Closes the session at the ensemble, or cuts the connection if that is not done in time. Calls `told` once the
    /// session's users have been told.
    async fn close(mut self, told: impl FnOnce()) {
        let connected = self.client.state() == ClientState::SyncConnected;
        // First, so that the closing is on its way before thousands of users hear of it.
        drop(self.client);
        self.session.fail(LossReason::Closed, "the session was closed");
        told();
        if connected && !self.task.is_finished() {
            let _ = timeout(CLOSING, &mut self.task).await;
        }
        drop(self.session);
    }
}

/// The task of one ensemble.
struct Keeper {
    shared: Arc<Shared>,
    key: EnsembleKey,
    link: watch::Sender<Link>,
    live: Option<Live>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.dropped();
    }
}

impl Keeper {
    fn start(shared: &Arc<Shared>, key: EnsembleKey) -> Arc<Ensemble> {
        let first = Link {
            since: Timestamp::now(),
            stage: Stage::Opening { trouble: None },
        };
        shared.metrics.session_entered(first.stage.state());
        let (sender, link) = watch::channel(first);
        let ensemble = Arc::new(Ensemble {
            name: Arc::from(key.to_string()),
            key: key.clone(),
            users: AtomicUsize::new(0),
            released: Notify::new(),
            link,
        });
        let keeper = Keeper {
            shared: shared.clone(),
            key,
            link: sender,
            live: None,
        };
        shared.tasks.spawn(keeper.run(ensemble.clone()));
        ensemble
    }

    async fn run(mut self, ensemble: Arc<Ensemble>) {
        let shared = self.shared.clone();
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => {}
            () = unused(&shared, &ensemble) => info!(ensemble = %self.key, "no app needs this ensemble any more"),
            () = self.serve() => {}
        }
        if let Some(live) = self.live.take() {
            live.close(|| self.enter(Stage::Opening { trouble: None })).await;
        }
        let left = self.link.borrow().stage.state();
        shared.metrics.session_left(left);
    }

    /// Keeps a session open, whatever happens.
    async fn serve(&mut self) {
        let config = self.shared.config;
        let limits = Limits {
            session_timeout: config.session_timeout,
            connection_timeout: config.connection_timeout,
            attempt: config.request_timeout,
        };
        let mut backoff = Backoff::new(config.shortest_retry, config.longest_retry);
        loop {
            let outcome = dial(self.key.servers(), limits).await;
            let delay = match outcome {
                Ok(dialled) => {
                    self.shared.metrics.requested(Operation::Connect, Outcome::Done);
                    let lived = self.keep(dialled).await;
                    if lived >= config.session_timeout {
                        backoff.reset();
                    }
                    // A session that was of some use is replaced at once, one that keeps failing is not.
                    if lived >= config.request_timeout * 2 {
                        Duration::ZERO
                    } else {
                        backoff.next_delay()
                    }
                }
                Err(error) => {
                    self.shared.metrics.requested(Operation::Connect, Outcome::Failed);
                    let trouble = error.to_string();
                    let delay = backoff.next_delay();
                    warn!(ensemble = %self.key, trouble, ?delay, "cannot open a ZooKeeper session");
                    self.enter(Stage::Down {
                        trouble: Arc::from(trouble),
                    });
                    delay
                }
            };
            sleep(delay).await;
        }
    }

    /// Shares an open session until it is lost; says how long it lived.
    async fn keep(&mut self, dialled: Dialled) -> Duration {
        let began = Instant::now();
        let Dialled { client, task, server } = dialled;
        info!(ensemble = %self.key, %server, session = %client.session_id(), "a ZooKeeper session is open");
        let mut states = client.state_watcher();
        let client = Arc::new(client);
        let config = &self.shared.config;
        let session = Arc::new(Session::new(
            Arc::downgrade(&client),
            task.abort_handle(),
            server,
            config.request_timeout,
            config.requests_in_flight,
            self.shared.metrics.clone(),
        ));
        let live = self.live.insert(Live {
            session: session.clone(),
            client,
            task,
        });
        let link = &self.link;
        enter(link, &self.shared.metrics, Stage::Up(session.clone()));
        tokio::select! {
            state = end_of(&mut states) => {
                let (reason, what) = loss(state);
                session.fail(reason, what);
            },
            () = session.lost() => {}
            _ = &mut live.task => session.fail(LossReason::Closed, "the client ended by itself"),
        }
        let trouble = session.loss().map(|Loss { reason, trouble }| {
            self.shared.metrics.session_lost(*reason);
            warn!(ensemble = %self.key, %trouble, "the ZooKeeper session is lost; a new one takes its place");
            trouble.clone()
        });
        self.enter(Stage::Opening { trouble });
        drop(session);
        if let Some(live) = self.live.take() {
            self.shared.tasks.spawn(live.close(|| {}));
        }
        began.elapsed()
    }

    fn enter(&self, stage: Stage) {
        enter(&self.link, &self.shared.metrics, stage);
    }
}

fn enter(link: &watch::Sender<Link>, metrics: &ZooKeeperMetrics, stage: Stage) {
    let entered = stage.state();
    let left = link.borrow().stage.state();
    if entered != left {
        metrics.session_left(left);
        metrics.session_entered(entered);
    }
    let since = Timestamp::now();
    drop(link.send_replace(Link { since, stage }));
}

/// Ends once no app has used the ensemble for the whole grace, and the pool does not know it any more.
async fn unused(shared: &Shared, ensemble: &Ensemble) {
    loop {
        ensemble.released.notified().await;
        sleep(shared.config.grace).await;
        if shared
            .ensembles
            .remove_if(&ensemble.key, |_, known| known.users() == 0)
            .is_some()
        {
            return;
        }
    }
}

/// The first state that is not the connected one.
async fn end_of(states: &mut StateWatcher) -> ClientState {
    let mut state = states.state();
    while state == ClientState::SyncConnected {
        state = states.changed().await;
    }
    state
}

fn loss(state: ClientState) -> (LossReason, &'static str) {
    match state {
        ClientState::Expired => (LossReason::Expired, "the session has expired"),
        ClientState::AuthFailed => (LossReason::AuthFailed, "the credentials are refused"),
        ClientState::Closed => (LossReason::Closed, "the session was closed"),
        ClientState::Disconnected | ClientState::SyncConnected | ClientState::ConnectedReadOnly => {
            (LossReason::Disconnected, "the connection was lost")
        }
    }
}
