//! The hub: reached, the Lease's namespace, the permissions on the Lease.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};

use super::member::{REQUEST_LIMIT, reached};
use super::{Finding, permissions};
use crate::cli::flags::HubFlags;
use crate::kubernetes::client::connect_hub;
use crate::kubernetes::fault::{FaultClass, classify, describe};
use crate::kubernetes::permissions::HUB;
use crate::support::deadline::within;

const SUBJECT: &str = "hub";

pub(super) async fn check(flags: &HubFlags) -> Vec<Finding> {
    let connection = match connect_hub(&flags.source()).await {
        Ok(connection) => connection,
        Err(error) => return vec![Finding::fail(SUBJECT, error.message)],
    };
    let finding = match reached(SUBJECT, &connection).await {
        Ok(finding) => finding,
        Err(finding) => return vec![finding],
    };
    let mut findings = vec![finding];
    let (namespace, client) = (flags.lease_namespace.as_str(), &connection.client);
    let granted = permissions::check(SUBJECT, client, Some(namespace), HUB, "`esfleet member manifest --hub`").await;
    findings.extend(granted);
    findings.extend(lease(client, namespace, &flags.lease_name).await);
    findings
}

/// Whether a Lease could be created in the namespace: tried as a dry run, since a read does not tell whether the namespace exists.
async fn lease(client: &Client, namespace: &str, name: &str) -> Option<Finding> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    };
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let fault = match within(REQUEST_LIMIT, "a dry run on the Lease", leases.create(&params, &lease)).await {
        Ok(Ok(_)) => {
            let what = format!("Lease {namespace}/{name} can be created; nobody has led yet");
            return Some(Finding::ok(SUBJECT, what));
        }
        Ok(Err(error)) => error,
        Err(late) => return Some(Finding::fail(SUBJECT, late.to_string())),
    };
    match classify(&fault) {
        FaultClass::Conflict => Some(Finding::ok(SUBJECT, format!("Lease {namespace}/{name} exists"))),
        FaultClass::NotFound => Some(Finding::fail(
            SUBJECT,
            format!(
                "namespace {namespace} for the Lease does not exist; apply `esfleet member manifest --hub --namespace {namespace}`, or choose another with --lease-namespace"
            ),
        )),
        // Told with the permissions already.
        FaultClass::Forbidden => None,
        _ => Some(Finding::fail(
            SUBJECT,
            format!("Lease {namespace}/{name}: {}", describe(&fault)),
        )),
    }
}
