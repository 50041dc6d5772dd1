//! A member that holds the objects of one namespace in memory, writes down what is asked of it, and fails on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use tower_test::mock::{Handle, SendResponse};

/// What the member does with a request.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// Takes it and never answers.
    Hang,
    /// Refuses it with this code, cause and message.
    Refuse(u16, &'static str, &'static str),
    /// Labels the app first, as somebody else might.
    LabelApp,
    /// Stores what it is sent in another form.
    Rewrite,
}

/// See the module.
#[derive(Clone)]
pub(super) struct FakeMember {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    started: Instant,
}

struct State {
    objects: BTreeMap<(String, String), Value>,
    version: u64,
    changes: Vec<Change>,
    faults: Vec<(&'static str, Fault, bool)>,
    log: Vec<(u64, String)>,
    unanswered: Vec<SendResponse<Response<Body>>>,
    silent: bool,
}

struct Change {
    version: u64,
    resource: String,
    event: Value,
}

/// One request, as far as the member looks at it.
struct Asked {
    verb: &'static str,
    resource: String,
    name: String,
    subresource: String,
    body: Value,
}

impl FakeMember {
    /// A member without objects and a client of it; call it inside a runtime.
    pub(super) fn start() -> (Self, kube::Client) {
        let (service, requests) = tower_test::mock::pair();
        let member = Self {
            state: Arc::new(Mutex::new(State {
                objects: BTreeMap::new(),
                version: 100,
                changes: Vec::new(),
                faults: Vec::new(),
                log: Vec::new(),
                unanswered: Vec::new(),
                silent: false,
            })),
            changed: Arc::new(Notify::new()),
            started: Instant::now(),
        };
        tokio::spawn(member.clone().serve(requests));
        (member, kube::Client::new(service, "default"))
    }

    /// Stores an object as it is, and tells no watch.
    pub(super) fn put_unseen(&self, resource: &str, object: Value) {
        let key = (resource.to_owned(), name_of(&object));
        self.state().objects.insert(key, object);
    }

    /// Changes an object and tells the watches.
    pub(super) fn edit(&self, resource: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut state = self.state();
        let mut object = state.objects[&(resource.to_owned(), name.to_owned())].clone();
        edit(&mut object);
        self.store(&mut state, resource, object);
    }

    /// Removes an object and tells the watches.
    pub(super) fn remove(&self, resource: &str, name: &str) {
        self.delete(&mut self.state(), resource, name);
    }

    /// The object as it is.
    pub(super) fn object(&self, resource: &str, name: &str) -> Value {
        self.state().objects[&(resource.to_owned(), name.to_owned())].clone()
    }

    /// The next request whose line begins so meets this fault.
    pub(super) fn fail(&self, line: &'static str, fault: Fault) {
        self.state().faults.push((line, fault, false));
    }

    /// All requests whose lines begin so meet this fault.
    pub(super) fn fail_always(&self, line: &'static str, fault: Fault) {
        self.state().faults.push((line, fault, true));
    }

    /// No more faults.
    pub(super) fn heal(&self) {
        self.state().faults.clear();
    }

    /// Cuts the connections of those who wait for an answer.
    pub(super) fn hang_up(&self) {
        self.state().unanswered.clear();
    }

    /// Tells the watches nothing from now on.
    pub(super) fn silence(&self) {
        self.state().silent = true;
    }

    /// What was asked for since the last call, lists and watches left out.
    pub(super) fn take_log(&self) -> Vec<String> {
        self.state().log.drain(..).map(|(_, line)| line).collect()
    }

    /// The same, with the milliseconds since the start.
    pub(super) fn take_timed_log(&self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.state().log)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn store(&self, state: &mut State, resource: &str, mut object: Value) -> Value {
        state.version += 1;
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        let key = (resource.to_owned(), name_of(&object));
        let known = state.objects.insert(key, object.clone()).is_some();
        self.tell(
            state,
            resource,
            if known { "MODIFIED" } else { "ADDED" },
            object.clone(),
        );
        object
    }

    fn delete(&self, state: &mut State, resource: &str, name: &str) {
        state.version += 1;
        let mut gone = state.objects.remove(&(resource.to_owned(), name.to_owned())).unwrap();
        gone["metadata"]["resourceVersion"] = state.version.to_string().into();
        self.tell(state, resource, "DELETED", gone);
    }

    fn tell(&self, state: &mut State, resource: &str, kind: &str, object: Value) {
        let change = Change {
            version: state.version,
            resource: resource.to_owned(),
            event: json!({ "type": kind, "object": object }),
        };
        state.changes.push(change);
        self.changed.notify_waiters();
    }

    async fn serve(self, mut requests: Handle<Request<Body>, Response<Body>>) {
        while let Some((request, answer)) = requests.next_request().await {
            tokio::spawn(self.clone().handle(request, answer));
        }
    }

    async fn handle(self, request: Request<Body>, answer: SendResponse<Response<Body>>) {
        let (parts, body) = request.into_parts();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let body = body.collect_bytes().await.unwrap();
        let asked = Asked::new(&parts, serde_json::from_slice(&body).unwrap_or_default());
        if asked.verb == "get" && asked.name.is_empty() {
            return if query.contains("watch=true") {
                self.watch(&asked.resource, &query, answer).await
            } else {
                answer.send_response(self.list(&asked.resource))
            };
        }
        if asked.verb != "get" {
            assert!(query.contains("timeout="), "a write without a deadline: {query}");
            assert!(
                asked.verb == "delete" || query.contains("fieldManager=esfleet"),
                "{query}"
            );
            assert!(asked.verb != "apply" || query.contains("force=true"), "{query}");
        }
        let mut state = self.state();
        let line = asked.line();
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap();
        state.log.push((now, line.clone()));
        let place = state.faults.iter().position(|(prefix, _, _)| line.starts_with(prefix));
        let fault = place.map(|place| match &state.faults[place] {
            (_, fault, true) => fault.clone(),
            (_, _, false) => state.faults.remove(place).1,
        });
        match fault {
            Some(Fault::Hang) => state.unanswered.push(answer),
            Some(Fault::Refuse(code, cause, message)) => answer.send_response(refusal(code, cause, message)),
            Some(Fault::LabelApp) => {
                let mut app = state.objects[&("eventsourcedapps".to_owned(), "orders".to_owned())].clone();
                app["metadata"]["labels"] = json!({ "team": "a" });
                self.store(&mut state, "eventsourcedapps", app);
                answer.send_response(self.act(&mut state, asked, false));
            }
            Some(Fault::Rewrite) => answer.send_response(self.act(&mut state, asked, true)),
            None => answer.send_response(self.act(&mut state, asked, false)),
        }
    }

    fn act(&self, state: &mut State, asked: Asked, rewrite: bool) -> Response<Body> {
        let known = state
            .objects
            .get(&(asked.resource.clone(), asked.name.clone()))
            .cloned();
        let preconditions = match asked.verb {
            "delete" => asked.body["preconditions"].clone(),
            _ => asked.body["metadata"].clone(),
        };
        let fits = |known: &Value| {
            let fits = |field: &str| preconditions[field].is_null() || preconditions[field] == known["metadata"][field];
            fits("uid") && fits("resourceVersion")
        };
        match (asked.verb, known) {
            ("get", Some(known)) => answered(200, &known),
            ("create", None) => answered(201, &asked.body),
            ("apply", None) if preconditions["uid"].is_null() => {
                let created = merged(json!({}), &asked, rewrite);
                answered(201, &self.store(state, &asked.resource, created))
            }
            (_, None) => refusal(404, "", "there is none"),
            (_, Some(known)) if !fits(&known) => refusal(409, "", "the object has been modified"),
            ("delete", Some(known)) => {
                self.delete(state, &asked.resource, &asked.name);
                answered(200, &known)
            }
            ("replace", Some(mut known)) => {
                known["status"] = asked.body["status"].clone();
                answered(200, &self.store(state, &asked.resource, known))
            }
            (_, Some(known)) => {
                let changed = merged(known, &asked, rewrite);
                answered(200, &self.store(state, &asked.resource, changed))
            }
        }
    }

    fn list(&self, resource: &str) -> Response<Body> {
        let state = self.state();
        let items: Vec<&Value> = state
            .objects
            .iter()
            .filter(|((of, _), _)| of == resource)
            .map(|(_, object)| object)
            .collect();
        let metadata = json!({ "resourceVersion": state.version.to_string() });
        answered(
            200,
            &json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items }),
        )
    }

    async fn watch(&self, resource: &str, query: &str, answer: SendResponse<Response<Body>>) {
        let mut pairs = query.split('&');
        let from = pairs.find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap();
        let from: u64 = from.parse().unwrap();
        loop {
            let changed = self.changed.notified();
            let lines: String = {
                let state = self.state();
                let news = state
                    .changes
                    .iter()
                    .filter(|c| c.resource == resource && c.version > from);
                news.map(|change| format!("{}\n", change.event)).collect()
            };
            if !lines.is_empty() {
                return answer.send_response(Response::new(Body::from(lines.into_bytes())));
            }
            changed.await;
        }
    }
}

impl Asked {
    fn new(parts: &http::request::Parts, body: Value) -> Self {
        let content = parts.headers.get(http::header::CONTENT_TYPE);
        let content = content.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (_, place) = parts.uri.path().split_once("/namespaces/shop/").unwrap();
        let mut place = place.split('/').map(str::to_owned);
        Self {
            verb: match (&parts.method, content) {
                (&Method::GET, _) => "get",
                (&Method::POST, _) => "create",
                (&Method::PUT, _) => "replace",
                (&Method::DELETE, _) => "delete",
                (_, "application/apply-patch+yaml") => "apply",
                (_, "application/merge-patch+json") => "merge",
                (_, "application/strategic-merge-patch+json") => "strategic",
                (method, content) => panic!("{method} {content}"),
            },
            resource: place.next().unwrap(),
            name: place.next().unwrap_or_default(),
            subresource: place.next().unwrap_or_default(),
            body,
        }
    }

    /// What is asked for, with the preconditions.
    fn line(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let Self { verb, resource, .. } = self;
        match self.verb {
            "get" => format!("{verb} {resource}"),
            "create" => format!("{verb} {resource} {}", text(&self.body["reason"])),
            "delete" => {
                let preconditions = &self.body["preconditions"];
                let (uid, version) = (text(&preconditions["uid"]), text(&preconditions["resourceVersion"]));
                format!("{verb} {resource} {uid} @{version}")
            }
            _ => {
                let place = match self.subresource.as_str() {
                    "" => resource.clone(),
                    subresource => format!("{resource}/{subresource}"),
                };
                let metadata = &self.body["metadata"];
                let (uid, version) = (text(&metadata["uid"]), text(&metadata["resourceVersion"]));
                format!("{verb} {place} {uid} @{version}")
            }
        }
    }
}

/// What an object is after an apply, all of whose fields are esfleet's then, or after another patch.
fn merged(mut object: Value, asked: &Asked, rewrite: bool) -> Value {
    let wanted = &asked.body;
    if asked.verb != "apply" {
        object["metadata"]["annotations"] = json!({ "repaired-by": asked.verb });
        return object;
    }
    for field in ["name", "namespace", "labels", "annotations", "ownerReferences"] {
        object["metadata"][field] = wanted["metadata"][field].clone();
    }
    object["spec"] = wanted["spec"].clone();
    if rewrite {
        object["spec"]["rewritten"] = json!(true);
    }
    let fields = json!({
        "f:metadata": {"f:labels": {}, "f:ownerReferences": {}, "f:annotations": {}},
        "f:spec": {},
    });
    object["metadata"]["managedFields"] = json!([{"manager": "esfleet", "operation": "Apply", "fieldsV1": fields}]);
    object["metadata"]["uid"] = json!(format!("{}-uid", asked.resource));
    object
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

fn answered(code: u16, body: &Value) -> Response<Body> {
    Response::builder()
        .status(code)
        .body(Body::from(body.to_string().into_bytes()))
        .unwrap()
}

fn refusal(code: u16, cause: &str, message: &str) -> Response<Body> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "Refused",
        "code": code, "details": { "causes": [{ "reason": cause }] },
    });
    answered(code, &body)
}
