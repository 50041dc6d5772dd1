use std::path::{Path, PathBuf};

use axum::Router;
use axum::extract::Query as Parameters;
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::{Value, json};

use super::*;

/// A fake API server and the directory with its kubeconfig.
struct Server {
    directory: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Server {
    async fn start(router: Router) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let directory = std::env::temp_dir().join(format!("esfleet-direct-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&directory).unwrap();
        let kubeconfig = format!(
            "clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\ncurrent-context: c\n"
        );
        std::fs::write(directory.join("kubeconfig"), kubeconfig).unwrap();
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Self { directory, task }
    }

    fn fleet(&self, rest: &str) -> FleetConfig {
        let text = format!(
            "apiVersion: es.your.domain/v1alpha1\nkind: FleetConfig\nmetadata: {{name: test}}\nclusters:\n- name: eu\n  kubeconfig: {{path: kubeconfig}}\n{rest}"
        );
        FleetConfig::parse(&text, &self.directory.join("fleet.yaml")).unwrap()
    }
}

const APPS: &str = "/apis/es.your.domain/v1alpha1/eventsourcedapps";

fn sound_version() -> Router {
    let version = json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": "",
    });
    Router::new().route("/version", get(|| async { axum::Json(version) }))
}

fn app(name: &str) -> Value {
    json!({
        "apiVersion": "es.your.domain/v1alpha1", "kind": "EventSourcedApp",
        "metadata": {"namespace": "shop", "name": name, "generation": 1},
        "spec": {"replicas": 3, "image": "i", "zookeeperConnectString": "zk:2181", "zookeeperRootPath": "/a"},
    })
}

fn list(items: &[Value], next: &str) -> axum::Json<Value> {
    axum::Json(json!({
        "apiVersion": "es.your.domain/v1alpha1", "kind": "EventSourcedAppList",
        "metadata": {"continue": next}, "items": items,
    }))
}

fn refusal(code: StatusCode, message: &str) -> (StatusCode, axum::Json<Value>) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "message": message,
    });
    (code, axum::Json(status))
}

async fn ask(fleet: &FleetConfig, query: Query, limit: Duration) -> Vec<ClusterReport> {
    Asker::new(fleet, query, limit).unwrap().ask().await
}

/// State, reason and message of each member; the server's changing address is called SERVER.
fn verdicts(reports: &[ClusterReport]) -> Vec<(ClusterState, Option<&str>, Option<String>)> {
    reports
        .iter()
        .map(|report| {
            let message = report.message.as_deref().map(|message| {
                message
                    .split(' ')
                    .map(|word| if word.starts_with("http://") { "SERVER" } else { word })
                    .collect::<Vec<_>>()
                    .join(" ")
            });
            (report.state, report.reason.as_deref(), message)
        })
        .collect()
}

#[tokio::test]
async fn apps_are_read_page_by_page_and_an_odd_one_does_not_hide_the_others() {
    let pages = |Parameters(query): Parameters<std::collections::BTreeMap<String, String>>| async move {
        assert_eq!(query.get("labelSelector").map(String::as_str), Some("tier=gold"));
        match query.get("continue").map(String::as_str) {
            None => list(
                &[
                    app("a"),
                    json!({"metadata": {"namespace": "shop", "name": "odd"}, "spec": {}}),
                ],
                "more",
            ),
            Some(_) => list(&[app("b")], ""),
        }
    };
    let server = Server::start(sound_version().route(APPS, get(pages))).await;
    let query = Query {
        selector: Some("tier=gold".to_owned()),
        ..Query::default()
    };
    let reports = ask(&server.fleet(""), query, MEMBER_LIMIT).await;
    assert_eq!(verdicts(&reports), [(ClusterState::Connected, None, None)]);
    assert_eq!(reports[0].version.as_deref(), Some("v1.36.3"));
    let rows: Vec<(&str, Option<&str>)> = reports[0]
        .apps
        .iter()
        .map(|app| (app.name.as_str(), app.reason.as_deref()))
        .collect();
    assert_eq!(
        rows,
        [
            ("a", Some("NoStatus")),
            ("odd", Some("Unreadable")),
            ("b", Some("NoStatus"))
        ]
    );
}

#[tokio::test]
async fn a_paused_member_is_asked_in_its_namespaces_only() {
    let of = |namespace: &str| format!("/apis/es.your.domain/v1alpha1/namespaces/{namespace}/eventsourcedapps");
    let router = sound_version()
        .route(&of("shop"), get(|| async { list(&[app("a")], "") }))
        .route(&of("bank"), get(|| async { list(&[app("b")], "") }));
    let server = Server::start(router).await;
    let fleet = server.fleet("  paused: true\n  namespaces: [shop, bank]\n");
    let names = async |namespace: Option<&str>| {
        let query = Query {
            namespace: namespace.map(str::to_owned),
            ..Query::default()
        };
        let reports = ask(&fleet, query, MEMBER_LIMIT).await;
        assert_eq!(verdicts(&reports), [(ClusterState::Paused, None, None)]);
        reports[0].apps.iter().map(|app| app.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(None).await, ["a", "b"]);
    assert_eq!(names(Some("bank")).await, ["b"]);
    assert_eq!(names(Some("elsewhere")).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_member_that_lacks_something_is_degraded_with_the_remedy() {
    let missing = Server::start(sound_version()).await;
    let forbidden = Server::start(sound_version().route(
        APPS,
        get(|| async { refusal(StatusCode::FORBIDDEN, "eventsourcedapps is forbidden") }),
    ))
    .await;
    let reports = ask(&missing.fleet(""), Query::default(), MEMBER_LIMIT).await;
    assert_eq!(
        verdicts(&reports),
        [(
            ClusterState::Degraded,
            Some("CRDMissing"),
            Some("it has no EventSourcedApp definition; apply `esfleet crd` to it".to_owned())
        )]
    );
    assert_eq!(reports[0].version.as_deref(), Some("v1.36.3"));
    assert_eq!(
        verdicts(&ask(&forbidden.fleet(""), Query::default(), MEMBER_LIMIT).await),
        [(
            ClusterState::Degraded,
            Some("Forbidden"),
            Some(
                "the credentials do not allow what is needed: eventsourcedapps is forbidden; apply `esfleet member manifest` to it"
                    .to_owned()
            )
        )]
    );
}

#[tokio::test]
async fn a_dead_a_silent_and_a_keyless_member_are_rows_beside_the_living_one() {
    let living = Server::start(sound_version().route(APPS, get(|| async { list(&[app("a")], "") }))).await;
    let silent = Server::start(Router::new().fallback(|| async { std::future::pending::<()>().await })).await;
    let write = |name: &str, server: &str| {
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\ncurrent-context: c\n"
        );
        std::fs::write(living.directory.join(name), text).unwrap();
    };
    write("dead", "http://127.0.0.1:1");
    let fleet = living.fleet(&format!(
        "- name: dead\n  kubeconfig: {{path: dead}}\n- name: keyless\n  kubeconfig: {{path: /nowhere/k}}\n- name: silent\n  kubeconfig: {{path: {}}}\n",
        silent.directory.join("kubeconfig").display()
    ));
    let reports = ask(&fleet, Query::default(), Duration::from_millis(500)).await;
    assert_eq!(
        verdicts(&reports),
        [
            (ClusterState::Connected, None, None),
            (
                ClusterState::Unreachable,
                Some("NotAnswering"),
                Some("SERVER cannot be reached: client error (Connect): tcp connect error: Connection refused (os error 111); see that it runs and that its address is right".to_owned())
            ),
            (
                ClusterState::Unreachable,
                Some("KubeconfigMissing"),
                Some("kubeconfig /nowhere/k does not exist; put it there or correct its path".to_owned())
            ),
            (
                ClusterState::Unreachable,
                Some("NotAnswering"),
                Some("SERVER did not answer within 0.5 s; see that it can be reached from here".to_owned())
            ),
        ]
    );
}

#[test]
fn a_member_that_is_not_in_the_fleet_config_is_refused_with_those_that_are() {
    let fleet = FleetConfig::parse(
        "{apiVersion: es.your.domain/v1alpha1, kind: FleetConfig, metadata: {name: f}, clusters: [{name: a, inCluster: true}, {name: b, kubeconfig: {path: x}}]}",
        Path::new("f"),
    )
    .unwrap();
    let query = Query {
        clusters: vec!["c".to_owned()],
        ..Query::default()
    };
    assert_eq!(
        Asker::new(&fleet, query, MEMBER_LIMIT).unwrap_err().to_string(),
        "there is no cluster \"c\" in the fleet config; it lists a, b"
    );
}
