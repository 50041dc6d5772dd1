//! esfleet replicas as processes of this machine.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

use crate::audit::{AuditEvent, Mark};
use crate::cluster::Cluster;
use crate::eventually::eventually;
use crate::image::binary;
use crate::member::{ACCOUNT, Access, Member, Source, access, grant};
use crate::process::{Process, tail};

/// How long a replica may take until it serves HTTP.
const SERVES_WITHIN: Duration = Duration::from_secs(20);
/// How long the replicas may take to agree on a leader: an old lease and a retry, on a busy machine.
const LEADS_WITHIN: Duration = Duration::from_secs(30);

/// What to start; made by `TestContext::esfleet`.
#[derive(Debug)]
pub struct EsfleetBuilder {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    pub(crate) hub: Arc<Cluster>,
    pub(crate) hub_via: Option<SocketAddr>,
    /// Per shared cluster: the scenario's namespace, as soon as it has one.
    pub(crate) members: Vec<Member>,
    pub(crate) replicas: usize,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
}

impl EsfleetBuilder {
    /// Adds a member.
    pub fn with(mut self, member: Member) -> Self {
        self.members.push(member);
        self
    }

    /// Adds a cluster of the scenario's own, all namespaces.
    pub fn member_of(self, cluster: &Arc<Cluster>) -> Self {
        self.with(Member::of(cluster, Vec::new()))
    }

    /// Adds a kubeconfig file as it is.
    pub fn member_file(self, name: &str, kubeconfig: &Path) -> Self {
        self.with(Member::file(name, kubeconfig))
    }

    /// Changes the member that was added last.
    pub fn last(mut self, change: impl FnOnce(&mut Member)) -> Self {
        if let Some(member) = self.members.last_mut() {
            change(member);
        }
        self
    }

    /// The member that was added last is reached by this address: a proxy.
    pub fn via(self, address: SocketAddr) -> Self {
        self.last(|member| {
            if let Source::Cluster { via, .. } = &mut member.source {
                *via = Some(address);
            }
        })
    }

    /// Which cluster holds the Lease; the shared cluster alpha otherwise.
    pub fn hub(mut self, cluster: &Arc<Cluster>) -> Self {
        self.hub = cluster.clone();
        self
    }

    /// The hub is reached by this address: a proxy.
    pub fn hub_via(mut self, address: SocketAddr) -> Self {
        self.hub_via = Some(address);
        self
    }

    /// How many replicas; 1 otherwise.
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// One more argument of `esfleet run`.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// One more environment variable.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Grants the manifest's permissions, starts the replicas, and returns once each serves HTTP.
    pub async fn start(self) -> Result<Esfleet> {
        let mut esfleet = self.prepare().await?;
        for _ in 0..esfleet.settings.replicas {
            esfleet.add_replica().await?;
        }
        for replica in &esfleet.replicas {
            replica.serves().await?;
        }
        Ok(esfleet)
    }

    /// Grants the manifest's permissions without starting anything: for `esfleet check` and `esfleet status` alone.
    pub async fn prepare(self) -> Result<Esfleet> {
        grant(&self.hub, &[], true).await.context("the hub")?;
        for member in &self.members {
            if let Source::Cluster { cluster, .. } = &member.source {
                grant(cluster, &member.namespaces, false).await?;
            }
        }
        std::fs::create_dir_all(&self.directory)?;
        Ok(Esfleet {
            settings: self,
            replicas: Vec::new(),
        })
    }
}

/// The replicas of one fleet; they are killed when this is dropped.
#[derive(Debug)]
pub struct Esfleet {
    settings: EsfleetBuilder,
    replicas: Vec<Replica>,
}

/// One replica.
#[derive(Debug)]
pub struct Replica {
    /// Its process: signals, log, memory, CPU.
    pub process: Process,
    /// What `--identity` says; the Lease's holder is this, `_` and a nonce.
    pub identity: String,
    /// Where it serves HTTP.
    pub http: SocketAddr,
    /// Its fleet config.
    pub fleet_config: PathBuf,
    /// The clusters that it reaches, with its token there.
    access: BTreeMap<String, (Arc<Cluster>, Access)>,
}

impl Esfleet {
    /// All replicas, in the order of their start; those that have ended stay in their place.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// The replica `index` (from 0).
    pub fn replica(&self, index: usize) -> Result<&Replica> {
        self.replicas
            .get(index)
            .with_context(|| format!("there is no replica {index}"))
    }

    /// Starts one more replica and returns its index; does not wait for it.
    pub async fn add_replica(&mut self) -> Result<usize> {
        let index = self.replicas.len();
        let identity = format!("{}-{index}", self.settings.name);
        let directory = self.settings.directory.join(&identity);
        std::fs::create_dir_all(&directory)?;
        let (fleet_config, mut access_by_name) = self.write_config(&directory).await?;
        let hub = access(
            &self.settings.hub,
            self.settings.hub_via,
            &directory.join("hub.kubeconfig"),
        )
        .await?;
        let http = free_address()?;
        let mut arguments: Vec<String> = ["run", "--log-format", "text", "--lease-namespace", ACCOUNT.0]
            .map(str::to_owned)
            .into();
        let values = [
            ("--fleet-config", fleet_config.display().to_string()),
            ("--lease-name", self.settings.name.clone()),
            ("--identity", identity.clone()),
            ("--hub-kubeconfig", hub.kubeconfig.display().to_string()),
            ("--http-addr", http.to_string()),
        ];
        arguments.extend(values.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
        arguments.extend(self.settings.arguments.iter().cloned());
        let log = directory.join("log");
        let environment = &self.settings.environment;
        let process = Process::start(&identity, &binary("esfleet")?, &arguments, environment, &log)?;
        access_by_name.insert("the hub".to_owned(), (self.settings.hub.clone(), hub));
        self.replicas.push(Replica {
            process,
            identity,
            http,
            fleet_config,
            access: access_by_name,
        });
        Ok(index)
    }

    /// Writes a fleet config with tokens of its own into `directory`.
    async fn write_config(&self, directory: &Path) -> Result<(PathBuf, BTreeMap<String, (Arc<Cluster>, Access)>)> {
        let mut access_by_name = BTreeMap::new();
        let mut entries = Vec::new();
        for member in &self.settings.members {
            let path = match &member.source {
                Source::File(path) => path.clone(),
                Source::Cluster { cluster, via } => {
                    let path = directory.join(format!("{}.kubeconfig", member.name));
                    let access = access(cluster, *via, &path).await?;
                    access_by_name.insert(member.name.clone(), (cluster.clone(), access));
                    path
                }
            };
            entries.push(member.entry(&path));
        }
        let config = json!({
            "apiVersion": "es.your.domain/v1alpha1",
            "kind": "FleetConfig",
            "metadata": {"name": self.settings.name},
            "clusters": entries,
        });
        let path = directory.join("fleet.yaml"); // JSON is YAML
        std::fs::write(&path, serde_json::to_string_pretty(&config)?)?;
        Ok((path, access_by_name))
    }

    /// A fleet config for commands that are not `run`, with tokens of its own.
    pub async fn fleet_config(&self) -> Result<PathBuf> {
        let directory = self.settings.directory.join("commands");
        let path = directory.join("fleet.yaml");
        if !path.exists() {
            std::fs::create_dir_all(&directory)?;
            self.write_config(&directory).await?;
        }
        Ok(path)
    }

    /// Runs `esfleet COMMAND --fleet-config F ARGUMENTS…` to its end, however that is.
    pub async fn command(&self, command: &str, arguments: &[&str]) -> Result<Output> {
        let config = self.fleet_config().await?;
        let config = config.to_str().context("a path in UTF-8")?;
        esfleet(&[&[command, "--fleet-config", config], arguments].concat()).await
    }

    /// The listing, as `esfleet status -o json` prints it.
    pub async fn status(&self) -> Result<Value> {
        let output = self.command("status", &["-o", "json"]).await?;
        ensure!(
            output.status.success(),
            "esfleet status: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).context("esfleet status -o json prints no JSON")
    }

    /// The Lease, if there is one.
    pub async fn lease(&self) -> Result<Option<Lease>> {
        let leases: Api<Lease> = Api::namespaced(self.settings.hub.client().await?, ACCOUNT.0);
        Ok(leases.get_opt(&self.settings.name).await?)
    }

    /// Waits until a replica that runs holds the Lease, and returns its index.
    pub async fn leader(&self) -> Result<usize> {
        eventually(LEADS_WITHIN, "a running replica holds the Lease", || async {
            let holder = self
                .lease()
                .await?
                .and_then(|lease| lease.spec)
                .and_then(|spec| spec.holder_identity);
            let holder = holder.context("nobody holds it")?;
            for (index, replica) in self.replicas.iter().enumerate() {
                let own = holder
                    .strip_prefix(&replica.identity)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
                if own && replica.process.exited()?.is_none() {
                    return Ok(index);
                }
            }
            bail!("{holder} holds it, which does not run")
        })
        .await
    }

    /// The index of some replica that does not lead.
    pub async fn follower(&self) -> Result<usize> {
        let leader = self.leader().await?;
        let others = self.replicas.iter().enumerate().filter(|(index, _)| *index != leader);
        for (index, replica) in others {
            if replica.process.exited()?.is_none() {
                return Ok(index);
            }
        }
        bail!("no other replica runs")
    }

    /// The name of the Lease, which is in the namespace `esfleet` of the hub.
    pub fn lease_name(&self) -> &str {
        &self.settings.name
    }
}

impl Replica {
    /// Waits until it serves HTTP.
    pub async fn serves(&self) -> Result<()> {
        eventually(SERVES_WITHIN, &format!("{} serves", self.identity), || async {
            if let Some(status) = self.process.exited()? {
                bail!("it ended ({status}): {}", tail(&self.process.log(), 10));
            }
            let (code, _) = self.get("/livez").await?;
            ensure!(code == 200, "/livez answers {code}");
            Ok(())
        })
        .await
    }

    /// Status and body of `GET path`.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        timeout(Duration::from_secs(5), http_get(self.http, path))
            .await
            .context("no answer within 5 s")?
    }

    /// `/api/v1/fleet`.
    pub async fn fleet(&self) -> Result<Value> {
        let (code, body) = self.get("/api/v1/fleet").await?;
        ensure!(code == 200, "/api/v1/fleet answers {code}: {body}");
        serde_json::from_str(&body).context("/api/v1/fleet is no JSON")
    }

    /// The sum of all samples of a metric whose labels contain `labels`, as written in `/metrics`.
    pub async fn metric(&self, name: &str, labels: &str) -> Result<f64> {
        let (code, body) = self.get("/metrics").await?;
        ensure!(code == 200, "/metrics answers {code}");
        let samples = body.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
        });
        let values: Vec<f64> = samples
            .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
            .collect();
        ensure!(!values.is_empty(), "/metrics has no {name} with {labels}");
        Ok(values.iter().sum())
    }

    /// What this replica wrote to a cluster since `mark`: by its own token there and, if the cluster is the hub, by the hub's.
    pub fn writes_since(&self, cluster: &Cluster, mark: Mark) -> Result<Vec<AuditEvent>> {
        let here = self
            .access
            .values()
            .filter(|(other, _)| other.kubeconfig() == cluster.kubeconfig());
        let ours: Vec<&str> = here.map(|(_, access)| access.credential.as_str()).collect();
        ensure!(
            !ours.is_empty(),
            "{} has no access to {}",
            self.identity,
            cluster.name()
        );
        let mut events = cluster.audit()?.since(mark)?;
        events.retain(|event| event.credential.as_deref().is_some_and(|id| ours.contains(&id)));
        Ok(events)
    }

    /// The kubeconfig by which it reaches a member.
    pub fn kubeconfig(&self, member: &str) -> Result<&Path> {
        let (_, access) = self.access.get(member).with_context(|| format!("no member {member}"))?;
        Ok(&access.kubeconfig)
    }
}

/// Runs `esfleet` with these arguments to its end, however that is.
pub async fn esfleet(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary("esfleet")?);
    command.args(arguments).kill_on_drop(true);
    let ended = timeout(Duration::from_secs(60), command.output()).await;
    ended
        .with_context(|| format!("esfleet {} did not end within 60 s", arguments.join(" ")))?
        .context("cannot start esfleet")
}

/// An address of this machine that nobody listened on a moment ago.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0").context("no free port")?.local_addr()?)
}

/// HTTP/1.0, so that the answer ends with the connection.
pub async fn http_get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)
        .await
        .with_context(|| format!("cannot connect to {address}"))?;
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())
        .await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let code = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .context("no status code")?;
    Ok((code, body.to_owned()))
}
