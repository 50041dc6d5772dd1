//! Waiting for conditions, and telling people that something takes its time.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use tokio::time::{sleep, timeout};

/// How long to wait between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(100);

/// Looks at `condition` until it is `Ok`, for at most `limit`; an `Err` says what was seen instead.
///
/// What was seen last is in the message when the time is up. A look that hangs is given up with the deadline.
pub async fn eventually<T, F, Fut>(limit: Duration, what: &str, mut condition: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let start = Instant::now();
    let mut seen = anyhow!("nothing was seen: the first look did not end");
    loop {
        let rest = limit.saturating_sub(start.elapsed());
        match timeout(rest, condition()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => seen = error,
            Err(_) => bail!("{what}: not within {limit:?} (the last look did not end); before that: {seen:#}"),
        }
        if start.elapsed() + PAUSE >= limit {
            bail!("{what}: not within {limit:?}; last seen: {seen:#}");
        }
        sleep(PAUSE).await;
    }
}

/// Looks at `condition` for the whole of `duration`; the first `Err` is the result.
pub async fn holds<F, Fut>(duration: Duration, what: &str, mut condition: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let start = Instant::now();
    while start.elapsed() < duration {
        if let Err(error) = condition().await {
            bail!("{what}: no longer after {:.1?}: {error:#}", start.elapsed());
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Runs `work`; says on standard error that it goes on once it takes more than 2 s, and then how long it took.
pub async fn step<T>(what: &str, work: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let mut work = std::pin::pin!(work);
    let mut next = Duration::from_secs(2);
    loop {
        match timeout(next.saturating_sub(start.elapsed()), work.as_mut()).await {
            Ok(result) => {
                if start.elapsed() > Duration::from_secs(2) {
                    eprintln!("{what}: {:.1} s", start.elapsed().as_secs_f64());
                }
                return result;
            }
            Err(_) => {
                eprintln!("{what} ... {} s", next.as_secs());
                next += if next < Duration::from_secs(10) {
                    Duration::from_secs(4)
                } else {
                    Duration::from_secs(10)
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_that_never_holds_fails_with_what_was_last_seen() {
        let mut looks = 0;
        let result = eventually(Duration::from_millis(350), "the moon", || {
            looks += 1;
            let seen = looks;
            async move { bail!("look {seen}") }
        });
        let message = result
            .await
            .map(|()| String::new())
            .unwrap_or_else(|error| error.to_string());
        assert!(
            message.starts_with("the moon: not within 350ms; last seen: look "),
            "{message}"
        );
    }

    #[tokio::test]
    async fn a_look_that_hangs_ends_with_the_deadline() {
        let result: Result<()> = eventually(Duration::from_millis(200), "the tide", || {
            std::future::pending::<Result<()>>()
        })
        .await;
        let message = result.unwrap_err().to_string();
        assert!(message.contains("the first look did not end"), "{message}");
    }
}
