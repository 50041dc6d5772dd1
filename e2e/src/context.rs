//! What one scenario sees of the world: namespaces, clients, apps, esfleet replicas and ZooKeeper of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use esfleet::api::{EventSourcedApp, EventSourcedAppSpec};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Namespace, PodSpec, PodTemplateSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::esfleet::EsfleetBuilder;
use crate::eventually::{eventually, step};
use crate::member::{ACCOUNT, Access, Member, access, grant};
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
        TestContext::with_id(world, name, &id)
    }

    /// A context whose namespaces, Lease and roots have this name.
    pub fn with_id(world: &Arc<World>, name: &str, id: &str) -> Result<TestContext> {
        let id = id.to_owned();
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

    /// `GET path` of a pod of the scenario's namespace (port 8080), through its API server; what is no success is an error.
    pub async fn pod_get(&self, cluster: &str, pod: &str, path: &str) -> Result<Value> {
        self.pod_request(cluster, pod, "GET", path, Vec::new()).await
    }

    /// `POST path` with a JSON body, likewise.
    pub async fn pod_post(&self, cluster: &str, pod: &str, path: &str, body: &Value) -> Result<Value> {
        self.pod_request(cluster, pod, "POST", path, serde_json::to_vec(body)?)
            .await
    }

    async fn pod_request(&self, cluster: &str, pod: &str, method: &str, path: &str, body: Vec<u8>) -> Result<Value> {
        let namespace = self.namespace(cluster).await?;
        let uri = format!("/api/v1/namespaces/{namespace}/pods/{pod}:8080/proxy{path}");
        let request = http::Request::builder()
            .method(method)
            .uri(uri)
            .header("Content-Type", "application/json");
        let client = self.client(cluster).await?;
        let answer = timeout(Duration::from_secs(10), client.request_text(request.body(body)?)).await;
        let text = answer.with_context(|| format!("{pod} does not answer {method} {path} within 10 s"))??;
        serde_json::from_str(&text).with_context(|| format!("{pod} answers {method} {path} with no JSON: {text}"))
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
    ///
    /// Its overlay makes pods ready when the sample app says that it is healthy.
    pub fn app(&self, name: &str) -> EventSourcedApp {
        let spec = EventSourcedAppSpec {
            replicas: 1,
            image: self.world.sample_image(1),
            zookeeper_connect_string: self.world.zookeeper().connect_string().to_owned(),
            zookeeper_root_path: self.root(name),
            template: Some(Box::new(sample_template())),
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

    /// Leaves existing clusters and ZooKeeper as they were: waits until no pod writes any more, then removes the
    /// Lease and `/ID`. What the manifest made stays: one's own esfleet may use it.
    async fn empty_existing(&self) -> Result<()> {
        for (cluster, namespace) in self.namespaces().await {
            let api: Api<Namespace> = Api::all(self.client(&cluster).await?);
            eventually(
                APP_WITHIN,
                &format!("namespace {namespace} is gone from {cluster}"),
                || async {
                    ensure!(api.get_opt(&namespace).await?.is_none(), "it is still there");
                    Ok(())
                },
            )
            .await?;
        }
        let lease = ["-n", ACCOUNT.0, "delete", "lease", &*self.id, "--ignore-not-found"];
        self.cluster("alpha")?.kubectl(&lease).await?;
        let zookeeper = self.zookeeper().await?;
        let mut rest = vec![format!("/{}", self.id)];
        while let Some(path) = rest.last().cloned() {
            match zookeeper.list_children(&path).await {
                Ok(children) if !children.is_empty() => {
                    rest.extend(children.iter().map(|child| format!("{path}/{child}")))
                }
                Ok(_) => {
                    zookeeper.delete(&path, None).await?;
                    rest.pop();
                }
                Err(zookeeper_client::Error::NoNode) => drop(rest.pop()),
                Err(error) => return Err(error).context(path),
            }
        }
        Ok(())
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
        if self.world.is_existing() {
            self.empty_existing().await?;
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

/// The overlay of apps that run the sample image.
fn sample_template() -> PodTemplateSpec {
    let probe = Probe {
        http_get: Some(HTTPGetAction {
            path: Some("/health".to_owned()),
            port: IntOrString::Int(8080),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(1),
        failure_threshold: Some(2),
        ..Probe::default()
    };
    let container = Container {
        name: "es-app".to_owned(),
        readiness_probe: Some(probe),
        ..Container::default()
    };
    let spec = PodSpec {
        containers: vec![container],
        termination_grace_period_seconds: Some(10),
        ..PodSpec::default()
    };
    PodTemplateSpec {
        metadata: None,
        spec: Some(spec),
    }
}

/// The status of a condition, if it speaks of the app's present generation.
pub fn condition(app: &EventSourcedApp, kind: &str) -> Option<String> {
    let conditions = &app.status.as_ref()?.conditions;
    let condition = conditions.iter().find(|condition| condition.type_ == kind)?;
    (condition.observed_generation == app.metadata.generation).then(|| condition.status.clone())
}
