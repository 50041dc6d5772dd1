//! Deadlines for whatever may never answer.

use std::future::Future;
use std::time::Duration;

use thiserror::Error;

/// Something did not answer in time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} did not finish within {limit:?}")]
pub struct DeadlineExceeded {
    /// What was waited for, as the subject of a sentence.
    pub what: String,
    /// How long.
    pub limit: Duration,
}

/// Runs `future` for at most `limit`; it is dropped when the time is over.
///
/// `what` is the subject of the sentence that the error makes: "the list of apps".
///
/// # Errors
/// [`DeadlineExceeded`] when the time is over.
pub async fn within<F: Future>(limit: Duration, what: &str, future: F) -> Result<F::Output, DeadlineExceeded> {
    tokio::time::timeout(limit, future).await.map_err(|_| DeadlineExceeded {
        what: what.to_owned(),
        limit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_never_answers_ends_at_the_limit() {
        let started = tokio::time::Instant::now();
        let outcome = within(Duration::from_secs(5), "the list of apps", std::future::pending::<()>()).await;
        assert_eq!(started.elapsed(), Duration::from_secs(5));
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "the list of apps did not finish within 5s"
        );
    }

    #[tokio::test]
    async fn what_answers_in_time_is_handed_on() {
        assert_eq!(within(Duration::from_secs(5), "the answer", async { 42 }).await, Ok(42));
    }
}
