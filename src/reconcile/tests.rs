//! The order of requests for one app, and what becomes of it when they fail.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::controller::{CONCURRENCY, Context, control};
use super::fake_member::{FakeMember, Fault};
use super::memory::Memory;
use super::metrics::ReconcileMetrics;
use crate::api::{AppKey, ClusterName};
use crate::app::ensemble::EnsembleView;
use crate::kubernetes::projection::ObjectKey;
use crate::kubernetes::scope::Scope;
use crate::kubernetes::watch::{WatchHealth, watch_scope};
use crate::kubernetes::writer::Writer;
use crate::leadership::{Term, TermEnder};
use crate::zookeeper::{Pool, PoolConfig, ZooKeeperMetrics};

const APPS: &str = "eventsourcedapps";
const SETS: &str = "statefulsets";
const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(150);

/// An app whose root is reserved, so that its ensemble's view is known at once and never changes.
fn app() -> Value {
    app_at("zk:2181/esfleet")
}

fn app_at(connect: &str) -> Value {
    json!({
        "apiVersion": "es.your.domain/v1alpha1", "kind": "EventSourcedApp",
        "metadata": {"name": "orders", "namespace": "shop", "uid": "app-uid", "resourceVersion": "7", "generation": 2},
        "spec": {
            "replicas": 3, "image": "ledger:1", "zookeeperConnectString": connect, "zookeeperRootPath": "/orders",
        },
    })
}

/// A member, its scope under watch, and a controller once [`World::lead`] is called.
struct World {
    member: FakeMember,
    context: Arc<Context>,
    term: TermEnder,
    tasks: Vec<AbortOnDropHandle<()>>,
}

impl World {
    /// A member with this app, and a scope that has listed it.
    async fn with(app: Value) -> Self {
        let (member, client) = FakeMember::start();
        member.put_unseen(APPS, app);
        let (term, ender) = Term::for_tests(HOUR);
        let scope = Scope::new(Some("shop".to_owned()));
        let marked = scope.clone();
        let context = Arc::new(Context {
            cluster: ClusterName::parse("eu").unwrap(),
            instance: "replica".to_owned(),
            scope: scope.clone(),
            writer: Writer::new(term.clone(), client.clone()),
            pool: Pool::new(term, PoolConfig::default(), ZooKeeperMetrics::default()),
            metrics: ReconcileMetrics::register(&mut Registry::default()),
            memory: Memory::default(),
            changed: Arc::new(move |key: &AppKey| {
                marked.dirty.mark(&ObjectKey {
                    namespace: key.namespace.clone(),
                    name: key.name.clone(),
                });
            }),
            permits: Arc::new(Semaphore::new(usize::from(CONCURRENCY))),
        });
        let watched = scope.clone();
        let watch = tokio::spawn(async move {
            let never = CancellationToken::new();
            watch_scope("eu", &watched, &client, &WatchHealth::default(), &never).await;
        });
        scope.ready().await;
        Self {
            member,
            context,
            term: ender,
            tasks: vec![AbortOnDropHandle::new(watch)],
        }
    }

    /// The same for [`app`], with a controller that has done its work.
    async fn settled() -> Self {
        let mut world = Self::with(app()).await;
        world.lead().await;
        world.member.take_log();
        world
    }

    /// Starts the controller and lets it do what it can at once.
    async fn lead(&mut self) {
        let control = tokio::spawn(control(self.context.clone(), CancellationToken::new()));
        self.tasks.push(AbortOnDropHandle::new(control));
        sleep(SOON).await;
    }

    /// What was asked within this time from now.
    async fn log_of(&self, time: Duration) -> Vec<String> {
        sleep(time).await;
        self.member.take_log()
    }

    /// Reason and message of a condition, as it was reported last.
    fn condition(&self, kind: &str) -> (String, String) {
        let app = self.member.object(APPS, "orders");
        let conditions = app["status"]["conditions"].as_array().unwrap();
        let condition = conditions.iter().find(|c| c["type"] == kind).unwrap();
        let text = |field: &str| condition[field].as_str().unwrap().to_owned();
        (text("reason"), text("message"))
    }

    fn app_key(&self) -> AppKey {
        self.context.app_key(&ObjectKey {
            namespace: "shop".to_owned(),
            name: "orders".to_owned(),
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_app_gets_its_objects_in_order_then_one_status_and_one_event() {
    // Its ensemble takes connections and never answers, which holds up the status, and not for long.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut world = World::with(app_at(&silent.local_addr().unwrap().to_string())).await;
    world.lead().await;
    let objects = [
        "apply services - @1",
        "apply statefulsets - @1",
        "apply poddisruptionbudgets - @1",
    ];
    assert_eq!(world.member.take_log(), objects);
    assert_eq!(
        world.log_of(Duration::from_secs(1)).await,
        ["replace eventsourcedapps/status app-uid @7", "create events Created"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_app_that_is_looked_at_again_costs_no_request() {
    let world = World::settled().await;
    world.context.scope.dirty.mark(&ObjectKey {
        namespace: "shop".to_owned(),
        name: "orders".to_owned(),
    });
    assert_eq!(world.log_of(HOUR / 2).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_object_of_somebody_else_that_no_watch_has_told_of_is_found_and_left_alone() {
    let mut world = World::with(app()).await;
    let theirs = json!({
        "metadata": {"name": "orders", "namespace": "shop", "uid": "u", "resourceVersion": "90"},
        "spec": {"ports": [{"port": 80}]},
    });
    world.member.put_unseen("services", theirs.clone());
    world.lead().await;
    assert_eq!(
        world.log_of(HOUR / 2).await,
        [
            "apply services - @1",
            "get services",
            "apply statefulsets - @1",
            "apply poddisruptionbudgets - @1",
            "replace eventsourcedapps/status app-uid @7",
            "create events ZooKeeperNotReady",
            "replace eventsourcedapps/status app-uid @103",
            "create events Conflict",
        ]
    );
    assert_eq!(world.condition("WorkloadReady").0, "Conflict");
    assert_eq!(world.member.object("services", "orders"), theirs);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_ours_that_no_watch_has_told_of_is_found_and_taken_as_it_is() {
    let before = World::settled().await;
    let mut world = World::with(app()).await;
    world.member.put_unseen(SETS, before.member.object(SETS, "orders"));
    world.lead().await;
    let log = world.member.take_log();
    assert_eq!(log[1..3], ["apply statefulsets - @1", "get statefulsets"]);
    assert_eq!(world.log_of(HOUR / 2).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_server_stores_in_another_form_is_written_once() {
    let mut world = World::with(app()).await;
    world.member.fail_always("apply services", Fault::Rewrite);
    world.lead().await;
    assert_eq!(world.member.take_log()[0], "apply services - @1");
    world
        .member
        .edit(APPS, "orders", |app| app["metadata"]["labels"] = json!({"team": "a"}));
    assert_eq!(world.log_of(HOUR / 2).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_edited_object_is_changed_under_its_uid_and_version() {
    let world = World::settled().await;
    world
        .member
        .edit(SETS, "orders", |set| set["spec"]["replicas"] = json!(9));
    assert_eq!(
        world.log_of(HOUR / 2).await,
        ["apply statefulsets statefulsets-uid @105"]
    );
    assert_eq!(world.member.object(SETS, "orders")["spec"]["replicas"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_not_wanted_any_more_is_deleted_under_its_uid_and_version() {
    let world = World::settled().await;
    world
        .member
        .edit(APPS, "orders", |app| app["spec"]["replicas"] = json!(1));
    let log = world.log_of(HOUR / 2).await;
    let objects: Vec<&String> = log.iter().filter(|line| !line.contains("events")).collect();
    assert_eq!(
        objects,
        [
            "apply statefulsets statefulsets-uid @102",
            "delete poddisruptionbudgets poddisruptionbudgets-uid @103",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_keeps_a_change_from_being_accepted_is_replaced_before_it_is_applied_again() {
    for (resource, repair) in [("services", "merge"), (SETS, "strategic")] {
        let world = World::settled().await;
        let apply = if resource == SETS {
            "apply statefulsets"
        } else {
            "apply services"
        };
        world.member.fail(
            apply,
            Fault::Refuse(422, "FieldValueDuplicate", "Duplicate value: \"http\""),
        );
        world
            .member
            .edit(resource, "orders", |object| object["spec"]["edited"] = json!(1));
        assert_eq!(
            world.log_of(HOUR / 2).await,
            [
                format!("apply {resource} {resource}-uid @105"),
                format!("{repair} {resource} {resource}-uid @105"),
                format!("apply {resource} {resource}-uid @106"),
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_cannot_be_repaired_is_told_in_the_words_of_its_own_refusal() {
    let world = World::settled().await;
    world.member.fail_always(
        "apply services",
        Fault::Refuse(422, "", "ports[1].name: Duplicate value"),
    );
    world
        .member
        .fail_always("merge services", Fault::Refuse(422, "", "nor this"));
    world
        .member
        .edit("services", "orders", |service| service["spec"]["edited"] = json!(1));
    let log = world.log_of(SOON).await;
    assert_eq!(
        log[2..4],
        [
            "replace eventsourcedapps/status app-uid @104",
            "create events WriteFailed"
        ]
    );
    assert_eq!(
        world.condition("WorkloadReady"),
        (
            "WriteFailed".to_owned(),
            "Service orders: ports[1].name: Duplicate value".to_owned()
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_in_trouble_is_told_once_tried_again_with_backoff_and_forgiven() {
    for code in [429, 500, 503] {
        let mut world = World::with(app()).await;
        world
            .member
            .fail_always("apply statefulsets", Fault::Refuse(code, "", "too much to do"));
        world.lead().await;
        sleep(Duration::from_secs(600)).await;
        assert_eq!(
            world.condition("WorkloadReady"),
            (
                "WriteFailed".to_owned(),
                "StatefulSet orders: too much to do".to_owned()
            )
        );
        let log = world.member.take_timed_log();
        let told = log.iter().filter(|(_, line)| line.starts_with("replace"));
        assert_eq!(told.count(), 1, "{log:?}");
        let tries: Vec<u64> = log
            .iter()
            .filter(|(_, line)| line == "apply statefulsets - @1")
            .map(|(at, _)| *at)
            .collect();
        let delays: Vec<u64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // the watch shows the status that told of it, which must not cause the next attempt
        assert!(delays.iter().all(|delay| (999..=60_010).contains(delay)), "{delays:?}");
        assert!(delays[0] <= 2_700 && delays[delays.len() - 1] >= 30_000, "{delays:?}");
        world.member.heal();
        sleep(Duration::from_secs(61)).await;
        assert_eq!(world.condition("WorkloadReady").0, "ReplicasPending");
        world.member.take_log();
        assert_eq!(world.log_of(HOUR / 2).await, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn one_object_that_is_refused_does_not_keep_the_others_from_being_made() {
    let mut world = World::with(app()).await;
    world
        .member
        .fail_always("apply services", Fault::Refuse(403, "", "services is forbidden"));
    world.lead().await;
    assert_eq!(
        world.member.take_log()[..5],
        [
            "apply services - @1",
            "apply statefulsets - @1",
            "apply poddisruptionbudgets - @1",
            "replace eventsourcedapps/status app-uid @7",
            "create events WriteFailed",
        ]
    );
    assert_eq!(
        world.condition("WorkloadReady"),
        (
            "WriteFailed".to_owned(),
            "Service orders: services is forbidden".to_owned()
        )
    );
}

#[tokio::test(start_paused = true)]
async fn in_a_namespace_that_is_going_nothing_is_tried_again() {
    let mut world = World::with(app()).await;
    let going = Fault::Refuse(403, "NamespaceTerminating", "it is being terminated");
    world.member.fail_always("apply", going);
    world.lead().await;
    assert_ne!(world.condition("WorkloadReady").0, "WriteFailed");
    world.member.take_log();
    assert_eq!(world.log_of(HOUR / 2).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn once_the_term_has_ended_nothing_more_is_sent() {
    let mut world = World::with(app()).await;
    world.member.fail("apply statefulsets", Fault::Hang);
    world.lead().await;
    world.term.end();
    world.member.hang_up();
    assert_eq!(
        world.log_of(HOUR / 2).await,
        ["apply services - @1", "apply statefulsets - @1"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_is_waited_for_until_its_deadline() {
    let mut world = World::with(app()).await;
    world.member.fail_always("apply services", Fault::Hang);
    world.lead().await;
    assert_eq!(world.member.take_log(), ["apply services - @1"]);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(
        world.member.take_log()[..4],
        [
            "apply statefulsets - @1",
            "apply poddisruptionbudgets - @1",
            "replace eventsourcedapps/status app-uid @7",
            "create events WriteFailed",
        ]
    );
    assert_eq!(
        world.condition("WorkloadReady"),
        ("WriteFailed".to_owned(), "Service orders: no answer in time".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_that_somebody_was_faster_with_is_written_again_at_the_version_of_then() {
    let mut world = World::with(app()).await;
    world.member.fail("replace eventsourcedapps/status", Fault::LabelApp);
    world.lead().await;
    sleep(HOUR / 2).await;
    let log = world.member.take_log();
    assert_eq!(
        log[3..],
        [
            "replace eventsourcedapps/status app-uid @7",
            "replace eventsourcedapps/status app-uid @104",
            "create events ZooKeeperNotReady",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_follows_the_one_before_though_no_watch_has_told_of_that() {
    let mut world = World::with(app()).await;
    world.member.silence();
    world
        .member
        .fail("apply services", Fault::Refuse(503, "", "too much to do"));
    world.lead().await;
    sleep(HOUR / 2).await;
    let log = world.member.take_log();
    assert_eq!(
        log[3..],
        [
            "replace eventsourcedapps/status app-uid @7",
            "create events WriteFailed",
            "apply services - @1",
            "replace eventsourcedapps/status app-uid @103",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_lost_costs_nothing_but_itself() {
    let mut world = World::with(app()).await;
    world
        .member
        .fail("create events", Fault::Refuse(403, "", "events is forbidden"));
    world.lead().await;
    assert_eq!(world.member.take_log()[4..], ["create events ZooKeeperNotReady"]);
    assert_eq!(world.log_of(HOUR / 2).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_app_that_is_being_deleted_or_is_gone_is_left_alone_and_its_root_too() {
    let world = World::settled().await;
    assert_ne!(world.context.pool.view(&world.app_key()), EnsembleView::Pending);
    let deleted = json!("2026-12-01T10:00:00Z");
    world
        .member
        .edit(APPS, "orders", |app| app["metadata"]["deletionTimestamp"] = deleted);
    world
        .member
        .edit(SETS, "orders", |set| set["spec"]["replicas"] = json!(9));
    assert_eq!(world.log_of(HOUR / 2).await, Vec::<String>::new());
    assert_eq!(world.context.pool.view(&world.app_key()), EnsembleView::Pending);

    let world = World::settled().await;
    world.member.remove(APPS, "orders");
    assert_eq!(world.log_of(HOUR / 2).await, Vec::<String>::new());
    assert_eq!(world.context.pool.view(&world.app_key()), EnsembleView::Pending);
}
