//! The election against a real API server, whose kubeconfig `ESFLEET_TEST_KUBECONFIG` names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in a test file a panic is how a test fails"
)]

use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esfleet::leadership::{
    Election, ElectionConfig, ElectionError, LeadershipMetrics, LeadershipView, SystemBootClock, Term,
};
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

const NAME: &str = "esfleet";
const FAST: Timing = Timing {
    lease: 3,
    renew_deadline_ms: 2000,
    retry_ms: 500,
};
const DEFAULT: Timing = Timing {
    lease: 15,
    renew_deadline_ms: 10_000,
    retry_ms: 2000,
};

#[derive(Clone, Copy)]
struct Timing {
    lease: u64,
    renew_deadline_ms: u64,
    retry_ms: u64,
}

/// A namespace of its own for each test, removed at its end.
struct Hub {
    client: kube::Client,
    namespace: String,
}

impl Hub {
    async fn new() -> Hub {
        let client = client().await;
        let stamp = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_nanos();
        let namespace = format!("leadership-{stamp}");
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        Hub { client, namespace }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create(&self, name: &str, spec: Value) {
        let lease = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        self.leases().create(&PostParams::default(), &lease).await.unwrap();
    }

    async fn spec(&self) -> k8s_openapi::api::coordination::v1::LeaseSpec {
        self.leases().get(NAME).await.unwrap().spec.unwrap()
    }

    async fn remove(self) {
        Api::<Namespace>::all(self.client)
            .delete(&self.namespace, &DeleteParams::default())
            .await
            .unwrap();
    }
}

/// Each contender has its own, as each process has.
async fn client() -> kube::Client {
    kube::Client::try_from(client_config().await).unwrap()
}

async fn client_config() -> kube::Config {
    // What the replicas said is shown when a test fails.
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("esfleet=debug"))
        .with_test_writer()
        .try_init()
        .ok();
    let path = std::env::var_os("ESFLEET_TEST_KUBECONFIG")
        .map(PathBuf::from)
        .expect("set ESFLEET_TEST_KUBECONFIG to the kubeconfig of a cluster for tests");
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    config
}

/// One replica in the election; `won` tells each term it wins, and the moment.
struct Contender {
    shutdown: CancellationToken,
    view: watch::Receiver<LeadershipView>,
    task: JoinHandle<Result<(), ElectionError>>,
}

type Won = (String, Arc<Term>, Instant);

async fn contend(hub: &Hub, lease: &str, name: &str, timing: Timing, won: mpsc::UnboundedSender<Won>) -> Contender {
    let config = ElectionConfig {
        lease: Duration::from_secs(timing.lease),
        renew_deadline: Duration::from_millis(timing.renew_deadline_ms),
        retry: Duration::from_millis(timing.retry_ms),
        attempt: Duration::from_millis(timing.renew_deadline_ms / 2),
        ..ElectionConfig::new(&hub.namespace, lease, name)
    };
    let clock = Arc::new(SystemBootClock);
    let election = Election::new(client().await, config, LeadershipMetrics::default(), clock);
    let shutdown = CancellationToken::new();
    let view = election.view();
    let name = name.to_owned();
    let run = election.run(shutdown.clone(), move |term| {
        won.send((name.clone(), term.clone(), Instant::now())).ok();
        async move { term.cancellation().cancelled().await }
    });
    Contender {
        shutdown,
        view,
        task: tokio::spawn(run),
    }
}

impl Contender {
    /// Waits until it knows who holds the Lease: then it has tried, and has won or lost.
    async fn settled(&mut self) -> String {
        let known = self
            .view
            .wait_for(|view| view.holder.as_ref().is_some_and(|holder| holder != "dead"));
        within(Duration::from_secs(10), "knows the holder", known)
            .await
            .unwrap()
            .holder
            .clone()
            .unwrap()
    }

    async fn stop(self) {
        self.shutdown.cancel();
        assert_eq!(self.task.await.unwrap(), Ok(()));
    }

    /// As SIGKILL: nothing is said to anybody.
    async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {limit:?}"))
}

/// Lets three contend for the Lease as it is, and returns the numbers of the terms that were won.
async fn race(hub: &Hub, lease: &str, limit: Duration) -> Vec<i64> {
    let (sender, mut winners) = mpsc::unbounded_channel();
    let mut contenders = Vec::new();
    for name in ["a", "b", "c"] {
        contenders.push(contend(hub, lease, name, DEFAULT, sender.clone()).await);
    }
    let (_, term, _) = within(limit, "somebody wins", winners.recv()).await.unwrap();
    let mut holders = BTreeSet::new();
    for contender in &mut contenders {
        holders.insert(contender.settled().await);
    }
    assert_eq!(holders.len(), 1, "{holders:?}");
    let mut won = vec![term.number()];
    won.extend(std::iter::from_fn(|| winners.try_recv().ok()).map(|(_, term, _)| term.number()));
    assert!(!term.ended());
    for contender in contenders {
        contender.kill().await;
    }
    won
}

/// Exactly one term was won, under the next number; or a later one, when the answer to the first write was too late.
fn only_winner(won: &[i64], number: i64) -> Result<(), String> {
    match won {
        [only] if *only >= number => Ok(()),
        _ => Err(format!("won {won:?}, expected {number}")),
    }
}

async fn one_wins_every_round(rounds: u32, spec: Option<Value>, number: i64) {
    let hub = Hub::new().await;
    for round in 0..rounds {
        let lease = format!("round-{round}");
        if let Some(spec) = &spec {
            hub.create(&lease, spec.clone()).await;
        }
        let won = race(&hub, &lease, Duration::from_secs(10)).await;
        assert_eq!(only_winner(&won, number), Ok(()), "round {round}");
    }
    hub.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_three_contenders_exactly_one_wins_a_released_lease_in_each_of_fifty_rounds() {
    let released = json!({"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 4});
    one_wins_every_round(50, Some(released), 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_wins_a_lease_that_does_not_exist() {
    one_wins_every_round(20, None, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_wins_a_lease_with_an_empty_spec() {
    one_wins_every_round(20, Some(json!({})), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_wins_a_lease_that_expires_by_the_local_clock_in_each_of_fifty_rounds() {
    let hub = Hub::new().await;
    // The renew time is far ahead: the wall clock of the holder must not matter.
    let dead = json!({
        "holderIdentity": "dead", "leaseDurationSeconds": 2, "leaseTransitions": 7,
        "acquireTime": "2124-01-01T00:00:00.000000Z", "renewTime": "2124-01-01T00:00:00.000000Z",
    });
    let rounds = (0..50).map(async |round| {
        let lease = format!("expired-{round}");
        hub.create(&lease, dead.clone()).await;
        only_winner(&race(&hub, &lease, Duration::from_secs(30)).await, 8)
    });
    // Side by side, as each waits two seconds for the Lease to expire.
    let won = futures::stream::iter(rounds)
        .buffer_unordered(10)
        .collect::<Vec<_>>()
        .await;
    assert_eq!(won, vec![Ok(()); 50]);
    hub.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_taken_over_within_two_seconds_by_a_follower() {
    let hub = Hub::new().await;
    let (sender, mut winners) = mpsc::unbounded_channel();
    let first = contend(&hub, NAME, "first", DEFAULT, sender.clone()).await;
    let (name, term, _) = within(Duration::from_secs(5), "the first wins", winners.recv())
        .await
        .unwrap();
    assert_eq!((name.as_str(), term.number()), ("first", 0));
    let mut second = contend(&hub, NAME, "second", DEFAULT, sender.clone()).await;
    second.settled().await;
    let asked = Instant::now();
    first.stop().await;
    assert!(term.ended());
    let (name, term, won) = within(Duration::from_secs(2), "the follower wins", winners.recv())
        .await
        .unwrap();
    assert_eq!((name.as_str(), term.number()), ("second", 1));
    println!("hand-over after {:?}", won.duration_since(asked));
    second.stop().await;
    let spec = hub.spec().await;
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
    assert_eq!(spec.lease_transitions, Some(1));
    hub.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_holder_is_replaced_within_lease_and_retry() {
    let hub = Hub::new().await;
    let (sender, mut winners) = mpsc::unbounded_channel();
    let first = contend(&hub, NAME, "first", FAST, sender.clone()).await;
    within(Duration::from_secs(5), "the first wins", winners.recv())
        .await
        .unwrap();
    let mut second = contend(&hub, NAME, "second", FAST, sender.clone()).await;
    second.settled().await;
    let killed = Instant::now();
    first.kill().await;
    let limit = Duration::from_millis(FAST.lease * 1000 + FAST.retry_ms);
    let (name, term, won) = within(limit, "the follower wins", winners.recv()).await.unwrap();
    assert_eq!((name.as_str(), term.number()), ("second", 1));
    println!("replaced after {:?}", won.duration_since(killed));
    second.stop().await;
    hub.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_written_as_client_go_writes_it_and_renewals_change_nothing_but_the_time() {
    let hub = Hub::new().await;
    let (sender, mut winners) = mpsc::unbounded_channel();
    let only = contend(&hub, NAME, "only", FAST, sender).await;
    within(Duration::from_secs(5), "it wins", winners.recv()).await.unwrap();
    let first = hub.spec().await;
    assert!(first.holder_identity.as_deref().unwrap().starts_with("only_"));
    assert_eq!(
        (first.lease_duration_seconds, first.lease_transitions),
        (Some(3), Some(0))
    );
    assert_eq!(first.acquire_time, first.renew_time);
    let renewed = within(Duration::from_secs(3), "a renewal", async {
        loop {
            let spec = hub.spec().await;
            if spec.renew_time != first.renew_time {
                return spec;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let same_but_time = k8s_openapi::api::coordination::v1::LeaseSpec {
        renew_time: first.renew_time.clone(),
        ..renewed
    };
    assert_eq!(same_but_time, first);
    let managers = hub.leases().get(NAME).await.unwrap().metadata.managed_fields.unwrap();
    let managers: Vec<_> = managers.into_iter().map(|entry| entry.manager.unwrap()).collect();
    assert_eq!(managers, ["esfleet"]);
    only.stop().await;
    hub.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_lease_is_taken_by_another_steps_down_and_does_not_release_it() {
    let hub = Hub::new().await;
    let (sender, mut winners) = mpsc::unbounded_channel();
    let robbed = contend(&hub, NAME, "robbed", DEFAULT, sender).await;
    let (_, term, _) = within(Duration::from_secs(5), "it wins", winners.recv()).await.unwrap();
    let patch = json!({"spec": {"holderIdentity": "robber", "leaseTransitions": 1}});
    hub.leases()
        .patch(NAME, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    within(Duration::from_secs(3), "the term ends", term.cancellation().cancelled()).await;
    robbed.stop().await;
    assert_eq!(hub.spec().await.holder_identity.as_deref(), Some("robber"));
    hub.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_does_not_exist_is_said_aloud_and_healed() {
    let mut hub = Hub::new().await;
    let there = hub.namespace.clone();
    hub.namespace = format!("{there}-later");
    let config = ElectionConfig::new(&hub.namespace, NAME, "early");
    let clock = Arc::new(SystemBootClock);
    let election = Election::new(client().await, config, LeadershipMetrics::default(), clock);
    let mut view = election.view();
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(election.run(
        shutdown.clone(),
        |term| async move { term.cancellation().cancelled().await },
    ));
    let said = within(
        Duration::from_secs(5),
        "the error",
        view.wait_for(|view| view.error.is_some()),
    )
    .await
    .unwrap();
    let expected = format!(
        "Lease {0}/esfleet: namespace {0} does not exist; create it (kubectl create namespace {0}) \
         or name another by --lease-namespace",
        hub.namespace
    );
    assert_eq!(said.error.as_deref(), Some(expected.as_str()));
    drop(said);
    let object: Namespace = serde_json::from_value(json!({"metadata": {"name": hub.namespace}})).unwrap();
    Api::<Namespace>::all(hub.client.clone())
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    let led = within(Duration::from_secs(5), "it leads", view.wait_for(|view| view.leads))
        .await
        .unwrap()
        .clone();
    assert_eq!(led.error, None);
    shutdown.cancel();
    assert_eq!(task.await.unwrap(), Ok(()));
    Api::<Namespace>::all(hub.client.clone())
        .delete(&there, &DeleteParams::default())
        .await
        .unwrap();
    hub.remove().await;
}

/// Makes an object of the hub's namespace.
async fn make<K>(hub: &Hub, object: Value)
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object: K = serde_json::from_value(object).unwrap();
    Api::<K>::namespaced(hub.client.clone(), &hub.namespace)
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_is_missing_is_said_aloud_and_the_least_ones_suffice() {
    let hub = Hub::new().await;
    let user = format!("replica-{}", hub.namespace);
    let mut config = client_config().await;
    config.auth_info.impersonate = Some(user.clone());
    let replica = kube::Client::try_from(config).unwrap();
    let election = Election::new(
        replica,
        ElectionConfig::new(&hub.namespace, NAME, "replica"),
        LeadershipMetrics::default(),
        Arc::new(SystemBootClock),
    );
    let mut view = election.view();
    let shutdown = CancellationToken::new();
    let lead = |term: Arc<Term>| async move { term.cancellation().cancelled().await };
    let task = tokio::spawn(election.run(shutdown.clone(), lead));
    let said = within(
        Duration::from_secs(5),
        "the error",
        view.wait_for(|view| view.error.is_some()),
    )
    .await;
    let said = said.unwrap().error.clone().unwrap();
    assert_eq!(
        said,
        format!(
            "Lease {0}/esfleet: leases.coordination.k8s.io \"esfleet\" is forbidden: User \"{user}\" cannot get \
             resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"{0}\"; \
             apply what \"esfleet member manifest --hub\" prints to the hub",
            hub.namespace
        )
    );
    let rules = json!([
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [NAME],
         "verbs": ["get", "list", "watch", "patch"]},
    ]);
    make::<Role>(&hub, json!({"metadata": {"name": "least"}, "rules": rules})).await;
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "least"});
    make::<RoleBinding>(
        &hub,
        json!({"metadata": {"name": "least"}, "roleRef": role, "subjects": [subject]}),
    )
    .await;
    let healed = view.wait_for(|view| view.leads && view.error.is_none());
    within(Duration::from_secs(8), "it leads", healed).await.unwrap();
    shutdown.cancel();
    assert_eq!(task.await.unwrap(), Ok(()));
    assert_eq!(hub.spec().await.holder_identity.as_deref(), Some(""));
    hub.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_refuses_connections_is_said_aloud() {
    let mut config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    config.default_retry = false;
    let hub = kube::Client::try_from(config).unwrap();
    let config = ElectionConfig::new("somewhere", NAME, "replica");
    let election = Election::new(hub, config, LeadershipMetrics::default(), Arc::new(SystemBootClock));
    let mut view = election.view();
    let task = tokio::spawn(election.run(CancellationToken::new(), async |_| {}));
    let said = within(
        Duration::from_secs(5),
        "the error",
        view.wait_for(|view| view.error.is_some()),
    )
    .await;
    let said = said.unwrap().error.clone().unwrap();
    println!("{said}");
    assert!(
        said.starts_with("Lease somewhere/esfleet: ") && said.contains("Connection refused"),
        "{said}"
    );
    assert!(said.ends_with("; check that the hub is reachable"), "{said}");
    task.abort();
}
