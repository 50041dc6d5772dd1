//! Members as fleet configs name them, and the permissions that esfleet has in them: exactly the manifest's.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::cluster::Cluster;
use crate::eventually::eventually;
use crate::image::binary;
use crate::paths::run;

/// The namespace and the name of the ServiceAccount that `esfleet member manifest` makes.
pub const ACCOUNT: (&str, &str) = ("esfleet", "esfleet");

/// One entry of a fleet config.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its namespaces; empty: all.
    pub namespaces: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is paused.
    pub paused: bool,
    /// How it is reached.
    pub source: Source,
}

/// How esfleet reaches a member.
#[derive(Debug, Clone)]
pub enum Source {
    /// A cluster of the test, by a ServiceAccount with the manifest's permissions; `via`: a proxy.
    Cluster {
        /// The cluster.
        cluster: Arc<Cluster>,
        /// The address to reach it by, if not its own.
        via: Option<SocketAddr>,
    },
    /// A kubeconfig file as it is, good or bad.
    File(PathBuf),
}

impl Member {
    /// A cluster under its own name.
    pub fn of(cluster: &Arc<Cluster>, namespaces: Vec<String>) -> Member {
        let source = Source::Cluster {
            cluster: cluster.clone(),
            via: None,
        };
        Member {
            name: cluster.name().to_owned(),
            namespaces,
            labels: BTreeMap::new(),
            paused: false,
            source,
        }
    }

    /// A kubeconfig file as it is.
    pub fn file(name: &str, path: &Path) -> Member {
        let source = Source::File(path.to_owned());
        Member {
            name: name.to_owned(),
            namespaces: Vec::new(),
            labels: BTreeMap::new(),
            paused: false,
            source,
        }
    }

    /// Its entry in a fleet config that lies beside its kubeconfig.
    pub(crate) fn entry(&self, kubeconfig: &Path) -> Value {
        json!({
            "name": self.name,
            "kubeconfig": {"path": kubeconfig},
            "namespaces": self.namespaces,
            "labels": self.labels,
            "paused": self.paused,
        })
    }
}

/// A kubeconfig for esfleet, and what tells its user in the audit log.
#[derive(Debug, Clone)]
pub struct Access {
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// The id of its token, as audit events name it.
    pub credential: String,
}

/// Applies what `esfleet member manifest` prints for these namespaces (none: all), or for the hub.
pub async fn grant(cluster: &Cluster, namespaces: &[String], hub: bool) -> Result<()> {
    let _one_at_a_time = cluster.shared_objects.lock().await;
    let list = namespaces.join(",");
    let mut arguments = vec!["member", "manifest"];
    if !namespaces.is_empty() {
        arguments.extend(["--namespaces", &list]);
    }
    if hub {
        arguments.push("--hub");
    }
    let mut command = Command::new(binary("esfleet")?);
    command.args(arguments);
    let manifest = run(command, "esfleet member manifest").await?;
    cluster
        .apply(&manifest)
        .await
        .context("the manifest of esfleet member manifest")?;
    if hub {
        return Ok(()); // what the hub needs includes no definition
    }
    eventually(
        Duration::from_secs(30),
        "the definition of apps is established",
        || async {
            let conditions = "jsonpath={.status.conditions[?(@.type==\"Established\")].status}";
            let crd = "crd/eventsourcedapps.es.your.domain";
            let status = cluster.kubectl(&["get", crd, "-o", conditions]).await?;
            ensure!(status == "True", "Established: {status:?}");
            Ok(())
        },
    )
    .await
}

/// Writes a kubeconfig with a fresh token of the ServiceAccount; `via`: the address to reach the cluster by.
pub async fn access(cluster: &Cluster, via: Option<SocketAddr>, path: &Path) -> Result<Access> {
    let (namespace, account) = ACCOUNT;
    let token = cluster
        .kubectl(&["create", "token", account, "-n", namespace, "--duration=24h"])
        .await?;
    let mut config = cluster.minified_kubeconfig().await?;
    config["users"][0]["user"] = json!({"token": token.trim()});
    if let Some(address) = via {
        config["clusters"][0]["cluster"]["server"] = json!(format!("https://{address}"));
    }
    std::fs::write(path, serde_json::to_string_pretty(&config)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let credential = credential(cluster, token.trim()).await?;
    Ok(Access {
        kubeconfig: path.to_owned(),
        credential,
    })
}

/// The id by which the audit log names a token.
async fn credential(cluster: &Cluster, token: &str) -> Result<String> {
    let spec = TokenReviewSpec {
        token: Some(token.to_owned()),
        audiences: None,
    };
    let review = TokenReview {
        spec,
        ..TokenReview::default()
    };
    let reviewed = Api::<TokenReview>::all(cluster.client().await?)
        .create(&PostParams::default(), &review)
        .await?;
    let extra = reviewed
        .status
        .and_then(|status| status.user)
        .and_then(|user| user.extra)
        .unwrap_or_default();
    let ids = extra
        .get("authentication.kubernetes.io/credential-id")
        .and_then(|ids| ids.first());
    ids.cloned().context("the API server gives the token no credential-id")
}
