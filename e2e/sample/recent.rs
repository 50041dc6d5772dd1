//! The ids of the latest events, so that one sent twice is applied once. Pure.

use std::collections::{HashMap, VecDeque};

use sha2::{Digest as _, Sha256};

use crate::ledger::Command;

/// How many ids are remembered: a retry that comes later than this many events with ids is a new event.
pub const REMEMBERED: usize = 100_000;

/// Tells apart two commands that claim the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 8]);

impl Fingerprint {
    /// The fingerprint of a command.
    #[must_use]
    pub fn of(command: &Command) -> Self {
        let hash = Sha256::digest(format!("{command:?}"));
        let mut short = [0; 8];
        short.copy_from_slice(&hash[..8]);
        Self(short)
    }
}

/// The latest ids, each with its event's number and fingerprint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recent {
    known: HashMap<String, (u64, Fingerprint)>,
    order: VecDeque<String>,
}

impl Recent {
    /// The number and fingerprint of the event with this id, if it is remembered.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<(u64, Fingerprint)> {
        self.known.get(id).copied()
    }

    /// Remembers an id, and forgets the oldest one when there are too many.
    pub fn remember(&mut self, id: String, number: u64, fingerprint: Fingerprint) {
        if self.known.insert(id.clone(), (number, fingerprint)).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deposit(amount: u64) -> Fingerprint {
        Fingerprint::of(&Command::Deposit {
            account: "a".to_owned(),
            amount,
        })
    }

    #[test]
    fn the_oldest_id_is_forgotten_first() {
        let mut recent = Recent::default();
        for number in 0..=REMEMBERED as u64 {
            recent.remember(format!("id-{number}"), number, deposit(1));
        }
        assert_eq!(recent.get("id-0"), None);
        assert_eq!(recent.get("id-1"), Some((1, deposit(1))));
        assert_eq!((recent.known.len(), recent.order.len()), (REMEMBERED, REMEMBERED));
    }

    #[test]
    fn other_commands_have_other_fingerprints() {
        assert_ne!(deposit(1), deposit(2));
    }
}
