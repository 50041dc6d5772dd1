//! The ledger: what events mean. Pure: no client, clock, environment or randomness.
//!
//! Every replica applies the same records in the same order, so that balances and digest are equal wherever the same
//! number of records was applied. The leader decides with a [`Draft`] what may be appended.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::recent::{Fingerprint, Recent};

/// The most characters that an account's name may have.
pub const MAX_ACCOUNT: usize = 64;

/// The most characters that an event's id may have.
pub const MAX_ID: usize = 128;

/// What a client asks for: the body of `POST /events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Chosen by the client, so that sending the event again after an ambiguous answer applies it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What is to happen.
    pub command: Command,
}

/// One change of balances. Amounts are in the smallest unit of the currency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Command {
    /// Money comes in.
    Deposit { account: String, amount: u64 },
    /// Money goes out; refused when the balance is smaller.
    Withdraw { account: String, amount: u64 },
    /// Money moves; refused when the balance of `from` is smaller.
    Transfer { from: String, to: String, amount: u64 },
}

/// What stands in the log: an event and the epoch of the leader that appended it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The epoch under which it was appended; never falls along the log.
    pub epoch: i32,
    /// The event itself.
    pub event: Event,
}

/// Why the leader does not append an event.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// An account's name is empty, too long, or has other characters than letters, digits, `.`, `_` and `-`.
    #[error("account {0:?} must be 1 to {MAX_ACCOUNT} letters, digits, dots, dashes or underscores")]
    BadAccount(String),
    /// The id is empty, too long, or not printable ASCII.
    #[error("id must be 1 to {MAX_ID} printable ASCII characters without spaces")]
    BadId,
    /// Nothing would move.
    #[error("amount must be at least 1")]
    ZeroAmount,
    /// A transfer to where the money is.
    #[error("cannot transfer from {0:?} to itself")]
    SameAccount(String),
    /// The balance is too small.
    #[error("account {account:?} has {balance}, {amount} needed")]
    Overdraft { account: String, balance: u64, amount: u64 },
    /// The balance would no longer fit its type.
    #[error("account {0:?} cannot hold that much")]
    Overflow(String),
    /// The id was used for another command.
    #[error("id {id:?} was used for another command, which is event {number}")]
    IdReused { id: String, number: u64 },
}

/// Why a record of the log cannot be applied: the log is damaged, or written by a newer version.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The records before it are missing.
    #[error("record {number} does not follow {applied}")]
    Gap { applied: u64, number: u64 },
    /// It is no record of ours.
    #[error("record {number} cannot be read: {source}")]
    Unreadable { number: u64, source: serde_json::Error },
    /// A deposed leader got past the fence.
    #[error("record {number} has epoch {epoch}, after {before}")]
    EpochFell { number: u64, epoch: i32, before: i32 },
    /// Its leader should have refused it.
    #[error("record {number} breaks a rule: {refusal}")]
    Refused { number: u64, refusal: Refusal },
}

/// The state that comes from applying a log's records from the first to the `applied`th.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    applied: u64,
    epoch: i32,
    digest: Digest,
    balances: BTreeMap<String, u64>,
    recent: Recent,
}

/// A SHA-256 chain over all records applied so far: equal digests mean equal logs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest after one more record.
    #[must_use]
    pub fn chain(self, number: u64, data: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(number.to_be_bytes());
        hash.update(data);
        Self(hash.finalize().into())
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Ledger {
    /// The number of the last record applied; 0 before the first.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// The digest of all that was applied.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// All accounts that ever held anything, in the order of their names.
    #[must_use]
    pub fn balances(&self) -> &BTreeMap<String, u64> {
        &self.balances
    }

    /// What an account holds; 0 if nobody has heard of it.
    #[must_use]
    pub fn balance(&self, account: &str) -> u64 {
        self.balances.get(account).copied().unwrap_or(0)
    }

    /// Applies the next record of the log.
    ///
    /// # Errors
    /// [`ApplyError`] when the record does not fit here; the ledger is then as before.
    pub fn apply(&mut self, number: u64, data: &[u8]) -> Result<(), ApplyError> {
        if number != self.applied + 1 {
            return Err(ApplyError::Gap {
                applied: self.applied,
                number,
            });
        }
        let Record { epoch, event } =
            serde_json::from_slice(data).map_err(|source| ApplyError::Unreadable { number, source })?;
        if epoch < self.epoch {
            return Err(ApplyError::EpochFell {
                number,
                epoch,
                before: self.epoch,
            });
        }
        let changed = effects(&event.command, |account| self.balance(account))
            .map_err(|refusal| ApplyError::Refused { number, refusal })?;
        self.balances.extend(changed);
        if let Some(id) = event.id {
            self.recent.remember(id, number, Fingerprint::of(&event.command));
        }
        self.applied = number;
        self.epoch = epoch;
        self.digest = self.digest.chain(number, data);
        Ok(())
    }

    /// Starts to decide on events that would follow what is applied.
    #[must_use]
    pub fn draft(&self) -> Draft<'_> {
        Draft {
            ledger: self,
            next: self.applied + 1,
            balances: HashMap::new(),
            ids: HashMap::new(),
        }
    }
}

/// What an admitted event becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is to be appended under this number.
    Append(u64),
    /// It is, or is about to be, in the log under this number.
    Duplicate(u64),
}

/// Decides on a row of events before they are appended, each in view of those admitted before it.
#[derive(Debug)]
pub struct Draft<'a> {
    ledger: &'a Ledger,
    next: u64,
    balances: HashMap<String, u64>,
    ids: HashMap<String, (u64, Fingerprint)>,
}

impl Draft<'_> {
    /// Admits an event, or says why not.
    ///
    /// # Errors
    /// [`Refusal`] by the first rule that it breaks.
    pub fn admit(&mut self, event: &Event) -> Result<Admission, Refusal> {
        validate(event)?;
        let fingerprint = Fingerprint::of(&event.command);
        if let Some(id) = &event.id {
            let seen = self.ids.get(id).copied().or_else(|| self.ledger.recent.get(id));
            match seen {
                Some((number, before)) if before == fingerprint => return Ok(Admission::Duplicate(number)),
                Some((number, _)) => return Err(Refusal::IdReused { id: id.clone(), number }),
                None => {}
            }
        }
        let balance = |account: &str| {
            self.balances
                .get(account)
                .copied()
                .unwrap_or_else(|| self.ledger.balance(account))
        };
        let changed = effects(&event.command, balance)?;
        self.balances.extend(changed);
        let number = self.next;
        self.next += 1;
        if let Some(id) = &event.id {
            self.ids.insert(id.clone(), (number, fingerprint));
        }
        Ok(Admission::Append(number))
    }
}

/// The rules that an event keeps or breaks whatever the balances are.
fn validate(event: &Event) -> Result<(), Refusal> {
    if let Some(id) = &event.id {
        let good = (1..=MAX_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
        if !good {
            return Err(Refusal::BadId);
        }
    }
    match &event.command {
        Command::Deposit { account, .. } | Command::Withdraw { account, .. } => validate_account(account),
        Command::Transfer { from, to, .. } => validate_account(from).and_then(|()| validate_account(to)),
    }
}

fn validate_account(name: &str) -> Result<(), Refusal> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if (1..=MAX_ACCOUNT).contains(&name.len()) && name.bytes().all(legal) {
        Ok(())
    } else {
        Err(Refusal::BadAccount(name.to_owned()))
    }
}

/// The balances that a command changes, given those before it.
fn effects(command: &Command, balance: impl Fn(&str) -> u64) -> Result<Vec<(String, u64)>, Refusal> {
    let take = |account: &String, amount: u64| {
        let balance = balance(account);
        match balance.checked_sub(amount) {
            Some(rest) => Ok((account.clone(), rest)),
            None => Err(Refusal::Overdraft {
                account: account.clone(),
                balance,
                amount,
            }),
        }
    };
    let give = |account: &String, amount: u64| match balance(account).checked_add(amount) {
        Some(sum) => Ok((account.clone(), sum)),
        None => Err(Refusal::Overflow(account.clone())),
    };
    match command {
        Command::Deposit { amount: 0, .. }
        | Command::Withdraw { amount: 0, .. }
        | Command::Transfer { amount: 0, .. } => Err(Refusal::ZeroAmount),
        Command::Deposit { account, amount } => Ok(vec![give(account, *amount)?]),
        Command::Withdraw { account, amount } => Ok(vec![take(account, *amount)?]),
        Command::Transfer { from, to, .. } if from == to => Err(Refusal::SameAccount(from.clone())),
        Command::Transfer { from, to, amount } => Ok(vec![take(from, *amount)?, give(to, *amount)?]),
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
