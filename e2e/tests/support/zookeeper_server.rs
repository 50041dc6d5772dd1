//! A ZooKeeper server of a test's own: one Java process on a free port, with its data in a directory that goes with it.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::Client;

/// How long a server may take to serve.
const START: Duration = Duration::from_secs(60);
/// The version that the local clusters fetch.
const VERSION: &str = "3.9.5";

/// A standalone server. It is killed, and its data removed, when this is dropped.
pub struct TestServer {
    directory: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl TestServer {
    /// Starts a server on a free port and waits until it serves.
    pub async fn start() -> Result<Self> {
        let mut server = Self::reserve()?;
        server.restart().await?;
        Ok(server)
    }

    /// A server with a port, not started yet.
    pub fn reserve() -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let directory = std::env::temp_dir().join(format!("esfleet-zookeeper-{}-{port}", std::process::id()));
        fs::create_dir_all(directory.join("data"))?;
        let config = format!(
            "tickTime=500\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=60\n\
             4lw.commands.whitelist=*\nadmin.enableServer=false\n",
            directory.join("data").display()
        );
        fs::write(directory.join("zoo.cfg"), config)?;
        Ok(Self {
            directory,
            port,
            process: None,
        })
    }

    /// The server as a connect string names it.
    pub fn connect_string(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts the server again, on its port and its data, and waits until it serves.
    pub async fn restart(&mut self) -> Result<()> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.join("log"))?;
        let jars = jars()?.join("*");
        // The signal at the parent's death: a test that is killed leaves no server behind.
        let process = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "java",
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-Dzookeeper.forceSync=no",
                "-cp",
            ])
            .arg(jars)
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.directory.join("zoo.cfg"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("java")?;
        self.process = Some(process);
        let deadline = Instant::now() + START;
        while !self.ask("srvr").await.is_ok_and(|answer| answer.contains("Mode:")) {
            ensure!(
                Instant::now() < deadline,
                "no server within {START:?}, see {}",
                self.directory.display()
            );
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Kills the server, as a crash does.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Kills the server and removes its data.
    pub fn wipe(&mut self) -> Result<()> {
        self.kill()?;
        fs::remove_dir_all(self.directory.join("data"))?;
        fs::create_dir_all(self.directory.join("data"))?;
        Ok(())
    }

    /// Stops the server such that it accepts connections and answers nothing.
    pub fn freeze(&self) -> Result<()> {
        self.signal("-STOP")
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) -> Result<()> {
        self.signal("-CONT")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let process = self.process.as_ref().context("the server does not run")?;
        let status = Command::new("kill")
            .args([signal, &process.id().to_string()])
            .status()?;
        ensure!(status.success(), "kill {signal} failed");
        Ok(())
    }

    /// The answer to a four-letter word.
    pub async fn ask(&self, word: &str) -> Result<String> {
        let asked = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.write_all(word.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok(answer)
        };
        timeout(Duration::from_secs(5), asked).await?
    }

    /// The connections that hold a session, as the server describes them.
    pub async fn connections(&self) -> Result<Vec<String>> {
        let answer = self.ask("cons").await?;
        Ok(answer
            .lines()
            .filter(|line| line.contains("sid=0x") && !line.contains("sid=0x0,"))
            .map(str::to_owned)
            .collect())
    }

    /// How many sessions the server knows, connected or not.
    pub async fn sessions(&self) -> Result<usize> {
        let answer = self.ask("mntr").await?;
        let line = answer
            .lines()
            .find_map(|line| line.strip_prefix("zk_global_sessions\t"));
        Ok(line.context("mntr tells no sessions")?.parse()?)
    }

    /// A client with a session of its own.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::connector()
            .with_fail_eagerly()
            .connect(&self.connect_string())
            .await?)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn jars() -> Result<PathBuf> {
    let cache = match (
        std::env::var_os("ESFLEET_CACHE"),
        std::env::var_os("XDG_CACHE_HOME"),
        std::env::var_os("HOME"),
    ) {
        (Some(cache), _, _) => PathBuf::from(cache),
        (None, Some(cache), _) => PathBuf::from(cache).join("esfleet"),
        (None, None, Some(home)) => PathBuf::from(home).join(".cache/esfleet"),
        (None, None, None) => anyhow::bail!("HOME is not set"),
    };
    let jars = cache.join("zookeeper").join(VERSION);
    ensure!(
        jars.is_dir(),
        "{} is missing: run the setup of the local clusters first",
        jars.display()
    );
    Ok(jars)
}
