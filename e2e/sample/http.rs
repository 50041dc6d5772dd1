//! What clients and probes see.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::ledger::Event;
use crate::shared::{Answer, Role, Shared, Standing, Submission};

/// The longest that a client waits for what became of its event.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest body of an event, in bytes.
const MAX_BODY: usize = 4096;

/// How many accounts one page has at most.
const PAGE: usize = 1000;

/// Who this process is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The pod's name.
    pub pod: String,
    /// The app's version.
    pub version: String,
}

/// The answer to `GET /state` and `GET /health`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    pod: String,
    version: String,
    healthy: bool,
    role: Role,
    leader: Option<String>,
    epoch: Option<i32>,
    log: Option<String>,
    applied: u64,
    digest: String,
    accounts: usize,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Page {
    /// Only accounts whose names come after this one.
    after: Option<String>,
}

type Context = State<(Identity, Arc<Shared>)>;

/// All routes.
pub fn router(identity: Identity, shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/state", get(state))
        .route("/accounts", get(accounts))
        .route("/accounts/{name}", get(account))
        .route("/events", post(submit).layer(DefaultBodyLimit::max(MAX_BODY)))
        .with_state((identity, shared))
}

fn report(identity: Identity, standing: &Standing) -> Report {
    let Standing { ledger, view } = standing;
    Report {
        pod: identity.pod,
        version: identity.version,
        healthy: view.healthy(),
        role: view.role,
        leader: view.leader.clone(),
        epoch: view.epoch,
        log: view.log.clone(),
        applied: ledger.applied(),
        digest: ledger.digest().to_string(),
        accounts: ledger.balances().len(),
        error: view.error.clone(),
    }
}

async fn state(State((identity, shared)): Context) -> Json<Report> {
    Json(shared.read(|standing| report(identity, standing)))
}

async fn health(State((identity, shared)): Context) -> (StatusCode, Json<Report>) {
    let report = shared.read(|standing| report(identity, standing));
    let status = if report.healthy {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(report))
}

async fn accounts(State((_, shared)): Context, Query(page): Query<Page>) -> Json<BTreeMap<String, u64>> {
    let after = page.after.unwrap_or_default();
    Json(shared.read(|standing| {
        let later = standing
            .ledger
            .balances()
            .range(after.clone()..)
            .filter(|(name, _)| **name != after);
        later
            .take(PAGE)
            .map(|(name, balance)| (name.clone(), *balance))
            .collect()
    }))
}

async fn account(State((_, shared)): Context, Path(name): Path<String>) -> Response {
    let balance = shared.read(|standing| standing.ledger.balances().get(&name).copied());
    match balance {
        Some(balance) => Json(json!({"account": name, "balance": balance})).into_response(),
        None => failure(StatusCode::NOT_FOUND, "no such account", json!({})),
    }
}

async fn submit(State((identity, shared)): Context, body: Bytes) -> Response {
    let event: Event = match serde_json::from_slice(&body) {
        Ok(event) => event,
        Err(error) => return failure(StatusCode::BAD_REQUEST, &format!("not an event: {error}"), json!({})),
    };
    let (leader, queue) = shared.read(|standing| (standing.view.leader.clone(), standing.view.submit.clone()));
    let leader = leader.filter(|leader| *leader != identity.pod);
    let Some(queue) = queue else {
        return respond(Answer::NotAppended, leader);
    };
    let (answer, answered) = oneshot::channel();
    match queue.try_send(Submission { event, answer }) {
        Ok(()) => {}
        Err(mpsc::error::TrySendError::Full(_)) => {
            return failure(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many events at once",
                json!({"appended": false}),
            );
        }
        Err(mpsc::error::TrySendError::Closed(_)) => return respond(Answer::NotAppended, leader),
    }
    match timeout(ANSWER_TIMEOUT, answered).await {
        Ok(Ok(answer)) => respond(answer, leader),
        Ok(Err(_)) | Err(_) => respond(Answer::Unknown, leader),
    }
}

/// The response to a submission; only 200 and 201 acknowledge it.
fn respond(answer: Answer, leader: Option<String>) -> Response {
    match (answer, leader) {
        (Answer::Appended { number, epoch }, _) => (
            StatusCode::CREATED,
            Json(json!({"number": number, "epoch": epoch, "duplicate": false})),
        )
            .into_response(),
        (Answer::Duplicate { number, epoch }, _) => (
            StatusCode::OK,
            Json(json!({"number": number, "epoch": epoch, "duplicate": true})),
        )
            .into_response(),
        (Answer::Refused(refusal), _) => failure(
            StatusCode::UNPROCESSABLE_ENTITY,
            &refusal.to_string(),
            json!({"appended": false}),
        ),
        (Answer::NotAppended, Some(leader)) => {
            let message = format!("{leader} leads, not this pod");
            failure(
                StatusCode::MISDIRECTED_REQUEST,
                &message,
                json!({"appended": false, "leader": leader}),
            )
        }
        (Answer::NotAppended, None) => failure(
            StatusCode::SERVICE_UNAVAILABLE,
            "no pod leads at the moment",
            json!({"appended": false}),
        ),
        (Answer::Unknown, _) => {
            let message = "the event may have been appended; send it again with the same id";
            failure(StatusCode::SERVICE_UNAVAILABLE, message, json!({"appended": null}))
        }
    }
}

/// A failure: its message under `error`, and more.
fn failure(status: StatusCode, message: &str, mut body: serde_json::Value) -> Response {
    body["error"] = message.into();
    (status, Json(body)).into_response()
}
