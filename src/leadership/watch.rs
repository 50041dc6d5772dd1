//! The watch of the one Lease: followers learn of a release at once, holders of a loss.

use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::utils::{Backoff, StreamBackoff};
use kube::runtime::watcher::{self, Event};

use super::clock::BootInstant;
use super::election::{Contender, Seen, Source};
use super::failure::{Failure, failure_of_kube};
use super::lease::{LeaseAddress, record_of, version_of};

/// A watch that went silent without an error is set anew after so long.
const WATCH_SECONDS: u32 = 60;

/// One thing that the watch told.
pub(super) enum WatchNews {
    /// A listing begins.
    ListingBegins,
    /// The Lease, as it was listed, or has changed, or was deleted.
    Shown(Option<u64>, Seen),
    /// The listing is complete.
    ListingDone,
    /// The watch does not work at present; it is tried again.
    Broken(Failure),
    /// The watch ended and is set again.
    Interrupted,
}

/// Watches for ever; what fails is tried again every `retry`.
pub(super) fn watch_lease(
    hub: kube::Client,
    address: &LeaseAddress,
    retry: Duration,
) -> impl Stream<Item = WatchNews> + Send + use<> {
    let api = kube::Api::<Lease>::namespaced(hub, &address.namespace);
    let only = format!("metadata.name={}", address.name);
    let config = watcher::Config::default().fields(&only).timeout(WATCH_SECONDS);
    let address = address.clone();
    StreamBackoff::new(watcher::watcher(api, config), Every(retry)).map(move |event| match event {
        Ok(Event::Init) => WatchNews::ListingBegins,
        Ok(Event::InitApply(lease) | Event::Apply(lease)) => {
            WatchNews::Shown(version_of(&lease), Seen::Present(record_of(&lease)))
        }
        Ok(Event::Delete(lease)) => WatchNews::Shown(version_of(&lease), Seen::Absent),
        Ok(Event::InitDone) => WatchNews::ListingDone,
        Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) => {
            WatchNews::Broken(failure_of_kube(&address, &error))
        }
        Err(watcher::Error::WatchError(_) | watcher::Error::WatchFailed(_) | watcher::Error::NoResourceVersion) => {
            WatchNews::Interrupted
        }
    })
}

/// What a listing has shown so far.
#[derive(Default)]
pub(super) struct Listing {
    shown: bool,
}

impl Listing {
    /// Hands the news to the state machine.
    pub(super) fn absorb(&mut self, contender: &mut Contender, now: BootInstant, news: &WatchNews) {
        match news {
            WatchNews::ListingBegins => self.shown = false,
            WatchNews::Shown(version, seen) => {
                self.shown = true;
                contender.observe(now, Source::Watch, *version, seen.clone());
            }
            WatchNews::ListingDone => {
                contender.set_watching(true);
                if !self.shown {
                    contender.suspect_absence();
                }
            }
            WatchNews::Broken(_) | WatchNews::Interrupted => contender.set_watching(false),
        }
    }
}

/// The same pause after every failure: the hub is asked as often as without a watch.
struct Every(Duration);

impl Iterator for Every {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.0)
    }
}

impl Backoff for Every {
    fn reset(&mut self) {}
}
