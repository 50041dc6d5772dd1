//! What an election is about, and how it can fail.

use std::time::Duration;

use super::election::Timing;

/// Which Lease is contended for, by whom, and how long things take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// The namespace of the Lease on the hub.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// Who contends, by default the pod's or host's name; a nonce is added, so that it need not be unique.
    pub identity: String,
    /// How long others leave an unchanged Lease alone; whole seconds.
    pub lease: Duration,
    /// How long a term lasts from the sending of its last confirmed renewal.
    pub renew_deadline: Duration,
    /// The time from one renewal or failed attempt to the next.
    pub retry: Duration,
    /// The longest that one attempt on the Lease may take.
    pub attempt: Duration,
}

impl ElectionConfig {
    /// With the default times: lease 15 s, renew deadline 10 s, retry 2 s, attempt 3 s.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
            attempt: Duration::from_secs(3),
        }
    }

    /// Whether an election can be held this way; asked by [`Election::run`](super::Election::run) too.
    ///
    /// # Errors
    /// [`ElectionError::Config`] names the value that is wrong.
    pub fn validate(&self) -> Result<(), ElectionError> {
        let Self {
            namespace,
            name,
            identity,
            lease,
            renew_deadline,
            retry,
            attempt,
        } = self;
        let wrong = |what: String| Err(ElectionError::Config(what));
        if !is_dns_name(namespace, 63) || namespace.contains('.') {
            return wrong(format!("lease namespace {namespace:?} is not a DNS label"));
        }
        if !is_dns_name(name, 253) {
            return wrong(format!("lease name {name:?} is not a DNS subdomain"));
        }
        if identity.is_empty() || identity.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return wrong(format!(
                "identity {identity:?} is empty or has spaces or control characters"
            ));
        }
        if lease.subsec_nanos() != 0 || i32::try_from(lease.as_secs()).is_err() {
            return wrong(format!("lease {lease:?} is not a whole number of seconds"));
        }
        if lease <= renew_deadline || renew_deadline <= retry || retry.is_zero() {
            return wrong(format!(
                "lease {lease:?} must be longer than renew deadline {renew_deadline:?}, \
                 and that longer than retry {retry:?}, which must not be zero"
            ));
        }
        if attempt.is_zero() || attempt >= renew_deadline {
            return wrong(format!(
                "attempt {attempt:?} must be shorter than renew deadline {renew_deadline:?}"
            ));
        }
        Ok(())
    }

    pub(super) fn timing(&self) -> Timing {
        Timing {
            lease: self.lease,
            renew_deadline: self.renew_deadline,
            retry: self.retry,
        }
    }
}

fn is_dns_name(name: &str, longest: usize) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= longest && name.split('.').all(label)
}

/// Why an election cannot go on. What the hub does is never among these: that is retried for ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElectionError {
    /// A value of the configuration is wrong.
    #[error("{0}")]
    Config(String),
    /// What the term is for ended by itself, so that leading would be a pretence.
    #[error("the work of term {term} ended while the term went on")]
    WorkEnded {
        /// The term's number.
        term: i64,
    },
    /// What the term is for panicked.
    #[error("the work of term {term} panicked: {message}")]
    WorkPanicked {
        /// The term's number.
        term: i64,
        /// What the panic said.
        message: String,
    },
    /// Writers did not end though they were cancelled and aborted: another term must not begin beside them.
    #[error("the writers of term {term} did not end")]
    WritersStuck {
        /// The term's number.
        term: i64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ElectionConfig {
        ElectionConfig::new("esfleet", "esfleet", "host-1.example_2")
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(config().validate(), Ok(()));
    }

    #[test]
    fn what_cannot_work_is_named() {
        let second = Duration::from_secs(1);
        let cases = [
            (
                ElectionConfig {
                    namespace: "a.b".into(),
                    ..config()
                },
                "lease namespace \"a.b\" is not a DNS label",
            ),
            (
                ElectionConfig {
                    name: "a/b".into(),
                    ..config()
                },
                "lease name \"a/b\" is not a DNS subdomain",
            ),
            (
                ElectionConfig {
                    identity: String::new(),
                    ..config()
                },
                "identity \"\" is empty or has spaces or control characters",
            ),
            (
                ElectionConfig {
                    lease: Duration::from_millis(15_500),
                    ..config()
                },
                "lease 15.5s is not a whole number of seconds",
            ),
            (
                ElectionConfig {
                    renew_deadline: 15 * second,
                    ..config()
                },
                "lease 15s must be longer than renew deadline 15s, and that longer than retry 2s, \
                 which must not be zero",
            ),
            (
                ElectionConfig {
                    attempt: 10 * second,
                    ..config()
                },
                "attempt 10s must be shorter than renew deadline 10s",
            ),
        ];
        for (config, message) in cases {
            assert_eq!(config.validate(), Err(ElectionError::Config(message.to_owned())));
        }
    }
}
