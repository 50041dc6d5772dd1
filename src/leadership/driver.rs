//! The loop that joins the pure election, the Lease, its watch, and the work of a term.

use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::clock::{BootClock, BootInstant, sleep_until};
use super::config::{ElectionConfig, ElectionError};
use super::election::{Contender, Effect, Next};
use super::failure::Failure;
use super::lease::{Attempt, LeaseAddress, LeaseHandle};
use super::metrics::{FailureReason, LeadershipMetrics};
use super::tenure::Tenure;
use super::term::{Term, TermEnd};
use super::view::LeadershipView;
use super::watch::{Listing, WatchNews, watch_lease};

/// How often giving back the Lease is tried before it is left to expire.
const RELEASE_TRIES: u32 = 3;

/// One replica's part in the election.
pub struct Election {
    hub: kube::Client,
    config: ElectionConfig,
    address: LeaseAddress,
    lease: LeaseHandle,
    clock: Arc<dyn BootClock>,
    metrics: LeadershipMetrics,
    view: watch::Sender<LeadershipView>,
    twin_warned: bool,
    attempt_failure: Option<Failure>,
    watch_failure: Option<Failure>,
}

/// What woke the loop.
enum Woken {
    News(WatchNews),
    WorkEnded,
    /// Time, a shutdown or the end of the term: the loop finds out which.
    Other,
}

impl Election {
    /// Call it inside a tokio runtime. `hub` should not retry by itself (`Config::default_retry` off).
    pub fn new(
        hub: kube::Client,
        config: ElectionConfig,
        metrics: LeadershipMetrics,
        clock: Arc<dyn BootClock>,
    ) -> Self {
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let identity = format!("{}_{}", config.identity, &nonce[..8]);
        let address = LeaseAddress {
            namespace: config.namespace.clone(),
            name: config.name.clone(),
            attempt: config.attempt,
        };
        let contender = Contender::new(identity.clone(), config.timing());
        let lease = LeaseHandle::new(hub.clone(), address.clone(), config.lease, contender, clock.clone());
        let view = watch::Sender::new(LeadershipView {
            identity,
            ..LeadershipView::default()
        });
        Self {
            hub,
            config,
            address,
            lease,
            clock,
            metrics,
            view,
            twin_warned: false,
            attempt_failure: None,
            watch_failure: None,
        }
    }

    /// Who leads, for those who show it.
    pub fn view(&self) -> watch::Receiver<LeadershipView> {
        self.view.subscribe()
    }

    /// Contends until `shutdown`. For each term won it runs `lead(term)` as a task; when the term ends it cancels the
    /// term, waits for that task until the lease that others respect is over, and only then gives the Lease back.
    ///
    /// Whatever the hub does is said aloud and retried for ever.
    ///
    /// # Errors
    /// When the configuration is wrong, or the work of a term ended by itself, panicked, or could not be ended.
    pub async fn run<F, Fut>(mut self, shutdown: CancellationToken, mut lead: F) -> Result<(), ElectionError>
    where
        F: FnMut(Arc<Term>) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.config.validate()?;
        let mut news = pin!(watch_lease(self.hub.clone(), &self.address, self.config.retry));
        let mut listing = Listing::default();
        let mut tenure: Option<Tenure> = None;
        info!(identity = self.lease.with(|contender| contender.identity().to_owned()), lease = %self.address, "contending");
        loop {
            self.publish(tenure.as_ref());
            if shutdown.is_cancelled() {
                return self.leave(tenure, TermEnd::Shutdown).await;
            }
            if let Some(reason) = tenure.as_ref().and_then(|tenure| tenure.term.end_reason()) {
                self.leave(tenure.take(), reason).await?;
                continue;
            }
            match self.lease.with(|contender| contender.next(self.clock.now())) {
                Next::StepDown(reason) => self.leave(tenure.take(), reason).await?,
                Next::Attempt => match self.attempt(tenure.as_ref(), &shutdown).await {
                    Effect::Won {
                        number,
                        deadline,
                        vacant,
                    } if !shutdown.is_cancelled() => {
                        self.note_win(number, vacant);
                        tenure = Some(Tenure::begin(number, deadline, self.clock.clone(), &mut lead));
                    }
                    Effect::Renewed { deadline } => extend(tenure.as_ref(), deadline),
                    Effect::Won { .. } | Effect::None => {}
                },
                Next::WaitUntil(moment) => match self.wait(moment, news.as_mut(), tenure.as_mut(), &shutdown).await {
                    Woken::News(news) => self.absorb(&mut listing, news),
                    Woken::WorkEnded => self.leave(tenure.take(), TermEnd::WorkEnded).await?,
                    Woken::Other => {}
                },
            }
        }
    }

    async fn wait(
        &self,
        moment: BootInstant,
        mut news: Pin<&mut (impl Stream<Item = WatchNews> + Send)>,
        tenure: Option<&mut Tenure>,
        shutdown: &CancellationToken,
    ) -> Woken {
        let term = tenure.as_ref().map(|tenure| tenure.term.clone());
        let work_ended = async {
            match tenure {
                Some(tenure) => tenure.work_ended().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Woken::Other,
            () = term_ended(term.as_deref()) => Woken::Other,
            () = work_ended => Woken::WorkEnded,
            () = sleep_until(&*self.clock, moment) => Woken::Other,
            Some(news) = news.next() => Woken::News(news),
        }
    }

    /// One attempt on the Lease. A renewal is given up when the term ends or esfleet is to stop, as it is read again
    /// before the release; an acquisition is awaited, lest the Lease is won with nobody to notice.
    async fn attempt(&mut self, tenure: Option<&Tenure>, shutdown: &CancellationToken) -> Effect {
        let Attempt { outcome, failure } = match tenure {
            None => self.lease.attempt().await,
            Some(tenure) => tokio::select! {
                biased;
                () = shutdown.cancelled() => return Effect::None,
                () = term_ended(Some(&tenure.term)) => return Effect::None,
                attempt = self.lease.attempt() => attempt,
            },
        };
        match failure {
            Some(failure) if failure.reason == FailureReason::Conflict => {
                self.metrics.failed(failure.reason);
                debug!(%failure, "somebody else wrote the Lease first");
            }
            Some(failure) => {
                self.metrics.failed(failure.reason);
                complain(&mut self.attempt_failure, Some(failure));
            }
            None => complain(&mut self.attempt_failure, None),
        }
        self.lease.with(|contender| contender.finish(self.clock.now(), outcome))
    }

    /// Ends a term in order: cancel, wait for the writers, release.
    async fn leave(&mut self, tenure: Option<Tenure>, reason: TermEnd) -> Result<(), ElectionError> {
        let (number, lease_until) = self.lease.with(|contender| (contender.term(), contender.lease_until()));
        let mut wound_up = Ok(());
        let mut reason = reason;
        if let Some(tenure) = tenure {
            tenure.term.end(reason);
            reason = tenure.term.end_reason().unwrap_or(reason);
            self.note_end(&tenure, reason);
            let until = lease_until.unwrap_or_else(|| self.clock.now());
            wound_up = tenure.wind_up(&*self.clock, until).await;
        }
        let writers_gone = !matches!(wound_up, Err(ElectionError::WritersStuck { .. }));
        if let Some(number) = number.filter(|_| writers_gone && reason != TermEnd::Lost) {
            self.give_back(number, reason).await;
        }
        self.lease.with(Contender::left);
        self.publish(None);
        wound_up
    }

    async fn give_back(&self, number: i32, reason: TermEnd) {
        // Who contends again needs the Lease himself soon; who goes away does others a favour by insisting.
        let tries = if reason == TermEnd::DeadlinePassed {
            1
        } else {
            RELEASE_TRIES
        };
        for left in (0..tries).rev() {
            match self.lease.release(number).await {
                Ok(()) => return info!(term = number, "gave the Lease back"),
                Err(failure) if left == 0 => {
                    self.metrics.failed(failure.reason);
                    warn!(term = number, %failure, "could not give the Lease back; it expires by itself");
                }
                Err(failure) => {
                    self.metrics.failed(failure.reason);
                    tokio::time::sleep(self.config.retry / 4).await;
                }
            }
        }
    }

    fn absorb(&mut self, listing: &mut Listing, news: WatchNews) {
        let now = self.clock.now();
        self.lease.with(|contender| listing.absorb(contender, now, &news));
        self.warn_of_twin();
        match news {
            WatchNews::Broken(failure) => {
                debug!(%failure, "the watch of the Lease is broken");
                // What ails the hub as a whole is said by the attempts.
                if failure.reason == FailureReason::Forbidden {
                    complain(&mut self.watch_failure, Some(failure));
                }
            }
            WatchNews::ListingDone => complain(&mut self.watch_failure, None),
            WatchNews::ListingBegins | WatchNews::Shown(..) | WatchNews::Interrupted => {}
        }
    }

    fn warn_of_twin(&mut self) {
        let twin = self.lease.with(|contender| contender.twin().map(str::to_owned));
        if let Some(twin) = twin.filter(|_| !self.twin_warned) {
            self.twin_warned = true;
            warn!(
                twin,
                "another process runs under the same identity; it contends as any other; set --identity"
            );
        }
    }

    fn note_win(&self, number: i32, vacant: Option<Duration>) {
        info!(term = number, lease = %self.address, vacant_seconds = vacant.map(|v| v.as_secs_f64()), "leading");
        if let Some(vacant) = vacant {
            self.metrics.handed_over(vacant.as_secs_f64());
        }
        self.view.send_modify(|view| view.last_handover = vacant);
    }

    fn note_end(&self, tenure: &Tenure, reason: TermEnd) {
        let term = tenure.term.number();
        match reason {
            TermEnd::Shutdown => info!(term, "the term ends: {reason}"),
            TermEnd::DeadlinePassed | TermEnd::Lost | TermEnd::WorkEnded => warn!(term, "the term ends: {reason}"),
        }
        self.metrics.term_ended(reason);
        self.view.send_modify(|view| view.last_end = Some(reason));
        self.publish(Some(tenure));
    }

    /// Tells the view, the metrics and the log what has changed.
    fn publish(&self, tenure: Option<&Tenure>) {
        let tenure = tenure.filter(|tenure| !tenure.term.ended());
        let error = self
            .attempt_failure
            .as_ref()
            .or(self.watch_failure.as_ref())
            .map(Failure::to_string);
        let (record, changes) = self
            .lease
            .with(|contender| (contender.record().cloned(), contender.holder_changes()));
        self.metrics.set_leads(tenure.is_some());
        self.metrics.set_holder_changes(changes);
        if let Some(record) = &record {
            self.metrics.set_term(i64::from(record.transitions));
        }
        self.view.send_if_modified(|view| {
            let holder = record
                .as_ref()
                .map(|record| record.holder.clone())
                .filter(|holder| !holder.is_empty());
            if holder != view.holder && holder.as_ref().is_some_and(|holder| *holder != view.identity) {
                info!(holder, "another replica leads");
            }
            let acquired = record
                .as_ref()
                .filter(|_| holder.is_some())
                .and_then(|record| record.acquired_at);
            let next = LeadershipView {
                identity: view.identity.clone(),
                leads: tenure.is_some(),
                holder,
                term: record.as_ref().map(|record| i64::from(record.transitions)),
                since: tenure.map(|tenure| tenure.since).or(acquired),
                error,
                last_end: view.last_end,
                last_handover: view.last_handover,
            };
            let modified = *view != next;
            *view = next;
            modified
        });
    }
}

/// Moves the deadline of the term; if that comes too late, the loop finds the term ended.
fn extend(tenure: Option<&Tenure>, deadline: BootInstant) {
    if let Some(tenure) = tenure {
        tenure.term.extend(deadline);
    }
}

async fn term_ended(term: Option<&Term>) {
    match term {
        Some(term) => term.cancellation().cancelled().await,
        None => pending().await,
    }
}

/// Says what is wrong when that changes, and that it has healed; not at every retry.
fn complain(standing: &mut Option<Failure>, failure: Option<Failure>) {
    match (&standing, &failure) {
        (Some(before), Some(now)) if before.reason == now.reason => {}
        (_, Some(now)) => warn!("cannot take part in the election: {now}"),
        (Some(_), None) => info!("takes part in the election again"),
        (None, None) => {}
    }
    *standing = failure;
}
