//! One ZooKeeper service: a single server, an ensemble of three, or one that was there before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use zookeeper_client::Client;

use crate::cluster::utf8;
use crate::eventually::eventually;
use crate::paths::Paths;
use crate::server::Server;

/// How long a started server may take until it serves; an ensemble elects on a busy machine.
const SERVES_WITHIN: Duration = Duration::from_secs(30);

/// Its servers; those of an existing one cannot be killed.
#[derive(Debug)]
pub struct ZooKeeper {
    connect: String,
    paths: Paths,
    state: Option<PathBuf>,
    servers: Vec<Server>,
}

impl ZooKeeper {
    /// Starts `count` servers with their state below `state`, which is theirs alone; returns when all serve.
    ///
    /// `environment`: `ESFLEET_ZK_TICK`, `ESFLEET_ZK_MAX_CNXNS`, `ESFLEET_ZK_CONF`.
    pub async fn start(paths: &Paths, state: &Path, count: usize, environment: &[(&str, &str)]) -> Result<ZooKeeper> {
        let connect = paths
            .script("zookeeper-up", &[&count.to_string(), utf8(state)?], environment)
            .await?;
        let server = |number: usize| Server::at(state.join("zookeeper").join(number.to_string()));
        Ok(ZooKeeper {
            connect: connect.trim().to_owned(),
            paths: paths.clone(),
            state: Some(state.to_owned()),
            servers: (1..=count).map(server).collect(),
        })
    }

    /// Uses one that is there already.
    pub fn existing(paths: &Paths, connect: &str) -> ZooKeeper {
        ZooKeeper {
            connect: connect.to_owned(),
            paths: paths.clone(),
            state: None,
            servers: Vec::new(),
        }
    }

    /// All servers, as apps are told: good on this machine as in every pod.
    pub fn connect_string(&self) -> &str {
        &self.connect
    }

    /// The address of server `index` (from 0).
    pub fn address(&self, index: usize) -> Result<&str> {
        self.connect
            .split(',')
            .nth(index)
            .with_context(|| format!("no server {index} in {}", self.connect))
    }

    /// How many servers there are.
    pub fn len(&self) -> usize {
        self.connect.split(',').count()
    }

    /// Never: a service has at least one server.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// A new session.
    pub async fn client(&self) -> Result<Client> {
        let connected = timeout(Duration::from_secs(10), Client::connect(&self.connect)).await;
        connected
            .with_context(|| format!("no session on {} within 10 s", self.connect))?
            .context("no session")
    }

    /// What server `index` answers to a four-letter word.
    pub async fn word(&self, index: usize, word: &str) -> Result<String> {
        let address = self.address(index)?;
        let ask = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(word.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            anyhow::Ok(answer)
        };
        let answer = timeout(Duration::from_secs(3), ask).await;
        answer
            .with_context(|| format!("{address} does not answer {word}"))?
            .with_context(|| format!("{word} to {address}"))
    }

    /// The counters of server `index`: `zk_packets_received`, `zk_num_alive_connections`, `zk_znode_count`, …
    pub async fn counters(&self, index: usize) -> Result<BTreeMap<String, String>> {
        let answer = self.word(index, "mntr").await?;
        let pairs = answer.lines().filter_map(|line| line.split_once('\t'));
        Ok(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// One line a connection, from all servers (`cons`): address, session id, requests, and so on.
    pub async fn connections(&self) -> Result<Vec<String>> {
        let answers = try_join_all((0..self.len()).map(|index| self.word(index, "cons"))).await?;
        Ok(answers
            .iter()
            .flat_map(|text| text.lines())
            .filter(|line| line.contains("sid="))
            .map(str::to_owned)
            .collect())
    }

    /// Waits until server `index` serves.
    pub async fn serves(&self, index: usize) -> Result<()> {
        eventually(SERVES_WITHIN, "a ZooKeeper server serves", || async {
            let answer = self.word(index, "srvr").await?;
            ensure!(answer.contains("Mode: "), "{}", answer.trim());
            Ok(())
        })
        .await
    }

    /// The index of the ensemble's own leader.
    pub async fn leader(&self) -> Result<usize> {
        eventually(SERVES_WITHIN, "the ensemble has a leader", || async {
            for index in 0..self.len() {
                let answer = self.word(index, "srvr").await.unwrap_or_default();
                if answer.contains("Mode: leader") || answer.contains("Mode: standalone") {
                    return Ok(index);
                }
            }
            anyhow::bail!("no server says that it leads")
        })
        .await
    }

    /// The process of server `index`: to kill, freeze and let go on.
    pub fn server(&self, index: usize) -> Result<&Server> {
        self.servers
            .get(index)
            .with_context(|| format!("server {index} of {} is not ours", self.connect))
    }

    /// Kills server `index`; its data stays.
    pub async fn kill(&self, index: usize) -> Result<()> {
        self.server(index)?.kill().await
    }

    /// Starts server `index` again and waits until it serves.
    pub async fn restart(&self, index: usize) -> Result<()> {
        self.server(index)?.start()?;
        self.serves(index).await
    }

    /// Kills all servers that run.
    pub async fn kill_all(&self) -> Result<()> {
        try_join_all(
            self.servers
                .iter()
                .filter(|server| server.pid().is_some())
                .map(Server::kill),
        )
        .await
        .map(drop)
    }

    /// Starts all servers that do not run, and waits until all serve.
    pub async fn restart_all(&self) -> Result<()> {
        for server in self.servers.iter().filter(|server| server.pid().is_none()) {
            server.start()?;
        }
        try_join_all((0..self.len()).map(|index| self.serves(index)))
            .await
            .map(drop)
    }

    /// Loses all data: kills the servers, empties them, and starts them again.
    pub async fn wipe(&self) -> Result<()> {
        self.kill_all().await?;
        for server in &self.servers {
            std::fs::remove_dir_all(server.directory().join("data/version-2")).context("cannot remove the data")?;
        }
        self.restart_all().await
    }

    /// Ends it, if it is ours.
    pub async fn down(&self) -> Result<()> {
        let Some(state) = &self.state else { return Ok(()) };
        self.paths
            .script("zookeeper-down", &[utf8(state)?], &[])
            .await
            .map(drop)
    }
}
