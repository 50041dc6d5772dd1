//! Delays between attempts. The only user of the crate `backoff`.

use std::fmt;
use std::time::Duration;

use backoff::SystemClock;
use backoff::backoff::Backoff as _;
use backoff::exponential::ExponentialBackoff;

/// How far a delay may lie from its interval, as a fraction of it.
const JITTER: f64 = 0.2;
/// How much longer each interval is than the one before.
const GROWTH: f64 = 1.6;

/// Delays with jitter that grow from a shortest to a longest one and never end.
pub struct Backoff {
    inner: ExponentialBackoff<SystemClock>,
    longest: Duration,
}

impl Backoff {
    /// Delays between `shortest` and `longest`, jitter included.
    #[must_use]
    pub fn new(shortest: Duration, longest: Duration) -> Self {
        let initial_interval = shortest.div_f64(1.0 - JITTER);
        let mut inner = ExponentialBackoff {
            current_interval: initial_interval,
            initial_interval,
            randomization_factor: JITTER,
            multiplier: GROWTH,
            max_interval: longest.div_f64(1.0 + JITTER).max(initial_interval),
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        };
        inner.reset();
        Self { inner, longest }
    }

    /// How long to wait before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.inner.next_backoff().unwrap_or(self.longest).min(self.longest)
    }

    /// Begins again with the shortest delay, after a success.
    pub fn reset(&mut self) {
        self.inner.reset();
    }
}

impl Default for Backoff {
    /// From one second to one minute.
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(60))
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backoff")
            .field("interval", &self.inner.current_interval)
            .field("longest", &self.longest)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn every_delay_lies_between_the_shortest_and_the_longest() {
        for _ in 0..100 {
            let mut backoff = Backoff::default();
            for _ in 0..100 {
                let delay = backoff.next_delay();
                assert!((SECOND..=MINUTE).contains(&delay), "{delay:?}");
            }
        }
    }

    #[test]
    fn delays_grow_until_they_are_close_to_the_longest_and_never_end() {
        let mut backoff = Backoff::default();
        let delays: Vec<Duration> = (0..1000).map(|_| backoff.next_delay()).collect();
        assert!(delays[0] <= Duration::from_millis(1501), "{:?}", delays[0]);
        assert!(delays[20..].iter().all(|delay| *delay >= Duration::from_secs(40)));
    }

    #[test]
    fn delays_differ_from_one_another() {
        let delays: Vec<Duration> = (0..10).map(|_| Backoff::default().next_delay()).collect();
        assert!(delays.iter().any(|delay| *delay != delays[0]), "{delays:?}");
    }

    #[test]
    fn after_a_reset_the_delay_is_short_again() {
        let mut backoff = Backoff::default();
        for _ in 0..20 {
            backoff.next_delay();
        }
        backoff.reset();
        assert!(backoff.next_delay() <= Duration::from_millis(1501));
    }

    #[test]
    fn a_shortest_delay_above_the_longest_yields_the_longest() {
        assert_eq!(Backoff::new(MINUTE, SECOND).next_delay(), SECOND);
    }
}
