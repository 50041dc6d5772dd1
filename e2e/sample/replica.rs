//! The replica: from one session to the next, follow the log, stand for election when nobody leads.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::config::Config;
use crate::layout::{Layout, LogIdentity};
use crate::ledger::Ledger;
use crate::session::{LeaderNode, Session, SessionError, Watch};
use crate::shared::{Progress, Role, Shared, View};

/// The first and the longest pause between two attempts at a session.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How many records one request reads: at first, and at most. A record is under 1 kB, a reply at most 1 MB.
const READ_AHEAD: (u64, u64) = (4, 128);

/// The one writer of [`Shared`].
pub struct Replica {
    /// What the process was told.
    pub config: Config,
    /// What others see.
    pub shared: Arc<Shared>,
    /// Becomes true when the process is to end.
    pub stop: watch::Receiver<bool>,
}

impl Replica {
    /// Runs until told to stop; a leader has then finished what it had begun and has resigned.
    pub async fn run(mut self) {
        let mut pause = PAUSES.0;
        loop {
            let ended = self.session(&mut pause).await;
            if matches!(ended, SessionError::Stopped) {
                return;
            }
            warn!("{ended}; trying again in {pause:?}");
            tokio::select! {
                () = stopped(&mut self.stop) => return,
                () = tokio::time::sleep(pause) => pause = (2 * pause).min(PAUSES.1),
            }
        }
    }

    /// Opens a session and works in it until it ends, for the reason returned.
    async fn session(&mut self, pause: &mut Duration) -> SessionError {
        let layout = Layout::new(&self.config.zk_root_path);
        let connect = Session::connect(&self.config.zk_connect_string, layout, self.config.session_timeout());
        let connected = tokio::select! {
            () = stopped(&mut self.stop) => return SessionError::Stopped,
            connected = connect => connected,
        };
        let session = match connected {
            Ok(session) => session,
            Err(error) => {
                self.show_ended(&error);
                return error;
            }
        };
        info!(
            "session {} with {} is open",
            session.id(),
            self.config.zk_connect_string
        );
        let ended = loop {
            match self.serve(&session, pause).await {
                Ok(never) => match never {},
                Err(SessionError::Missing(path)) if path == self.config.zk_root_path => {}
                Err(error) => break error,
            }
        };
        self.show_ended(&ended);
        session.close().await;
        ended
    }

    /// Waits for the root, then follows whoever leads and stands for election whenever nobody does.
    async fn serve(&mut self, session: &Session, pause: &mut Duration) -> Result<Infallible, SessionError> {
        self.await_root(session).await?;
        loop {
            match session.leader().await? {
                Some(node) if session.owns(&node) => {
                    // Ours, and we do not lead: left over from a term that ended although the session did not.
                    let epoch = session.epoch().await?;
                    session.resign(epoch).await?;
                }
                Some(node) => {
                    let log = self.adopt_log(session).await?;
                    let epoch = session.epoch().await?;
                    info!("{} leads, epoch {epoch}", node.pod);
                    self.show_following(Some(&node.pod), epoch);
                    *pause = PAUSES.0;
                    self.follow(session, &log, node).await?;
                }
                None => {
                    session.ensure(&self.new_log(session)).await?;
                    let log = self.adopt_log(session).await?;
                    self.show_following(None, session.epoch().await?);
                    *pause = PAUSES.0;
                    drop(self.catch_up(session, &log).await?);
                    if let Some(epoch) = session.stand(&self.config.pod_name).await? {
                        self.lead(session, &log, epoch).await?;
                    }
                }
            }
        }
    }

    async fn await_root(&mut self, session: &Session) -> Result<(), SessionError> {
        while let Some(changed) = session.missing_root().await? {
            info!("waiting for {} to be made", self.config.zk_root_path);
            self.shared.update(|standing| {
                standing.view = View {
                    role: Role::AwaitingRoot,
                    ..View::default()
                };
            });
            tokio::select! {
                biased;
                () = stopped(&mut self.stop) => return Err(SessionError::Stopped),
                lost = session.lost() => return Err(lost),
                _ = changed => {}
            }
        }
        Ok(())
    }

    /// Reads which log there is; if it is another than the one applied so far, starts again from nothing.
    async fn adopt_log(&self, session: &Session) -> Result<LogIdentity, SessionError> {
        let log = session.log().await?;
        self.shared.update(|standing| {
            if standing.view.log.as_ref() != Some(&log.log) {
                if standing.ledger.applied() > 0 {
                    warn!("the log was replaced; starting again from its first record");
                }
                standing.ledger = Ledger::default();
                standing.view.log = Some(log.log.clone());
                standing.view.progress = Progress::Replaying;
            }
        });
        Ok(log)
    }

    /// An identity that no other log has, for the case that there is none yet.
    fn new_log(&self, session: &Session) -> LogIdentity {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unique = format!(
            "{}/{}/{}/{now:?}",
            self.config.pod_name,
            session.id(),
            std::process::id()
        );
        let hash = Sha256::digest(unique);
        let log = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        LogIdentity {
            log,
            segment_size: self.config.segment_size,
        }
    }

    /// Applies what is appended, until the leader node changes.
    async fn follow(&mut self, session: &Session, log: &LogIdentity, leader: LeaderNode) -> Result<(), SessionError> {
        let mut leader_changed = leader.changed;
        loop {
            let mut appended = pin!(self.catch_up(session, log).await?);
            tokio::select! {
                biased;
                () = stopped(&mut self.stop) => return Err(SessionError::Stopped),
                lost = session.lost() => return Err(lost),
                _ = &mut leader_changed => return Ok(()),
                _ = &mut appended => {}
            }
        }
    }

    /// Applies all records that there are; what is returned ends when there is one more.
    pub async fn catch_up(&self, session: &Session, log: &LogIdentity) -> Result<Watch, SessionError> {
        let mut count = READ_AHEAD.0;
        self.shared.update(|standing| {
            if standing.view.progress == Progress::CaughtUp {
                standing.view.progress = Progress::Behind(Instant::now());
            }
        });
        loop {
            let first = self.shared.read(|standing| standing.ledger.applied()) + 1;
            let records = session.records(log, first, count).await?;
            let full = records.len() as u64 == count;
            self.shared.update(|standing| {
                (first..)
                    .zip(&records)
                    .try_for_each(|(number, record)| standing.ledger.apply(number, record))
            })?;
            if *self.stop.borrow() {
                return Err(SessionError::Stopped);
            }
            if full {
                count = (2 * count).min(READ_AHEAD.1);
                continue;
            }
            let next = first + records.len() as u64;
            if let Some(appended) = session.missing_record(log, next).await? {
                self.shared
                    .update(|standing| standing.view.progress = Progress::CaughtUp);
                return Ok(appended);
            }
        }
    }

    fn show_following(&self, leader: Option<&str>, epoch: i32) {
        self.shared.update(|standing| {
            let view = &mut standing.view;
            view.role = Role::Follower;
            view.leader = leader.map(str::to_owned);
            view.epoch = Some(epoch);
            view.error = None;
            view.submit = None;
        });
    }

    /// The ledger stays, as the next session goes on from it.
    fn show_ended(&self, why: &SessionError) {
        let (role, error) = match why {
            SessionError::Stopped => (Role::Stopping, None),
            other => (Role::Disconnected, Some(other.to_string())),
        };
        self.shared.update(|standing| {
            let log = standing.view.log.take();
            standing.view = View {
                role,
                log,
                error,
                ..View::default()
            };
        });
    }
}

/// Ends when the process is told to end.
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, and with it whoever could want us to go on.
    let _ = stop.wait_for(|stop| *stop).await;
}
