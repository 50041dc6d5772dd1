//! Pure decisions: no client, no async, no clock, no environment.
//!
//! [`observed`] is what the watches keep of each object, [`resources`] what an app should have,
//! [`plan`] the difference, [`status`] what the app is told about itself.

pub mod conditions;
pub mod digest;
pub mod ensemble;
#[cfg(test)]
mod fixtures;
pub mod live;
pub mod observed;
pub mod plan;
pub mod quantity;
pub mod resources;
pub mod selector;
pub mod status;
pub mod transitions;

use std::fmt;

/// The kinds of object that an app owns; each is named as the app is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChildKind {
    /// The headless Service.
    Service,
    /// The StatefulSet.
    StatefulSet,
    /// The PodDisruptionBudget.
    Budget,
}

impl ChildKind {
    /// Kubernetes' name of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::StatefulSet => "StatefulSet",
            Self::Budget => "PodDisruptionBudget",
        }
    }
}

impl fmt::Display for ChildKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
