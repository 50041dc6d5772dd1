//! Events: what a person would want to know, as `kubectl describe` shows it.
//!
//! kube's own `Recorder` is not used: it merges events of one reason into a series that keeps the
//! first note, so that "the leader is b" would be told as "the leader is a" again.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Resource;

use super::projection::ObjectKey;
use super::writer::{RequestError, Writer};
use crate::api::{EventSourcedApp, GROUP};
use crate::app::transitions::{Notice, Severity};

/// Publishes one notice about an app.
///
/// # Errors
/// [`RequestError`]; the caller decides that an Event that is lost is no reason to fail.
pub async fn publish(
    writer: &Writer,
    instance: &str,
    app: &ObjectKey,
    uid: &str,
    notice: &Notice,
) -> Result<(), RequestError> {
    writer
        .create(&app.namespace, &event(instance, app, uid, notice, Timestamp::now()))
        .await
}

fn event(instance: &str, app: &ObjectKey, uid: &str, notice: &Notice, now: Timestamp) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:x}", app.name, now.as_nanosecond())),
            namespace: Some(app.namespace.clone()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        regarding: Some(ObjectReference {
            api_version: Some(EventSourcedApp::api_version(&()).into_owned()),
            kind: Some(EventSourcedApp::kind(&()).into_owned()),
            name: Some(app.name.clone()),
            namespace: Some(app.namespace.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        }),
        action: Some(notice.reason.as_str().to_owned()),
        reason: Some(notice.reason.as_str().to_owned()),
        note: Some(notice.note.clone()),
        type_: Some(match notice.severity {
            Severity::Normal => "Normal".to_owned(),
            Severity::Warning => "Warning".to_owned(),
        }),
        reporting_controller: Some(format!("{GROUP}/esfleet")),
        reporting_instance: Some(instance.chars().take(128).collect()),
        ..Event::default()
    }
}
