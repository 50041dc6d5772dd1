//! A hub that holds one Lease in memory and fails on demand, for the tests of the driver.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use tower_test::mock::{Handle, SendResponse};

pub(super) const OBJECT: &str = "/apis/coordination.k8s.io/v1/namespaces/esfleet/leases/esfleet";

/// What the hub does with requests on the Lease itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// Takes them and never answers.
    Hang,
    /// Refuses them.
    Refuse(u16, &'static str),
    /// Does what the next write asks, and never answers it.
    LoseAnswer,
    /// Does what the next write asks, and answers so much later.
    AnswerLate(Duration),
    /// Before the next patch somebody else writes this spec.
    Interfere(Value),
    /// Answers the next write with this spec, whatever is written.
    Misreport(Value),
}

/// See the module.
#[derive(Clone)]
pub(super) struct FakeHub {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    started: Instant,
}

struct State {
    lease: Option<Value>,
    version: u64,
    events: Vec<(u64, Value)>,
    fault: Option<Fault>,
    watch_works: bool,
    log: VecDeque<String>,
    unanswered: Vec<SendResponse<Response<Body>>>,
}

type Requests = Handle<Request<Body>, Response<Body>>;

impl FakeHub {
    /// A hub and a client of it; call it inside a runtime.
    pub(super) fn start() -> (FakeHub, kube::Client) {
        let (service, requests) = tower_test::mock::pair();
        let hub = FakeHub {
            state: Arc::new(Mutex::new(State {
                lease: None,
                version: 10,
                events: Vec::new(),
                fault: None,
                watch_works: true,
                log: VecDeque::new(),
                unanswered: Vec::new(),
            })),
            changed: Arc::new(Notify::new()),
            started: Instant::now(),
        };
        tokio::spawn(hub.clone().serve(requests));
        (hub, kube::Client::new(service, "default"))
    }

    pub(super) fn set_spec(&self, spec: Value) {
        self.store(&mut self.state(), spec);
    }

    pub(super) fn delete(&self) {
        let mut state = self.state();
        state.version += 1;
        let mut gone = state.lease.take().unwrap();
        gone["metadata"]["resourceVersion"] = state.version.to_string().into();
        let event = (state.version, json!({"type": "DELETED", "object": gone}));
        state.events.push(event);
        self.changed.notify_waiters();
    }

    pub(super) fn spec(&self) -> Value {
        self.state().lease.as_ref().unwrap()["spec"].clone()
    }

    pub(super) fn fail(&self, fault: impl Into<Option<Fault>>) {
        self.state().fault = fault.into();
    }

    pub(super) fn break_watch(&self) {
        self.state().watch_works = false;
    }

    /// Adds a line of the test's own.
    pub(super) fn note(&self, line: &str) {
        let line = format!("{} {line}", self.started.elapsed().as_millis());
        self.state().log.push_back(line);
    }

    /// What was asked for and noted since the last call; each line begins with the milliseconds since the start.
    pub(super) fn take_log(&self) -> Vec<String> {
        self.state().log.drain(..).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn store(&self, state: &mut State, spec: Value) -> Value {
        state.version += 1;
        let version = state.version.to_string();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec,
            "metadata": {"name": "esfleet", "namespace": "esfleet", "resourceVersion": version},
        });
        let kind = if state.lease.is_some() { "MODIFIED" } else { "ADDED" };
        state
            .events
            .push((state.version, json!({"type": kind, "object": lease})));
        state.lease = Some(lease.clone());
        self.changed.notify_waiters();
        lease
    }

    async fn serve(self, mut requests: Requests) {
        while let Some((request, answer)) = requests.next_request().await {
            tokio::spawn(self.clone().handle(request, answer));
        }
    }

    async fn handle(self, request: Request<Body>, answer: SendResponse<Response<Body>>) {
        let (parts, body) = request.into_parts();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let on_object = parts.uri.path() == OBJECT;
        if parts.method == Method::GET && !on_object {
            return if query.contains("watch=true") {
                self.watch(&query, answer).await
            } else {
                self.list(answer)
            };
        }
        let body = body.collect_bytes().await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        self.note(&describe(&parts.method, &body));
        assert!(query.contains("timeout=3s"), "{query}");
        let fault = self.state().fault.clone();
        match fault {
            Some(Fault::Hang) => self.state().unanswered.push(answer),
            Some(Fault::Refuse(code, reason)) => answer.send_response(status(code, reason, "refused by the test")),
            Some(fault) if parts.method != Method::GET => self.write_badly(fault, &parts.method, &body, answer).await,
            Some(_) | None => answer.send_response(self.act(&parts.method, &body)),
        }
    }

    async fn write_badly(&self, fault: Fault, method: &Method, body: &Value, answer: SendResponse<Response<Body>>) {
        self.fail(None);
        match fault {
            Fault::LoseAnswer => {
                self.act(method, body);
                self.state().unanswered.push(answer);
            }
            Fault::AnswerLate(late) => {
                let response = self.act(method, body);
                tokio::time::sleep(late).await;
                answer.send_response(response);
            }
            Fault::Interfere(spec) => {
                self.set_spec(spec);
                answer.send_response(self.act(method, body));
            }
            Fault::Misreport(spec) => {
                let lease = self.store(&mut self.state(), spec);
                answer.send_response(response(200, &lease));
            }
            Fault::Hang | Fault::Refuse(..) => unreachable!("handled before"),
        }
    }

    fn act(&self, method: &Method, body: &Value) -> Response<Body> {
        let mut state = self.state();
        let version = &body["metadata"]["resourceVersion"]; // without one, a patch is not refused
        match (method, state.lease.clone()) {
            (&Method::GET, Some(lease)) => response(200, &lease),
            (&Method::POST, None) => response(201, &self.store(&mut state, body["spec"].clone())),
            (&Method::POST, Some(_)) => status(409, "AlreadyExists", "exists"),
            (&Method::PATCH, Some(lease)) if !version.is_null() && *version != lease["metadata"]["resourceVersion"] => {
                status(409, "Conflict", "the object has been modified")
            }
            (&Method::PATCH, Some(lease)) => {
                let mut spec = lease["spec"].as_object().cloned().unwrap_or_default();
                spec.extend(body["spec"].as_object().cloned().unwrap());
                response(200, &self.store(&mut state, spec.into()))
            }
            _ => status(404, "NotFound", "leases \"esfleet\" not found"),
        }
    }

    fn list(&self, answer: SendResponse<Response<Body>>) {
        let state = self.state();
        if !state.watch_works {
            return answer.send_response(status(403, "Forbidden", "cannot list leases"));
        }
        let items: Vec<_> = state.lease.iter().collect();
        answer.send_response(response(
            200,
            &json!({
                "kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "items": items,
                "metadata": {"resourceVersion": state.version.to_string()},
            }),
        ));
    }

    async fn watch(&self, query: &str, answer: SendResponse<Response<Body>>) {
        let from = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("resourceVersion="))
            .unwrap();
        let from: u64 = from.parse().unwrap();
        loop {
            let changed = self.changed.notified();
            let lines: String = {
                let state = self.state();
                state
                    .events
                    .iter()
                    .filter(|(v, _)| *v > from)
                    .map(|(_, event)| format!("{event}\n"))
                    .collect()
            };
            if !lines.is_empty() {
                return answer.send_response(Response::new(Body::from(lines.into_bytes())));
            }
            changed.await;
        }
    }
}

fn describe(method: &Method, body: &Value) -> String {
    let spec = &body["spec"];
    match (spec["holderIdentity"].as_str(), spec["leaseTransitions"].as_i64()) {
        _ if method == Method::GET => "GET".to_owned(),
        (Some(""), _) => "release".to_owned(),
        (Some(_), Some(number)) => format!("{method} term {number}"),
        _ => "renew".to_owned(),
    }
}

fn response(code: u16, body: &Value) -> Response<Body> {
    Response::builder()
        .status(code)
        .body(Body::from(body.to_string().into_bytes()))
        .unwrap()
}

fn status(code: u16, reason: &str, message: &str) -> Response<Body> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code,
    });
    response(code, &body)
}
