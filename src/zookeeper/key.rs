//! What makes two connect strings one ensemble, and where in it an app's root lies. Pure.

use std::fmt;
use std::net::IpAddr;

use crate::api::connect_string::Server;
use crate::api::{ClusterName, ConnectString, RootPath};

/// An ensemble as it is reached, however that is spelt: the set of its servers and, if one of their names means
/// something within one member only, that member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnsembleKey {
    servers: Vec<Server>,
    member: Option<ClusterName>,
}

impl EnsembleKey {
    /// The ensemble that `connect` reaches from `cluster`. The chroot is no part of it.
    pub fn new(connect: &ConnectString, cluster: &ClusterName) -> Self {
        let mut servers: Vec<Server> = connect.servers().iter().map(normalised).collect();
        servers.sort_unstable();
        servers.dedup();
        let local = servers.iter().any(|server| is_local(&server.host));
        Self {
            servers,
            member: local.then(|| cluster.clone()),
        }
    }

    /// The servers in order, each once; at least one.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The member whose names these are; none for addresses and names that mean the same everywhere.
    pub fn member(&self) -> Option<&ClusterName> {
        self.member.as_ref()
    }
}

impl fmt::Display for EnsembleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, server) in self.servers.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            server.fmt(f)?;
        }
        Ok(())
    }
}

/// A name that ends with a dot is the same without it, unless that would make it a relative one.
fn normalised(server: &Server) -> Server {
    let host = match server.host.strip_suffix('.') {
        Some(host) if host.contains('.') => host.to_owned(),
        _ => server.host.clone(),
    };
    Server {
        host,
        port: server.port,
    }
}

/// Whether a host's name belongs to the member that uses it: at most one dot (`zk`, `zk.orders`) or under `.svc`.
fn is_local(host: &str) -> bool {
    if host.parse::<IpAddr>().is_ok() {
        return false;
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    let mut labels = host.split('.').skip(1);
    host.matches('.').count() <= 1 || labels.any(|label| label == "svc")
}

/// The root's path from the top of the ensemble: the chroot and the root path.
pub fn full_path(connect: &ConnectString, root: &RootPath) -> String {
    format!("{}{root}", connect.chroot().unwrap_or_default())
}

/// Whether a path lies where only ZooKeeper itself or esfleet may write.
pub fn is_reserved(path: &str) -> bool {
    matches!(path.split('/').nth(1), Some("zookeeper" | "esfleet"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(connect: &str, cluster: &str) -> EnsembleKey {
        EnsembleKey::new(
            &ConnectString::parse(connect).unwrap(),
            &ClusterName::parse(cluster).unwrap(),
        )
    }

    #[test]
    fn another_spelling_is_the_same_ensemble() {
        let plain = key("zk-0.example.com:2181,zk-1.example.com:2181", "eu");
        for spelling in [
            "zk-1.example.com:2181,zk-0.example.com:2181",
            "ZK-0.Example.com:2181,zk-1.example.COM:2181",
            " zk-0.example.com:2181 , zk-1.example.com ",
            "zk-0.example.com,zk-1.example.com",
            "zk-0.example.com.,zk-1.example.com:02181",
            "zk-0.example.com,zk-1.example.com,zk-0.example.com",
            "zk-0.example.com,zk-1.example.com/fleet",
            "zk-0.example.com,zk-1.example.com/fleet/eu/",
        ] {
            assert_eq!(key(spelling, "us"), plain, "{spelling}");
        }
        assert_eq!(key("[::1]", "eu"), key("[0:0::1]:2181", "us"));
    }

    #[test]
    fn other_servers_are_another_ensemble() {
        let plain = key("zk-0.example.com,zk-1.example.com", "eu");
        for other in [
            "zk-0.example.com",
            "zk-0.example.com,zk-1.example.com:2182",
            "zk-0.example.com,zk-1.example.org",
            "zk-0.example.com,zk-1.example.com,zk-2.example.com",
        ] {
            assert_ne!(key(other, "eu"), plain, "{other}");
        }
    }

    #[test]
    fn names_of_one_member_are_scoped_by_it_and_others_are_not() {
        for local in [
            "zk",
            "zk.",
            "localhost",
            "zk.orders",
            "zk.orders.svc",
            "zk-0.zk.orders.svc.cluster.local",
            "zk.orders.svc.cluster.local.",
            "10.0.0.1,zk",
        ] {
            assert_ne!(key(local, "eu"), key(local, "us"), "{local}");
            assert_eq!(
                key(local, "eu").member().map(ClusterName::as_str),
                Some("eu"),
                "{local}"
            );
        }
        for global in ["10.0.0.1", "[2001:db8::1]", "zk.example.com", "svc.example.com"] {
            assert_eq!(key(global, "eu"), key(global, "us"), "{global}");
            assert_eq!(key(global, "eu").member(), None, "{global}");
        }
    }

    #[test]
    fn the_chroot_comes_before_the_root() {
        let root = RootPath::parse("/orders/eu").unwrap();
        for (connect, path) in [
            ("zk", "/orders/eu"),
            ("zk/", "/orders/eu"),
            ("zk/fleet", "/fleet/orders/eu"),
        ] {
            assert_eq!(
                full_path(&ConnectString::parse(connect).unwrap(), &root),
                path,
                "{connect}"
            );
        }
    }

    #[test]
    fn the_reserved_trees_are_reserved_whatever_the_chroot() {
        for (path, reserved) in [
            ("/zookeeper/a", true),
            ("/esfleet/a", true),
            ("/esfleet", true),
            ("/esfleet-2/a", false),
            ("/a/esfleet", false),
        ] {
            assert_eq!(is_reserved(path), reserved, "{path}");
        }
    }
}
