//! One cluster listed under two names is engaged once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::api::ClusterName;

/// Which member speaks for which cluster, by the UID of the cluster's `kube-system` namespace.
#[derive(Debug, Default)]
pub struct Identities {
    claims: Mutex<HashMap<String, Claim>>,
}

#[derive(Debug, Clone)]
struct Claim {
    name: ClusterName,
    position: usize,
    connection: CancellationToken,
}

impl Identities {
    /// Claims a cluster for the member at `position` of the config. The first one listed wins,
    /// whichever connects first, so that all replicas agree: a later one that connected earlier
    /// loses its `connection`.
    ///
    /// # Errors
    /// The name under which the cluster is engaged already.
    pub fn claim(
        &self,
        uid: &str,
        name: &ClusterName,
        position: usize,
        connection: &CancellationToken,
    ) -> Result<(), ClusterName> {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = claims.get(uid).filter(|claim| claim.name != *name) {
            if other.position < position {
                return Err(other.name.clone());
            }
            other.connection.cancel();
        }
        claims.insert(
            uid.to_owned(),
            Claim {
                name: name.clone(),
                position,
                connection: connection.clone(),
            },
        );
        Ok(())
    }

    /// Lets go of a claim of this member's; of nobody else's.
    pub fn release(&self, uid: &str, name: &ClusterName) {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if claims.get(uid).is_some_and(|claim| claim.name == *name) {
            claims.remove(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> ClusterName {
        ClusterName::parse(name).unwrap()
    }

    #[test]
    fn the_first_one_listed_wins_whichever_connects_first() {
        let identities = Identities::default();
        let (first, second) = (CancellationToken::new(), CancellationToken::new());
        assert_eq!(identities.claim("uid", &name("b"), 1, &second), Ok(()));
        assert_eq!(identities.claim("uid", &name("a"), 0, &first), Ok(()));
        assert!(second.is_cancelled() && !first.is_cancelled());
        assert_eq!(identities.claim("uid", &name("b"), 1, &second), Err(name("a")));
    }

    #[test]
    fn a_released_claim_is_free_and_nobody_releases_anothers() {
        let identities = Identities::default();
        let token = CancellationToken::new();
        assert_eq!(identities.claim("uid", &name("a"), 0, &token), Ok(()));
        identities.release("uid", &name("b"));
        assert_eq!(identities.claim("uid", &name("b"), 1, &token), Err(name("a")));
        identities.release("uid", &name("a"));
        assert_eq!(identities.claim("uid", &name("b"), 1, &token), Ok(()));
    }
}
