//! What went wrong with the Lease, in a closed set of reasons, with what the operator can do about it.

use std::error::Error;
use std::fmt;

use kube::core::Status;
use kube_leader_election::Error as CrateError;

use super::lease::LeaseAddress;
use super::metrics::FailureReason;

/// A failed use of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub reason: FailureReason,
    /// What happened and what to do, in one line.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Failure {
    pub(super) fn timeout(address: &LeaseAddress) -> Self {
        let what = format!("no answer within {:?}", address.attempt);
        Self::new(address, FailureReason::Timeout, &what)
    }

    pub(super) fn unexpected(address: &LeaseAddress, what: &str) -> Self {
        Self::new(address, FailureReason::Unexpected, what)
    }

    pub(super) fn is_conflict(&self) -> bool {
        self.reason == FailureReason::Conflict
    }

    fn new(address: &LeaseAddress, reason: FailureReason, what: &str) -> Self {
        let LeaseAddress {
            namespace,
            name,
            attempt: _,
        } = address;
        let remedy = match reason {
            FailureReason::Forbidden => "; apply what \"esfleet member manifest --hub\" prints to the hub".to_owned(),
            FailureReason::Unauthorized => "; check the credentials of the hub's kubeconfig".to_owned(),
            FailureReason::NamespaceMissing => {
                format!("; create it (kubectl create namespace {namespace}) or name another by --lease-namespace")
            }
            FailureReason::Timeout | FailureReason::Connection => "; check that the hub is reachable".to_owned(),
            FailureReason::Conflict
            | FailureReason::Throttled
            | FailureReason::Invalid
            | FailureReason::Server
            | FailureReason::Unexpected => String::new(),
        };
        Self {
            reason,
            message: format!("Lease {namespace}/{name}: {what}{remedy}"),
        }
    }
}

/// What an error of the crate means.
pub(super) fn failure_of(address: &LeaseAddress, error: CrateError) -> Failure {
    match error {
        CrateError::GetLease(error)
        | CrateError::CreateLease(error)
        | CrateError::AcquireLease(error)
        | CrateError::RenewLease(error)
        | CrateError::ReleaseLease(error)
        | CrateError::Kube(error) => failure_of_kube(address, &error),
        CrateError::ApiError { response } => failure_of_status(address, &response),
        other @ (CrateError::TraverseLease { .. }
        | CrateError::ReleaseLockWhenNotLeading { .. }
        | CrateError::SerdeError(_)
        | CrateError::JiffError(_)) => Failure::unexpected(address, &chain(&other)),
    }
}

/// What an error of the client means.
pub(super) fn failure_of_kube(address: &LeaseAddress, error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => failure_of_status(address, status),
        kube::Error::HyperError(_) | kube::Error::Service(_) => {
            Failure::new(address, FailureReason::Connection, &chain(error))
        }
        other => Failure::unexpected(address, &chain(other)),
    }
}

fn failure_of_status(address: &LeaseAddress, status: &Status) -> Failure {
    let namespace_missing = status.code == 404
        && status
            .details
            .as_ref()
            .is_some_and(|details| details.kind == "namespaces");
    let reason = match status.code {
        401 => FailureReason::Unauthorized,
        403 => FailureReason::Forbidden,
        404 if namespace_missing => FailureReason::NamespaceMissing,
        409 => FailureReason::Conflict,
        422 => FailureReason::Invalid,
        429 => FailureReason::Throttled,
        500.. => FailureReason::Server,
        _ => FailureReason::Unexpected,
    };
    let what = match reason {
        FailureReason::NamespaceMissing => format!("namespace {} does not exist", address.namespace),
        _ if status.message.is_empty() => format!("the hub answered {}", status.code),
        _ => status.message.clone(),
    };
    Failure::new(address, reason, &what)
}

/// An error with its causes, in one line, none of them twice.
fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::StatusDetails;
    use std::time::Duration;

    fn failure(code: u16, kind: &str) -> Failure {
        let address = LeaseAddress {
            namespace: "fleet".into(),
            name: "lease".into(),
            attempt: Duration::from_secs(3),
        };
        let details: StatusDetails = serde_json::from_value(serde_json::json!({"kind": kind})).unwrap();
        let status = Status::failure("no", "").with_code(code).with_details(details);
        failure_of(&address, CrateError::CreateLease(kube::Error::Api(status.boxed())))
    }

    #[test]
    fn each_answer_of_the_hub_has_its_reason_and_its_remedy() {
        let plain = "Lease fleet/lease: no";
        let cases = [
            (
                401,
                FailureReason::Unauthorized,
                format!("{plain}; check the credentials of the hub's kubeconfig"),
            ),
            (
                403,
                FailureReason::Forbidden,
                format!("{plain}; apply what \"esfleet member manifest --hub\" prints to the hub"),
            ),
            (404, FailureReason::Unexpected, plain.to_owned()),
            (409, FailureReason::Conflict, plain.to_owned()),
            (422, FailureReason::Invalid, plain.to_owned()),
            (429, FailureReason::Throttled, plain.to_owned()),
            (500, FailureReason::Server, plain.to_owned()),
            (504, FailureReason::Server, plain.to_owned()),
        ];
        for (code, reason, message) in cases {
            assert_eq!(failure(code, "leases"), Failure { reason, message }, "{code}");
        }
    }

    #[test]
    fn a_missing_namespace_is_told_from_a_missing_lease() {
        let message = "Lease fleet/lease: namespace fleet does not exist; create it (kubectl create namespace fleet) \
                       or name another by --lease-namespace";
        let expected = Failure {
            reason: FailureReason::NamespaceMissing,
            message: message.to_owned(),
        };
        assert_eq!(failure(404, "namespaces"), expected);
    }
}
