//! A real ZooKeeper server and real `es-sample` processes for the sample app's own tests.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use zookeeper_client as zk;

/// The longest that anything here is waited for, on a busy machine too.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The pods' session timeout.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(3);

pub const PERSISTENT: zk::CreateOptions<'static> = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());

/// Waits until `poll` has something, asking again and again; fails the test after [`LIMIT`].
pub async fn eventually<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = poll().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {LIMIT:?} for this: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A directory that goes with the test, unless the test fails.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "es-sample-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("logs are in {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// A standalone ZooKeeper server.
pub struct ZooKeeper {
    port: u16,
    process: Option<Child>,
    directory: PathBuf,
}

impl ZooKeeper {
    async fn start(directory: PathBuf) -> Self {
        let port = free_port();
        std::fs::create_dir_all(directory.join("data")).unwrap();
        let config = format!(
            "tickTime=500\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n",
            directory.join("data").display()
        );
        std::fs::write(directory.join("zoo.cfg"), config).unwrap();
        let mut server = Self {
            port,
            process: None,
            directory,
        };
        server.restart().await;
        server
    }

    /// Where it serves.
    pub fn connect_string(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Ends it without warning.
    pub async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().await.unwrap();
        }
    }

    /// Starts it on the data that it had, and waits until it serves.
    pub async fn restart(&mut self) {
        let jars = std::env::var_os("ESFLEET_CACHE").map_or_else(
            || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/esfleet"),
            PathBuf::from,
        );
        let jars = jars.join("zookeeper/3.9.5");
        assert!(jars.is_dir(), "no ZooKeeper in {}; run the setup first", jars.display());
        let class_path = jars.join("*");
        let mut command = dies_with_us("java");
        command
            .args([
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Dzookeeper.forceSync=no",
                "-cp",
            ])
            .arg(class_path)
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.directory.join("zoo.cfg"));
        self.process = Some(spawn(command, &self.directory.join("log")));
        let connect = self.connect_string();
        eventually("ZooKeeper serves", async || {
            zk::Client::connector()
                .with_fail_eagerly()
                .connect(&connect)
                .await
                .ok()
                .map(drop)
        })
        .await;
    }
}

/// One process of the sample app.
pub struct Pod {
    pub name: String,
    pub address: String,
    process: Child,
    log: PathBuf,
}

impl Pod {
    /// Sends a signal by name.
    pub async fn signal(&self, signal: &str) {
        let pid = self.process.id().unwrap();
        let command = format!("kill -{signal} {pid}");
        assert!(
            Command::new("sh")
                .args(["-c", &command])
                .status()
                .await
                .unwrap()
                .success(),
            "{command}"
        );
    }

    /// Waits for its end; the exit code, if no signal ended it.
    pub async fn ended(&mut self) -> Option<i32> {
        tokio::time::timeout(LIMIT, self.process.wait())
            .await
            .unwrap()
            .unwrap()
            .code()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Its state, if it answers.
    pub async fn state(&self) -> Option<Value> {
        request(&self.address, "GET", "/state", None)
            .await
            .map(|(_, state)| state)
    }

    /// Posts an event: the status and the body, if it answers.
    pub async fn post(&self, event: &Value) -> Option<(u16, Value)> {
        post(&self.address, event).await
    }

    /// What every account holds.
    pub async fn accounts(&self) -> Value {
        request(&self.address, "GET", "/accounts", None).await.unwrap().1
    }
}

/// Three pods of one app on a server of their own.
pub struct Bank {
    pub zookeeper: ZooKeeper,
    pub pods: Vec<Pod>,
    segment_size: u32,
    directory: Directory,
}

impl Bank {
    /// The app's root.
    pub const ROOT: &str = "/apps/bank";

    /// Starts the server, makes the root, and starts the pods.
    pub async fn start(segment_size: u32) -> Self {
        let mut bank = Self::without_root(segment_size).await;
        bank.make_root().await;
        bank.start_pods().await;
        bank
    }

    /// Starts the server only.
    pub async fn without_root(segment_size: u32) -> Self {
        let directory = Directory::new();
        let zookeeper = ZooKeeper::start(directory.0.join("zookeeper")).await;
        Self {
            zookeeper,
            pods: Vec::new(),
            segment_size,
            directory,
        }
    }

    /// Makes the root, as esfleet does.
    pub async fn make_root(&self) {
        self.client().await.mkdir(Self::ROOT, &PERSISTENT).await.unwrap();
    }

    /// Starts the pods; they need not have a leader yet.
    pub async fn start_pods(&mut self) {
        for name in ["bank-0", "bank-1", "bank-2"] {
            let pod = self.start_pod(name).await;
            self.pods.push(pod);
        }
    }

    /// Starts one pod.
    pub async fn start_pod(&self, name: &str) -> Pod {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let log = self
            .directory
            .0
            .join(format!("{name}-{}.log", NEXT.fetch_add(1, Ordering::Relaxed)));
        let mut command = dies_with_us(env!("CARGO_BIN_EXE_es-sample"));
        command
            .env("POD_NAME", name)
            .env("ZK_CONNECT_STRING", self.zookeeper.connect_string())
            .env("ZK_ROOT_PATH", Self::ROOT)
            .env("LISTEN", "127.0.0.1:0")
            .env("SEGMENT_SIZE", self.segment_size.to_string())
            .env("SESSION_TIMEOUT_MS", SESSION_TIMEOUT.as_millis().to_string())
            .env("APP_VERSION", "test-1");
        let process = spawn(command, &log);
        let address = eventually("a pod says where it serves", async || {
            let text = std::fs::read_to_string(&log).unwrap();
            let (_, rest) = text.split_once("serves on ")?;
            rest.split_once('\n').map(|(address, _)| address.to_owned())
        })
        .await;
        Pod {
            name: name.to_owned(),
            address,
            process,
            log,
        }
    }

    /// A session of the test's own.
    pub async fn client(&self) -> zk::Client {
        zk::Client::connect(&self.zookeeper.connect_string()).await.unwrap()
    }

    /// Waits until one of these pods leads, under an epoch later than `after`, and the others follow it: its place.
    pub async fn leader(&self, among: &[usize], after: i64) -> (usize, i64) {
        eventually("one pod leads and the others follow it", async || {
            let mut leads = None;
            let mut views = Vec::new();
            for &place in among {
                let state = self.pods[place].state().await?;
                if state["role"] == "leader" {
                    leads = Some(place);
                }
                views.push((
                    state["leader"].clone(),
                    state["epoch"].as_i64()?,
                    state["healthy"].clone(),
                ));
            }
            let place = leads?;
            let epoch = views.first()?.1;
            let expected = (json!(self.pods[place].name), epoch, json!(true));
            (epoch > after && views.iter().all(|view| *view == expected)).then_some((place, epoch))
        })
        .await
    }

    /// Waits until these pods have applied the same records, at least `applied` of them: their common state.
    pub async fn agreement(&self, among: &[usize], applied: u64) -> Value {
        eventually("all pods have the same digest", async || {
            let mut states = Vec::new();
            for &place in among {
                let state = self.pods[place].state().await?;
                states.push(json!({"applied": state["applied"], "digest": state["digest"]}));
            }
            let enough = states[0]["applied"].as_u64()? >= applied;
            (enough && states.iter().all(|state| *state == states[0])).then(|| states[0].clone())
        })
        .await
    }
}

/// Sends a request: the status and the body as JSON; nothing when the connection or the deadline fails.
pub async fn request(address: &str, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<&[u8]>>();
    let body = body.map(Value::to_string).unwrap_or_default();
    let bytes: &'static [u8] = body.into_bytes().leak();
    let request = http::Request::builder()
        .method(method)
        .uri(format!("http://{address}{path}"))
        .body(Full::new(bytes))
        .unwrap();
    let exchange = async {
        let response = client.request(request).await.ok()?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.ok()?.to_bytes();
        Some((status, serde_json::from_slice(&body).unwrap()))
    };
    tokio::time::timeout(LIMIT, exchange).await.ok()?
}

/// Posts an event to an address.
pub async fn post(address: &str, event: &Value) -> Option<(u16, Value)> {
    request(address, "POST", "/events", Some(event)).await
}

/// A deposit of 1 into an account, under an id if there is one.
pub fn deposit(id: Option<&str>, account: &str) -> Value {
    let command = json!({"deposit": {"account": account, "amount": 1}});
    match id {
        Some(id) => json!({"id": id, "command": command}),
        None => json!({"command": command}),
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A command whose process is killed with this one, however this one ends.
fn dies_with_us(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--", program])
        .kill_on_drop(true)
        .stdin(Stdio::null());
    command
}

fn spawn(mut command: Command, log: &Path) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
    command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}
