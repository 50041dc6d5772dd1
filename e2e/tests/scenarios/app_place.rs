//! One member with one esfleet, and looks at what is in it: what the scenarios of one app share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use esfleet::api::EventSourcedApp;
use esfleet_e2e::{AuditEvent, Cluster, Esfleet, TestContext, eventually};
use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodSpec, Service};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use zookeeper_client::{Acls, Client, CreateMode};

/// How long anything may take that needs no pod.
pub const SOON: Duration = Duration::from_secs(20);
/// How long pods may take to come and go on a busy machine.
pub const PODS: Duration = Duration::from_secs(90);

/// A kind of object as JSON.
pub trait Object:
    kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + DeserializeOwned
    + Serialize
    + std::fmt::Debug
{
}

impl<K> Object for K where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Serialize
        + std::fmt::Debug
{
}

/// The scenario's namespace of one cluster.
pub struct Place<'a> {
    pub context: &'a TestContext,
    pub cluster: &'static str,
}

/// An Event: its type, its reason and its note.
pub type Told = (String, String, String);

impl<'a> Place<'a> {
    /// The place, with one esfleet that looks after it.
    pub async fn with_esfleet(context: &'a TestContext, cluster: &'static str) -> Result<(Place<'a>, Esfleet)> {
        let member = context.member(cluster).await?;
        let esfleet = context.esfleet()?.with(member).start().await?;
        Ok((Place { context, cluster }, esfleet))
    }

    pub fn cluster(&self) -> Result<Arc<Cluster>> {
        self.context.cluster(self.cluster)
    }

    pub async fn api<K: Object>(&self) -> Result<Api<K>> {
        self.context.api(self.cluster).await
    }

    /// An object as JSON.
    pub async fn get<K: Object>(&self, name: &str) -> Result<Value> {
        Ok(serde_json::to_value(self.api::<K>().await?.get(name).await?)?)
    }

    pub async fn exists<K: Object>(&self, name: &str) -> Result<bool> {
        Ok(self.api::<K>().await?.get_opt(name).await?.is_some())
    }

    pub async fn app(&self, name: &str) -> Result<EventSourcedApp> {
        Ok(self.api().await?.get(name).await?)
    }

    /// Changes fields of an object as somebody who merges patches.
    pub async fn merge<K: Object>(&self, name: &str, patch: Value) -> Result<Value> {
        let answer = self
            .api::<K>()
            .await?
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(serde_json::to_value(answer)?)
    }

    /// Waits until an object is as wanted; `wanted` says what it is instead.
    pub async fn becomes<K: Object>(
        &self,
        limit: Duration,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> Result<()>,
    ) -> Result<Value> {
        eventually(limit, &format!("{} {name}: {what}", K::kind(&())), || async {
            let object = self.get::<K>(name).await?;
            wanted(&object)?;
            Ok(object)
        })
        .await
    }

    /// Waits until an object is there, or is not.
    pub async fn is_there<K: Object>(&self, name: &str, wanted: bool) -> Result<()> {
        let what = format!(
            "{} {name} {}",
            K::kind(&()),
            if wanted { "exists" } else { "does not exist" }
        );
        eventually(PODS, &what, || async {
            ensure!(self.exists::<K>(name).await? == wanted, "it is otherwise");
            Ok(())
        })
        .await
    }

    /// What esfleet told of an app since it was made, in the order of time.
    pub async fn told(&self, app: &EventSourcedApp) -> Result<Vec<Told>> {
        let events: Api<Event> = self.api().await?;
        let about = |event: &Event| event.regarding.as_ref().is_some_and(|it| it.uid == app.metadata.uid);
        let mut events = events.list(&ListParams::default()).await?.items;
        events.retain(about);
        events.sort_by(|a, b| a.event_time.cmp(&b.event_time));
        let told = |event: Event| {
            (
                event.type_.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.note.unwrap_or_default(),
            )
        };
        Ok(events.into_iter().map(told).collect())
    }

    /// The same, of one reason.
    pub async fn told_of(&self, app: &EventSourcedApp, reason: &str) -> Result<Vec<Told>> {
        let mut told = self.told(app).await?;
        told.retain(|(_, of, _)| of == reason);
        Ok(told)
    }

    /// Waits until esfleet has told an app of this reason last, so that nothing is on its way any more.
    pub async fn told_last(&self, app: &EventSourcedApp, reason: &str) -> Result<Vec<Told>> {
        eventually(SOON, &format!("the last Event is {reason}"), || async {
            let told = self.told(app).await?;
            ensure!(told.last().is_some_and(|(_, last, _)| last == reason), "{told:?}");
            Ok(told)
        })
        .await
    }

    /// Waits until an app has a condition of this reason, for its present generation.
    pub async fn condition(&self, name: &str, kind: &str, state: &str, reason: &str) -> Result<EventSourcedApp> {
        let wanted = (state, reason);
        self.context
            .wait_app(self.cluster, name, &format!("{kind} {state} {reason}"), |app| {
                condition(app, kind).is_some_and(|(state, reason, _)| (&*state, &*reason) == wanted)
            })
            .await
    }

    /// The names and UIDs of an app's pods that are not going.
    pub async fn pods(&self, app: &str) -> Result<Vec<(String, String)>> {
        let pods: Api<Pod> = self.api().await?;
        let list = pods.list(&ListParams::default().labels(&format!("app={app}"))).await?;
        let mut pods: Vec<(String, String)> = list
            .items
            .into_iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .filter_map(|pod| Some((pod.metadata.name?, pod.metadata.uid?)))
            .collect();
        pods.sort();
        Ok(pods)
    }

    /// Waits until an app has so many pods.
    pub async fn has_pods(&self, app: &str, count: usize) -> Result<Vec<(String, String)>> {
        eventually(PODS, &format!("{app} has {count} pods"), || async {
            let pods = self.pods(app).await?;
            ensure!(pods.len() == count, "{pods:?}");
            Ok(pods)
        })
        .await
    }

    /// What esfleet wrote in the scenario's namespace since a mark in the audit log.
    pub fn writes(&self, esfleet: &Esfleet, mark: esfleet_e2e::audit::Mark) -> Result<Vec<AuditEvent>> {
        let mut writes = esfleet.replica(0)?.writes_since(self.cluster()?.as_ref(), mark)?;
        writes.retain(|write| write.namespace == self.context.id());
        Ok(writes)
    }

    /// The same, without statuses and Events.
    pub fn object_writes(&self, esfleet: &Esfleet, mark: esfleet_e2e::audit::Mark) -> Result<Vec<AuditEvent>> {
        let mut writes = self.writes(esfleet, mark)?;
        writes.retain(|write| !["eventsourcedapps/status", "events"].contains(&&*write.resource));
        Ok(writes)
    }

    /// Lets esfleet look at an app `times` times, by changes to its StatefulSet that are nothing to it.
    pub async fn looked_at(&self, esfleet: &Esfleet, name: &str, times: u32) -> Result<()> {
        for _ in 0..times {
            let before = reconciles(esfleet).await?;
            let stamp = json!({"metadata": {"annotations": {"example.com/touched": format!("{before}")}}});
            self.merge::<StatefulSet>(name, stamp).await?;
            eventually(SOON, "esfleet looks at the app", || async {
                let now = reconciles(esfleet).await?;
                ensure!(now > before, "{now} looks, {before} before");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// An app whose pods fit on no node: for what can be seen without any pod running.
    pub fn app_without_nodes(&self, name: &str, replicas: i32) -> EventSourcedApp {
        let mut app = self.context.app(name);
        app.spec.replicas = replicas;
        if let Some(spec) = app.spec.template.as_mut().and_then(|template| template.spec.as_mut()) {
            unschedulable(spec);
        }
        app
    }

    /// Its three objects, one after the other.
    pub async fn objects(&self, name: &str) -> Result<[Value; 3]> {
        Ok([
            self.get::<Service>(name).await?,
            self.get::<StatefulSet>(name).await?,
            self.get::<PodDisruptionBudget>(name).await?,
        ])
    }

    /// Waits until the three objects exist.
    pub async fn made(&self, name: &str) -> Result<[Value; 3]> {
        eventually(SOON, "the three objects exist", || self.objects(name)).await
    }
}

fn unschedulable(spec: &mut PodSpec) {
    spec.node_selector = Some([("example.com/nowhere".to_owned(), "true".to_owned())].into());
}

/// State, reason and message of a condition that speaks of the app's present generation.
pub fn condition(app: &EventSourcedApp, kind: &str) -> Option<(String, String, String)> {
    let conditions = &app.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    let current = found.observed_generation == app.metadata.generation;
    current.then(|| (found.status.clone(), found.reason.clone(), found.message.clone()))
}

/// The leader in an app's status.
pub fn leader(app: &EventSourcedApp) -> Option<&str> {
    app.status.as_ref()?.leader.as_deref()
}

/// How often esfleet has looked at apps.
pub async fn reconciles(esfleet: &Esfleet) -> Result<f64> {
    let replica = esfleet.replica(0)?;
    Ok(replica.metric("esfleet_reconciles_total", "").await.unwrap_or(0.0))
}

/// What of an object nobody but its owner decides: all but what changes with every write, and its status.
pub fn substance(object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!({
        "labels": metadata["labels"], "annotations": metadata["annotations"],
        "ownerReferences": metadata["ownerReferences"], "spec": object["spec"],
    })
}

/// Writes `<root>/leader` as an app would, but to stay.
pub async fn write_leader(zookeeper: &Client, path: &str, data: &[u8]) -> Result<i64> {
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    match zookeeper.create(path, data, &open).await {
        Ok((stat, _)) => Ok(stat.ctime),
        Err(zookeeper_client::Error::NodeExists) => Ok(zookeeper.set_data(path, data, None).await?.mtime),
        Err(error) => Err(error).context(path.to_owned()),
    }
}

/// Compares whole values and says which differ.
pub fn same(what: &str, found: &Value, wanted: &Value) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    bail!("{what} is {found}, wanted {wanted}")
}

/// A leader, and when a watch told of it, in milliseconds since 1970.
type Change = (Option<String>, u128);

/// The leaders that an app's status has named, with the moments at which a watch told of them.
pub struct LeaderLog {
    seen: Arc<Mutex<Vec<Change>>>,
    read: usize,
    task: JoinHandle<()>,
}

impl LeaderLog {
    /// Watches from the version of `app` on.
    pub async fn start(place: &Place<'_>, app: &EventSourcedApp) -> Result<LeaderLog> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (sink, version) = (seen.clone(), app.resource_version().context("a resource version")?);
        let only = WatchParams::default().fields(&format!("metadata.name={}", app.name_any()));
        let mut last = leader(app).map(str::to_owned);
        let stream = place.api::<EventSourcedApp>().await?.watch(&only, &version).await?;
        let task = tokio::spawn(async move {
            let mut stream = std::pin::pin!(stream);
            while let Some(Ok(event)) = stream.next().await {
                let now = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default()
                    .as_millis();
                if let WatchEvent::Modified(app) = event {
                    let leader = leader(&app).map(str::to_owned);
                    if leader != last {
                        sink.lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push((leader.clone(), now));
                        last = leader;
                    }
                }
            }
        });
        Ok(LeaderLog { seen, read: 0, task })
    }

    /// When the status named this leader last, in milliseconds since 1970; waits until it does.
    pub async fn when(&self, wanted: Option<&str>) -> Result<u128> {
        eventually(SOON, &format!("the status names {wanted:?}"), || async {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let last = seen.last().filter(|(leader, _)| leader.as_deref() == wanted);
            last.map(|(_, at)| *at).with_context(|| format!("{seen:?}"))
        })
        .await
    }

    /// When the status changed after the change that was asked for last; that has to be to `wanted`.
    pub async fn next(&mut self, wanted: Option<&str>) -> Result<u128> {
        let index = self.read;
        self.read += 1;
        eventually(
            SOON,
            &format!("change {index} of the leader is to {wanted:?}"),
            || async {
                let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                let (leader, at) = seen.get(index).with_context(|| format!("{seen:?}"))?;
                ensure!(leader.as_deref() == wanted, "{seen:?}");
                Ok(*at)
            },
        )
        .await
    }
}

impl Drop for LeaderLog {
    fn drop(&mut self) {
        self.task.abort();
    }
}
