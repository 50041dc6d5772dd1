//! ZooKeeper connect strings.

use std::fmt;
use std::net::Ipv6Addr;

use thiserror::Error;

use super::root_path::{InvalidRootPath, validate_path};

/// ZooKeeper's client port when a server is given without one.
const DEFAULT_PORT: u16 = 2181;

/// A parsed connect string: `host[:port][,host[:port]…][/chroot]`.
///
/// Host names are lowercased, spaces around servers dropped, missing ports filled with 2181, and a
/// chroot loses its trailing slash. Equality is by what was written, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConnectString {
    servers: Vec<Server>,
    chroot: Option<String>,
}

/// One server of an ensemble.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Server {
    /// A name or IPv4 address in lower case, or an IPv6 address without brackets.
    pub host: String,
    /// The client port.
    pub port: u16,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Why a text is no connect string; positions count bytes from 0.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidConnectString {
    /// Nothing but spaces.
    #[error("must name at least one server, as in \"zk-0.zookeeper:2181\"")]
    Empty,
    /// Two commas in a row, or one at the start or the end.
    #[error("names no server at position {position}")]
    EmptyServer {
        /// Where the empty server stands.
        position: usize,
    },
    /// A host that is no DNS name and no IP address.
    #[error("{host:?} at position {position} is no host name or IP address (an IPv6 address needs brackets)")]
    BadHost {
        /// The text that stands where a host should.
        host: String,
        /// Where it stands.
        position: usize,
    },
    /// A port that is not a number from 1 to 65535.
    #[error("{port:?} at position {position} is no port number from 1 to 65535")]
    BadPort {
        /// The text that stands where a port should.
        port: String,
        /// Where it stands.
        position: usize,
    },
    /// A server after the chroot: the chroot belongs at the end, once.
    #[error("the chroot must stand once, at the end: found {found:?} after it")]
    ServerAfterChroot {
        /// What follows the chroot.
        found: String,
    },
    /// The chroot is no legal path.
    #[error("the chroot {chroot:?} {reason}")]
    BadChroot {
        /// The chroot as it stands.
        chroot: String,
        /// The rule that it breaks.
        reason: InvalidRootPath,
    },
}

impl ConnectString {
    /// Parses a connect string.
    ///
    /// # Errors
    /// [`InvalidConnectString`] with the position and the reason.
    pub fn parse(text: &str) -> Result<Self, InvalidConnectString> {
        if text.trim().is_empty() {
            return Err(InvalidConnectString::Empty);
        }
        let (servers, chroot) = match text.find('/') {
            Some(slash) => (&text[..slash], Some(text[slash..].trim_end())),
            None => (text, None),
        };
        let chroot = chroot.map(parse_chroot).transpose()?.flatten();
        let mut parsed = Vec::new();
        let mut position = 0;
        for server in servers.split(',') {
            let lead = server.len() - server.trim_start().len();
            parsed.push(parse_server(server.trim(), position + lead)?);
            position += server.len() + 1;
        }
        Ok(Self {
            servers: parsed,
            chroot,
        })
    }

    /// The servers, in the order in which they were written; at least one.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The chroot, starting with a slash and ending without one; none if there is none.
    #[must_use]
    pub fn chroot(&self) -> Option<&str> {
        self.chroot.as_deref()
    }
}

fn parse_chroot(text: &str) -> Result<Option<String>, InvalidConnectString> {
    if let Some((_, after)) = text.split_once(',') {
        return Err(InvalidConnectString::ServerAfterChroot {
            found: after.trim().to_owned(),
        });
    }
    let path = text.strip_suffix('/').unwrap_or(text);
    if path.is_empty() {
        return Ok(None);
    }
    validate_path(path).map_err(|reason| InvalidConnectString::BadChroot {
        chroot: text.to_owned(),
        reason,
    })?;
    Ok(Some(path.to_owned()))
}

fn parse_server(text: &str, position: usize) -> Result<Server, InvalidConnectString> {
    if text.is_empty() {
        return Err(InvalidConnectString::EmptyServer { position });
    }
    let bad_host = |host: &str| InvalidConnectString::BadHost {
        host: host.to_owned(),
        position,
    };
    let (host, port, port_position) = if let Some(rest) = text.strip_prefix('[') {
        let (address, after) = rest.split_once(']').ok_or_else(|| bad_host(text))?;
        let address: Ipv6Addr = address.parse().map_err(|_| bad_host(address))?;
        let port = match after.strip_prefix(':') {
            Some(port) => Some(port),
            None if after.is_empty() => None,
            None => return Err(bad_host(text)),
        };
        (
            address.to_string(),
            port,
            position + text.len() - port.map_or(0, str::len),
        )
    } else {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        if port.is_some_and(|p| p.contains(':')) || !is_host_name(host) {
            return Err(bad_host(if port.is_some_and(|p| p.contains(':')) {
                text
            } else {
                host
            }));
        }
        (host.to_ascii_lowercase(), port, position + host.len() + 1)
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(digits) => match digits.parse::<u16>() {
            Ok(number) if number > 0 && digits.bytes().all(|b| b.is_ascii_digit()) => number,
            _ => {
                return Err(InvalidConnectString::BadPort {
                    port: digits.to_owned(),
                    position: port_position,
                });
            }
        },
    };
    Ok(Server { host, port })
}

/// A DNS name (or an IPv4 address, which has the same shape); underscores occur in practice.
fn is_host_name(text: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}

impl fmt::Display for ConnectString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, server) in self.servers.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            server.fmt(f)?;
        }
        f.write_str(self.chroot.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_normalised() {
        for (text, normal) in [
            ("zk:2181", "zk:2181"),
            ("zk", "zk:2181"),
            ("ZK-0.Example:2182 , zk-1", "zk-0.example:2182,zk-1:2181"),
            (
                "10.0.0.1:2181,10.0.0.2:2181/fleet/Eu",
                "10.0.0.1:2181,10.0.0.2:2181/fleet/Eu",
            ),
            ("zk:2181/fleet/", "zk:2181/fleet"),
            ("zk:2181/", "zk:2181"),
            ("[::1]:2183,[2001:DB8::1]", "[::1]:2183,[2001:db8::1]:2181"),
            ("zk.:2181", "zk.:2181"),
        ] {
            assert_eq!(
                ConnectString::parse(text).map(|c| c.to_string()),
                Ok(normal.to_owned()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn what_is_malformed_is_refused_with_position_and_reason() {
        let host = |host: &str, position| InvalidConnectString::BadHost {
            host: host.to_owned(),
            position,
        };
        let port = |port: &str, position| InvalidConnectString::BadPort {
            port: port.to_owned(),
            position,
        };
        for (text, why) in [
            ("", InvalidConnectString::Empty),
            ("  ", InvalidConnectString::Empty),
            ("a,,b", InvalidConnectString::EmptyServer { position: 2 }),
            ("a,", InvalidConnectString::EmptyServer { position: 2 }),
            ("/chroot", InvalidConnectString::EmptyServer { position: 0 }),
            ("a b:1", host("a b", 0)),
            ("-a:1", host("-a", 0)),
            ("a:1,b..c:1", host("b..c", 4)),
            ("::1:2181", host("::1:2181", 0)),
            ("[::g]:1", host("::g", 0)),
            ("[::1]x", host("[::1]x", 0)),
            ("a:", port("", 2)),
            ("a:0", port("0", 2)),
            ("a:+1", port("+1", 2)),
            ("a:65536", port("65536", 2)),
            ("a:1,[::1]:x", port("x", 10)),
            (
                "a/c,b:1",
                InvalidConnectString::ServerAfterChroot {
                    found: "b:1".to_owned(),
                },
            ),
            (
                "a/b//c",
                InvalidConnectString::BadChroot {
                    chroot: "/b//c".to_owned(),
                    reason: InvalidRootPath::BadLevel,
                },
            ),
        ] {
            assert_eq!(ConnectString::parse(text), Err(why), "{text:?}");
        }
    }
}
