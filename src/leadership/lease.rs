//! The Lease, by way of the crate `kube-leader-election`, with everything closed that the crate leaves open.
//!
//! The crate talks to the hub through a `kube::Client` whose transport is [`Adapter`]. On that one Lease the adapter
//! - remembers the resource version of the last read and puts it into each patch, so that a lost race answers 409;
//! - shows the crate what [`Contender::verdict`] decided, instead of letting it compare the holder's clock with ours,
//!   and fills what the crate cannot do without (nulls, an empty spec);
//! - lets no write through that the verdict does not allow, and numbers each term higher than any seen before;
//! - bounds each request on the server's side too, and writes as field manager `esfleet` (an identity may be too long).
//!
//! Every other request passes untouched.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, Uri};
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use kube_leader_election::{LeaseLock, LeaseLockParams, LeaseLockResult};
use serde_json::{Value, json};
use tower::{BoxError, Service};

use super::clock::{BootClock, BootInstant};
use super::election::{Contender, LeaseRecord, Outcome, Seen, Source, Verdict};
use super::failure::{Failure, failure_of};

/// What the crate compares with the wall clock: renewed so long ago that it is expired for any clock ...
const LONG_EXPIRED: &str = "0001-01-01T00:00:00.000000Z";
/// ... or so far ahead that it is live for any clock.
const NEVER_EXPIRES: &str = "9000-01-01T00:00:00.000000Z";
/// What the crate is told as the holder where it must not be us and is nobody.
const NOBODY: &str = "nobody";

/// Where the Lease is, and how long one attempt may take.
#[derive(Clone, Debug)]
pub(super) struct LeaseAddress {
    pub namespace: String,
    pub name: String,
    pub attempt: Duration,
}

impl fmt::Display for LeaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl LeaseAddress {
    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn object(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }
}

/// How an attempt went, and why if it failed.
pub(super) struct Attempt {
    pub outcome: Outcome,
    pub failure: Option<Failure>,
}

/// The Lease as a contender uses it: one attempt at a time.
pub(super) struct LeaseHandle {
    lock: LeaseLock,
    address: LeaseAddress,
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn BootClock>,
    exchange: Mutex<Exchange>,
}

/// What one attempt has learned so far.
struct Exchange {
    contender: Contender,
    /// Set while a term is being released.
    releasing: Option<i32>,
    verdict: Verdict,
    version: Option<String>,
    confirmed: Option<Confirmed>,
}

struct Confirmed {
    sent: BootInstant,
    record: LeaseRecord,
    version: Option<u64>,
}

impl LeaseHandle {
    /// `lease` is what is written as the record's duration, in whole seconds.
    pub(super) fn new(
        hub: kube::Client,
        address: LeaseAddress,
        lease: Duration,
        contender: Contender,
        clock: Arc<dyn BootClock>,
    ) -> Self {
        let params = LeaseLockParams {
            lease_name: address.name.clone(),
            holder_id: contender.identity().to_owned(),
            lease_ttl: lease,
        };
        let exchange = Exchange {
            contender,
            releasing: None,
            verdict: Verdict::Leave,
            version: None,
            confirmed: None,
        };
        let shared = Arc::new(Shared {
            clock,
            exchange: Mutex::new(exchange),
        });
        let namespace = hub.default_namespace().to_owned();
        let adapter = Adapter {
            hub,
            address: address.clone(),
            shared: shared.clone(),
        };
        let lock = LeaseLock::new(kube::Client::new(adapter, namespace), &address.namespace, params);
        Self { lock, address, shared }
    }

    /// Asks or tells the state machine.
    pub(super) fn with<T>(&self, ask: impl FnOnce(&mut Contender) -> T) -> T {
        ask(&mut self.shared.exchange().contender)
    }

    /// Reads the Lease and does what the verdict allows: acquire, renew, or nothing.
    pub(super) async fn attempt(&self) -> Attempt {
        self.prepare(None);
        let answer = tokio::time::timeout(self.address.attempt, self.lock.try_acquire_or_renew()).await;
        let mut exchange = self.shared.exchange();
        let confirmed = exchange.confirmed.take();
        let outcome = match answer {
            Err(_) => return failed(Failure::timeout(&self.address)),
            Ok(Err(error)) => return self.refused(error),
            Ok(Ok(LeaseLockResult::NotAcquired(_))) => Outcome::Left,
            Ok(Ok(LeaseLockResult::Acquired(_))) => match confirmed {
                Some(Confirmed { sent, record, version }) => Outcome::Confirmed { sent, record, version },
                None => return failed(Failure::unexpected(&self.address, "the hub confirmed something else")),
            },
        };
        Attempt { outcome, failure: None }
    }

    /// Gives the Lease back if it still shows our term `number`; nothing to do if it does not.
    pub(super) async fn release(&self, number: i32) -> Result<(), Failure> {
        self.prepare(Some(number));
        let answer = tokio::time::timeout(self.address.attempt, self.lock.step_down()).await;
        self.shared.exchange().releasing = None;
        match answer {
            Err(_) => Err(Failure::timeout(&self.address)),
            Ok(Ok(()) | Err(kube_leader_election::Error::ReleaseLockWhenNotLeading { .. })) => Ok(()),
            Ok(Err(error)) => Err(failure_of(&self.address, error)),
        }
    }

    fn prepare(&self, releasing: Option<i32>) {
        let now = self.shared.clock.now();
        let mut exchange = self.shared.exchange();
        exchange.releasing = releasing;
        exchange.verdict = Verdict::Leave;
        exchange.version = None;
        exchange.confirmed = None;
        exchange.contender.begin(now);
    }

    fn refused(&self, error: kube_leader_election::Error) -> Attempt {
        let failure = failure_of(&self.address, error);
        let outcome = if failure.is_conflict() {
            Outcome::Conflict
        } else {
            Outcome::Failed
        };
        Attempt {
            outcome,
            failure: Some(failure),
        }
    }
}

fn failed(failure: Failure) -> Attempt {
    Attempt {
        outcome: Outcome::Failed,
        failure: Some(failure),
    }
}

impl Shared {
    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exchange {
    /// Takes note of what a read showed and judges it.
    fn read(&mut self, now: BootInstant, version: Option<String>, seen: Seen) {
        self.contender
            .observe(now, Source::Read, version.as_deref().and_then(|v| v.parse().ok()), seen);
        self.version = version;
        self.verdict = match self.releasing {
            None => self.contender.verdict(now),
            Some(number) => match self.contender.record() {
                Some(record) if record.holder == self.contender.identity() && record.transitions == number => {
                    Verdict::Renew { number }
                }
                _ => Verdict::Leave,
            },
        };
    }

    /// The Lease as the crate is to see it, so that it does what the verdict says.
    fn shown(&self, address: &LeaseAddress) -> Value {
        let identity = self.contender.identity();
        let holder = self.contender.record().map_or("", |record| &record.holder);
        let other = if holder.is_empty() || holder == identity {
            NOBODY
        } else {
            holder
        };
        let (holder, renewed, transitions) = match self.verdict {
            Verdict::Renew { number } => (identity, NEVER_EXPIRES, number),
            Verdict::Take { number } => (other, LONG_EXPIRED, (number - 1).max(0)),
            Verdict::Leave => (other, NEVER_EXPIRES, 0),
        };
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": address.name, "namespace": address.namespace},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": 1,
                "leaseTransitions": transitions,
                "acquireTime": renewed,
                "renewTime": renewed,
            },
        })
    }

    /// What a write must carry; none if it must not be sent.
    fn guard(&self, method: &Method, body: &mut Value) -> Option<()> {
        let number = match self.verdict {
            Verdict::Leave => return None,
            Verdict::Take { number } => Some(number),
            Verdict::Renew { .. } => None,
        };
        if let Some(number) = number {
            body.get_mut("spec")?
                .as_object_mut()?
                .insert("leaseTransitions".to_owned(), number.into());
        }
        if method == Method::PATCH {
            let version = self.version.clone()?;
            body.get_mut("metadata")?
                .as_object_mut()?
                .insert("resourceVersion".to_owned(), version.into());
        }
        Some(())
    }

    /// Takes note of the server's answer to a write; what it does not confirm is not ours.
    fn wrote(&mut self, now: BootInstant, sent: BootInstant, lease: &Lease) {
        let record = record_of(lease);
        let version = version_of(lease);
        if self.releasing.is_some() {
            self.contender
                .observe(now, Source::Read, version, Seen::Present(record));
        } else if record.holder == self.contender.identity() && expected(self.verdict) == Some(record.transitions) {
            self.confirmed = Some(Confirmed { sent, record, version });
        } else {
            self.contender
                .observe(now, Source::Read, version, Seen::Present(record));
        }
    }
}

fn expected(verdict: Verdict) -> Option<i32> {
    match verdict {
        Verdict::Renew { number } | Verdict::Take { number } => Some(number),
        Verdict::Leave => None,
    }
}

/// What matters of a Lease.
pub(super) fn record_of(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|s| *s > 0);
    LeaseRecord {
        holder: spec.holder_identity.unwrap_or_default(),
        transitions: spec.lease_transitions.unwrap_or_default(),
        duration: seconds.map(Duration::from_secs),
        acquired_at: spec.acquire_time.map(|time| time.0),
        renewed_at: spec.renew_time.map(|time| time.0),
    }
}

/// The resource version as a number, so that events can be ordered.
pub(super) fn version_of(lease: &Lease) -> Option<u64> {
    lease
        .metadata
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
}

/// The transport of the crate's client.
#[derive(Clone)]
struct Adapter {
    hub: kube::Client,
    address: LeaseAddress,
    shared: Arc<Shared>,
}

impl Service<Request<Body>> for Adapter {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let adapter = self.clone();
        Box::pin(async move {
            let path = request.uri().path();
            match *request.method() {
                Method::GET if path == adapter.address.object() => adapter.read(request).await,
                Method::PATCH if path == adapter.address.object() => adapter.write(request).await,
                Method::POST if path == adapter.address.collection() => adapter.write(request).await,
                _ => Ok(adapter.hub.send(request).await?),
            }
        })
    }
}

impl Adapter {
    async fn read(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let answer = self.hub.send(self.bounded(request, None)?).await?;
        let status = answer.status();
        let (version, seen) = match status {
            StatusCode::OK => {
                let lease: Lease = serde_json::from_slice(&answer.into_body().collect_bytes().await?)?;
                (
                    lease.metadata.resource_version.clone(),
                    Seen::Present(record_of(&lease)),
                )
            }
            StatusCode::NOT_FOUND => (None, Seen::Absent),
            _ => return Ok(answer),
        };
        let mut exchange = self.shared.exchange();
        exchange.read(self.shared.clock.now(), version, seen);
        // The crate creates what it does not find, so it is only told when it may.
        if status == StatusCode::NOT_FOUND && matches!(exchange.verdict, Verdict::Take { .. }) {
            return respond(StatusCode::NOT_FOUND, &status_object(StatusCode::NOT_FOUND, "NotFound"));
        }
        respond(StatusCode::OK, &exchange.shown(&self.address))
    }

    async fn write(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (mut parts, body) = request.into_parts();
        let mut body: Value = serde_json::from_slice(&body.collect_bytes().await?)?;
        if self.shared.exchange().guard(&parts.method, &mut body).is_none() {
            return respond(StatusCode::CONFLICT, &status_object(StatusCode::CONFLICT, "Conflict"));
        }
        parts.headers.remove(http::header::CONTENT_LENGTH);
        let request = Request::from_parts(parts, Body::from(serde_json::to_vec(&body)?));
        let request = self.bounded(request, Some("esfleet"))?;
        let sent = self.shared.clock.now();
        let (parts, body) = self.hub.send(request).await?.into_parts();
        let bytes = body.collect_bytes().await?;
        if parts.status.is_success() {
            let lease: Lease = serde_json::from_slice(&bytes)?;
            self.shared.exchange().wrote(self.shared.clock.now(), sent, &lease);
        }
        Ok(Response::from_parts(parts, Body::from(bytes)))
    }

    /// The request with our own query: a bound on the server's side, and our field manager.
    fn bounded(&self, request: Request<Body>, manager: Option<&str>) -> Result<Request<Body>, BoxError> {
        let (mut parts, body) = request.into_parts();
        let manager = manager
            .map(|manager| format!("&fieldManager={manager}"))
            .unwrap_or_default();
        let seconds = self.address.attempt.as_secs_f64().ceil();
        let query = format!("{}?timeout={seconds}s{manager}", parts.uri.path());
        let mut uri = parts.uri.into_parts();
        uri.path_and_query = Some(query.parse()?);
        parts.uri = Uri::from_parts(uri)?;
        Ok(Request::from_parts(parts, body))
    }
}

fn status_object(code: StatusCode, reason: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": "answered by esfleet's own adapter", "reason": reason, "code": code.as_u16(),
    })
}

fn respond(status: StatusCode, body: &Value) -> Result<Response<Body>, BoxError> {
    Ok(Response::builder()
        .status(status)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(serde_json::to_vec(body)?))?)
}
