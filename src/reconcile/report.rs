//! The one place that writes an app's status, and the Events that go with it.

use std::time::Duration;

use jiff::Timestamp;

use super::apply::Outcome;
use super::controller::{Context, ReconcileError};
use crate::app::observed::ObservedApp;
use crate::app::status::{WorkloadView, is_current, status};
use crate::app::transitions::transitions;
use crate::kubernetes::events::publish;
use crate::kubernetes::projection::ObjectKey;
use crate::kubernetes::writer::RequestError;

/// How long a report waits for the first look at the app's root and leader, so that a new app gets
/// one status and not two. An ensemble that does not answer must not hold up the others for long.
const FIRST_LOOK: Duration = Duration::from_millis(500);

/// Writes the status if it changed, then publishes what changed.
///
/// # Errors
/// The failure of the plan, or of the status itself.
pub async fn report(
    context: &Context,
    key: &ObjectKey,
    app: &ObservedApp,
    outcome: Outcome,
) -> Result<(), ReconcileError> {
    if app.deleting {
        return Ok(());
    }
    let ensemble = context.pool.settled(&context.app_key(key), FIRST_LOOK).await;
    let failure = outcome.failure.as_ref().filter(|failure| !failure.error.is_passing());
    let words = failure.map(|failure| format!("{} {}: {}", failure.kind, key.name, failure.error));
    let workload = WorkloadView::new(&outcome.plan, outcome.stateful_set.as_deref(), words);
    let known = context.memory.last_report(key, &app.resource_version);
    let (version, app) = match known {
        Some((version, status)) => (version, &ObservedApp { status, ..app.clone() }),
        None => (app.resource_version.clone(), app),
    };
    let wanted = status(app, &workload, &ensemble, Timestamp::now());
    let mut written = Ok(());
    if !is_current(&app.status, &wanted) {
        match context.writer.replace_status(key, &app.uid, &version, &wanted).await {
            Ok(answer) => {
                let notices = transitions(&app.status, &wanted);
                context.memory.reported(key, &app.resource_version, &answer, wanted);
                for notice in notices {
                    if let Err(error) = publish(&context.writer, &context.instance, key, &app.uid, &notice).await {
                        tracing::debug!(cluster = %context.cluster, app = %key, reason = notice.reason.as_str(), "an Event is lost: {error}");
                    }
                }
            }
            // the app went meanwhile
            Err(RequestError::NotFound(_)) => {}
            Err(error) => {
                written = Err(ReconcileError::Request {
                    step: "reporting the status",
                    source: error,
                })
            }
        }
    }
    match outcome.failure {
        Some(failure) => Err(ReconcileError::Request {
            step: "applying an object",
            source: failure.error,
        }),
        None => written,
    }
}
