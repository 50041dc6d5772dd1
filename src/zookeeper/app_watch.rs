//! One registered app: a task that reads and watches its root and leader in whatever session there is.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::app_leader;
use super::ensemble::{Link, Shared, Stage};
use super::pool::Changed;
use super::root::{self, Reading};
use super::session::{Armed, Halt, Refusal, Session};
use crate::api::AppKey;
use crate::app::ensemble::{EnsembleView, LastLeader, LeaderView, RootView};
use crate::support::retry::Backoff;

/// How often a leader that comes and goes between two requests is read again at once.
const READS: usize = 3;

/// One registered app, as its task and the pool share it.
pub struct Entry {
    /// Which app.
    pub key: Arc<AppKey>,
    /// Its root from the top of the ensemble.
    pub root: String,
    /// Whether a missing root may be created.
    pub may_create: bool,
    /// Told of every change of the view.
    pub changed: Changed,
    view: Mutex<EnsembleView>,
    published: Notify,
}

impl Entry {
    pub fn new(key: Arc<AppKey>, root: String, may_create: bool, changed: Changed, view: EnsembleView) -> Self {
        Self {
            key,
            root,
            may_create,
            changed,
            view: Mutex::new(view),
            published: Notify::new(),
        }
    }

    /// What is known now.
    pub fn view(&self) -> EnsembleView {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fires when the view has changed, or another entry has taken this one's place.
    pub fn published(&self) -> &Notify {
        &self.published
    }

    /// Shows a view, and tells of it if it is another one.
    fn publish(&self, view: EnsembleView) {
        let before = {
            let mut shown = self.view.lock().unwrap_or_else(PoisonError::into_inner);
            if *shown == view {
                return;
            }
            std::mem::replace(&mut *shown, view)
        };
        drop(before);
        self.published.notify_waiters();
        (self.changed)(&self.key);
    }
}

/// When what is shown was true for certain for the last time.
struct Confirmed {
    at: Timestamp,
    /// When that is too long ago for it to be shown as known.
    stale: Pin<Box<Sleep>>,
}

impl Confirmed {
    fn now(shared: &Shared) -> Self {
        Self {
            at: Timestamp::now(),
            stale: Box::pin(sleep(shared.config.session_timeout)),
        }
    }
}

/// The task of one app. It ends when its ensemble's does, or the term.
pub struct AppWatch {
    entry: Arc<Entry>,
    shared: Arc<Shared>,
    ensemble: Arc<str>,
    link: watch::Receiver<Link>,
    /// None while there is a session in which all has been read, and before there was any.
    confirmed: Option<Confirmed>,
}

impl Drop for AppWatch {
    fn drop(&mut self) {
        self.shared.dropped();
    }
}

impl AppWatch {
    pub fn new(entry: Arc<Entry>, shared: Arc<Shared>, ensemble: Arc<str>, link: watch::Receiver<Link>) -> Self {
        // What the entry took over from the one before it was watched until now.
        let confirmed = matches!(entry.view(), EnsembleView::Known { .. }).then(|| Confirmed::now(&shared));
        Self {
            entry,
            shared,
            ensemble,
            link,
            confirmed,
        }
    }

    pub async fn run(mut self: Box<Self>) {
        while let Some(session) = Box::pin(self.session()).await {
            match self.follow(&session).await {
                Halt::SessionLost => {}
                Halt::TermEnded => return,
            }
        }
    }

    /// Waits for a session; meanwhile shows what is wrong. None when there will be none.
    async fn session(&mut self) -> Option<Arc<Session>> {
        loop {
            let stage = self.link.borrow_and_update().stage.clone();
            match stage {
                Stage::Up(session) if session.loss().is_none() => return Some(session),
                Stage::Up(_) | Stage::Opening { .. } => {}
                Stage::Down { trouble } => self.show_trouble(&trouble),
            }
            tokio::select! {
                biased;
                changed = self.link.changed() => changed.ok()?,
                () = stale(&mut self.confirmed) => self.show_stale(),
            }
        }
    }

    /// Reads and watches in one session until it is lost.
    async fn follow(&mut self, session: &Session) -> Halt {
        let mut state = match self.first(session).await {
            Ok(state) => state,
            Err(halt) => return halt,
        };
        self.confirmed = None;
        loop {
            self.entry.publish(state.view());
            let next = tokio::select! {
                biased;
                () = session.lost() => break,
                () = fired(&mut state.root.watch) => Next::Root,
                () = fired(&mut state.leader.watch) => Next::Leader,
                () = state.retry.due() => Next::Both,
            };
            let Ok(_turn) = session.turn().await else { break };
            match Box::pin(read_again(&self.entry, &self.shared, session, &mut state, next)).await {
                Ok(()) => {}
                Err(Halt::SessionLost) => break,
                Err(Halt::TermEnded) => return Halt::TermEnded,
            }
        }
        self.confirmed = Some(Confirmed::now(&self.shared));
        Halt::SessionLost
    }

    /// Reads all for the first time in a session; what is shown may become too old meanwhile.
    async fn first(&mut self, session: &Session) -> Result<Known, Halt> {
        // Thousands wait here for their turn at once: what they need for reading is made only then.
        let _turn = loop {
            tokio::select! {
                biased;
                turn = session.turn() => break turn?,
                () = stale(&mut self.confirmed) => self.show_stale(),
            }
        };
        Box::pin(self.read_first(session)).await
    }

    async fn read_first(&mut self, session: &Session) -> Result<Known, Halt> {
        let entry = self.entry.clone();
        let shared = self.shared.clone();
        let mut reading = pin!(read_all(&entry, &shared, session));
        loop {
            tokio::select! {
                biased;
                state = &mut reading => return state,
                () = stale(&mut self.confirmed) => self.show_stale(),
            }
        }
    }

    /// The ensemble cannot be reached: what was known stays until it is too old.
    fn show_trouble(&mut self, trouble: &str) {
        let last = match self.entry.view() {
            EnsembleView::Known { .. } if self.confirmed.is_some() => return,
            EnsembleView::Known { leader, .. } => self.last(&leader),
            EnsembleView::Pending => None,
            EnsembleView::Unreachable { last, .. } => last,
        };
        self.show_unreachable(trouble, last);
    }

    /// What was known has become too old.
    fn show_stale(&mut self) {
        let last = match self.entry.view() {
            EnsembleView::Known { leader, .. } => self.last(&leader),
            EnsembleView::Pending => None,
            EnsembleView::Unreachable { last, .. } => last,
        };
        self.confirmed = None;
        let stage = self.link.borrow().stage.clone();
        let trouble = match stage {
            Stage::Down { trouble } | Stage::Opening { trouble: Some(trouble) } => trouble,
            Stage::Opening { trouble: None } | Stage::Up(_) => {
                Arc::from("it has not answered since the session was replaced")
            }
        };
        self.show_unreachable(&trouble, last);
    }

    fn show_unreachable(&self, trouble: &str, last: Option<LastLeader>) {
        self.entry.publish(EnsembleView::Unreachable {
            message: format!("cannot reach ZooKeeper at {}: {trouble}", self.ensemble),
            last,
        });
    }

    fn last(&self, leader: &LeaderView) -> Option<LastLeader> {
        match leader {
            LeaderView::Named { name, .. } => Some(LastLeader {
                name: name.clone(),
                confirmed: self
                    .confirmed
                    .as_ref()
                    .map_or_else(Timestamp::now, |confirmed| confirmed.at),
            }),
            LeaderView::Absent | LeaderView::Unreadable(_) | LeaderView::Forbidden(_) | LeaderView::Failed(_) => None,
        }
    }
}

/// What is to be read again.
enum Next {
    Root,
    Leader,
    Both,
}

/// What was read last in the present session.
struct Known {
    root: Reading<RootView>,
    leader: Reading<LeaderView>,
    retry: Retry,
}

impl Known {
    fn view(&self) -> EnsembleView {
        EnsembleView::Known {
            root: self.root.view.clone(),
            leader: self.leader.view.clone(),
        }
    }
}

/// When to read again what no watch tells of, such as a change of an access control list.
struct Retry(Option<Box<(Backoff, Pin<Box<Sleep>>)>>);

impl Retry {
    fn plan(&mut self, needed: bool, shared: &Shared) {
        if !needed {
            self.0 = None;
            return;
        }
        let mut backoff = match self.0.take() {
            Some(planned) => planned.0,
            None => Backoff::new(shared.config.shortest_retry, shared.config.longest_retry),
        };
        let due = Instant::now() + backoff.next_delay();
        self.0 = Some(Box::new((backoff, Box::pin(sleep_until(due)))));
    }

    async fn due(&mut self) {
        match &mut self.0 {
            Some(planned) => planned.1.as_mut().await,
            None => pending().await,
        }
    }
}

async fn fired(watch: &mut Option<Armed>) {
    match watch {
        Some(armed) => armed.as_mut().await,
        None => pending().await,
    }
}

async fn stale(confirmed: &mut Option<Confirmed>) {
    match confirmed {
        Some(confirmed) => confirmed.stale.as_mut().await,
        None => pending().await,
    }
}

/// Reads the leader first: while it exists its root cannot be deleted, and needs neither a look nor a watch.
async fn read_all(entry: &Entry, shared: &Shared, session: &Session) -> Result<Known, Halt> {
    let leader = read_leader(entry, session).await?;
    let root = if stands_on_a_root(&leader.view) {
        Reading {
            view: RootView::Exists,
            watch: None,
            again: false,
        }
    } else {
        read_root(entry, shared, session).await?
    };
    let mut retry = Retry(None);
    retry.plan(root.again || leader.again, shared);
    Ok(Known { root, leader, retry })
}

/// Reads again what may have changed.
async fn read_again(
    entry: &Entry,
    shared: &Shared,
    session: &Session,
    state: &mut Known,
    next: Next,
) -> Result<(), Halt> {
    if matches!(next, Next::Leader | Next::Both) {
        state.leader = read_leader(entry, session).await?;
    }
    let unwatched = state.root.watch.is_none() && !stands_on_a_root(&state.leader.view);
    if unwatched || matches!(next, Next::Root | Next::Both) {
        state.root = read_root(entry, shared, session).await?;
    }
    state.retry.plan(state.root.again || state.leader.again, shared);
    Ok(())
}

/// Whether the leader's znode certainly exists, and so the root.
fn stands_on_a_root(leader: &LeaderView) -> bool {
    match leader {
        LeaderView::Named { .. } | LeaderView::Unreadable(_) | LeaderView::Forbidden(_) => true,
        LeaderView::Absent | LeaderView::Failed(_) => false,
    }
}

async fn read_root(entry: &Entry, shared: &Shared, session: &Session) -> Result<Reading<RootView>, Halt> {
    let term = entry.may_create.then_some(&*shared.term);
    root::ensure(session, term, &entry.root).await
}

async fn read_leader(entry: &Entry, session: &Session) -> Result<Reading<LeaderView>, Halt> {
    let path = format!("{}/leader", entry.root);
    for _ in 0..READS {
        let refusal = match session.read(&path).await? {
            Ok((data, stat, watch)) => return Ok(reading(app_leader::read(&path, &data, stat.ctime), Some(watch))),
            Err(refusal) => refusal,
        };
        // The watch on its existence also tells of its deletion, and of other data.
        let (exists, watch) = match session.exists(&path).await? {
            Ok((exists, watch)) => (exists, Some(watch)),
            Err(_) => (true, None),
        };
        match refusal {
            Refusal::Absent if exists => {}
            _ if !exists => return Ok(reading(LeaderView::Absent, watch)),
            Refusal::Forbidden => {
                let view = LeaderView::Forbidden(format!("ZooKeeper refuses to let esfleet read {path}"));
                return Ok(reading(view, watch));
            }
            Refusal::Absent | Refusal::Present | Refusal::Other(_) => {
                return Ok(reading(
                    LeaderView::Failed(format!("{path} cannot be read: {refusal}")),
                    watch,
                ));
            }
        }
    }
    let view = LeaderView::Failed(format!("{path} changes faster than it can be read"));
    Ok(reading(view, None))
}

fn reading(view: LeaderView, watch: Option<Armed>) -> Reading<LeaderView> {
    let again = watch.is_none() || matches!(view, LeaderView::Forbidden(_) | LeaderView::Failed(_));
    Reading { view, watch, again }
}
