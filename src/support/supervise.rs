//! Tasks that are watched over: a panic in one of them is told and costs that task only.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// How long a task that panicked rests before it is started again.
const REST: Duration = Duration::from_secs(5);

/// Runs `make()` until it returns or `cancel` fires; what panics is logged and started anew.
pub async fn keep_running<F, Fut>(what: &str, cancel: &CancellationToken, mut make: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    while !cancel.is_cancelled() {
        let mut task = AbortOnDrop(tokio::spawn(make()));
        let Err(error) = (&mut task.0).await else { return };
        tracing::error!(
            task = what,
            "a task of esfleet ended unexpectedly and is started again in {REST:?}: {error}"
        );
        tokio::select! {
            () = tokio::time::sleep(REST) => {}
            () = cancel.cancelled() => {}
        }
    }
}

/// A task that ends with its owner.
pub struct AbortOnDrop<T>(pub tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_started_again() {
        let starts = Arc::new(AtomicUsize::new(0));
        let counter = starts.clone();
        keep_running("test", &CancellationToken::new(), move || {
            let start = counter.fetch_add(1, Ordering::Relaxed);
            async move { assert!(start > 1, "not yet") }
        })
        .await;
        assert_eq!(starts.load(Ordering::Relaxed), 3);
    }
}
