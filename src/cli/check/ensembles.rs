//! The ensembles of a member's apps: does a server of each answer from here?

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use tokio::net::{TcpStream, lookup_host};

use super::Finding;
use crate::api::ConnectString;
use crate::api::connect_string::Server;
use crate::support::deadline::within;

/// How long one server may take to accept a connection, its name's resolution included.
const SERVER_LIMIT: Duration = Duration::from_secs(5);

/// One finding per ensemble.
pub(super) async fn check(member: &str, connect_strings: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut ensembles: BTreeMap<Vec<Server>, ()> = BTreeMap::new();
    for text in connect_strings {
        match ConnectString::parse(text) {
            Ok(parsed) => {
                let mut servers = parsed.servers().to_vec();
                servers.sort();
                servers.dedup();
                ensembles.insert(servers, ());
            }
            Err(why) => findings.push(Finding::fail(
                member,
                format!("the connect string {text:?} of an app {why}"),
            )),
        }
    }
    findings.extend(join_all(ensembles.into_keys().map(|servers| ensemble(member, servers))).await);
    findings
}

async fn ensemble(member: &str, servers: Vec<Server>) -> Finding {
    let names: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let names = names.join(",");
    let outcomes = join_all(servers.iter().map(reach)).await;
    let troubles: Vec<String> = servers
        .iter()
        .zip(&outcomes)
        .filter_map(|(server, outcome)| outcome.as_ref().err().map(|why| format!("{server}: {why}")))
        .collect();
    let troubles_text = troubles.join("; ");
    if troubles.is_empty() {
        Finding::ok(member, format!("ZooKeeper {names} answers"))
    } else if troubles.len() < servers.len() {
        Finding::warn(
            member,
            format!("ZooKeeper {names} answers, but not all of it ({troubles_text})"),
        )
    } else if servers.iter().all(is_cluster_name) {
        Finding::warn(
            member,
            format!(
                "ZooKeeper {names} does not answer from here ({troubles_text}); these names may hold only inside a cluster"
            ),
        )
    } else {
        Finding::fail(
            member,
            format!(
                "ZooKeeper {names} does not answer ({troubles_text}); see that it runs and can be reached from where esfleet runs"
            ),
        )
    }
}

/// Whether a name has a meaning only inside a cluster: at most one dot, or below `.svc`.
fn is_cluster_name(server: &Server) -> bool {
    let host = server.host.trim_end_matches('.');
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    let below_svc = host.ends_with(".svc") || host.contains(".svc.");
    !is_address && host != "localhost" && (host.matches('.').count() <= 1 || below_svc)
}

async fn reach(server: &Server) -> Result<(), String> {
    let attempt = async {
        let addresses: Vec<_> = lookup_host((server.host.as_str(), server.port))
            .await
            .map_err(|_| "its name resolves to nothing".to_owned())?
            .collect();
        let mut outcome = Err("its name resolves to nothing".to_owned());
        for address in addresses {
            outcome = TcpStream::connect(address)
                .await
                .map(drop)
                .map_err(|error| error.to_string());
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    };
    within(SERVER_LIMIT, "connecting", attempt)
        .await
        .unwrap_or_else(|late| Err(late.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::Grade;

    async fn grades(text: &str) -> Vec<(Grade, String)> {
        let findings = check("eu", &BTreeSet::from([text.to_owned()])).await;
        findings
            .into_iter()
            .map(|finding| (finding.grade, finding.what))
            .collect()
    }

    #[tokio::test]
    async fn an_ensemble_answers_wholly_partly_or_not_at_all() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let up = listener.local_addr().unwrap();
        let refused = "127.0.0.1:1: Connection refused (os error 111)";
        assert_eq!(
            grades(&format!("{up}/chroot")).await,
            [(Grade::Ok, format!("ZooKeeper {up} answers"))]
        );
        assert_eq!(
            grades(&format!("{up},127.0.0.1:1")).await,
            [(
                Grade::Warn,
                format!("ZooKeeper 127.0.0.1:1,{up} answers, but not all of it ({refused})")
            )]
        );
        assert_eq!(
            grades("127.0.0.1:1").await,
            [(
                Grade::Fail,
                format!(
                    "ZooKeeper 127.0.0.1:1 does not answer ({refused}); see that it runs and can be reached from where esfleet runs"
                )
            )]
        );
    }

    #[test]
    fn names_that_hold_only_inside_a_cluster_are_known() {
        let server = |host: &str| Server {
            host: host.to_owned(),
            port: 2181,
        };
        let inside = ["zk", "zk.infra", "zk.infra.svc", "zk-0.zk.infra.svc.cluster.local"];
        let outside = ["10.0.0.1", "::1", "localhost", "zk.example.com"];
        assert!(inside.iter().all(|host| is_cluster_name(&server(host))));
        assert!(!outside.iter().any(|host| is_cluster_name(&server(host))));
    }
}
