//! Names of clusters and apps.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

/// The longest DNS label.
const DNS_LABEL_MAX: usize = 63;

/// A name that is no DNS label.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{name:?} is no DNS label: use 1 to {DNS_LABEL_MAX} lowercase letters, digits and hyphens, starting and ending with a letter or digit"
)]
pub struct InvalidName {
    /// What was given.
    pub name: String,
}

/// The name of a member cluster: a DNS label, unique in its fleet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ClusterName(String);

impl ClusterName {
    /// Parses a DNS label.
    ///
    /// # Errors
    /// [`InvalidName`] when it is none.
    pub fn parse(name: &str) -> Result<Self, InvalidName> {
        if is_dns_label(name) {
            Ok(Self(name.to_owned()))
        } else {
            Err(InvalidName { name: name.to_owned() })
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ClusterName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::parse(&name).map_err(serde::de::Error::custom)
    }
}

/// One app of the fleet: its member and the object's namespace and name there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppKey {
    /// The member that holds the object.
    pub cluster: ClusterName,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl fmt::Display for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.cluster, self.namespace, self.name)
    }
}

/// Whether `text` is a DNS label (RFC 1123).
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            bytes.len() <= DNS_LABEL_MAX
                && alphanumeric(first)
                && alphanumeric(last)
                && bytes.iter().all(|&b| alphanumeric(b) || b == b'-')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_name_is_a_dns_label() {
        let longest = "a".repeat(63);
        for good in ["a", "eu-west", "0", longest.as_str()] {
            assert_eq!(ClusterName::parse(good).map(|n| n.to_string()), Ok(good.to_owned()));
        }
    }

    #[test]
    fn anything_else_is_refused_as_a_cluster_name() {
        let too_long = "a".repeat(64);
        for bad in ["", "-a", "a-", "A", "a.b", "a b", "ä", too_long.as_str()] {
            assert_eq!(ClusterName::parse(bad), Err(InvalidName { name: bad.to_owned() }));
        }
    }
}
