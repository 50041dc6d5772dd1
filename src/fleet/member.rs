//! One member: its connection, its probe and what is known of it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::identity::Identities;
use super::supervisor::Timing;
use crate::api::fleet_config::MemberConfig;
use crate::kubernetes::client::{self, ConnectErrorClass};
use crate::kubernetes::fault::describe;
use crate::kubernetes::scope::Scope;
use crate::kubernetes::trouble;
use crate::kubernetes::watch::{WatchHealth, WatchTrouble, watch_scope};
use crate::support::retry::Backoff;

/// A member's state, as every listing shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// Nothing has been tried yet.
    Unknown,
    /// It answers and all watches work.
    Connected,
    /// It answers, and something keeps esfleet from doing its work there.
    Degraded,
    /// It does not answer.
    Unreachable,
    /// It is connected, and the fleet config says that nothing is to be written to it.
    Paused,
}

/// Why a member is not simply connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberReason {
    /// The kubeconfig or what it points to is at fault; the class is the client's.
    Connection(ConnectErrorClass),
    /// Requests are not answered.
    NotAnswering,
    /// The credentials are not accepted.
    Unauthorized,
    /// The cluster is engaged under another name.
    DuplicateCluster,
    /// The API server does not know `EventSourcedApp`.
    CrdMissing,
    /// esfleet may not read what it has to.
    Forbidden,
    /// A watch fails for another reason.
    WatchFailing,
}

impl fmt::Display for MemberReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(class) => f.write_str(class.reason()),
            Self::NotAnswering => f.write_str(trouble::NOT_ANSWERING),
            Self::Unauthorized => f.write_str("Unauthorized"),
            Self::DuplicateCluster => f.write_str("DuplicateCluster"),
            Self::CrdMissing => f.write_str(trouble::DEFINITION_MISSING),
            Self::Forbidden => f.write_str("Forbidden"),
            Self::WatchFailing => f.write_str("WatchFailing"),
        }
    }
}

/// What is known of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its state.
    pub state: MemberState,
    /// Why it is not simply connected.
    pub reason: Option<MemberReason>,
    /// A sentence that names the trouble and the remedy; empty where there is none.
    pub message: String,
    /// When it answered last.
    pub last_seen: Option<Timestamp>,
    /// Its Kubernetes version.
    pub version: Option<String>,
}

/// A living connection to a member.
pub struct Connection {
    /// The client, with the member's own identity.
    pub client: Client,
    /// The API server's address, for messages.
    pub server: String,
    /// Fires when the connection is given up.
    pub cancel: CancellationToken,
}

/// One member of the fleet.
pub struct Member {
    /// Its entry in the fleet config.
    pub config: MemberConfig,
    /// What is known of its objects; it stays while the member is unreachable, and ages.
    pub scopes: Vec<Arc<Scope>>,
    pub(super) position: usize,
    health: WatchHealth,
    status: Mutex<MemberStatus>,
    connection: watch::Sender<Option<Arc<Connection>>>,
}

/// Why a connection could not be made or ended.
struct Trouble {
    state: MemberState,
    reason: MemberReason,
    message: String,
}

impl Member {
    pub(super) fn new(config: MemberConfig, position: usize) -> Arc<Self> {
        let scopes = if config.namespaces.is_empty() {
            vec![Scope::new(None)]
        } else {
            config
                .namespaces
                .iter()
                .map(|namespace| Scope::new(Some(namespace.clone())))
                .collect()
        };
        let status = MemberStatus {
            state: MemberState::Unknown,
            reason: None,
            message: String::new(),
            last_seen: None,
            version: None,
        };
        Arc::new(Self {
            config,
            scopes,
            position,
            health: WatchHealth::default(),
            status: Mutex::new(status),
            connection: watch::Sender::new(None),
        })
    }

    /// The connection, as it comes and goes.
    #[must_use]
    pub fn connection(&self) -> watch::Receiver<Option<Arc<Connection>>> {
        self.connection.subscribe()
    }

    /// What is known of the member now.
    #[must_use]
    pub fn status(&self) -> MemberStatus {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if status.state == MemberState::Connected {
            if let Some((watched, trouble)) = self.health.first() {
                let (reason, message) = explain(watched.resource(), trouble);
                status = MemberStatus {
                    state: MemberState::Degraded,
                    reason: Some(reason),
                    message,
                    ..status
                };
            } else if self.config.paused {
                status.state = MemberState::Paused;
            }
        }
        status
    }

    /// Whether the first attempt is over: connected with every list complete, or in trouble.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        match self.status().state {
            MemberState::Unknown => false,
            MemberState::Degraded | MemberState::Unreachable => true,
            MemberState::Connected | MemberState::Paused => self.scopes.iter().all(|scope| scope.is_ready()),
        }
    }

    /// Connects, watches and probes, again and again, until cancelled.
    pub(super) async fn run(&self, identities: &Identities, timing: Timing, cancel: &CancellationToken) {
        let mut backoff = Backoff::new(timing.retry_min, timing.retry_max);
        while !cancel.is_cancelled() {
            let Some(connected) = cancel.run_until_cancelled(self.connect(timing)).await else {
                return;
            };
            let client::Connection { client, server } = match connected {
                Ok(connected) => connected,
                Err(trouble) => {
                    self.report(trouble);
                    pause(backoff.next_delay(), cancel).await;
                    continue;
                }
            };
            let connection = Arc::new(Connection {
                client,
                server,
                cancel: cancel.child_token(),
            });
            let end_of_connection = connection.cancel.clone().drop_guard();
            let trouble = self.engage(&connection, identities, timing, &mut backoff).await;
            self.connection.send_replace(None);
            drop(end_of_connection);
            if let Some(trouble) = trouble {
                self.report(trouble);
            }
            pause(backoff.next_delay(), cancel).await;
        }
    }

    async fn connect(&self, timing: Timing) -> Result<client::Connection, Trouble> {
        let connected = client::connect(&self.config.source).await.map_err(|error| Trouble {
            state: MemberState::Unreachable,
            reason: MemberReason::Connection(error.class),
            message: error.to_string(),
        })?;
        let version = probe(&connected.client, &connected.server, timing.probe_deadline).await?;
        self.seen(version);
        Ok(connected)
    }

    /// Everything between a connection's first and last answer; what ended it, unless it was cancelled.
    async fn engage(
        &self,
        connection: &Arc<Connection>,
        identities: &Identities,
        timing: Timing,
        backoff: &mut Backoff,
    ) -> Option<Trouble> {
        let name = &self.config.name;
        let uid = cluster_uid(&connection.client, timing.probe_deadline);
        let uid = connection.cancel.run_until_cancelled(uid).await?;
        if let Some(uid) = &uid
            && let Err(other) = identities.claim(uid, name, self.position, &connection.cancel)
        {
            return Some(Trouble {
                state: MemberState::Degraded,
                reason: MemberReason::DuplicateCluster,
                message: format!(
                    "this is the same cluster as {other} (UID {uid} of its kube-system namespace), which is looked after under that name: remove one of the two from the fleet config"
                ),
            });
        }
        self.health.clear();
        self.set(|status| {
            status.state = MemberState::Connected;
            status.reason = None;
            status.message = String::new();
        });
        tracing::info!(cluster = %name, version = self.status().version, "connected");
        backoff.reset();
        self.connection.send_replace(Some(connection.clone()));
        let watches = self.scopes.iter().map(|scope| {
            watch_scope(
                name.as_str(),
                scope,
                &connection.client,
                &self.health,
                &connection.cancel,
            )
        });
        let trouble = tokio::select! {
            _ = futures::future::join_all(watches) => None,
            trouble = self.probe_until_lost(connection, timing) => Some(trouble),
            () = connection.cancel.cancelled() => None,
        };
        if let Some(uid) = &uid {
            identities.release(uid, name);
        }
        trouble
    }

    async fn probe_until_lost(&self, connection: &Connection, timing: Timing) -> Trouble {
        let mut failures = 0;
        loop {
            tokio::time::sleep(timing.probe_interval).await;
            match probe(&connection.client, &connection.server, timing.probe_deadline).await {
                Ok(version) => {
                    failures = 0;
                    self.seen(version);
                }
                Err(trouble) => {
                    failures += 1;
                    // new credentials are read when the connection is made anew
                    if failures >= timing.probe_failures || trouble.reason == MemberReason::Unauthorized {
                        return trouble;
                    }
                    tracing::debug!(cluster = %self.config.name, failures, "a probe failed: {}", trouble.message);
                }
            }
        }
    }

    fn seen(&self, version: String) {
        self.set(|status| {
            status.last_seen = Some(Timestamp::now());
            status.version = Some(version);
        });
    }

    fn report(&self, trouble: Trouble) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if status.state != trouble.state || status.reason != Some(trouble.reason) {
            tracing::warn!(cluster = %self.config.name, reason = %trouble.reason, "the member cannot be looked after, retrying: {}", trouble.message);
        }
        status.state = trouble.state;
        status.reason = Some(trouble.reason);
        status.message = trouble.message;
    }

    fn set(&self, change: impl FnOnce(&mut MemberStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

async fn pause(time: Duration, cancel: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = cancel.cancelled() => {}
    }
}

/// Asks for the version, which every authenticated identity may read.
async fn probe(client: &Client, server: &str, deadline: Duration) -> Result<String, Trouble> {
    let not_answering = |message| Trouble {
        state: MemberState::Unreachable,
        reason: MemberReason::NotAnswering,
        message,
    };
    match tokio::time::timeout(deadline, client.apiserver_version()).await {
        Ok(Ok(info)) => Ok(info.git_version),
        Ok(Err(kube::Error::Api(status))) if status.code == 401 => Err(Trouble {
            state: MemberState::Unreachable,
            reason: MemberReason::Unauthorized,
            message: trouble::unauthorized(server),
        }),
        Ok(Err(error)) => Err(not_answering(trouble::not_answering(server, &describe(&error)))),
        Err(_) => Err(not_answering(trouble::silent(server, deadline))),
    }
}

/// The cluster's identity; none where esfleet may not read it, which costs only the notice of duplicates.
async fn cluster_uid(client: &Client, deadline: Duration) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match tokio::time::timeout(deadline, namespaces.get_metadata("kube-system")).await {
        Ok(Ok(namespace)) => namespace.metadata.uid,
        Ok(Err(error)) => {
            tracing::warn!(
                "the cluster's identity (the namespace kube-system) cannot be read: {}",
                describe(&error)
            );
            None
        }
        Err(_) => None,
    }
}

fn explain(resource: &str, trouble: WatchTrouble) -> (MemberReason, String) {
    match trouble {
        WatchTrouble::Unknown => (MemberReason::CrdMissing, trouble::definition_missing()),
        WatchTrouble::Forbidden(words) => (MemberReason::Forbidden, trouble::forbidden(&words)),
        WatchTrouble::Failing(words) => (
            MemberReason::WatchFailing,
            format!("watching {resource} fails: {words}"),
        ),
    }
}
