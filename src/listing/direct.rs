//! The listing straight from the members: `esfleet status`. Reads only, and asks all members side by side.

use std::time::Duration;

use futures::future::{join_all, try_join_all};
use jiff::Timestamp;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::{Api, Client};
use thiserror::Error;

use super::snapshot::{AppReport, ClusterReport, ClusterState, Ready};
use crate::api::fleet_config::MemberConfig;
use crate::api::{EventSourcedApp, FleetConfig};
use crate::kubernetes::client::{Connection, connect};
use crate::kubernetes::fault::{FaultClass, classify, describe};
use crate::kubernetes::trouble;
use crate::support::deadline::within;

/// How long one member may take to answer, everything included.
pub const MEMBER_LIMIT: Duration = Duration::from_secs(10);

/// How many apps one request asks for.
const PAGE: u32 = 500;

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Only these members; empty: all.
    pub clusters: Vec<String>,
    /// Only apps of this namespace.
    pub namespace: Option<String>,
    /// Only apps that this label selector matches.
    pub selector: Option<String>,
}

/// A member was asked for that the fleet config does not list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no cluster {name:?} in the fleet config; it lists {known}")]
pub struct UnknownCluster {
    /// The name that was asked for.
    pub name: String,
    /// The names that there are.
    pub known: String,
}

/// Asks the members of a fleet, as often as wanted; connections are kept in between.
#[derive(Debug)]
pub struct Asker {
    members: Vec<Asked>,
    query: Query,
    limit: Duration,
}

#[derive(Debug)]
struct Asked {
    config: MemberConfig,
    connection: Option<Connection>,
    last_seen: Option<Timestamp>,
}

impl Asker {
    /// Prepares to ask; nothing is sent yet.
    ///
    /// # Errors
    /// [`UnknownCluster`] when the query names a member that is not in the fleet config.
    pub fn new(fleet: &FleetConfig, query: Query, limit: Duration) -> Result<Self, UnknownCluster> {
        if let Some(name) = query.clusters.iter().find(|name| fleet.cluster(name).is_none()) {
            let known: Vec<&str> = fleet.clusters.iter().map(|member| member.name.as_str()).collect();
            return Err(UnknownCluster {
                name: name.clone(),
                known: known.join(", "),
            });
        }
        let wanted = |member: &&MemberConfig| {
            query.clusters.is_empty() || query.clusters.iter().any(|name| name == member.name.as_str())
        };
        let members = fleet.clusters.iter().filter(wanted).map(|config| Asked {
            config: config.clone(),
            connection: None,
            last_seen: None,
        });
        Ok(Self {
            members: members.collect(),
            query,
            limit,
        })
    }

    /// Asks every member once, side by side; takes as long as the slowest, and never longer than the limit.
    pub async fn ask(&mut self) -> Vec<ClusterReport> {
        let (query, limit) = (&self.query, self.limit);
        join_all(self.members.iter_mut().map(|member| member.ask(query, limit))).await
    }
}

/// Why there is nothing to report of a member's apps.
struct Trouble {
    state: ClusterState,
    reason: &'static str,
    message: String,
    version: Option<String>,
}

impl Asked {
    async fn ask(&mut self, query: &Query, limit: Duration) -> ClusterReport {
        let outcome = match within(limit, "the member", self.read(query)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.timed_out(limit)),
        };
        let (state, reason, message, version, apps) = match outcome {
            Ok((version, apps)) if self.config.paused => (ClusterState::Paused, None, None, Some(version), apps),
            Ok((version, apps)) => (ClusterState::Connected, None, None, Some(version), apps),
            Err(trouble) => {
                // The next attempt starts with fresh credentials.
                self.connection = None;
                let Trouble {
                    state,
                    reason,
                    message,
                    version,
                } = trouble;
                (state, Some(reason.to_owned()), Some(message), version, Vec::new())
            }
        };
        if state != ClusterState::Unreachable {
            self.last_seen = Some(Timestamp::now());
        }
        ClusterReport {
            name: self.config.name.as_str().to_owned(),
            state,
            reason,
            message,
            last_seen: self.last_seen,
            version,
            apps,
        }
    }

    async fn read(&mut self, query: &Query) -> Result<(String, Vec<AppReport>), Trouble> {
        let connection = match &self.connection {
            Some(connection) => connection.clone(),
            None => connect(&self.config.source).await.map_err(|error| Trouble {
                state: ClusterState::Unreachable,
                reason: error.class.reason(),
                message: error.message,
                version: None,
            })?,
        };
        self.connection = Some(connection.clone());
        let (version, apps) = tokio::join!(
            connection.client.apiserver_version(),
            list_apps(&connection.client, &self.config.namespaces, query)
        );
        let version = version
            .map_err(|error| told(&error, &connection.server, "its version", None))?
            .git_version;
        match apps {
            Ok(apps) => Ok((version, apps)),
            Err(error) => Err(told(&error, &connection.server, "its apps", Some(version))),
        }
    }

    fn timed_out(&self, limit: Duration) -> Trouble {
        let server = self
            .connection
            .as_ref()
            .map_or("its API server", |connection| &connection.server);
        Trouble {
            state: ClusterState::Unreachable,
            reason: trouble::NOT_ANSWERING,
            message: trouble::silent(server, limit),
            version: None,
        }
    }
}

fn told(error: &kube::Error, server: &str, what: &str, version: Option<String>) -> Trouble {
    let class = classify(error);
    let words = describe(error);
    let (reason, message) = match class {
        FaultClass::NotFound => (trouble::DEFINITION_MISSING, trouble::definition_missing()),
        FaultClass::Unauthorized => (class.reason(), trouble::unauthorized(server)),
        FaultClass::Forbidden => (class.reason(), trouble::forbidden(&words)),
        FaultClass::Unreachable | FaultClass::TimedOut => {
            (trouble::NOT_ANSWERING, trouble::not_answering(server, &words))
        }
        FaultClass::Conflict | FaultClass::ServerTrouble | FaultClass::Refused | FaultClass::Unintelligible => {
            (class.reason(), format!("{server} did not tell {what}: {words}"))
        }
    };
    Trouble {
        state: if class.is_answer() || version.is_some() {
            ClusterState::Degraded
        } else {
            ClusterState::Unreachable
        },
        reason,
        message,
        version,
    }
}

async fn list_apps(client: &Client, namespaces: &[String], query: &Query) -> Result<Vec<AppReport>, kube::Error> {
    let lists = try_join_all(
        scopes(client, namespaces, query.namespace.as_deref())
            .iter()
            .map(|api| list_pages(api, query.selector.as_deref())),
    )
    .await?;
    Ok(lists.into_iter().flatten().collect())
}

/// One API per namespace to ask, or one for all.
fn scopes(client: &Client, namespaces: &[String], only: Option<&str>) -> Vec<Api<DeserializeGuard<EventSourcedApp>>> {
    let of = |namespace: &str| Api::namespaced(client.clone(), namespace);
    match (namespaces, only) {
        ([], None) => vec![Api::all(client.clone())],
        ([], Some(only)) => vec![of(only)],
        (_, None) => namespaces.iter().map(|namespace| of(namespace)).collect(),
        (_, Some(only)) if namespaces.iter().any(|namespace| namespace == only) => vec![of(only)],
        (_, Some(_)) => Vec::new(),
    }
}

async fn list_pages(
    api: &Api<DeserializeGuard<EventSourcedApp>>,
    selector: Option<&str>,
) -> Result<Vec<AppReport>, kube::Error> {
    let mut params = ListParams::default().limit(PAGE);
    params.label_selector = selector.map(str::to_owned);
    let mut reports = Vec::new();
    loop {
        let page = api.list(&params).await?;
        let confirmed = Timestamp::now();
        reports.extend(page.items.iter().map(|DeserializeGuard(app)| match app {
            Ok(app) => AppReport::of(app, confirmed),
            Err(invalid) => unreadable(invalid, confirmed),
        }));
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(reports);
        }
    }
}

fn unreadable(invalid: &InvalidObject, confirmed: Timestamp) -> AppReport {
    AppReport {
        namespace: invalid.metadata.namespace.clone().unwrap_or_default(),
        name: invalid.metadata.name.clone().unwrap_or_default(),
        replicas: 0,
        active_replicas: None,
        leader: None,
        image: String::new(),
        ready: Ready::Unknown,
        reason: Some("Unreadable".to_owned()),
        message: Some(format!(
            "the object does not fit this version's definition: {}; apply `esfleet crd` and correct the object",
            invalid.error
        )),
        created: invalid.metadata.creation_timestamp.as_ref().map(|time| time.0),
        last_confirmed: confirmed,
    }
}

#[cfg(test)]
mod tests;
