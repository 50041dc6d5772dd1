//! What keeps a cluster from being looked after, in the reasons and words that every listing uses.

use std::time::Duration;

/// The API server does not answer.
pub const NOT_ANSWERING: &str = "NotAnswering";
/// The API server does not know `EventSourcedApp`.
pub const DEFINITION_MISSING: &str = "CRDMissing";

/// A server that cannot be reached; `words`: the causes.
#[must_use]
pub fn not_answering(server: &str, words: &str) -> String {
    format!("{server} cannot be reached: {words}; see that it runs and that its address is right")
}

/// A server from which nothing came within the deadline.
#[must_use]
pub fn silent(server: &str, deadline: Duration) -> String {
    format!(
        "{server} did not answer within {} s; see that it can be reached from here",
        deadline.as_secs_f64()
    )
}

/// A server that refuses the credentials.
#[must_use]
pub fn unauthorized(server: &str) -> String {
    format!("{server} does not accept the credentials; renew the kubeconfig")
}

/// A cluster that does not know our apps.
#[must_use]
pub fn definition_missing() -> String {
    "it has no EventSourcedApp definition; apply `esfleet crd` to it".to_owned()
}

/// Credentials that allow too little; `words`: the API server's.
#[must_use]
pub fn forbidden(words: &str) -> String {
    format!("the credentials do not allow what is needed: {words}; apply `esfleet member manifest` to it")
}
