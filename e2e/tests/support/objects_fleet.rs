//! Many apps on light clusters, one ensemble and two replicas: what they are given, and that they are then left alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use esfleet::api::EventSourcedApp;
use esfleet_e2e::audit::{AuditEvent, Mark};
use esfleet_e2e::{Cluster, Esfleet, TestContext, ZooKeeper, eventually};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, PostParams};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

/// The members; the first is the hub.
pub const MEMBERS: [&str; 2] = ["lima", "mike"];
/// How many requests the tests themselves have in flight.
const IN_FLIGHT: usize = 16;
/// The Lease, and what every API server looks at every ten seconds to see that it is listed itself.
const NOT_COUNTED: [&str; 3] = ["leases", "endpoints", "endpointslices"];
/// How many pings a session may send in a second at most.
const PINGS_PER_SECOND: u64 = 1;

/// The fleet.
pub struct Fleet<'a> {
    pub context: &'a TestContext,
    pub zookeeper: Arc<ZooKeeper>,
    pub esfleet: Esfleet,
    clusters: Vec<Arc<Cluster>>,
    /// The apps of each member.
    apps: usize,
    marks: Vec<Mark>,
    /// The term in which all is to be done.
    term: Option<i32>,
}

/// The resource version of each object of the namespace, by kind and name.
type Versions = BTreeMap<String, String>;
/// How many requests were answered, by verb and resource.
type Requests = BTreeMap<String, u64>;

impl<'a> Fleet<'a> {
    /// Two light clusters, an ensemble of `servers`, two replicas.
    pub async fn start(context: &'a TestContext, apps: usize, servers: usize) -> Result<Fleet<'a>> {
        let (zookeeper, first, second) = tokio::try_join!(
            context.own_zookeeper(servers),
            context.light_cluster(MEMBERS[0], &[]),
            context.light_cluster(MEMBERS[1], &[]),
        )?;
        let clusters = vec![first, second];
        let mut builder = context.esfleet()?.hub(&clusters[0]).replicas(2);
        for name in MEMBERS {
            builder = builder.with(context.member(name).await?);
        }
        let esfleet = builder.start().await?;
        esfleet.leader().await?;
        let marks = clusters
            .iter()
            .map(|cluster| cluster.audit()?.mark())
            .collect::<Result<_>>()?;
        let mut fleet = Fleet {
            context,
            zookeeper,
            esfleet,
            clusters,
            apps,
            marks,
            term: None,
        };
        fleet.term = fleet.term().await?;
        Ok(fleet)
    }

    /// The name of an app by its number.
    pub fn name(number: usize) -> String {
        format!("app-{number}")
    }

    /// How many apps there are.
    pub fn len(&self) -> usize {
        self.apps * MEMBERS.len()
    }

    /// Creates all apps, both members side by side.
    pub async fn create(&self) -> Result<()> {
        let mut creating = Vec::new();
        for member in MEMBERS {
            for number in 0..self.apps {
                creating.push(self.create_one(member, number).boxed());
            }
        }
        stream::iter(creating).buffer_unordered(IN_FLIGHT).try_collect().await
    }

    async fn create_one(&self, member: &'static str, number: usize) -> Result<()> {
        let mut app = self.context.app(&Fleet::name(number));
        app.spec.replicas = 2;
        app.spec.zookeeper_connect_string = self.zookeeper.connect_string().to_owned();
        app.spec.zookeeper_root_path = self.root(member, number);
        let api: Api<EventSourcedApp> = self.context.api(member).await?;
        let created = api.create(&PostParams::default(), &app).await;
        created
            .map(drop)
            .with_context(|| format!("creating app {number} in {member}"))
    }

    /// The root of an app; both members have apps of the same names.
    pub fn root(&self, member: &str, number: usize) -> String {
        format!("/{}/{member}/{}", self.context.id(), Fleet::name(number))
    }

    /// Waits until every app has its root, its objects, its status and its Event.
    pub async fn served(&self, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        for member in MEMBERS {
            let api: Api<EventSourcedApp> = self.context.api(member).await?;
            eventually(limit, &format!("all apps of {member} are served"), || async {
                let apps = api.list(&ListParams::default()).await?.items;
                let served = apps.iter().filter(|app| root_exists(app)).count();
                if served != self.apps {
                    tokio::time::sleep(Duration::from_millis(400)).await; // a look at all of them is no small thing
                    bail!("{served} of {}", self.apps);
                }
                Ok(())
            })
            .await?;
        }
        let events = self.len();
        let undisturbed = eventually(limit, "every app has its Event", || async {
            if self.term().await? != self.term {
                return Ok(false); // an Event is lost when the term ends between the status and it
            }
            let written = self
                .writes()?
                .iter()
                .filter(|(_, event)| event.resource == "events")
                .count();
            ensure!(written >= events, "{written} of {events}");
            Ok(true)
        })
        .await?;
        ensure!(
            undisturbed,
            "leadership changed while the apps were made: the machine is too busy to count anything"
        );
        Ok(start.elapsed())
    }

    async fn term(&self) -> Result<Option<i32>> {
        let lease = self.esfleet.lease().await?;
        Ok(lease
            .and_then(|lease| lease.spec)
            .and_then(|spec| spec.lease_transitions))
    }

    /// All that the replicas have written since the start, with the member; the Lease aside.
    fn writes(&self) -> Result<Vec<(&'static str, AuditEvent)>> {
        let mut all = Vec::new();
        for (index, (cluster, mark)) in self.clusters.iter().zip(&self.marks).enumerate() {
            for replica in self.esfleet.replicas() {
                let writes = replica.writes_since(cluster, *mark)?;
                let writes = writes.into_iter().filter(|event| event.resource != "leases");
                all.extend(writes.map(|event| (MEMBERS[index], event)));
            }
        }
        Ok(all)
    }

    /// The writes to each app that were more or less than one of each kind.
    pub fn unexpected_writes(&self) -> Result<Vec<String>> {
        let wanted: BTreeMap<String, usize> = [
            "events",
            "eventsourcedapps/status",
            "poddisruptionbudgets",
            "services",
            "statefulsets",
        ]
        .map(|resource| (resource.to_owned(), 1))
        .into();
        let mut by_app: BTreeMap<(&str, String), BTreeMap<String, usize>> = BTreeMap::new();
        for (member, event) in self.writes()? {
            ensure!(event.code / 100 == 2, "a write was refused: {event:?}");
            let app = event.name.split('.').next().unwrap_or_default().to_owned();
            *by_app
                .entry((member, app))
                .or_default()
                .entry(event.resource)
                .or_default() += 1;
        }
        ensure!(by_app.len() == self.len(), "{} apps were written to", by_app.len());
        by_app.retain(|_, counts| *counts != wanted);
        Ok(by_app
            .iter()
            .map(|((member, app), counts)| format!("{app} in {member}: {counts:?}"))
            .collect())
    }

    /// Nothing is written, read or asked of ZooKeeper for the whole of `window`, while both replicas run.
    pub async fn is_idle_for(&self, window: Duration) -> Result<()> {
        self.others_are_at_rest().await?;
        let begun = self.mark("before").await?;
        let versions = self.versions().await?;
        let requests = self.requests().await?;
        let zookeeper = (self.session().await?, self.znodes().await?);
        let packets = self.packets().await?;
        let holder = self.esfleet.leader().await?;
        tokio::time::sleep(window).await;
        let pings = self.packets().await?.saturating_sub(packets);
        assert_eq!(
            (self.session().await?, self.znodes().await?),
            zookeeper,
            "ZooKeeper was asked"
        );
        for (before, after) in requests.iter().zip(self.requests().await?) {
            let more: Vec<_> = after
                .iter()
                .filter(|(kind, count)| before.get(*kind) != Some(count))
                .collect();
            ensure!(
                more.is_empty(),
                "an API server was asked, all in all: {more:?}; before: {before:?}"
            );
        }
        assert_eq!(self.versions().await?, versions, "objects were changed");
        for (cluster, mark) in self.clusters.iter().zip(begun) {
            let mut written = cluster.audit()?.since(mark)?;
            written.retain(|event| event.resource != "leases" || event.name != self.esfleet.lease_name());
            ensure!(written.is_empty(), "{} was written to: {written:#?}", cluster.name());
        }
        self.mark("after").await?;
        let limit = PINGS_PER_SECOND * window.as_secs();
        ensure!(
            pings <= limit,
            "ZooKeeper got {pings} packets of the session, more than {limit} pings"
        );
        assert_eq!(self.esfleet.leader().await?, holder);
        for replica in self.esfleet.replicas() {
            let ended = replica.process.exited()?;
            ensure!(ended.is_none(), "{} ended: {ended:?}", replica.identity);
        }
        Ok(())
    }

    /// Waits until the garbage collectors, which look for new kinds every thirty seconds, know apps: they then list all of
    /// them and read many, as they have met objects before their owners. They know apps once they collect an object whose
    /// app does not exist.
    async fn others_are_at_rest(&self) -> Result<()> {
        let limit = Duration::from_secs(60);
        for member in MEMBERS {
            let maps: Api<ConfigMap> = self.context.api(member).await?;
            let owner = json!({
                "apiVersion": EventSourcedApp::api_version(&()), "kind": EventSourcedApp::kind(&()),
                "name": "nobody", "uid": "00000000-0000-4000-8000-000000000000",
            });
            let orphan = json!({"metadata": {"name": "orphan", "ownerReferences": [owner]}});
            let orphan = serde_json::from_value(orphan)?;
            maps.create(&PostParams::default(), &orphan).await?;
            eventually(
                limit,
                &format!("the garbage collector of {member} knows apps"),
                || async {
                    ensure!(maps.get_opt("orphan").await?.is_none(), "the orphan is still there");
                    Ok(())
                },
            )
            .await?;
        }
        eventually(limit, "the API servers are at rest", || async {
            let before = self.requests().await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            ensure!(self.requests().await? == before, "requests are answered");
            Ok(())
        })
        .await
    }

    /// Writes something of the test's own everywhere, sees it in the audit logs, and returns where they end then.
    async fn mark(&self, name: &str) -> Result<Vec<Mark>> {
        let mut marks = Vec::new();
        for (cluster, member) in self.clusters.iter().zip(MEMBERS) {
            let log = cluster.audit()?;
            let mark = log.mark()?;
            let maps: Api<ConfigMap> = self.context.api(member).await?;
            let marker = serde_json::from_value(json!({"metadata": {"name": format!("marker-{name}")}}))?;
            maps.create(&PostParams::default(), &marker).await?;
            let seen = log.since(mark)?;
            ensure!(
                seen.iter()
                    .any(|event| event.resource == "configmaps" && event.user == "admin"),
                "the audit log of {member} does not show the marker"
            );
            marks.push(log.mark()?);
        }
        Ok(marks)
    }

    async fn versions(&self) -> Result<Vec<Versions>> {
        let mut all = Vec::new();
        for member in MEMBERS {
            let mut versions = self.versions_of::<EventSourcedApp>(member).await?;
            versions.extend(self.versions_of::<StatefulSet>(member).await?);
            versions.extend(self.versions_of::<Service>(member).await?);
            versions.extend(self.versions_of::<PodDisruptionBudget>(member).await?);
            all.push(versions);
        }
        Ok(all)
    }

    async fn versions_of<K>(&self, member: &str) -> Result<Versions>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let objects = self
            .context
            .api::<K>(member)
            .await?
            .list_metadata(&ListParams::default())
            .await?;
        let version = |object: &kube::api::PartialObjectMeta<K>| {
            let version = object.resource_version().unwrap_or_default();
            (format!("{} {}", K::kind(&()), object.name_any()), version)
        };
        Ok(objects.iter().map(version).collect())
    }

    /// Per member, what its API server has answered so far: without watches, which are renewed, what is of no resource, as
    /// probes are, and [`NOT_COUNTED`].
    async fn requests(&self) -> Result<Vec<Requests>> {
        let mut all = Vec::new();
        for member in MEMBERS {
            let request = http::Request::get("/metrics").body(Vec::new())?;
            let metrics = self.context.client(member).await?.request_text(request).await?;
            let mut requests = Requests::new();
            for line in metrics
                .lines()
                .filter(|line| line.starts_with("apiserver_request_total{"))
            {
                let label = |name: &str| line.split(&format!(",{name}=\"")).nth(1)?.split('"').next();
                let (verb, resource) = (label("verb").unwrap_or_default(), label("resource").unwrap_or_default());
                let count = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
                if verb != "WATCH" && !resource.is_empty() && !NOT_COUNTED.contains(&resource) {
                    *requests.entry(format!("{verb} {resource}")).or_default() += count.unwrap_or_default() as u64;
                }
            }
            ensure!(requests.contains_key("LIST services"), "no counters: {requests:?}");
            all.push(requests);
        }
        Ok(all)
    }

    /// The one session, as its server describes it: its id, and the number and kind of its last request.
    async fn session(&self) -> Result<String> {
        let line = self.connection().await?;
        let field = |name: &str| -> Result<String> {
            let value = line
                .split(&format!("{name}="))
                .nth(1)
                .and_then(|rest| rest.split([',', ')']).next());
            Ok(value.with_context(|| format!("no {name} in {line}"))?.to_owned())
        };
        Ok(format!("session {}, last request {}", field("sid")?, field("lcxid")?))
    }

    /// How many packets the session's server got from it.
    async fn packets(&self) -> Result<u64> {
        let line = self.connection().await?;
        let value = line.split("recved=").nth(1).and_then(|rest| rest.split(',').next());
        value
            .context("no recved")?
            .parse()
            .with_context(|| format!("no number in {line}"))
    }

    /// The only connection that holds a session.
    async fn connection(&self) -> Result<String> {
        let mut lines = self.zookeeper.connections().await?;
        lines.retain(|line| line.contains("sid=0x") && !line.contains("sid=0x0,"));
        match &*lines {
            [line] => Ok(line.clone()),
            _ => bail!("{} sessions instead of one: {lines:#?}", lines.len()),
        }
    }

    async fn znodes(&self) -> Result<(String, String)> {
        let counters = self.zookeeper.counters(0).await?;
        let value = |name: &str| counters.get(name).cloned().with_context(|| format!("no {name}"));
        Ok((value("zk_znode_count")?, value("zk_watch_count")?))
    }
}

fn root_exists(app: &EventSourcedApp) -> bool {
    let conditions = app
        .status
        .as_ref()
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == "ZooKeeperReady" && condition.reason == "RootExists")
}
