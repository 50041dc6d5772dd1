//! One Kubernetes cluster: a full one with pods, a light one of objects only, or one that was there before.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::audit::AuditLog;
use crate::paths::{Paths, run};
use crate::server::Server;

/// A cluster and the administrator's way into it.
#[derive(Debug)]
pub struct Cluster {
    name: String,
    kubeconfig: PathBuf,
    paths: Paths,
    kind: Kind,
    /// Held while cluster-wide objects are applied, which scenarios share.
    pub(crate) shared_objects: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
enum Kind {
    /// kubelet, containerd, pods; the state directory of all clusters of its group.
    Full(PathBuf),
    /// etcd, API server, a few controllers, on loopback.
    Light {
        state: PathBuf,
        components: Vec<(&'static str, Server)>,
    },
    /// Somebody's own: nothing is done to it but what the API allows.
    Existing,
}

impl Cluster {
    fn new(paths: &Paths, name: &str, kubeconfig: PathBuf, kind: Kind) -> Cluster {
        let (name, paths) = (name.to_owned(), paths.clone());
        Cluster {
            name,
            kubeconfig,
            paths,
            kind,
            shared_objects: tokio::sync::Mutex::new(()),
        }
    }

    /// Starts a full cluster with its state below `state`; returns when its node is Ready.
    pub async fn full(paths: &Paths, name: &str, state: &Path) -> Result<Cluster> {
        let kubeconfig = paths.script("cluster-up", &[name, utf8(state)?], &[]).await?;
        Ok(Cluster::new(
            paths,
            name,
            PathBuf::from(kubeconfig.trim()),
            Kind::Full(state.to_owned()),
        ))
    }

    /// Starts a light cluster with its state below `state`; returns when its API server is ready.
    ///
    /// `controllers`: which of kube-controller-manager's run besides the garbage collector and those of namespaces.
    pub async fn light(paths: &Paths, name: &str, state: &Path, controllers: &[&str]) -> Result<Cluster> {
        let mut all = vec![
            "garbage-collector-controller",
            "namespace-controller",
            "serviceaccount-controller",
        ];
        all.extend(controllers);
        let environment = [("ESFLEET_CONTROLLERS", &*all.join(","))];
        let kubeconfig = paths
            .script("control-plane-up", &[name, utf8(state)?], &environment)
            .await?;
        let directory = state.join(name);
        let component = |component: &'static str| (component, Server::at(directory.join(component)));
        let components = ["etcd", "kube-apiserver", "kube-controller-manager"]
            .map(component)
            .into();
        let kind = Kind::Light {
            state: state.to_owned(),
            components,
        };
        Ok(Cluster::new(paths, name, PathBuf::from(kubeconfig.trim()), kind))
    }

    /// Uses a cluster that is there already.
    pub fn existing(paths: &Paths, name: &str, kubeconfig: &Path) -> Cluster {
        Cluster::new(paths, name, kubeconfig.to_owned(), Kind::Existing)
    }

    /// The name that fleet configs give it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Whether it runs pods of images that this machine made.
    pub fn is_full(&self) -> bool {
        matches!(self.kind, Kind::Full(_))
    }

    /// A client with the administrator's rights.
    pub async fn client(&self) -> Result<kube::Client> {
        client(&self.kubeconfig).await
    }

    /// Where its API server listens.
    pub async fn address(&self) -> Result<SocketAddr> {
        let config = self.minified_kubeconfig().await?;
        let server = config
            .pointer("/clusters/0/cluster/server")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let authority = server.trim_start_matches("https://").trim_end_matches('/');
        authority
            .parse()
            .with_context(|| format!("{server:?} does not name an address and a port"))
    }

    /// The administrator's kubeconfig with nothing but the current context, files inlined.
    pub(crate) async fn minified_kubeconfig(&self) -> Result<Value> {
        let text = self
            .kubectl(&["config", "view", "--raw", "--minify", "--flatten", "-o", "json"])
            .await?;
        serde_json::from_str(&text).context("kubectl config view prints no JSON")
    }

    /// Runs `kubectl` as the administrator and returns what it prints.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let what = format!("kubectl {} in {}", arguments.join(" "), self.name);
        run(self.kubectl_command(arguments), &what).await
    }

    /// Runs `kubectl` as the administrator with `input` on standard input.
    pub async fn kubectl_with(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut command = self.kubectl_command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start kubectl")?;
        let mut stdin = child.stdin.take().context("kubectl has no standard input")?;
        stdin.write_all(input.as_bytes()).await?;
        drop(stdin);
        let output = child.wait_with_output().await?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!(
                "kubectl {} in {} failed: {}",
                arguments.join(" "),
                self.name,
                errors.trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Applies YAML as the administrator would with `kubectl apply -f -`.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        self.kubectl_with(&["apply", "--server-side", "--force-conflicts", "-f", "-"], yaml)
            .await
            .map(drop)
    }

    fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.paths.bin.join("kubectl"));
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--request-timeout=30s")
            .args(arguments);
        command.kill_on_drop(true);
        command
    }

    /// Loads an OCI tar; pods need `imagePullPolicy: IfNotPresent` or `Never`.
    pub async fn load_image(&self, tar: &Path) -> Result<()> {
        let state = self.own_state("images are loaded")?;
        self.paths
            .script("image-load", &[&self.name, utf8(tar)?, utf8(state)?], &[])
            .await
            .map(drop)
    }

    /// Runs a command inside the namespaces of a full cluster: `ps`, `ip`, `pkill -STOP kube-apiserver`.
    pub async fn exec(&self, command: &[&str]) -> Result<String> {
        let state = self.own_state("commands are run")?;
        self.paths
            .script("cluster-exec", &[&[&*self.name, utf8(state)?], command].concat(), &[])
            .await
    }

    /// Cuts a full cluster off: packets to and from it are lost.
    pub async fn unplug(&self) -> Result<()> {
        self.link("down").await
    }

    /// Connects it again.
    pub async fn plug(&self) -> Result<()> {
        self.link("up").await
    }

    async fn link(&self, state: &str) -> Result<()> {
        let index = std::fs::read_to_string(self.own_state("links are changed")?.join(&self.name).join("index"))?;
        let mut command = Command::new("ip");
        command.args(["link", "set", &format!("esf{}", index.trim()), state]);
        run(command, "ip link set").await.map(drop)
    }

    /// A process of a light cluster: `etcd`, `kube-apiserver` or `kube-controller-manager`.
    pub fn component(&self, name: &str) -> Result<&Server> {
        let Kind::Light { components, .. } = &self.kind else {
            bail!("{} is not a light cluster", self.name)
        };
        let found = components.iter().find(|(component, _)| *component == name);
        found
            .map(|(_, server)| server)
            .with_context(|| format!("a light cluster has no {name}"))
    }

    /// Its audit log.
    pub fn audit(&self) -> Result<AuditLog> {
        let state = match &self.kind {
            Kind::Full(state) | Kind::Light { state, .. } => state,
            Kind::Existing => bail!("{} was there before: its audit log is elsewhere", self.name),
        };
        Ok(AuditLog::at(state.join(&self.name).join("logs/audit.log")))
    }

    /// The logs of its own processes, for reports.
    pub fn logs(&self) -> Option<PathBuf> {
        match &self.kind {
            Kind::Full(state) | Kind::Light { state, .. } => Some(state.join(&self.name).join("logs")),
            Kind::Existing => None,
        }
    }

    /// Ends it, if it is ours.
    pub async fn down(&self) -> Result<()> {
        let (script, state) = match &self.kind {
            Kind::Full(state) => ("cluster-down", state),
            Kind::Light { state, .. } => ("control-plane-down", state),
            Kind::Existing => return Ok(()),
        };
        self.paths
            .script(script, &[&self.name, utf8(state)?], &[])
            .await
            .map(drop)
    }

    fn own_state(&self, what: &str) -> Result<&Path> {
        match &self.kind {
            Kind::Full(state) => Ok(state),
            Kind::Light { .. } | Kind::Existing => {
                bail!("{what} only in full clusters of our own, which {} is not", self.name)
            }
        }
    }
}

/// A client for the current context of a kubeconfig.
pub async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("kubeconfig {}", kubeconfig.display()))?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

pub(crate) fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is no UTF-8", path.display()))
}
