//! Events: what a person would want to know, as `kubectl describe` shows it.
//!
//! kube's own `Recorder` is not used: it merges events of one reason into a series that keeps the
//! first note, so that "the leader is b" would be told as "the leader is a" again.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use jiff::Timestamp;
use kube::Resource;

use super::projection::ObjectKey;
use super::writer::{RequestError, Writer};
use crate::api::{EventSourcedApp, GROUP};
use crate::app::status::{Notice, NoticeKind};

/// The longest note that the API server accepts, in bytes.
const NOTE_MAX: usize = 1024;

/// Publishes one notice about an app.
///
/// # Errors
/// [`RequestError`]; the caller decides that an Event that is lost is no reason to fail.
pub async fn publish(writer: &Writer, instance: &str, app: &ObjectKey, uid: &str, notice: &Notice) -> Result<(), RequestError> {
    writer.create(&app.namespace, &event(instance, app, uid, notice, Timestamp::now())).await
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
        action: Some(notice.action().to_owned()),
        reason: Some(notice.reason().to_owned()),
        note: Some(shorten(&notice.note).to_owned()),
        type_: Some(match notice.kind {
            NoticeKind::Normal => "Normal".to_owned(),
            NoticeKind::Warning => "Warning".to_owned(),
        }),
        reporting_controller: Some(format!("{GROUP}/esfleet")),
        reporting_instance: Some(instance.chars().take(128).collect()),
        ..Event::default()
    }
}

fn shorten(note: &str) -> &str {
    let mut end = note.len().min(NOTE_MAX);
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    &note[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_at_a_character() {
        let long = "ä".repeat(NOTE_MAX);
        assert_eq!(shorten(&long).len(), NOTE_MAX);
        assert_eq!(shorten(&format!("a{long}")).len(), NOTE_MAX - 1);
        assert_eq!(shorten("short"), "short");
    }
}
