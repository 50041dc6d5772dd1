use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

struct Served {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), HttpError>>,
}

async fn serve_with(ready: Verdict) -> Served {
    let mut registry = Registry::default();
    crate::telemetry::process::register(&mut registry);
    let face = Face {
        live: Arc::new(Verdict::yes),
        ready: Arc::new(move || ready.clone()),
        fleet: Arc::new(|| FleetListing::new(Vec::new(), "2026-01-01T00:00:00Z".parse().unwrap())),
        registry: Arc::new(registry),
    };
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(serve(listener, face, shutdown.clone()));
    Served {
        address,
        shutdown,
        task,
    }
}

impl Served {
    /// Status line, content type and body of the answer.
    async fn ask(&self, method: &str, path: &str) -> (String, String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let header = |name: &str| {
            head.lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default()
                .to_owned()
        };
        (header("HTTP/1.1 "), header("content-type: "), body.to_owned())
    }
}

#[tokio::test]
async fn a_replica_that_lacks_nothing_is_live_and_ready() {
    let served = serve_with(Verdict::yes()).await;
    let ok = (
        "200 OK".to_owned(),
        "text/plain; charset=utf-8".to_owned(),
        "ok\n".to_owned(),
    );
    assert_eq!(served.ask("GET", "/livez").await, ok);
    assert_eq!(served.ask("GET", "/readyz").await, ok);
}

#[tokio::test]
async fn what_a_replica_waits_for_is_named() {
    let served = serve_with(Verdict::waiting_for([
        "the Lease".to_owned(),
        "the watches of eu-west".to_owned(),
    ]))
    .await;
    let (status, _, body) = served.ask("GET", "/readyz").await;
    assert_eq!(status, "503 Service Unavailable");
    assert_eq!(body, "waiting for the Lease\nwaiting for the watches of eu-west\n");
}

#[tokio::test]
async fn metrics_are_open_metrics() {
    let served = serve_with(Verdict::yes()).await;
    let (status, kind, body) = served.ask("GET", "/metrics").await;
    assert_eq!((status.as_str(), kind.as_str()), ("200 OK", OPEN_METRICS));
    assert!(body.contains("process_resident_memory_bytes "), "{body}");
    assert!(body.ends_with("# EOF\n"), "{body}");
}

#[tokio::test]
async fn the_fleet_is_served_as_json() {
    let served = serve_with(Verdict::yes()).await;
    let (status, kind, body) = served.ask("GET", "/api/v1/fleet").await;
    assert_eq!((status.as_str(), kind.as_str()), ("200 OK", "application/json"));
    assert_eq!(
        body,
        r#"{"generatedAt":"2026-01-01T00:00:00Z","clusters":[],"apps":[]}"#
    );
}

#[tokio::test]
async fn nothing_but_reading_is_served() {
    let served = serve_with(Verdict::yes()).await;
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let (status, _, _) = served.ask(method, "/api/v1/fleet").await;
        assert_eq!(status, "405 Method Not Allowed", "{method}");
    }
    let (status, _, body) = served.ask("HEAD", "/livez").await;
    assert_eq!((status.as_str(), body.as_str()), ("200 OK", ""));
    let (status, _, body) = served.ask("GET", "/secrets").await;
    assert_eq!(status, "404 Not Found");
    assert_eq!(body, "served here: /livez /readyz /metrics /api/v1/fleet\n");
}

#[tokio::test]
async fn a_taken_port_is_told_with_the_flag() {
    let taken = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = taken.local_addr().unwrap();
    assert_eq!(
        bind(address).await.unwrap_err().to_string(),
        format!(
            "cannot listen on {address}: Address already in use (os error 98); choose another address with --http-addr (port 0 takes any free one)"
        )
    );
}

#[tokio::test]
async fn serving_ends_on_shutdown_and_frees_the_port() {
    let served = serve_with(Verdict::yes()).await;
    served.shutdown.cancel();
    assert!(served.task.await.unwrap().is_ok());
    assert!(bind(served.address).await.is_ok());
}
