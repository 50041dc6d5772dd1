//! What one scenario sees of the world: namespaces, clients, apps, esfleet replicas and ZooKeeper of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use esfleet::api::{EventSourcedApp, EventSourcedAppSpec};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::cluster::Cluster;
use crate::esfleet::EsfleetBuilder;
use crate::eventually::{eventually, step};
use crate::member::{Access, Member, access, grant};
use crate::world::World;
use crate::zookeeper::ZooKeeper;

/// How long an app may take to become what a scenario waits for.
const APP_WITHIN: Duration = Duration::from_secs(90);

/// Counts scenarios and what they start, for names that meet no others.
static COUNTER: AtomicUsize = AtomicUsize::new(0);

/// The context of one scenario.
pub struct TestContext {
    world: Arc<World>,
    name: String,
    id: String,
    state: PathBuf,
    namespaces: tokio::sync::Mutex<BTreeMap<String, String>>,
    clients: tokio::sync::Mutex<BTreeMap<String, kube::Client>>,
    own_clusters: Mutex<Vec<Arc<Cluster>>>,
    own_zookeepers: Mutex<Vec<Arc<ZooKeeper>>>,
}

impl TestContext {
    /// A context with a name of its own.
    pub fn new(world: &Arc<World>, name: &str) -> Result<TestContext> {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let short: String = name.rsplit("::").next().unwrap_or(name).chars().take(32).collect();
        let id = format!(
            "{}-{}-{number}",
            short.replace('_', "-").trim_matches('-'),
            std::process::id()
        );
        let state = world.state().join(&id);
        std::fs::create_dir_all(&state).with_context(|| format!("cannot create {}", state.display()))?;
        Ok(TestContext {
            world: world.clone(),
            name: name.to_owned(),
            id,
            state,
            namespaces: tokio::sync::Mutex::default(),
            clients: tokio::sync::Mutex::default(),
            own_clusters: Mutex::default(),
            own_zookeepers: Mutex::default(),
        })
    }

    /// What all scenarios share.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The scenario's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A DNS label that no other scenario has: namespaces, Leases and roots are named by it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A directory of the scenario's own.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// A shared cluster, or one that the scenario started.
    pub fn cluster(&self, name: &str) -> Result<Arc<Cluster>> {
        let own = self.own_clusters.lock().unwrap_or_else(PoisonError::into_inner);
        match own.iter().find(|cluster| cluster.name() == name) {
            Some(cluster) => Ok(cluster.clone()),
            None => self.world.cluster(name).cloned(),
        }
    }

    /// Starts a light cluster (objects only, no pods) of the scenario's own; it ends with the scenario.
    pub async fn light_cluster(&self, name: &str, controllers: &[&str]) -> Result<Arc<Cluster>> {
        let start = Cluster::light(&self.world.paths, name, &self.state, controllers);
        let cluster = Arc::new(step(&format!("light cluster {name}"), start).await?);
        self.own_clusters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(cluster.clone());
        Ok(cluster)
    }

    /// Starts ZooKeeper servers of the scenario's own, to be killed and wiped at will; they end with the scenario.
    pub async fn own_zookeeper(&self, count: usize) -> Result<Arc<ZooKeeper>> {
        let state = self
            .state
            .join(format!("zk{}", COUNTER.fetch_add(1, Ordering::Relaxed)));
        let start = ZooKeeper::start(&self.world.paths, &state, count, &[]);
        let zookeeper = Arc::new(step("ZooKeeper of the scenario's own", start).await?);
        self.own_zookeepers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(zookeeper.clone());
        Ok(zookeeper)
    }

    /// The scenario's namespace in a cluster; made when it is asked for first.
    pub async fn namespace(&self, cluster: &str) -> Result<String> {
        let mut namespaces = self.namespaces.lock().await;
        if !namespaces.contains_key(cluster) {
            let object: Namespace = serde_json::from_value(json!({"metadata": {"name": self.id}}))?;
            let api: Api<Namespace> = Api::all(self.client(cluster).await?);
            api.create(&PostParams::default(), &object)
                .await
                .with_context(|| format!("namespace in {cluster}"))?;
            namespaces.insert(cluster.to_owned(), self.id.clone());
        }
        Ok(self.id.clone())
    }

    /// A client with the administrator's rights.
    pub async fn client(&self, cluster: &str) -> Result<kube::Client> {
        let mut clients = self.clients.lock().await;
        if let Some(client) = clients.get(cluster) {
            return Ok(client.clone());
        }
        let client = self.cluster(cluster)?.client().await?;
        clients.insert(cluster.to_owned(), client.clone());
        Ok(client)
    }

    /// Objects of one kind in the scenario's namespace, with the administrator's rights.
    pub async fn api<K>(&self, cluster: &str) -> Result<Api<K>>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        let namespace = self.namespace(cluster).await?;
        Ok(Api::namespaced(self.client(cluster).await?, &namespace))
    }

    /// `kubectl` in the scenario's namespace, as the administrator.
    pub async fn kubectl(&self, cluster: &str, arguments: &[&str]) -> Result<String> {
        let namespace = self.namespace(cluster).await?;
        self.cluster(cluster)?
            .kubectl(&[&["-n", &*namespace], arguments].concat())
            .await
    }

    /// A new session on the shared ensemble.
    pub async fn zookeeper(&self) -> Result<zookeeper_client::Client> {
        self.world.zookeeper().client().await
    }

    /// The root of an app of that name: `/ID/NAME`.
    pub fn root(&self, app: &str) -> String {
        format!("/{}/{app}", self.id)
    }

    /// An app of the sample image on the shared ensemble with one replica; change what should differ, then apply it.
    pub fn app(&self, name: &str) -> EventSourcedApp {
        let spec = EventSourcedAppSpec {
            replicas: 1,
            image: self.world.sample_image(1),
            zookeeper_connect_string: self.world.zookeeper().connect_string().to_owned(),
            zookeeper_root_path: self.root(name),
            template: None,
            volume_claim_templates: Vec::new(),
            persistent_volume_claim_retention_policy: None,
            paused: false,
        };
        EventSourcedApp::new(name, spec)
    }

    /// Creates or changes an app in the scenario's namespace, by field manager `e2e`.
    pub async fn apply_app(&self, cluster: &str, app: &EventSourcedApp) -> Result<EventSourcedApp> {
        let api: Api<EventSourcedApp> = self.api(cluster).await?;
        let applied = api
            .patch(&app.name_any(), &PatchParams::apply("e2e").force(), &Patch::Apply(app))
            .await;
        applied.with_context(|| format!("applying app {} in {cluster}", app.name_any()))
    }

    /// Waits until an app is as wanted, and returns it; its status is in the message when the time is up.
    pub async fn wait_app(
        &self,
        cluster: &str,
        name: &str,
        what: &str,
        wanted: impl Fn(&EventSourcedApp) -> bool,
    ) -> Result<EventSourcedApp> {
        let api: Api<EventSourcedApp> = self.api(cluster).await?;
        eventually(APP_WITHIN, &format!("app {name} in {cluster}: {what}"), || async {
            let app = api.get(name).await?;
            if wanted(&app) {
                return Ok(app);
            }
            bail!(
                "generation {:?}, status {}",
                app.metadata.generation,
                serde_json::to_string(&app.status)?
            )
        })
        .await
    }

    /// Waits until `Ready` is true for the app's present generation.
    pub async fn wait_ready(&self, cluster: &str, name: &str) -> Result<EventSourcedApp> {
        self.wait_app(cluster, name, "Ready", |app| {
            condition(app, "Ready").as_deref() == Some("True")
        })
        .await
    }

    /// A kubeconfig for esfleet with exactly the permissions that the manifest gives for the scenario's namespace.
    pub async fn member_kubeconfig(&self, cluster: &str) -> Result<Access> {
        let namespace = self.namespace(cluster).await?;
        let cluster = self.cluster(cluster)?;
        grant(&cluster, &[namespace], false).await?;
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        access(
            &cluster,
            None,
            &self.state.join(format!("{}-{number}.kubeconfig", cluster.name())),
        )
        .await
    }

    /// esfleet replicas on the shared cluster alpha as hub; add members, then start it.
    pub fn esfleet(&self) -> Result<EsfleetBuilder> {
        Ok(EsfleetBuilder {
            name: self.id.clone(),
            directory: self
                .state
                .join(format!("esfleet{}", COUNTER.fetch_add(1, Ordering::Relaxed))),
            hub: self.world.cluster("alpha")?.clone(),
            hub_via: None,
            members: Vec::new(),
            replicas: 1,
            arguments: Vec::new(),
            environment: Vec::new(),
        })
    }

    /// The scenario's namespace of a cluster, as a member under the cluster's name.
    pub async fn member(&self, cluster: &str) -> Result<Member> {
        let namespace = self.namespace(cluster).await?;
        Ok(Member::of(&self.cluster(cluster)?, vec![namespace]))
    }

    /// What the scenario put into clusters, for the report: cluster and namespace.
    pub(crate) async fn namespaces(&self) -> Vec<(String, String)> {
        self.namespaces.lock().await.clone().into_iter().collect()
    }

    /// The scenario's own clusters.
    pub(crate) fn own_clusters(&self) -> Vec<Arc<Cluster>> {
        self.own_clusters.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends and deletes what is the scenario's own; namespaces go in the background.
    pub async fn finish(&self) -> Result<()> {
        for (cluster, namespace) in self.namespaces().await {
            if self.own_clusters().iter().any(|own| own.name() == cluster) {
                continue;
            }
            let client = self.client(&cluster).await?;
            Api::<Namespace>::all(client)
                .delete(&namespace, &DeleteParams::default())
                .await?;
        }
        for cluster in self.own_clusters() {
            cluster.down().await?;
        }
        let zookeepers = self
            .own_zookeepers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for zookeeper in zookeepers {
            zookeeper.down().await?;
        }
        Ok(())
    }
}

/// The status of a condition, if it speaks of the app's present generation.
pub fn condition(app: &EventSourcedApp, kind: &str) -> Option<String> {
    let conditions = &app.status.as_ref()?.conditions;
    let condition = conditions.iter().find(|condition| condition.type_ == kind)?;
    (condition.observed_generation == app.metadata.generation).then(|| condition.status.clone())
}
