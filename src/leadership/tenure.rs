//! A term that is held together with its work: begun together, and not over before both are.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use super::clock::{BootClock, BootInstant, sleep_until};
use super::config::ElectionError;
use super::term::{Term, TermEnd};

/// How long aborted writers may take to stop at their next await.
const ABORT_LIMIT: Duration = Duration::from_secs(1);

/// A term and the task that works under it.
pub(super) struct Tenure {
    pub term: Arc<Term>,
    pub since: Timestamp,
    _watchdog: AbortOnDropHandle<()>,
    work: AbortOnDropHandle<()>,
    worked: Option<Result<(), JoinError>>,
}

impl Tenure {
    /// Begins a term and its work.
    pub(super) fn begin<F, Fut>(number: i32, deadline: BootInstant, clock: Arc<dyn BootClock>, lead: &mut F) -> Self
    where
        F: FnMut(Arc<Term>) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let (term, watchdog) = Term::begin(i64::from(number), deadline, clock);
        let work = AbortOnDropHandle::new(tokio::spawn(lead(term.clone())));
        Self {
            term,
            since: Timestamp::now(),
            _watchdog: watchdog,
            work,
            worked: None,
        }
    }

    /// Returns when the work has ended; may be asked again.
    pub(super) async fn work_ended(&mut self) {
        if self.worked.is_none() {
            self.worked = Some((&mut self.work).await);
        }
    }

    /// Waits for the work of the ended term until `until`, then aborts it.
    ///
    /// # Errors
    /// When the work panicked, did not stop even so, or was what ended the term.
    pub(super) async fn wind_up(mut self, clock: &dyn BootClock, until: BootInstant) -> Result<(), ElectionError> {
        let in_time = tokio::select! {
            biased;
            () = self.work_ended() => true,
            () = sleep_until(clock, until) => false,
        };
        let term = self.term.number();
        if !in_time {
            tracing::warn!(term, "the writers did not end in time and are aborted");
            self.work.abort();
            if tokio::time::timeout(ABORT_LIMIT, self.work_ended()).await.is_err() {
                return Err(ElectionError::WritersStuck { term });
            }
        }
        match self.worked.take() {
            Some(Err(failure)) if failure.is_panic() => Err(ElectionError::WorkPanicked {
                term,
                message: panic_message(failure),
            }),
            _ if self.term.end_reason() == Some(TermEnd::WorkEnded) => Err(ElectionError::WorkEnded { term }),
            _ => Ok(()),
        }
    }
}

/// Whoever drops the election drops what it held: no writer goes on believing in the term.
impl Drop for Tenure {
    fn drop(&mut self) {
        self.term.end(TermEnd::Shutdown);
    }
}

fn panic_message(failure: JoinError) -> String {
    let Ok(payload) = failure.try_into_panic() else {
        return "cancelled".to_owned();
    };
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => payload
            .downcast::<&'static str>()
            .map_or_else(|_| "no message".to_owned(), |m| (*m).to_owned()),
    }
}
