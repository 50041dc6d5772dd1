//! What the scenarios of the fleet share: quick elections, apps without pods, rows, and esfleet run by hand.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use esfleet::api::EventSourcedApp;
use esfleet_e2e::context::condition;
use esfleet_e2e::esfleet::{EsfleetBuilder, free_address, http_get};
use esfleet_e2e::image::binary;
use esfleet_e2e::{AuditEvent, Process, Replica, TestContext, eventually};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use serde_json::{Value, json};

/// How long anything may take that ought to be there soon, on a busy machine.
pub const SOON: Duration = Duration::from_secs(45);

/// A lease of 4 s and a probe every second, where the defaults are not what is tested.
pub const QUICK: [&str; 8] = [
    "--lease-duration",
    "4s",
    "--renew-deadline",
    "3s",
    "--retry-period",
    "500ms",
    "--probe-interval",
    "1s",
];

/// esfleet with [`QUICK`] times.
pub fn quick(context: &TestContext) -> Result<EsfleetBuilder> {
    let builder = context.esfleet()?;
    Ok(QUICK
        .iter()
        .fold(builder, |builder, argument| builder.argument(argument)))
}

/// An app whose pods no node takes; its root is `/ID/CLUSTER/NAME`.
pub fn resting_app(context: &TestContext, cluster: &str, name: &str) -> EventSourcedApp {
    let mut app = context.app(name);
    app.spec.zookeeper_root_path = context.root(&format!("{cluster}/{name}"));
    if let Some(spec) = app.spec.template.as_mut().and_then(|template| template.spec.as_mut()) {
        let nowhere = BTreeMap::from([("es.your.domain/nowhere".to_owned(), "true".to_owned())]);
        spec.node_selector = Some(nowhere);
    }
    app
}

/// Waits until an app has its root, its StatefulSet and a status of its present generation.
pub async fn served(context: &TestContext, cluster: &str, name: &str) -> Result<EventSourcedApp> {
    let app = context
        .wait_app(cluster, name, "served", |app| {
            condition(app, "ZooKeeperReady").as_deref() == Some("True")
        })
        .await?;
    has_replicas(context, cluster, name, app.spec.replicas).await?;
    Ok(app)
}

/// Waits until the StatefulSet of an app wants this many pods.
pub async fn has_replicas(context: &TestContext, cluster: &str, name: &str, wanted: i32) -> Result<()> {
    let sets = context.api::<StatefulSet>(cluster).await?;
    eventually(SOON, &format!("{name} in {cluster} has {wanted} replicas"), || async {
        let found = sets.get(name).await?.spec.and_then(|spec| spec.replicas);
        ensure!(found == Some(wanted), "{found:?}");
        Ok(())
    })
    .await
}

/// Scales an app and waits until esfleet has carried it over.
pub async fn scale(context: &TestContext, cluster: &str, name: &str, replicas: i32) -> Result<()> {
    order(context, cluster, name, replicas).await?;
    has_replicas(context, cluster, name, replicas).await
}

/// Scales an app, as the administrator.
pub async fn order(context: &TestContext, cluster: &str, name: &str, replicas: i32) -> Result<()> {
    let (app, replicas) = (format!("esapp/{name}"), format!("--replicas={replicas}"));
    context.kubectl(cluster, &["scale", &app, &replicas]).await.map(drop)
}

/// The row of a member or an app of that name.
pub fn row<'l>(listing: &'l Value, list: &str, name: &str) -> Result<&'l Value> {
    let rows = listing[list].as_array().context("the listing has rows")?;
    let found = rows.iter().find(|row| row["name"] == name);
    found.with_context(|| format!("{list} of the listing has no {name}: {listing}"))
}

/// Whether a row of a member has this state and reason; the row is in the error otherwise.
pub fn check_member(listing: &Value, name: &str, state: &str, reason: Option<&str>) -> Result<Value> {
    let row = row(listing, "clusters", name)?;
    ensure!(row["state"] == state && row["reason"] == json!(reason), "{row}");
    Ok(row.clone())
}

/// Waits until a replica shows a member in this state for this reason, and returns its row.
pub async fn member_is(replica: &Replica, name: &str, state: &str, reason: Option<&str>) -> Result<Value> {
    eventually(SOON, &format!("{name} is {state} ({reason:?})"), || async {
        check_member(&replica.fleet().await?, name, state, reason)
    })
    .await
}

/// What a member's row says in a sentence.
pub fn told(row: &Value) -> Result<&str> {
    row["message"].as_str().with_context(|| format!("no message: {row}"))
}

/// Waits until `/readyz` says ok.
pub async fn ready(replica: &Replica) -> Result<()> {
    eventually(SOON, &format!("{} is ready", replica.identity), || async {
        let (code, body) = replica.get("/readyz").await?;
        ensure!(code == 200, "{code}: {body}");
        Ok(())
    })
    .await
}

/// Writes something as the administrator, and fails unless the audit log shows it: so what it does not show was not written.
pub async fn prove_audit_is_live(context: &TestContext, cluster: &str) -> Result<()> {
    let log = context.cluster(cluster)?.audit()?;
    let mark = log.mark()?;
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"generateName": "marker-"}}))?;
    let made = context
        .api::<ConfigMap>(cluster)
        .await?
        .create(&PostParams::default(), &map)
        .await?;
    eventually(SOON, "the audit log shows the marker", || async {
        let events = log.since(mark)?;
        let marker = |event: &AuditEvent| {
            event.resource == "configmaps" && event.namespace == context.id() && event.user == "admin"
        };
        ensure!(events.iter().any(marker), "it does not show {:?}", made.metadata.name);
        Ok(())
    })
    .await
}

/// What was written besides the Lease.
pub fn but_the_lease(events: Vec<AuditEvent>) -> Vec<AuditEvent> {
    events.into_iter().filter(|event| event.resource != "leases").collect()
}

/// One esfleet process started by hand, for what the builder does not do.
pub struct ByHand {
    pub process: Process,
    pub http: SocketAddr,
}

impl ByHand {
    /// Starts `esfleet run` with these arguments, quick times and a free address.
    pub fn start(
        context: &TestContext,
        name: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<ByHand> {
        let http = free_address()?;
        let mut all = vec!["run".to_owned(), "--http-addr".to_owned(), http.to_string()];
        all.extend(QUICK.iter().chain(arguments).map(|argument| (*argument).to_owned()));
        let environment: Vec<(String, String)> = environment
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let log = context.state().join(format!("{name}.log"));
        let process = Process::start(name, &binary("esfleet")?, &all, &environment, &log)?;
        Ok(ByHand { process, http })
    }

    /// Status and body of `GET path`.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        if let Some(status) = self.process.exited()? {
            bail!("it ended ({status}): {}", self.process.log());
        }
        http_get(self.http, path).await
    }

    /// `/api/v1/fleet`.
    pub async fn fleet(&self) -> Result<Value> {
        serde_json::from_str(&self.get("/api/v1/fleet").await?.1).context("no JSON")
    }

    /// Waits until this replica leads.
    pub async fn leads(&self) -> Result<()> {
        eventually(SOON, "it leads", || async {
            let leadership = self.fleet().await?["leadership"].clone();
            ensure!(leadership["leads"] == true, "{leadership}");
            Ok(())
        })
        .await
    }

    /// Waits until its log has all of these in one line.
    pub async fn logs(&self, parts: &[&str]) -> Result<()> {
        eventually(SOON, &format!("the log says {parts:?}"), || async {
            let log = self.process.log();
            let said = log.lines().any(|line| parts.iter().all(|part| line.contains(part)));
            ensure!(said, "{log}");
            Ok(())
        })
        .await
    }
}

/// Writes a file into the scenario's directory.
pub fn file(context: &TestContext, name: &str, text: &str) -> Result<PathBuf> {
    let path = context.state().join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
