//! One session: requests with a deadline, and the end that all who use it hear of.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use zookeeper_client::{Acls, Client, CreateMode, Error, OneshotWatcher, Stat};

use super::metrics::{LossReason, Operation, Outcome, ZooKeeperMetrics};
use crate::api::connect_string::Server;
use crate::leadership::{Term, WriteError};

/// A watch that has been set: done when the znode has changed or the session has ended.
pub type Armed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why a session is no longer of use.
#[derive(Debug, Clone)]
pub struct Loss {
    /// The kind, for the metrics.
    pub reason: LossReason,
    /// A sentence that names the server.
    pub trouble: Arc<str>,
}

/// An answer of the ensemble that is no success.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such znode.
    #[error("the znode does not exist")]
    Absent,
    /// There is such a znode already.
    #[error("the znode exists already")]
    Present,
    /// The access control list of the znode, or of its parent, does not allow it.
    #[error("access is denied")]
    Forbidden,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// The session has ended.
    #[error("the session has ended")]
    SessionLost,
    /// The term has ended: nothing may be written any more.
    #[error("the term has ended")]
    TermEnded,
}

/// What came of a request.
pub type Answer<T> = Result<Result<T, Refusal>, Halt>;

/// A session in use. It never comes back once lost: another takes its place.
pub struct Session {
    /// Weak, so that the session is closed at the ensemble as soon as its keeper lets go of it, before the watches of
    /// its users go; they would be removed one by one.
    client: Weak<Client>,
    server: Server,
    request_timeout: Duration,
    in_flight: Semaphore,
    lost: CancellationToken,
    loss: OnceLock<Loss>,
    metrics: ZooKeeperMetrics,
    client_task: AbortHandle,
}

impl Drop for Session {
    /// Ends the client's background task when nobody waits for a watch any more: a watch whose client is gone panics.
    fn drop(&mut self) {
        self.client_task.abort();
    }
}

impl Session {
    pub fn new(
        client: Weak<Client>,
        client_task: AbortHandle,
        server: Server,
        request_timeout: Duration,
        concurrency: usize,
        metrics: ZooKeeperMetrics,
    ) -> Self {
        Self {
            client,
            server,
            request_timeout,
            in_flight: Semaphore::new(concurrency),
            lost: CancellationToken::new(),
            loss: OnceLock::new(),
            metrics,
            client_task,
        }
    }

    /// Ends the session for all who use it. The first loss stays.
    pub fn fail(&self, reason: LossReason, what: &str) {
        self.loss.get_or_init(|| Loss {
            reason,
            trouble: Arc::from(format!("{}: {what}", self.server)),
        });
        self.lost.cancel();
    }

    /// Ends when the session has ended.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Why the session has ended; none while it is in use.
    pub fn loss(&self) -> Option<&Loss> {
        self.loss.get()
    }

    /// A turn to send requests, one at a time; bounds what is in flight when thousands read at once.
    pub async fn turn(&self) -> Result<SemaphorePermit<'_>, Halt> {
        tokio::select! {
            biased;
            () = self.lost() => Err(Halt::SessionLost),
            permit = self.in_flight.acquire() => permit.map_err(|_| Halt::SessionLost),
        }
    }

    /// Whether a znode exists, and a watch for its creation, change or deletion.
    pub async fn exists(&self, path: &str) -> Answer<(bool, Armed)> {
        let client = self.client()?;
        let call = self.bounded(client.check_and_watch_stat(path));
        let answer = self.answer(Operation::Exists, call).await?;
        Ok(answer.map(|(stat, watcher)| (stat.is_some(), armed(watcher))))
    }

    /// Whether a znode exists.
    pub async fn exists_now(&self, path: &str) -> Answer<bool> {
        let client = self.client()?;
        let call = self.bounded(client.check_stat(path));
        let answer = self.answer(Operation::Exists, call).await?;
        Ok(answer.map(|stat| stat.is_some()))
    }

    /// What a znode holds, and a watch for its change or deletion.
    pub async fn read(&self, path: &str) -> Answer<(Vec<u8>, Stat, Armed)> {
        let client = self.client()?;
        let call = self.bounded(client.get_and_watch_data(path));
        let answer = self.answer(Operation::Read, call).await?;
        Ok(answer.map(|(data, stat, watcher)| (data, stat, armed(watcher))))
    }

    /// Creates an empty, persistent znode that is open to everybody.
    pub async fn create(&self, term: &Term, path: &str) -> Answer<()> {
        let client = self.client()?;
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        // The crate sends a request when it is called, not when it is awaited: without a block around it the term
        // would be asked after the fact.
        let create = async { client.create(path, b"", &options).await };
        let call = async {
            match term.write(self.request_timeout, create).await {
                Ok(_) => Reply::Given(Ok(())),
                Err(WriteError::Failed(error)) => Reply::Given(Err(error)),
                Err(WriteError::Deadline(_)) => Reply::None,
                Err(WriteError::TermEnded) => Reply::TermEnded,
            }
        };
        self.answer(Operation::Create, call).await
    }

    fn client(&self) -> Result<Arc<Client>, Halt> {
        let client = self.client.upgrade();
        if client.is_none() {
            self.fail(LossReason::Closed, "the session was closed");
        }
        client.ok_or(Halt::SessionLost)
    }

    async fn bounded<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Reply<T> {
        timeout(self.request_timeout, call)
            .await
            .map_or(Reply::None, Reply::Given)
    }

    /// Waits for a reply as long as the session lives, counts it, and ends the session when the reply, or its lack,
    /// says that it is of no use any more.
    async fn answer<T>(&self, operation: Operation, call: impl Future<Output = Reply<T>>) -> Answer<T> {
        let reply = tokio::select! {
            biased;
            () = self.lost() => Reply::Given(Err(Error::ClientClosed)),
            reply = call => reply,
        };
        let (outcome, answer) = match reply {
            Reply::Given(Ok(value)) => (Outcome::Done, Ok(Ok(value))),
            Reply::Given(Err(error)) => match refusal(&error) {
                Some((outcome, refusal)) => (outcome, Ok(Err(refusal))),
                None => {
                    self.fail(loss_reason(&error), &error.to_string());
                    (Outcome::Lost, Err(Halt::SessionLost))
                }
            },
            Reply::None => {
                let limit = self.request_timeout;
                self.fail(
                    LossReason::Unanswered,
                    &format!("a request was not answered within {limit:?}"),
                );
                (Outcome::Unanswered, Err(Halt::SessionLost))
            }
            Reply::TermEnded => (Outcome::TermEnded, Err(Halt::TermEnded)),
        };
        self.metrics.requested(operation, outcome);
        answer
    }
}

/// How waiting for a reply ended.
enum Reply<T> {
    /// The ensemble replied, or the session ended.
    Given(Result<T, Error>),
    /// Nothing came in time.
    None,
    /// The term ended before anything came.
    TermEnded,
}

/// The refusal that an error stands for; none if the session is of no use after it.
fn refusal(error: &Error) -> Option<(Outcome, Refusal)> {
    match error {
        Error::NoNode => Some((Outcome::Absent, Refusal::Absent)),
        Error::NodeExists => Some((Outcome::Present, Refusal::Present)),
        Error::NoAuth => Some((Outcome::Forbidden, Refusal::Forbidden)),
        Error::BadArguments(_)
        | Error::BadVersion
        | Error::InvalidAcl
        | Error::MarshallingError
        | Error::NoChildrenForEphemerals
        | Error::NoWatcher
        | Error::NotEmpty
        | Error::NotReadOnly
        | Error::QuotaExceeded
        | Error::ReconfigDisabled
        | Error::Throttled
        | Error::UnexpectedErrorCode(_)
        | Error::Unimplemented => Some((Outcome::Failed, Refusal::Other(error.to_string()))),
        _ => None,
    }
}

fn loss_reason(error: &Error) -> LossReason {
    match error {
        Error::SessionExpired | Error::SessionMoved => LossReason::Expired,
        Error::AuthFailed => LossReason::AuthFailed,
        Error::ClientClosed => LossReason::Closed,
        _ => LossReason::Disconnected,
    }
}

fn armed(watcher: OneshotWatcher) -> Armed {
    Box::pin(async move {
        // The crate panics here when the client's task has gone without a word (it was aborted, or has panicked
        // itself). Whoever waits reads again, and learns that the session is lost.
        let _ = AssertUnwindSafe(watcher.changed()).catch_unwind().await;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_znode_leave_the_session_alone_and_all_others_end_it() {
        for (error, expected) in [
            (Error::NoNode, Some((Outcome::Absent, Refusal::Absent))),
            (Error::NodeExists, Some((Outcome::Present, Refusal::Present))),
            (Error::NoAuth, Some((Outcome::Forbidden, Refusal::Forbidden))),
            (
                Error::QuotaExceeded,
                Some((Outcome::Failed, Refusal::Other("exceed path quota".to_owned()))),
            ),
            (Error::ConnectionLoss, None),
            (Error::SessionExpired, None),
            (Error::AuthFailed, None),
            (Error::ClientClosed, None),
            (Error::Timeout, None),
            (Error::UnexpectedError("recv response with xid -8".to_owned()), None),
        ] {
            assert_eq!(refusal(&error), expected, "{error:?}");
        }
    }
}
