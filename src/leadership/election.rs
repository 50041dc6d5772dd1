//! The election as a pure state machine: what was observed of the Lease, when it last changed on the local clock, and
//! what is to be done next. It talks to nothing and asks no clock; every moment is handed in.
//!
//! The semantics are client-go's: a record is live for its own duration from the local moment at which it was last
//! *seen to change*, whatever times are written in it.

use std::time::Duration;

use jiff::Timestamp;

use super::clock::BootInstant;
use super::term::TermEnd;

/// How long things take, for all contenders alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How long others leave an unchanged record alone.
    pub lease: Duration,
    /// How long a term lasts from the sending of its last confirmed renewal.
    pub renew_deadline: Duration,
    /// The time from one renewal or failed attempt to the next.
    pub retry: Duration,
}

/// What the Lease says, without what does not matter to the election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRecord {
    /// `spec.holderIdentity`; empty if it is empty or null, as after a release.
    pub holder: String,
    /// `spec.leaseTransitions`; 0 if null.
    pub transitions: i32,
    /// `spec.leaseDurationSeconds`, if it is positive.
    pub duration: Option<Duration>,
    /// `spec.acquireTime`, on the clock of whoever wrote it: for display only.
    pub acquired_at: Option<Timestamp>,
    /// `spec.renewTime`, on the clock of whoever wrote it: only whether it differs matters.
    pub renewed_at: Option<Timestamp>,
}

/// The Lease as one look at it showed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// There is no such Lease.
    Absent,
    /// The Lease says this.
    Present(LeaseRecord),
}

/// Where an observation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A consistent read, or the answer to a write: always newer than what was known.
    Read,
    /// A watch event: may be older than what was known.
    Watch,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read the Lease, and acquire or renew it as [`Contender::verdict`] then says.
    Attempt,
    /// Nothing until this moment, unless something is observed.
    WaitUntil(BootInstant),
    /// The term is over: cancel the writers, wait for them, release.
    StepDown(TermEnd),
}

/// What may be done with the Lease that has just been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It shows our term: renew it.
    Renew {
        /// The number of the term.
        number: i32,
    },
    /// It is free: take it (or create it) under this number.
    Take {
        /// The number of the term to begin.
        number: i32,
    },
    /// It is not ours to write.
    Leave,
}

/// How an attempt on the Lease went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server confirmed that we hold it.
    Confirmed {
        /// The moment before the confirmed write was sent.
        sent: BootInstant,
        /// The record as the server answered it.
        record: LeaseRecord,
        /// Its resource version.
        version: Option<u64>,
    },
    /// It is held by another.
    Left,
    /// Somebody else wrote it between our read and our write.
    Conflict,
    /// No answer, or a refusal.
    Failed,
}

/// What an attempt changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A term begins.
    Won {
        /// Its number.
        number: i32,
        /// When it ends unless it is renewed.
        deadline: BootInstant,
        /// The time since the record that was taken over last changed; none if there was no record.
        vacant: Option<Duration>,
    },
    /// The term goes on.
    Renewed {
        /// When it now ends.
        deadline: BootInstant,
    },
    /// Nothing.
    None,
}

/// One contender for the Lease. A plain value that can be copied and compared, so that a model can explore it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contender {
    identity: String,
    timing: Timing,
    watching: bool,
    suspect: bool,
    observed: Option<Observed>,
    highest: Option<i32>,
    holder_changes: u64,
    last_holder: Option<String>,
    twin: Option<String>,
    attempted: Option<BootInstant>,
    not_before: Option<BootInstant>,
    held: Option<Held>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Observed {
    seen: Seen,
    version: Option<u64>,
    changed: BootInstant,
    touched: BootInstant,
    /// Until when another's term must be assumed to live.
    live_until: Option<BootInstant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    number: i32,
    deadline: BootInstant,
    lease_until: BootInstant,
    next_renewal: BootInstant,
    lost: bool,
}

impl Contender {
    /// A contender that has seen nothing yet. `identity` ends in `_` and a nonce.
    pub fn new(identity: String, timing: Timing) -> Self {
        Self {
            identity,
            timing,
            watching: false,
            suspect: false,
            observed: None,
            highest: None,
            holder_changes: 0,
            last_holder: None,
            twin: None,
            attempted: None,
            not_before: None,
            held: None,
        }
    }

    /// The identity, nonce included.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The record as it was last seen; none if there is none, or nothing was seen yet.
    pub fn record(&self) -> Option<&LeaseRecord> {
        match &self.observed.as_ref()?.seen {
            Seen::Present(record) => Some(record),
            Seen::Absent => None,
        }
    }

    /// The number of the term that is held, if any.
    pub fn term(&self) -> Option<i32> {
        self.held.as_ref().map(|held| held.number)
    }

    /// Until when the others leave our record alone, as far as was confirmed.
    pub fn lease_until(&self) -> Option<BootInstant> {
        self.held.as_ref().map(|held| held.lease_until)
    }

    /// Another process that lives and renews under our own name.
    pub fn twin(&self) -> Option<&str> {
        self.twin.as_deref()
    }

    /// How often the holder was seen to change.
    pub fn holder_changes(&self) -> u64 {
        self.holder_changes
    }

    /// Whether changes of the Lease are told by a watch; without, the Lease is read every retry.
    pub fn set_watching(&mut self, watching: bool) {
        self.watching = watching;
    }

    /// A listing of the watch did not show the Lease. It may be older than what we know, so it is only a hint to look.
    pub fn suspect_absence(&mut self) {
        let known_absent = self
            .observed
            .as_ref()
            .is_some_and(|observed| observed.seen == Seen::Absent);
        self.suspect = self.held.is_none() && !known_absent;
    }

    /// Takes note of the Lease as it was seen at `now`.
    pub fn observe(&mut self, now: BootInstant, source: Source, version: Option<u64>, seen: Seen) {
        if source == Source::Watch && !self.is_news(version) {
            return;
        }
        if source == Source::Read {
            self.suspect = false;
        }
        let unchanged = self.observed.as_ref().is_some_and(|observed| observed.seen == seen);
        if unchanged {
            if let Some(observed) = &mut self.observed {
                observed.version = version.or(observed.version);
                observed.touched = now;
            }
            return;
        }
        self.note_holder(&seen);
        if source == Source::Watch {
            self.not_before = None;
        }
        let live_until = self.live_until(now, &seen);
        if let Some(held) = &mut self.held {
            held.lost = held.lost || !shows(&seen, &self.identity, held.number);
        }
        self.observed = Some(Observed {
            seen,
            version,
            changed: now,
            touched: now,
            live_until,
        });
    }

    /// What may be done with the Lease as it was last observed.
    pub fn verdict(&self, now: BootInstant) -> Verdict {
        let Some(observed) = &self.observed else {
            return Verdict::Leave;
        };
        match &self.held {
            Some(held) if held.lost || now >= held.deadline => Verdict::Leave,
            Some(held) => Verdict::Renew { number: held.number },
            None if observed.live_until.is_some_and(|until| now < until) => Verdict::Leave,
            // Saturated only when somebody has written the highest number there is.
            None => Verdict::Take {
                number: self.highest.map_or(0, |highest| highest.saturating_add(1)),
            },
        }
    }

    /// What to do at `now`.
    pub fn next(&self, now: BootInstant) -> Next {
        let at = match &self.held {
            Some(held) if held.lost => return Next::StepDown(TermEnd::Lost),
            Some(held) if now >= held.deadline => return Next::StepDown(TermEnd::DeadlinePassed),
            Some(held) if now < held.next_renewal => held.next_renewal.min(held.deadline),
            Some(_) => now,
            None => self.not_before.max(self.due()).unwrap_or(now),
        };
        if at > now { Next::WaitUntil(at) } else { Next::Attempt }
    }

    /// An attempt begins.
    pub fn begin(&mut self, now: BootInstant) {
        self.attempted = Some(now);
    }

    /// The attempt is over.
    pub fn finish(&mut self, now: BootInstant, outcome: Outcome) -> Effect {
        match outcome {
            Outcome::Confirmed { sent, record, version } => self.confirmed(now, sent, record, version),
            Outcome::Left => Effect::None,
            Outcome::Conflict => {
                self.pause_until(now + self.timing.retry / 10);
                Effect::None
            }
            Outcome::Failed => {
                self.pause_until((self.attempted.unwrap_or(now) + self.pace(now)).max(now + self.timing.retry / 8));
                Effect::None
            }
        }
    }

    /// The term has been left: its writers are gone.
    pub fn left(&mut self) {
        self.held = None;
    }

    fn confirmed(&mut self, now: BootInstant, sent: BootInstant, record: LeaseRecord, version: Option<u64>) -> Effect {
        if record.holder != self.identity {
            self.observe(now, Source::Read, version, Seen::Present(record));
            return Effect::None;
        }
        let number = record.transitions;
        let vacant = self
            .record()
            .and(self.observed.as_ref())
            .map(|observed| observed.changed.until(now));
        let lease = record
            .duration
            .map_or(self.timing.lease, |duration| duration.min(self.timing.lease));
        self.observe(now, Source::Read, version, Seen::Present(record));
        let (deadline, lease_until, next_renewal) = (
            sent + self.timing.renew_deadline,
            sent + lease,
            sent + self.timing.retry,
        );
        match &mut self.held {
            Some(held) if held.lost || now >= held.deadline => Effect::None,
            Some(held) => {
                *held = Held {
                    number,
                    deadline,
                    lease_until,
                    next_renewal,
                    lost: false,
                };
                Effect::Renewed { deadline }
            }
            None if now >= deadline => Effect::None,
            None => {
                self.held = Some(Held {
                    number,
                    deadline,
                    lease_until,
                    next_renewal,
                    lost: false,
                });
                self.not_before = None;
                Effect::Won {
                    number,
                    deadline,
                    vacant,
                }
            }
        }
    }

    /// From one failed attempt to the next: a holder tries more often as its deadline nears, so that a hub which
    /// recovers shortly before does not cost it the term.
    fn pace(&self, now: BootInstant) -> Duration {
        let retry = self.timing.retry;
        self.held
            .as_ref()
            .map_or(retry, |held| retry.min(now.until(held.deadline) / 4))
    }

    fn pause_until(&mut self, moment: BootInstant) {
        match &mut self.held {
            Some(held) => held.next_renewal = moment,
            None => self.not_before = Some(moment),
        }
    }

    /// When a contender without a term has to look at the Lease; none means at once.
    fn due(&self) -> Option<BootInstant> {
        let observed = self.observed.as_ref().filter(|_| !self.suspect)?;
        let free = observed.live_until?;
        let mut look = observed.touched + self.timing.retry;
        if self.watching {
            // A living holder renews every retry: silence means that it, or the watch, is gone.
            look = look.max(observed.changed + self.timing.retry * 2);
        }
        Some(free.min(look))
    }

    fn is_news(&self, version: Option<u64>) -> bool {
        let known = self.observed.as_ref().and_then(|observed| observed.version);
        match (version, known) {
            (Some(version), Some(known)) => version > known,
            // Without comparable versions a holder trusts its own reads only.
            _ => self.held.is_none(),
        }
    }

    fn live_until(&self, now: BootInstant, seen: &Seen) -> Option<BootInstant> {
        match seen {
            Seen::Present(record) if record.holder.is_empty() || record.holder == self.identity => None,
            Seen::Present(record) => Some(now + record.duration.unwrap_or(self.timing.lease)),
            // Deleting the Lease does not end the term of its holder, who may not know yet.
            Seen::Absent => self.observed.as_ref().and_then(|observed| observed.live_until),
        }
    }

    fn note_holder(&mut self, seen: &Seen) {
        let Seen::Present(record) = seen else {
            return;
        };
        self.highest = self.highest.max(Some(record.transitions));
        if record.holder.is_empty() {
            return;
        }
        let same = self.last_holder.as_ref() == Some(&record.holder);
        if same && record.holder != self.identity && name_of(&record.holder) == name_of(&self.identity) {
            self.twin = Some(record.holder.clone());
        }
        if !same {
            self.holder_changes += u64::from(self.last_holder.is_some());
            self.last_holder = Some(record.holder.clone());
        }
    }
}

/// Whether the Lease shows this term of this contender.
fn shows(seen: &Seen, identity: &str, number: i32) -> bool {
    match seen {
        Seen::Present(record) => record.holder == identity && record.transitions == number,
        Seen::Absent => false,
    }
}

/// An identity without its nonce.
fn name_of(identity: &str) -> &str {
    identity.rsplit_once('_').map_or(identity, |(name, _)| name)
}
