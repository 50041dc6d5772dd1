//! The driver: which app is looked at when, and what becomes of failures.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use futures::{FutureExt, StreamExt, stream};
use kube::runtime::controller::{Action, Config, Error};
use kube::runtime::reflector::ObjectRef;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::memory::Memory;
use super::metrics::{ReconcileMetrics, ReconcileResult};
use super::observe::Children;
use super::{apply, observe, report};
use crate::api::{AppKey, ClusterName};
use crate::app::plan::plan;
use crate::kubernetes::projection::ObjectKey;
use crate::kubernetes::scope::{ProjectedApp, Scope};
use crate::kubernetes::writer::{RequestError, Writer};
use crate::zookeeper::{Changed, Pool};

/// How many apps of one member are looked at side by side.
pub const CONCURRENCY: u16 = 16;

/// All that reconciling the apps of one scope needs, for one term and connection.
pub struct Context {
    /// The member.
    pub cluster: ClusterName,
    /// This replica's identity, as Events name it.
    pub instance: String,
    /// What is known of the scope.
    pub scope: Arc<Scope>,
    /// The only way to write.
    pub writer: Writer,
    /// The ensembles.
    pub pool: Arc<Pool>,
    /// Counters.
    pub metrics: ReconcileMetrics,
    /// What we wrote and have not seen yet.
    pub memory: Memory,
    /// Marks an app whose view of its ensemble changed.
    pub changed: Changed,
    /// Shared by the scopes of one member; as many as [`CONCURRENCY`].
    pub permits: Arc<Semaphore>,
}

impl Context {
    /// The fleet-wide name of one of the scope's apps.
    #[must_use]
    pub fn app_key(&self, key: &ObjectKey) -> AppKey {
        AppKey {
            cluster: self.cluster.clone(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        }
    }
}

/// Why an app's reconciliation is to be tried again.
#[derive(Debug, Error)]
pub enum ReconcileError {
    /// A request failed.
    #[error("{step}: {source}")]
    Request {
        /// What was being done.
        step: &'static str,
        /// What became of it.
        source: RequestError,
    },
}

/// Looks after the scope's apps until `stop` fires; then lets what is under way come to its end.
pub async fn control(context: Arc<Context>, stop: CancellationToken) {
    tokio::select! {
        () = context.scope.ready() => {}
        () = stop.cancelled() => return,
    }
    let dirty = context.scope.dirty.open();
    let all: Vec<ObjectKey> = context.scope.apps.state().iter().map(|app| app.key()).collect();
    let changed = stream::unfold(
        dirty,
        |mut dirty| async move { dirty.recv().await.map(|key| (key, dirty)) },
    );
    let queue = stream::iter(all)
        .chain(changed)
        .map(|key| Ok::<_, Infallible>(ObjectRef::<ProjectedApp>::new(&key.name).within(&key.namespace)))
        .take_until(stop.clone().cancelled_owned());
    kube::runtime::applier(
        |app, context| reconcile(app, context).boxed(),
        retry,
        context.clone(),
        context.scope.apps.clone(),
        Box::pin(queue),
        Config::default().concurrency(CONCURRENCY),
    )
    .for_each(|result| {
        settle(&context, result);
        std::future::ready(())
    })
    .await;
}

fn settle(context: &Context, result: Result<(ObjectRef<ProjectedApp>, Action), Error<ReconcileError, Infallible>>) {
    match result {
        Ok(_) => {}
        Err(Error::ObjectNotFound(gone)) => {
            let key = ObjectKey {
                namespace: gone.namespace.unwrap_or_default(),
                name: gone.name,
            };
            context.scope.dirty.started(&key);
            context.memory.forget(&key);
            context.pool.forget(&context.app_key(&key));
        }
        Err(Error::ReconcilerFailed(
            ReconcileError::Request {
                source: RequestError::TermEnded,
                ..
            },
            _,
        )) => {}
        Err(Error::ReconcilerFailed(ReconcileError::Request { step, source }, app)) => {
            let key = format!("{}/{}", app.namespace.as_deref().unwrap_or_default(), app.name);
            match source {
                RequestError::Stale(_) | RequestError::NotFound(_) | RequestError::NamespaceTerminating => {
                    tracing::debug!(cluster = %context.cluster, app = key, step, "trying again: {source}");
                }
                source => tracing::warn!(cluster = %context.cluster, app = key, step, "trying again later: {source}"),
            }
        }
        Err(error @ (Error::QueueError(_) | Error::RunnerError(_))) => {
            tracing::error!(cluster = %context.cluster, "the controller's queue failed: {error}");
        }
    }
}

fn retry(app: Arc<ProjectedApp>, error: &ReconcileError, context: Arc<Context>) -> Action {
    let ReconcileError::Request { source, .. } = error;
    match source {
        // the change that made us late is on its way through the watch
        RequestError::Stale(_) => Action::requeue(context.memory.stale(&app.key())),
        RequestError::TermEnded | RequestError::NamespaceTerminating => Action::await_change(),
        RequestError::Deadline(_)
        | RequestError::NotFound(_)
        | RequestError::Forbidden(_)
        | RequestError::Rejected(_)
        | RequestError::Failed(_) => Action::requeue(context.memory.failed(&app.key())),
    }
}

async fn reconcile(app: Arc<ProjectedApp>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let key = app.key();
    let _permit = context.permits.acquire().await;
    context.scope.dirty.started(&key);
    let started = Instant::now();
    let result = reconcile_app(&app, &key, &context).await;
    let outcome = match &result {
        Ok(()) => ReconcileResult::Done,
        Err(ReconcileError::Request {
            source: RequestError::Stale(_),
            ..
        }) => ReconcileResult::Stale,
        Err(_) => ReconcileResult::Failed,
    };
    context.metrics.record(outcome, started.elapsed());
    result?;
    context.memory.succeeded(&key);
    Ok(Action::await_change())
}

/// The whole of it: observe, plan, apply, report.
async fn reconcile_app(app: &ProjectedApp, key: &ObjectKey, context: &Context) -> Result<(), ReconcileError> {
    let Ok(observed) = &app.data else {
        context.pool.forget(&context.app_key(key)); // told by the watch, and left alone
        return Ok(());
    };
    let children = Children::of(&context.scope, key);
    observe::register(context, key, observed);
    let plan = plan(observed, &children.view(), &context.memory.memo(key));
    let outcome = apply::apply(context, key, observed, &children, plan).await;
    report::report(context, key, observed, outcome).await
}
