//! The clock that leadership is judged by: local, monotonic, and running on while the machine is suspended.

use std::ops::Add;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A moment on the boot clock of this machine. It means nothing on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// A moment so long after boot; for tests and models.
    pub const fn after_boot(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long it is from `self` until `later`; zero if `later` is not later.
    pub fn until(self, later: BootInstant) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

impl Add<Duration> for BootInstant {
    type Output = BootInstant;

    fn add(self, duration: Duration) -> BootInstant {
        BootInstant(self.0.saturating_add(duration))
    }
}

/// Where the time of leadership comes from.
pub trait BootClock: Send + Sync + 'static {
    /// The present moment; never goes back.
    fn now(&self) -> BootInstant;
}

/// `CLOCK_BOOTTIME`: unlike `CLOCK_MONOTONIC` it counts the time that the machine was suspended, and
/// nobody can set it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemBootClock;

impl BootClock for SystemBootClock {
    fn now(&self) -> BootInstant {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        // Both parts are non-negative by definition of the clock.
        BootInstant(Duration::new(
            now.tv_sec.unsigned_abs(),
            now.tv_nsec.unsigned_abs() as u32,
        ))
    }
}

/// A clock for tests: it follows tokio's (which a test may pause), plus whatever the machine was "suspended".
#[derive(Debug)]
pub struct ManualClock {
    origin: tokio::time::Instant,
    suspended: Mutex<Duration>,
}

impl ManualClock {
    /// A clock that shows one hour after boot. Call it inside a tokio runtime.
    pub fn new() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
            suspended: Mutex::new(Duration::from_secs(3600)),
        }
    }

    /// The machine slept so long: this clock went on, and tokio's timers did not.
    pub fn suspend(&self, slept: Duration) {
        *self.suspended.lock().unwrap_or_else(PoisonError::into_inner) += slept;
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl BootClock for ManualClock {
    fn now(&self) -> BootInstant {
        let suspended = *self.suspended.lock().unwrap_or_else(PoisonError::into_inner);
        BootInstant(suspended + self.origin.elapsed())
    }
}

/// tokio's timers stand still while the machine is suspended, so a long sleep looks at the boot clock this often.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Sleeps until `moment` on `clock`; after a suspension it is at most a second late.
pub async fn sleep_until(clock: &dyn BootClock, moment: BootInstant) {
    loop {
        let left = clock.now().until(moment);
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_never_goes_back() {
        let first = SystemBootClock.now();
        let second = SystemBootClock.now();
        assert!(first <= second);
        assert!(first > BootInstant::after_boot(Duration::ZERO));
    }

    #[test]
    fn the_time_until_an_earlier_moment_is_zero() {
        let early = BootInstant::after_boot(Duration::from_secs(1));
        let late = early + Duration::from_secs(2);
        assert_eq!(early.until(late), Duration::from_secs(2));
        assert_eq!(late.until(early), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleep_ends_within_a_second_after_a_suspension_that_outlasted_it() {
        let clock = ManualClock::new();
        let started = tokio::time::Instant::now();
        let moment = clock.now() + Duration::from_secs(60);
        tokio::join!(sleep_until(&clock, moment), async {
            tokio::time::sleep(Duration::from_millis(2500)).await;
            clock.suspend(Duration::from_secs(3600));
        });
        assert!(
            started.elapsed() <= Duration::from_millis(3500),
            "woke after {:?}",
            started.elapsed()
        );
    }
}
