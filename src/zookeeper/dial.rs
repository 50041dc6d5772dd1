//! Opening one session: names to addresses, one server after another, and what is wrong with each when none serves.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::BuildHasher;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use zookeeper_client::{Client, Error};

use crate::api::connect_string::Server;

/// How long a server that opened no session is asked once more, only to learn what is wrong with it.
const DIAGNOSIS: Duration = Duration::from_millis(500);
/// A server gets at least this long, even if that leaves no time for the ones after it.
const SHORTEST_TRY: Duration = Duration::from_secs(1);

/// The time that things may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// What is asked of the ensemble as session timeout.
    pub session_timeout: Duration,
    /// Silence on the connection for this long means that it is lost.
    pub connection_timeout: Duration,
    /// One attempt at all servers.
    pub attempt: Duration,
}

impl Limits {
    /// After how much silence the client itself gives a connection up; it replaces a limit that is too close to the
    /// session timeout by its own.
    fn silence(&self) -> Duration {
        self.connection_timeout.min(self.session_timeout * 2 / 5)
    }
}

/// A session that has just been opened.
pub struct Dialled {
    /// Its client. The session ends when this and all its clones are dropped, as long as `task` runs.
    pub client: Client,
    /// The client's background task. Aborting it ends the connection at once, and all attempts to connect again.
    pub task: JoinHandle<()>,
    /// The server that opened it.
    pub server: Server,
}

/// Why no server opened a session: one trouble for each, in their order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", sentence(.0))]
pub struct DialError(Vec<(Server, Trouble)>);

/// What is wrong with one server.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Trouble {
    /// Its name has no address.
    Unresolved(String),
    /// Nothing listens at its port.
    Refused,
    /// It cannot be reached for another reason.
    Unreachable(String),
    /// It does not even accept a connection in time.
    Silent,
    /// It accepts a connection, and then nothing.
    Hung,
    /// It accepts a connection and closes it.
    NoSession,
    /// It refuses the session.
    Rejected(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Unresolved(reason) => write!(f, "the name does not resolve ({reason})"),
            Trouble::Refused => f.write_str("the connection is refused"),
            Trouble::Unreachable(reason) => write!(f, "it cannot be reached ({reason})"),
            Trouble::Silent => f.write_str("no connection in time"),
            Trouble::Hung => f.write_str("it accepts a connection and does not answer"),
            Trouble::NoSession => f.write_str(
                "it accepts a connection and opens no session (it may have no quorum, or too many connections from here)",
            ),
            Trouble::Rejected(reason) => write!(f, "it refuses the session ({reason})"),
        }
    }
}

fn sentence(troubles: &[(Server, Trouble)]) -> String {
    let parts: Vec<String> = troubles
        .iter()
        .map(|(server, trouble)| format!("{server}: {trouble}"))
        .collect();
    parts.join("; ")
}

/// Opens a session at any of `servers`, tried in random order, within about `limits.attempt`.
///
/// # Errors
/// [`DialError`] with what is wrong with each server.
pub async fn dial(servers: &[Server], limits: Limits) -> Result<Dialled, DialError> {
    let deadline = Instant::now() + limits.attempt;
    let (addresses, mut troubles) = resolve(servers, limits.attempt * 2 / 5).await;
    let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let each = (limits.attempt / count).max(SHORTEST_TRY);
    for (index, address) in addresses {
        let until = deadline.min(Instant::now() + each);
        match open(address, limits, until).await {
            Ok((client, task)) => {
                let server = servers[index].clone();
                return Ok(Dialled { client, task, server });
            }
            Err(trouble) => {
                troubles[index].get_or_insert(trouble);
            }
        }
    }
    let troubles = servers
        .iter()
        .cloned()
        .zip(troubles.into_iter().map(|t| t.unwrap_or(Trouble::Silent)));
    Err(DialError(troubles.collect()))
}

/// All addresses of all servers in random order, each with its server's index; and the trouble of those without.
async fn resolve(servers: &[Server], limit: Duration) -> (Vec<(usize, SocketAddr)>, Vec<Option<Trouble>>) {
    let lookups = servers
        .iter()
        .map(|server| timeout(limit, lookup_host((server.host.as_str(), server.port))));
    let mut addresses: Vec<(usize, SocketAddr)> = Vec::new();
    let mut troubles = Vec::with_capacity(servers.len());
    for (index, outcome) in join_all(lookups).await.into_iter().enumerate() {
        troubles.push(match outcome {
            Ok(Ok(found)) => {
                addresses.extend(found.map(|address| (index, address)));
                None
            }
            Ok(Err(error)) => {
                let text = error.to_string();
                let reason = text
                    .strip_prefix("failed to lookup address information: ")
                    .unwrap_or(&text);
                Some(Trouble::Unresolved(reason.to_owned()))
            }
            Err(_) => Some(Trouble::Unresolved("no answer in time".to_owned())),
        });
    }
    addresses.sort_unstable_by_key(|(_, address)| *address);
    addresses.dedup_by_key(|(_, address)| *address);
    let random = RandomState::new();
    addresses.sort_by_cached_key(|(_, address)| random.hash_one(address));
    (addresses, troubles)
}

/// Opens a session at one address.
async fn open(address: SocketAddr, limits: Limits, until: Instant) -> Result<(Client, JoinHandle<()>), Trouble> {
    if until <= Instant::now() {
        return Err(Trouble::Silent);
    }
    let connector = Client::connector()
        .with_session_timeout(limits.session_timeout)
        .with_connection_timeout(limits.connection_timeout)
        .with_fail_eagerly();
    let address_text = address.to_string();
    let began = Instant::now();
    let trouble = match timeout_at(until, with_own_task(connector.connect(&address_text))).await {
        Ok(Ok((client, Some(task)))) => return Ok((client, task)),
        Ok(Ok((_, None))) => return Err(Trouble::Rejected("the client started no task".to_owned())),
        Ok(Err(Error::NoHosts)) if began.elapsed() < limits.silence() => Trouble::NoSession,
        Ok(Err(Error::NoHosts)) | Err(_) => Trouble::Hung,
        Ok(Err(error)) => return Err(Trouble::Rejected(error.to_string())),
    };
    Err(diagnose(address).await.unwrap_or(trouble))
}

/// What is wrong with the connection to a server; none if it can be connected to.
async fn diagnose(address: SocketAddr) -> Option<Trouble> {
    match timeout(DIAGNOSIS, TcpStream::connect(address)).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => Some(Trouble::Refused),
        Ok(Err(error)) => Some(Trouble::Unreachable(error.to_string())),
        Err(_) => Some(Trouble::Silent),
    }
}

/// Takes the tasks that a future spawns through `spawns`.
#[derive(Default)]
struct Capture(Mutex<Vec<spawns_core::Task>>);

impl spawns_core::Spawn for Capture {
    fn spawn(&self, task: spawns_core::Task) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }
}

/// Runs the opening of a session such that its background task is ours.
///
/// The crate spawns one task per session and keeps no handle: after the client is dropped it goes on trying to connect
/// for up to 7/5 of the session timeout, only to close a session that nobody needs.
async fn with_own_task<T, E>(connect: impl Future<Output = Result<T, E>>) -> Result<(T, Option<JoinHandle<()>>), E> {
    let capture = Capture::default();
    let mut connect = pin!(connect);
    let client = poll_fn(|context| {
        let _scope = spawns_core::enter(&capture);
        connect.as_mut().poll(context)
    })
    .await?;
    let tasks = capture.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut handles = tasks.into_iter().map(|task| tokio::spawn(Box::into_pin(task.future)));
    Ok((client, handles.next()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    const LIMITS: Limits = Limits {
        session_timeout: Duration::from_secs(30),
        connection_timeout: Duration::from_secs(10),
        attempt: Duration::from_millis(1200),
    };

    fn server(host: &str, port: u16) -> Server {
        Server {
            host: host.to_owned(),
            port,
        }
    }

    async fn trouble(servers: &[Server]) -> String {
        match dial(servers, LIMITS).await {
            Ok(dialled) => panic!("{} opened a session", dialled.server),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn each_server_is_named_with_its_own_trouble_in_their_order() {
        let unused = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let servers = [server("127.0.0.1", unused), server("zk.invalid", 2181)];
        let text = trouble(&servers).await;
        let prefix =
            format!("127.0.0.1:{unused}: the connection is refused; zk.invalid:2181: the name does not resolve (");
        assert!(text.starts_with(&prefix), "{text}");
    }

    #[tokio::test]
    async fn a_server_that_never_answers_is_given_up_within_the_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let started = Instant::now();
        assert_eq!(
            trouble(&[server("127.0.0.1", port)]).await,
            format!("127.0.0.1:{port}: it accepts a connection and does not answer")
        );
        assert!(started.elapsed() < LIMITS.attempt * 2, "{:?}", started.elapsed());
    }

    #[tokio::test]
    async fn a_server_that_closes_the_connection_is_told_from_one_that_refuses_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let closing = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
        assert_eq!(
            trouble(&[server("127.0.0.1", port)]).await,
            format!("127.0.0.1:{port}: {}", Trouble::NoSession)
        );
        closing.abort();
    }
}
