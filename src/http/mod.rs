//! `/livez`, `/readyz`, `/metrics` and `/api/v1/fleet`: read only, and generic over what they tell.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::listing::FleetListing;
use crate::telemetry::Registry;

/// The content type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is still missing before the answer is yes; empty: yes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// One phrase per missing thing: "the watches of eu-west".
    pub missing: Vec<String>,
}

impl Verdict {
    /// Nothing is missing.
    #[must_use]
    pub fn yes() -> Self {
        Self::default()
    }

    /// This is missing.
    #[must_use]
    pub fn waiting_for(missing: impl IntoIterator<Item = String>) -> Self {
        Self {
            missing: missing.into_iter().collect(),
        }
    }
}

/// What the server tells, asked anew on every request. The closures must not block.
#[derive(Clone)]
pub struct Face {
    /// Whether the process does its work; a no means that a restart helps.
    pub live: Arc<dyn Fn() -> Verdict + Send + Sync>,
    /// Whether this replica could lead.
    pub ready: Arc<dyn Fn() -> Verdict + Send + Sync>,
    /// The fleet as this replica knows it.
    pub fleet: Arc<dyn Fn() -> FleetListing + Send + Sync>,
    /// The metrics.
    pub registry: Arc<Registry>,
}

impl fmt::Debug for Face {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Face").finish_non_exhaustive()
    }
}

/// Why nothing is served.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The address cannot be listened on: a usage error.
    #[error(
        "cannot listen on {address}: {source}; choose another address with --http-addr (port 0 takes any free one)"
    )]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The server ended although nobody asked it to.
    #[error("the HTTP server ended: {0}")]
    Serve(#[source] std::io::Error),
}

/// Takes the address; done first, so that a taken port is told before anything is touched.
///
/// # Errors
/// [`HttpError::Bind`], which names the address and the flag.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, HttpError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| HttpError::Bind { address, source })
}

/// Serves until `shutdown`.
///
/// # Errors
/// [`HttpError::Serve`] when the server ends by itself.
pub async fn serve(listener: TcpListener, face: Face, shutdown: CancellationToken) -> Result<(), HttpError> {
    let server = axum::serve(listener, router(face));
    tokio::select! {
        outcome = server => outcome.map_err(HttpError::Serve),
        // Open connections are dropped: nothing that is served takes longer than a moment.
        () = shutdown.cancelled() => Ok(()),
    }
}

fn router(face: Face) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/v1/fleet", get(fleet))
        .fallback(not_found)
        .layer(from_fn(read_only))
        .with_state(face)
}

async fn read_only(request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        next.run(request).await
    } else {
        let headers = [(header::ALLOW, "GET, HEAD")];
        (
            StatusCode::METHOD_NOT_ALLOWED,
            headers,
            "read only: GET and HEAD are served\n",
        )
            .into_response()
    }
}

async fn livez(State(face): State<Face>) -> Response {
    answer(&(face.live)())
}

async fn readyz(State(face): State<Face>) -> Response {
    answer(&(face.ready)())
}

fn answer(verdict: &Verdict) -> Response {
    if verdict.missing.is_empty() {
        return "ok\n".into_response();
    }
    let lines: String = verdict
        .missing
        .iter()
        .map(|missing| format!("waiting for {missing}\n"))
        .collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

async fn metrics(State(face): State<Face>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &face.registry) {
        Ok(()) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn fleet(State(face): State<Face>) -> Response {
    Json((face.fleet)()).into_response()
}

async fn not_found() -> Response {
    let text = "served here: /livez /readyz /metrics /api/v1/fleet\n";
    (StatusCode::NOT_FOUND, text).into_response()
}

#[cfg(test)]
mod tests;
