//! A pool under test: apps by number, what they showed, and waiting for what they should show.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use esfleet::api::{AppKey, ClusterName, ConnectString, RootPath};
use esfleet::app::ensemble::{EnsembleView, LeaderView, RootView};
use esfleet::leadership::{Term, TermEnder};
use esfleet::telemetry::Registry;
use esfleet::zookeeper::{Pool, PoolConfig, Target, ZooKeeperMetrics};
use tokio::time::{Instant, sleep};
use zookeeper_client::{Acls, Client, CreateMode};

/// How long anything may take that should be there soon.
pub const SOON: Duration = Duration::from_secs(30);

/// Times that let a test see everything soon.
pub fn quick() -> PoolConfig {
    PoolConfig {
        session_timeout: Duration::from_secs(4),
        connection_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_secs(2),
        grace: Duration::from_millis(200),
        shortest_retry: Duration::from_millis(100),
        longest_retry: Duration::from_secs(1),
        ..PoolConfig::default()
    }
}

/// A pool, and every view that any app has shown, in order.
pub struct World {
    pub pool: Arc<Pool>,
    pub term: TermEnder,
    registry: Registry,
    shown: Arc<Mutex<Vec<(AppKey, EnsembleView)>>>,
}

impl World {
    pub fn new(config: PoolConfig) -> Self {
        let (term, ender) = Term::for_tests(Duration::from_secs(3600));
        let mut registry = Registry::default();
        let metrics = ZooKeeperMetrics::register(&mut registry);
        Self {
            pool: Pool::new(term, config, metrics),
            term: ender,
            registry,
            shown: Arc::default(),
        }
    }

    /// Registers an app; its root is created if it is missing.
    pub fn register(&self, key: &AppKey, connect: &str, root: &str) {
        self.register_as(key, connect, root, true);
    }

    pub fn register_as(&self, key: &AppKey, connect: &str, root: &str, may_create: bool) {
        let target = Target {
            connect: ConnectString::parse(connect).unwrap(),
            root: RootPath::parse(root).unwrap(),
            may_create,
        };
        let pool = Arc::downgrade(&self.pool);
        let shown = self.shown.clone();
        let changed = move |key: &AppKey| {
            if let Some(pool) = pool.upgrade() {
                shown.lock().unwrap().push((key.clone(), pool.view(key)));
            }
        };
        self.pool.register(key.clone(), target, Arc::new(changed));
    }

    /// What an app has shown so far.
    pub fn shown(&self, key: &AppKey) -> Vec<EnsembleView> {
        let shown = self.shown.lock().unwrap();
        shown
            .iter()
            .filter(|(of, _)| of == key)
            .map(|(_, view)| view.clone())
            .collect()
    }

    /// Waits until an app's view is as wanted.
    pub async fn view(&self, key: &AppKey, what: &str, wanted: impl Fn(&EnsembleView) -> bool) -> EnsembleView {
        let deadline = Instant::now() + SOON;
        loop {
            let view = self.pool.view(key);
            if wanted(&view) {
                return view;
            }
            assert!(Instant::now() < deadline, "{key}: not {what} within {SOON:?}: {view:?}");
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until an app's root exists and this leader is known; none: nobody leads.
    pub async fn leader(&self, key: &AppKey, leader: Option<&str>) {
        self.view(key, &format!("led by {leader:?}"), |view| is_led_by(view, leader))
            .await;
    }

    /// The value of a metric, by its name and labels as exported; 0 if there is none.
    pub fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0)
    }
}

/// Whether the root exists and this leader is known.
pub fn is_led_by(view: &EnsembleView, leader: Option<&str>) -> bool {
    let EnsembleView::Known { root, leader: shown } = view else {
        return false;
    };
    let shown = match shown {
        LeaderView::Absent => None,
        LeaderView::Named { name, .. } => Some(name.as_str()),
        LeaderView::Unreadable(_) | LeaderView::Forbidden(_) | LeaderView::Failed(_) => return false,
    };
    *root == RootView::Exists && shown == leader
}

/// The app of a number, in member `eu`.
pub fn app(number: usize) -> AppKey {
    app_in("eu", number)
}

/// The app of a number in a member.
pub fn app_in(cluster: &str, number: usize) -> AppKey {
    AppKey {
        cluster: ClusterName::parse(cluster).unwrap(),
        namespace: "apps".to_owned(),
        name: format!("app-{number}"),
    }
}

/// The root of the app of a number.
pub fn root(number: usize) -> String {
    format!("/apps/app-{number}")
}

/// Makes a pod lead an app.
pub async fn lead(client: &Client, root: &str, leader: &[u8]) {
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client
        .create(&format!("{root}/leader"), leader, &options)
        .await
        .unwrap();
}

/// Ends an app's leadership.
pub async fn resign(client: &Client, root: &str) {
    client.delete(&format!("{root}/leader"), None).await.unwrap();
}

/// Waits until something holds that has to be asked for.
pub async fn until<F: Future<Output = bool>>(what: &str, limit: Duration, mut holds: impl FnMut() -> F) -> Duration {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
    began.elapsed()
}
