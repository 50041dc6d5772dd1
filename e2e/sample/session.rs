//! One ZooKeeper session, and all that the app asks of ZooKeeper.
//!
//! A session is disposable: at the first sign of a lost connection it is given up, since the client library loses watches
//! over a reconnect without saying so. Every request ends with the session and has a deadline.

use std::pin::Pin;
use std::time::Duration;

use thiserror::Error;
use tokio::time::timeout;
use zookeeper_client as zk;

use crate::layout::{Layout, LogIdentity};
use crate::ledger::ApplyError;

/// The longest that one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait for the ensemble to confirm the end of a session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

const PERSISTENT: zk::CreateOptions<'static> = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
const EPHEMERAL: zk::CreateOptions<'static> = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());

/// Ends when the znode has changed, or the session has.
pub type Watch = Pin<Box<dyn Future<Output = zk::WatchedEvent> + Send>>;

/// Why a session's work ended.
#[derive(Debug, Error)]
pub enum SessionError {
    /// No server of the ensemble could be reached in time.
    #[error("cannot connect to ZooKeeper: {0}")]
    Connect(String),
    /// The connection is gone, and with it the session as far as we care.
    #[error("session with ZooKeeper lost ({0})")]
    Lost(zk::SessionState),
    /// A request was not answered.
    #[error("ZooKeeper did not answer in time when asked to {0}")]
    Deadline(&'static str),
    /// A request failed.
    #[error("cannot {what}: {source}")]
    Failed { what: &'static str, source: zk::Error },
    /// The root, or what has to be under it, is gone.
    #[error("{0} does not exist")]
    Missing(String),
    /// A node has a content that no process of this app writes.
    #[error("cannot understand {path}: {reason}")]
    Foreign { path: String, reason: String },
    /// The log cannot be applied.
    #[error("cannot go on with the log: {0}")]
    Log(#[from] ApplyError),
    /// The process was told to end.
    #[error("told to stop")]
    Stopped,
}

/// Why records were not appended.
#[derive(Debug, Error)]
pub enum AppendError {
    /// The epoch has moved on; nothing was appended.
    #[error("deposed")]
    Deposed,
    /// Nothing was appended, and this session should not go on.
    #[error("refused: {0}")]
    Refused(SessionError),
    /// The records may have been appended.
    #[error("outcome unknown: {0}")]
    Unknown(SessionError),
}

/// The leader node as read.
pub struct LeaderNode {
    /// Its content: the name of a pod.
    pub pod: String,
    /// The session that it belongs to.
    owner: i64,
    /// Ends when the node has changed.
    pub changed: Watch,
}

/// A session with the ensemble.
pub struct Session {
    client: zk::Client,
    layout: Layout,
}

impl Session {
    /// Opens a session.
    ///
    /// # Errors
    /// [`SessionError::Connect`] when no server took it in time.
    pub async fn connect(servers: &str, layout: Layout, session_timeout: Duration) -> Result<Self, SessionError> {
        let connector = zk::Client::connector()
            .with_session_timeout(session_timeout)
            .with_fail_eagerly();
        match timeout(session_timeout, connector.connect(servers)).await {
            Ok(Ok(client)) => Ok(Self { client, layout }),
            Ok(Err(error)) => Err(SessionError::Connect(error.to_string())),
            Err(_) => Err(SessionError::Connect(format!("no answer within {session_timeout:?}"))),
        }
    }

    /// The session's number, as ZooKeeper's own tools print it.
    #[must_use]
    pub fn id(&self) -> zk::SessionId {
        self.client.session_id()
    }

    /// Whether the leader node belongs to this session.
    #[must_use]
    pub fn owns(&self, node: &LeaderNode) -> bool {
        node.owner == self.id().0
    }

    /// Ends when the session is lost.
    pub async fn lost(&self) -> SessionError {
        let mut states = self.client.state_watcher();
        let mut state = states.state();
        while state == zk::SessionState::SyncConnected {
            state = states.changed().await;
        }
        SessionError::Lost(state)
    }

    /// Ends the session, so that the ensemble need not wait for its timeout; gives up soon.
    pub async fn close(self) {
        let mut states = self.client.state_watcher();
        drop(self.client);
        let closed = async { while !states.changed().await.is_terminated() {} };
        // Whether it was confirmed makes no difference: the ensemble's own timeout comes after.
        let _ = timeout(CLOSE_TIMEOUT, closed).await;
    }

    /// Runs one request: it ends with the session, and has a deadline.
    async fn call<T, E>(
        &self,
        what: &'static str,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, SessionError> {
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost),
            answer = timeout(REQUEST_TIMEOUT, request) => answer.map_err(|_| SessionError::Deadline(what)),
        }
    }

    /// `None` when the root exists, else what ends when that may have changed.
    ///
    /// # Errors
    /// [`SessionError`] when the session cannot go on.
    pub async fn missing_root(&self) -> Result<Option<Watch>, SessionError> {
        self.absent(self.layout.root(), "look for the root").await
    }

    /// `None` when the record exists, else what ends when it does.
    ///
    /// # Errors
    /// [`SessionError`] when the session cannot go on.
    pub async fn missing_record(&self, log: &LogIdentity, number: u64) -> Result<Option<Watch>, SessionError> {
        self.absent(&self.layout.record(log, number), "look for the next record")
            .await
    }

    async fn absent(&self, path: &str, what: &'static str) -> Result<Option<Watch>, SessionError> {
        let request = self.client.check_and_watch_stat(path);
        let (stat, watcher) = self
            .call(what, request)
            .await?
            .map_err(|source| SessionError::Failed { what, source })?;
        Ok(match stat {
            Some(_) => None,
            None => Some(Box::pin(watcher.changed())),
        })
    }

    /// Reads the leader node; `None` when there is none.
    ///
    /// # Errors
    /// [`SessionError`] when the session cannot go on.
    pub async fn leader(&self) -> Result<Option<LeaderNode>, SessionError> {
        let what = "read the leader node";
        match self
            .call(what, self.client.get_and_watch_data(&self.layout.leader()))
            .await?
        {
            Ok((data, stat, watcher)) => Ok(Some(LeaderNode {
                pod: String::from_utf8_lossy(&data).trim().to_owned(),
                owner: stat.ephemeral_owner,
                changed: Box::pin(watcher.changed()),
            })),
            Err(zk::Error::NoNode) => Ok(None),
            Err(source) => Err(SessionError::Failed { what, source }),
        }
    }

    /// Reads the present epoch.
    ///
    /// # Errors
    /// [`SessionError::Missing`] before the first election.
    pub async fn epoch(&self) -> Result<i32, SessionError> {
        let (_, stat) = self.read("read the epoch", self.layout.epoch()).await?;
        Ok(stat.version)
    }

    /// Reads the log's identity.
    ///
    /// # Errors
    /// [`SessionError::Missing`] before the first election.
    pub async fn log(&self) -> Result<LogIdentity, SessionError> {
        let path = self.layout.events();
        let (data, _) = self.read("read the log's identity", path.clone()).await?;
        serde_json::from_slice(&data).map_err(|error| SessionError::Foreign {
            path,
            reason: error.to_string(),
        })
    }

    async fn read(&self, what: &'static str, path: String) -> Result<(Vec<u8>, zk::Stat), SessionError> {
        match self.call(what, self.client.get_data(&path)).await? {
            Ok(answer) => Ok(answer),
            Err(zk::Error::NoNode) => Err(SessionError::Missing(path)),
            Err(source) => Err(SessionError::Failed { what, source }),
        }
    }

    /// Makes what elections and the log need, as far as it is missing.
    ///
    /// # Errors
    /// [`SessionError::Missing`] when the root is gone.
    pub async fn ensure(&self, log: &LogIdentity) -> Result<(), SessionError> {
        let events = self.layout.events();
        let identity = serde_json::to_vec(log).map_err(|error| SessionError::Foreign {
            path: events.clone(),
            reason: error.to_string(),
        })?;
        for (path, data) in [(self.layout.epoch(), b"0".to_vec()), (events, identity)] {
            let what = "prepare the root";
            match self.call(what, self.client.create(&path, &data, &PERSISTENT)).await? {
                Ok(_) | Err(zk::Error::NodeExists) => {}
                Err(zk::Error::NoNode) => return Err(SessionError::Missing(self.layout.root().to_owned())),
                Err(source) => return Err(SessionError::Failed { what, source }),
            }
        }
        Ok(())
    }

    /// Stands for election: makes the leader node and sets the epoch, both or neither. The new epoch when it is won.
    ///
    /// # Errors
    /// [`SessionError`] when the session cannot go on; a node that was made all the same goes with the session.
    pub async fn stand(&self, pod: &str) -> Result<Option<i32>, SessionError> {
        let what = "stand for election";
        let failed = |source| SessionError::Failed { what, source };
        let before = self.epoch().await?;
        let epoch = before.wrapping_add(1);
        let mut writer = self.client.new_multi_writer();
        writer
            .add_create(&self.layout.leader(), pod.as_bytes(), &EPHEMERAL)
            .map_err(failed)?;
        writer
            .add_set_data(&self.layout.epoch(), epoch.to_string().as_bytes(), Some(before))
            .map_err(failed)?;
        match self.call(what, writer.commit()).await?.map_err(zk::Error::from) {
            Ok(_) => Ok(Some(epoch)),
            Err(zk::Error::NodeExists | zk::Error::BadVersion) => Ok(None),
            Err(zk::Error::NoNode) => Err(SessionError::Missing(self.layout.root().to_owned())),
            Err(source) => Err(failed(source)),
        }
    }

    /// Deletes our leader node, if it is still the one of this epoch.
    ///
    /// # Errors
    /// [`SessionError`] when the session cannot go on; the node then goes with it.
    pub async fn resign(&self, epoch: i32) -> Result<(), SessionError> {
        let what = "delete the leader node";
        let failed = |source| SessionError::Failed { what, source };
        let mut writer = self.client.new_multi_writer();
        writer.add_check_version(&self.layout.epoch(), epoch).map_err(failed)?;
        writer.add_delete(&self.layout.leader(), None).map_err(failed)?;
        match self.call(what, writer.commit()).await?.map_err(zk::Error::from) {
            Ok(_) | Err(zk::Error::BadVersion | zk::Error::NoNode) => Ok(()),
            Err(source) => Err(failed(source)),
        }
    }

    /// Reads records from a number on, until one is missing or `count` are read.
    ///
    /// # Errors
    /// [`SessionError`] when the session cannot go on.
    pub async fn records(&self, log: &LogIdentity, first: u64, count: u64) -> Result<Vec<Vec<u8>>, SessionError> {
        let what = "read records";
        let failed = |source| SessionError::Failed { what, source };
        let mut reader = self.client.new_multi_reader();
        for number in first..first + count {
            reader.add_get_data(&self.layout.record(log, number)).map_err(failed)?;
        }
        let mut records = Vec::new();
        for result in self.call(what, reader.commit()).await?.map_err(failed)? {
            match result {
                zk::MultiReadResult::Data { data, .. } => records.push(data),
                zk::MultiReadResult::Error {
                    err: zk::Error::NoNode | zk::Error::RuntimeInconsistent,
                } => break,
                zk::MultiReadResult::Error { err } => return Err(failed(err)),
                other => return Err(failed(zk::Error::UnexpectedError(format!("{other:?}")))),
            }
        }
        Ok(records)
    }

    /// Appends records, all or none, if the epoch is still this one.
    ///
    /// # Errors
    /// [`AppendError`], which tells what is certainly not in the log from what may be.
    pub async fn append(
        &self,
        epoch: i32,
        log: &LogIdentity,
        first: u64,
        records: &[Vec<u8>],
    ) -> Result<(), AppendError> {
        let what = "append records";
        let refused = |source| AppendError::Refused(SessionError::Failed { what, source });
        let mut writer = self.client.new_multi_writer();
        writer.add_check_version(&self.layout.epoch(), epoch).map_err(refused)?;
        for (number, record) in (first..).zip(records) {
            if log.begins_segment(number) {
                writer
                    .add_create(&self.layout.segment(log, number), b"", &PERSISTENT)
                    .map_err(refused)?;
            }
            writer
                .add_create(&self.layout.record(log, number), record, &PERSISTENT)
                .map_err(refused)?;
        }
        match self.call(what, writer.commit()).await.map_err(AppendError::Unknown)? {
            Ok(_) => Ok(()),
            Err(zk::MultiWriteError::OperationFailed {
                index: 0,
                source: zk::Error::BadVersion | zk::Error::NoNode,
            }) => Err(AppendError::Deposed),
            Err(zk::MultiWriteError::OperationFailed { source, .. }) => Err(refused(source)),
            Err(zk::MultiWriteError::RequestFailed { source }) => {
                Err(AppendError::Unknown(SessionError::Failed { what, source }))
            }
        }
    }
}
