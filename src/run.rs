//! The composition root of `esfleet run`: the only place that knows fleet and reconcile both.

mod view;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::FleetConfig;
use crate::api::fleet_config::FleetConfigError;
use crate::fleet::metrics::FleetMetrics;
use crate::fleet::{Connection, Fleet, Member, Timing};
use crate::http::{self, Face, HttpError, Verdict};

use crate::kubernetes::client::{self, ConnectError, HubSource};
use crate::kubernetes::projection::ObjectKey;
use crate::kubernetes::scope::Scope;
use crate::kubernetes::writer::Writer;
use crate::leadership::{
    Election, ElectionConfig, ElectionError, LeadershipMetrics, LeadershipView, SystemBootClock, Term,
};
use crate::reconcile::controller::CONCURRENCY;
use crate::reconcile::memory::Memory;
use crate::reconcile::metrics::ReconcileMetrics;
use crate::reconcile::{Context, control};
use crate::support::supervise::keep_running;
use crate::telemetry::{self, Registry};
use crate::zookeeper::{Changed, Pool, PoolConfig, ZooKeeperMetrics};
use view::{listing, not_ready};

/// Why `esfleet run` could not start or ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// The fleet config is at fault.
    #[error(transparent)]
    FleetConfig(#[from] FleetConfigError),
    /// The hub's kubeconfig is at fault.
    #[error("the hub: {0}")]
    Hub(#[from] ConnectError),
    /// The HTTP address cannot be served.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The HTTP server's task ended although nobody asked it to.
    #[error("the HTTP server ended unexpectedly")]
    HttpEnded,
    /// The election ended.
    #[error("the election ended: {0}")]
    Election(#[from] ElectionError),
    /// Signals cannot be received.
    #[error("signals cannot be received: {0}")]
    Signals(std::io::Error),
    /// A second signal came while the first was being obeyed.
    #[error("a second signal ended the clean step-down")]
    Aborted,
}

impl RunError {
    /// Whether the arguments or the fleet config are at fault: exit code 2 instead of 1.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::FleetConfig(_) | Self::Hub(_) | Self::Http(HttpError::Bind { .. }) => true,
            Self::Http(HttpError::Serve(_))
            | Self::HttpEnded
            | Self::Election(_)
            | Self::Signals(_)
            | Self::Aborted => false,
        }
    }
}

/// What `esfleet run` was asked to do, parsed and complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOptions {
    /// The fleet config.
    pub fleet_config: PathBuf,
    /// How the hub is reached.
    pub hub: HubSource,
    /// The namespace of the Lease.
    pub lease_namespace: String,
    /// The name of the Lease.
    pub lease_name: String,
    /// This replica's name; the holder's identity is this, `_` and a nonce of the process.
    pub identity: String,
    /// How long a Lease is valid after it was renewed.
    pub lease_duration: Duration,
    /// How long a term lasts after the renewal was sent; shorter than the lease.
    pub renew_deadline: Duration,
    /// The pause between attempts on the Lease; shorter than the renew deadline.
    pub retry_period: Duration,
    /// Where `/livez`, `/readyz`, `/metrics` and `/api/v1/fleet` are served.
    pub http_addr: SocketAddr,
    /// The ZooKeeper session timeout.
    pub session_timeout: Duration,
    /// The pause between two probes of a member.
    pub probe_interval: Duration,
}

/// What all terms of this process share.
struct Controllers {
    fleet: Fleet,
    instance: String,
    pool_config: PoolConfig,
    zookeeper: ZooKeeperMetrics,
    reconcile: ReconcileMetrics,
    /// The pool of the running term, for the listing.
    pool: Mutex<Option<Arc<Pool>>>,
}

/// Runs one replica until a signal ends it.
///
/// # Errors
/// [`RunError`]; nothing has been touched when it is [`RunError::FleetConfig`] or [`RunError::Http`].
pub async fn run(options: RunOptions) -> Result<(), RunError> {
    let config = FleetConfig::load(&options.fleet_config)?;
    let shutdown = CancellationToken::new();
    let mut registry = Registry::default();
    let zookeeper = ZooKeeperMetrics::register(&mut registry);
    let reconcile = ReconcileMetrics::register(&mut registry);
    let election_metrics = LeadershipMetrics::register(&mut registry);
    let listener = http::bind(options.http_addr).await?;
    let hub = client::connect_hub(&options.hub).await?.client;
    let election = Election::new(
        hub,
        election_config(&options),
        election_metrics,
        Arc::new(SystemBootClock),
    );
    let leadership = election.view();
    tracing::info!(
        fleet = %config.name, members = config.clusters.len(), identity = leadership.borrow().identity,
        version = env!("CARGO_PKG_VERSION"), "esfleet starts"
    );

    let tasks = TaskTracker::new();
    let members = CancellationToken::new();
    let fleet = Fleet::start(config, timing(&options), &tasks, &members);
    let controllers = Arc::new(Controllers {
        instance: leadership.borrow().identity.clone(),
        fleet,
        pool_config: PoolConfig {
            session_timeout: options.session_timeout,
            ..PoolConfig::default()
        },
        zookeeper,
        reconcile,
        pool: Mutex::new(None),
    });
    FleetMetrics::register(&mut registry, controllers.fleet.members.clone());
    telemetry::process::register(&mut registry);
    let served = tasks.spawn(http::serve(
        listener,
        face(&controllers, leadership, registry),
        members.clone(),
    ));

    let lead = {
        let controllers = controllers.clone();
        move |term: Arc<Term>| lead(controllers.clone(), term)
    };
    let ended = tokio::select! {
        ended = end_on_second_signal(election.run(shutdown.clone(), lead), &shutdown) => ended,
        ended = served => match ended {
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(())) | Err(_) => Err(RunError::HttpEnded),
        },
    };
    members.cancel();
    tasks.close();
    // what is left are watches and probes, which end at their next await
    if tokio::time::timeout(Duration::from_secs(5), tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!("some tasks did not end in time");
    }
    tracing::info!("esfleet ends");
    ended
}

/// What the HTTP server tells.
fn face(controllers: &Arc<Controllers>, leadership: watch::Receiver<LeadershipView>, registry: Registry) -> Face {
    let ready = {
        let (controllers, leadership) = (controllers.clone(), leadership.clone());
        move || Verdict::waiting_for(not_ready(&controllers.fleet.members, &leadership.borrow()))
    };
    let fleet = {
        let controllers = controllers.clone();
        move || {
            let pool = controllers.pool.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let sessions = pool.map(|pool| pool.sessions()).unwrap_or_default();
            listing(
                &controllers.fleet.members,
                &leadership.borrow(),
                &sessions,
                Timestamp::now(),
            )
        }
    };
    Face {
        live: Arc::new(Verdict::yes),
        ready: Arc::new(ready),
        fleet: Arc::new(fleet),
        registry: Arc::new(registry),
    }
}

fn election_config(options: &RunOptions) -> ElectionConfig {
    let defaults = ElectionConfig::new(&options.lease_namespace, &options.lease_name, &options.identity);
    ElectionConfig {
        lease: options.lease_duration,
        renew_deadline: options.renew_deadline,
        retry: options.retry_period,
        // a short renew deadline leaves room for a second attempt
        attempt: defaults.attempt.min(options.renew_deadline / 2),
        ..defaults
    }
}

fn timing(options: &RunOptions) -> Timing {
    Timing {
        probe_interval: options.probe_interval,
        ..Timing::default()
    }
}

/// Waits for the election, which the first SIGTERM or SIGINT ends cleanly and the second at once.
async fn end_on_second_signal(
    election: impl Future<Output = Result<(), ElectionError>>,
    shutdown: &CancellationToken,
) -> Result<(), RunError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
    let signals = async {
        let mut next = async || {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        };
        next().await;
        tracing::info!("ending: writers stop, then the lease is released");
        shutdown.cancel();
        next().await;
    };
    tokio::select! {
        result = election => Ok(result?),
        () = signals => Err(RunError::Aborted),
    }
}

/// One term: a pool, and a controller for each scope of each member; ends with the term, or when the pool is broken.
async fn lead(controllers: Arc<Controllers>, term: Arc<Term>) {
    let pool = Pool::new(term.clone(), controllers.pool_config, controllers.zookeeper.clone());
    *controllers.pool.lock().unwrap_or_else(PoisonError::into_inner) = Some(pool.clone());
    let tasks = TaskTracker::new();
    let stop = term.cancellation().child_token();
    for member in controllers.fleet.members.iter().filter(|member| !member.config.paused) {
        let (controllers, member, term) = (controllers.clone(), member.clone(), term.clone());
        let (pool, stop) = (pool.clone(), stop.clone());
        tasks.spawn(async move {
            let name = format!("controller of {}", member.config.name);
            keep_running(&name, &stop, || {
                lead_member(
                    controllers.clone(),
                    member.clone(),
                    term.clone(),
                    pool.clone(),
                    stop.clone(),
                )
            })
            .await;
        });
    }
    tokio::select! {
        () = term.cancellation().cancelled() => {}
        // Some app is looked after no longer, and nobody would see it. With the work of its term the process ends.
        () = pool.failed() => tracing::error!("a task of the ZooKeeper pool panicked: the term's work ends"),
    }
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    *controllers.pool.lock().unwrap_or_else(PoisonError::into_inner) = None;
    pool.close().await;
}

/// One member in one term: controllers while it is connected.
async fn lead_member(
    controllers: Arc<Controllers>,
    member: Arc<Member>,
    term: Arc<Term>,
    pool: Arc<Pool>,
    stop: CancellationToken,
) {
    let mut connections = member.connection();
    loop {
        let connection = connections.borrow_and_update().clone();
        if let Some(connection) = connection {
            control_member(&controllers, &member, &term, &pool, &connection, stop.child_token()).await;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = connections.changed() => if changed.is_err() { return },
        }
    }
}

async fn control_member(
    controllers: &Controllers,
    member: &Member,
    term: &Arc<Term>,
    pool: &Arc<Pool>,
    connection: &Connection,
    stop: CancellationToken,
) {
    let writer = Writer::new(term.clone(), connection.client.clone());
    let permits = Arc::new(Semaphore::new(usize::from(CONCURRENCY)));
    let scopes = member.scopes.iter().map(|scope| {
        let context = Context {
            cluster: member.config.name.clone(),
            instance: controllers.instance.clone(),
            scope: scope.clone(),
            writer: writer.clone(),
            pool: pool.clone(),
            metrics: controllers.reconcile.clone(),
            memory: Memory::default(),
            changed: marker(scope.clone()),
            permits: permits.clone(),
        };
        control(Arc::new(context), stop.clone())
    });
    let mut all = std::pin::pin!(futures::future::join_all(scopes));
    tokio::select! {
        _ = &mut all => return,
        () = connection.cancel.cancelled() => stop.cancel(),
    }
    all.await;
}

/// What the pool calls when an app's view of its ensemble changed.
fn marker(scope: Arc<Scope>) -> Changed {
    Arc::new(move |app| {
        scope.dirty.mark(&ObjectKey {
            namespace: app.namespace.clone(),
            name: app.name.clone(),
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{AppKey, ClusterName, ConnectString, RootPath};
    use crate::zookeeper::Target;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_panic_in_the_pool_ends_the_work_of_the_term() {
        let (term, _ender) = Term::for_tests(SOON * 6);
        let name = ClusterName::parse("eu").unwrap();
        let controllers = Arc::new(Controllers {
            fleet: Fleet {
                name: name.clone(),
                members: Vec::new(),
            },
            instance: "test".to_owned(),
            pool_config: PoolConfig::default(),
            zookeeper: ZooKeeperMetrics::default(),
            reconcile: ReconcileMetrics::register(&mut Registry::default()),
            pool: Mutex::new(None),
        });
        let work = tokio::spawn(lead(controllers.clone(), term.clone()));
        let pool = tokio::time::timeout(SOON, async {
            loop {
                if let Some(pool) = controllers.pool.lock().unwrap().clone() {
                    return pool;
                }
                tokio::task::yield_now().await;
            }
        });
        let app = AppKey {
            cluster: name,
            namespace: "apps".to_owned(),
            name: "orders".to_owned(),
        };
        let target = Target {
            connect: ConnectString::parse("127.0.0.1:1").unwrap(), // nothing listens there
            root: RootPath::parse("/orders").unwrap(),
            may_create: true,
        };
        let fault = Arc::new(|_: &AppKey| panic!("a fault in the callback"));
        pool.await.unwrap().register(app, target, fault);
        tokio::time::timeout(SOON, work).await.unwrap().unwrap();
        assert!(!term.ended());
    }
}
