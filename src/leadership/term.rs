//! What a writer holds: the proof that this replica may write, and until when.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::clock::{BootClock, BootInstant, ManualClock, sleep_until};

/// Why a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum TermEnd {
    /// esfleet was asked to stop.
    Shutdown,
    /// No renewal was confirmed in time.
    DeadlinePassed,
    /// The Lease shows another holder or another term, or is gone.
    Lost,
    /// What the term was for ended by itself.
    WorkEnded,
}

impl fmt::Display for TermEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TermEnd::Shutdown => "esfleet was asked to stop",
            TermEnd::DeadlinePassed => "no renewal was confirmed in time",
            TermEnd::Lost => "the Lease shows another holder, or is gone",
            TermEnd::WorkEnded => "the work of the term ended by itself",
        })
    }
}

/// Why a write was not done, or not confirmed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError<E> {
    /// The term has ended; when it ended during the call, the call may or may not have had its effect.
    #[error("the term has ended")]
    TermEnded,
    /// No answer came within this time; the call may or may not have had its effect.
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    /// The call itself failed.
    #[error(transparent)]
    Failed(E),
}

/// One bounded time during which this replica may write.
///
/// Its deadline counts from the moment *before* the last confirmed renewal was sent, on a clock that also counts
/// suspended time. It is checked right before each write, and fires [`Term::cancellation`] when it passes, whether
/// or not anybody asks.
pub struct Term {
    number: i64,
    clock: Arc<dyn BootClock>,
    state: Mutex<State>,
    cancellation: CancellationToken,
}

struct State {
    deadline: BootInstant,
    end: Option<TermEnd>,
}

impl Term {
    /// A term that ends at `deadline` unless it is extended, with the task that watches over it.
    pub(super) fn begin(
        number: i64,
        deadline: BootInstant,
        clock: Arc<dyn BootClock>,
    ) -> (Arc<Term>, AbortOnDropHandle<()>) {
        let term = Arc::new(Term {
            number,
            clock,
            state: Mutex::new(State { deadline, end: None }),
            cancellation: CancellationToken::new(),
        });
        let watched = term.clone();
        let watchdog = tokio::spawn(async move {
            while let Some(deadline) = watched.live_deadline() {
                sleep_until(&*watched.clock, deadline).await;
            }
        });
        (term, AbortOnDropHandle::new(watchdog))
    }

    /// The Lease's `leaseTransitions` under which it was won.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// How long writing is still allowed if nothing extends it; zero once the term has ended.
    pub fn remaining(&self) -> Duration {
        match self.live_deadline() {
            Some(deadline) => self.clock.now().until(deadline),
            None => Duration::ZERO,
        }
    }

    /// Whether the term has ended, by the clock or by decision. It never comes back.
    pub fn ended(&self) -> bool {
        self.live_deadline().is_none()
    }

    /// Why the term ended; none while it lives.
    pub fn end_reason(&self) -> Option<TermEnd> {
        self.live_deadline();
        self.state().end
    }

    /// Fires when the term ends, for whatever reason.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// Runs one write: refused when the term has ended, bounded by the smaller of `limit` and what remains of the
    /// term as it stands, given up when the term ends.
    ///
    /// `call` must do nothing before it is first polled, as futures don't.
    pub async fn write<T, E>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, WriteError<E>> {
        let limit = limit.min(self.remaining());
        if limit.is_zero() {
            return Err(if self.ended() {
                WriteError::TermEnded
            } else {
                WriteError::Deadline(limit)
            });
        }
        tokio::select! {
            biased;
            () = self.cancellation.cancelled() => Err(WriteError::TermEnded),
            outcome = tokio::time::timeout(limit, call) => match outcome {
                Ok(result) => result.map_err(WriteError::Failed),
                Err(_) if self.ended() => Err(WriteError::TermEnded),
                Err(_) => Err(WriteError::Deadline(limit)),
            },
        }
    }

    /// Moves the deadline; false, and nothing moves, when the term has ended by now.
    pub(super) fn extend(&self, deadline: BootInstant) -> bool {
        let mut state = self.state();
        let live = self.check(&mut state).is_some();
        if live {
            state.deadline = state.deadline.max(deadline);
        }
        live
    }

    /// Ends the term; the first reason stays.
    pub(super) fn end(&self, reason: TermEnd) {
        let mut state = self.state();
        if self.check(&mut state).is_some() {
            state.end = Some(reason);
            self.cancellation.cancel();
        }
    }

    /// The deadline while the term lives. Whoever finds that it has passed ends the term on the spot.
    fn live_deadline(&self) -> Option<BootInstant> {
        self.check(&mut self.state())
    }

    fn check(&self, state: &mut State) -> Option<BootInstant> {
        if state.end.is_none() && self.clock.now() >= state.deadline {
            state.end = Some(TermEnd::DeadlinePassed);
            self.cancellation.cancel();
        }
        state.end.is_none().then_some(state.deadline)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A term outside any election, for the tests of those who write. Call it inside a tokio runtime.
    #[doc(hidden)]
    pub fn for_tests(remaining: Duration) -> (Arc<Term>, TermEnder) {
        let clock = Arc::new(ManualClock::new());
        let (term, watchdog) = Term::begin(1, clock.now() + remaining, clock);
        (
            term.clone(),
            TermEnder {
                term,
                _watchdog: watchdog,
            },
        )
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Term")
            .field("number", &self.number)
            .field("deadline", &state.deadline)
            .field("end", &state.end)
            .finish()
    }
}

/// Ends a term that [`Term::for_tests`] made, and keeps its watchdog alive.
#[doc(hidden)]
pub struct TermEnder {
    term: Arc<Term>,
    _watchdog: AbortOnDropHandle<()>,
}

impl TermEnder {
    /// Ends the term as a shutdown does.
    pub fn end(&self) {
        self.term.end(TermEnd::Shutdown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, Ordering};

    const LIMIT: Duration = Duration::from_secs(10);

    fn begin(remaining: Duration) -> (Arc<Term>, AbortOnDropHandle<()>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new());
        let (term, watchdog) = Term::begin(7, clock.now() + remaining, clock.clone());
        (term, watchdog, clock)
    }

    async fn never() -> Result<(), Infallible> {
        std::future::pending().await
    }

    #[tokio::test(start_paused = true)]
    async fn the_cancellation_fires_at_the_deadline_though_nobody_asks() {
        let (term, _watchdog, _clock) = begin(LIMIT);
        let started = tokio::time::Instant::now();
        let cancellation = term.cancellation().clone();
        cancellation.cancelled().await;
        assert_eq!(started.elapsed(), LIMIT);
        assert_eq!(term.end_reason(), Some(TermEnd::DeadlinePassed));
    }

    #[tokio::test(start_paused = true)]
    async fn an_extension_moves_the_deadline() {
        let (term, _watchdog, clock) = begin(LIMIT);
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(term.extend(clock.now() + LIMIT));
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(!term.ended());
        assert_eq!(term.remaining(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_extension_that_comes_after_the_deadline_is_refused() {
        let (term, _watchdog, clock) = begin(LIMIT);
        clock.suspend(LIMIT);
        assert!(!term.extend(clock.now() + LIMIT));
        assert!(term.ended());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_after_a_suspension_past_the_deadline_is_not_sent() {
        let (term, _watchdog, clock) = begin(LIMIT);
        clock.suspend(LIMIT);
        let sent = AtomicBool::new(false);
        let outcome = term.write(LIMIT, async {
            sent.store(true, Ordering::Relaxed);
            Ok::<_, Infallible>(())
        });
        assert!(matches!(outcome.await, Err(WriteError::TermEnded)));
        assert!(!sent.load(Ordering::Relaxed));
        assert_eq!(term.remaining(), Duration::ZERO);
        assert!(term.cancellation().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_given_up_when_the_term_ends() {
        let (term, _watchdog, _clock) = begin(LIMIT);
        let started = tokio::time::Instant::now();
        let (outcome, ()) = tokio::join!(term.write(LIMIT, never()), async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            term.end(TermEnd::Lost);
        });
        assert!(matches!(outcome, Err(WriteError::TermEnded)));
        assert_eq!(started.elapsed(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_not_answered_within_its_limit_says_so_while_the_term_lives() {
        let (term, _watchdog, _clock) = begin(LIMIT);
        let limit = Duration::from_secs(3);
        assert!(matches!(term.write(limit, never()).await, Err(WriteError::Deadline(l)) if l == limit));
        assert!(!term.ended());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_never_outlives_the_term() {
        let (term, _watchdog, _clock) = begin(Duration::from_secs(4));
        assert!(matches!(term.write(LIMIT, never()).await, Err(WriteError::TermEnded)));
        assert!(term.ended());
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_of_the_call_is_handed_on() {
        let (term, _watchdog, _clock) = begin(LIMIT);
        let outcome = term.write(LIMIT, async { Err::<(), _>("refused") }).await;
        assert!(matches!(outcome, Err(WriteError::Failed("refused"))));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_reason_of_an_end_stays() {
        let (term, ender) = Term::for_tests(LIMIT);
        term.end(TermEnd::Lost);
        ender.end();
        assert_eq!(term.end_reason(), Some(TermEnd::Lost));
        assert_eq!(term.number(), 1);
    }
}
