//! One member: reached, definition, permissions, identity, and the ensembles of its apps.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::{Api, Client};

use super::{Finding, definition, permissions};
use crate::api::EventSourcedApp;
use crate::api::fleet_config::MemberConfig;
use crate::kubernetes::client::{Connection, connect};
use crate::kubernetes::fault::{FaultClass, classify, describe};
use crate::kubernetes::permissions::{CLUSTER_IDENTITY, MEMBER};
use crate::support::deadline::within;

/// How long one request may take.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// How many apps are looked at for their ensembles.
const APPS_MAX: u32 = 500;
/// What grants what is missing.
const MANIFEST: &str = "`esfleet member manifest`";

/// What was found of one member.
#[derive(Debug, Default)]
pub(super) struct MemberReport {
    pub(super) findings: Vec<Finding>,
    /// The UID of `kube-system`, if it could be read.
    pub(super) identity: Option<String>,
    /// The connect strings of its apps.
    pub(super) connect_strings: BTreeSet<String>,
}

impl MemberReport {
    pub(super) fn only(finding: Finding) -> Self {
        Self {
            findings: vec![finding],
            ..Self::default()
        }
    }
}

pub(super) async fn check(config: &MemberConfig) -> MemberReport {
    let name = config.name.as_str();
    let connection = match connect(&config.source).await {
        Ok(connection) => connection,
        Err(error) => return MemberReport::only(Finding::fail(name, error.message)),
    };
    let reached = reached(name, &connection).await;
    let mut report = match reached {
        Ok(finding) => MemberReport::only(finding),
        Err(finding) => return MemberReport::only(finding),
    };
    let client = &connection.client;
    let scopes: Vec<Option<&str>> = if config.namespaces.is_empty() {
        vec![None]
    } else {
        config
            .namespaces
            .iter()
            .map(|namespace| Some(namespace.as_str()))
            .collect()
    };
    let (definition, granted, identity, apps) = tokio::join!(
        definition::check(name, client),
        permissions_of(name, client, &scopes),
        identity(client),
        join_all(scopes.iter().map(|scope| connect_strings(client, *scope))),
    );
    report.findings.push(definition);
    report.findings.extend(granted);
    report.identity = identity;
    report.connect_strings = apps.into_iter().flatten().collect();
    report
}

/// Whether an API server answers, and which version it has.
pub(super) async fn reached(name: &str, connection: &Connection) -> Result<Finding, Finding> {
    let server = &connection.server;
    match within(REQUEST_LIMIT, server, connection.client.apiserver_version()).await {
        Ok(Ok(version)) => Ok(Finding::ok(name, format!("reached {server}: {}", version.git_version))),
        Ok(Err(error)) => {
            let words = describe(&error);
            Err(Finding::fail(
                name,
                match classify(&error) {
                    FaultClass::Unauthorized => {
                        format!("{server} does not accept the credentials; renew the kubeconfig")
                    }
                    _ => format!("{server} cannot be reached: {words}; see that it runs and that its address is right"),
                },
            ))
        }
        Err(late) => Err(Finding::fail(
            name,
            format!("{late}; see that it can be reached from here"),
        )),
    }
}

async fn permissions_of(name: &str, client: &Client, scopes: &[Option<&str>]) -> Vec<Finding> {
    let scoped = join_all(
        scopes
            .iter()
            .map(|scope| permissions::check(name, client, *scope, MEMBER, MANIFEST)),
    )
    .await;
    let mut findings: Vec<Finding> = scoped.into_iter().flatten().collect();
    findings.extend(permissions::check(name, client, None, CLUSTER_IDENTITY, MANIFEST).await);
    findings
}

/// The UID of `kube-system`; that it cannot be read is told with the permissions.
async fn identity(client: &Client) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = within(REQUEST_LIMIT, "kube-system", namespaces.get("kube-system")).await;
    namespace.ok()?.ok()?.metadata.uid
}

/// The connect strings of the apps; that they cannot be listed is told with the permissions.
async fn connect_strings(client: &Client, namespace: Option<&str>) -> BTreeSet<String> {
    let api: Api<DeserializeGuard<EventSourcedApp>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let params = ListParams::default().limit(APPS_MAX);
    match within(REQUEST_LIMIT, "the list of apps", api.list(&params)).await {
        Ok(Ok(apps)) => apps
            .items
            .into_iter()
            .filter_map(|DeserializeGuard(app)| app.ok())
            .map(|app| app.spec.zookeeper_connect_string)
            .collect(),
        Ok(Err(_)) | Err(_) => BTreeSet::new(),
    }
}
