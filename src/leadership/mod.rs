//! Which replica may write, and until when.
//!
//! [`Election`] contends for one Lease on the hub. Whoever wins gets an `Arc<`[`Term`]`>`, without which nothing in
//! esfleet writes, and which ends on time by a clock that also counts suspended time, whether or not the hub answers.
//!
//! | file | what lives there | needs a client |
//! | --- | --- | --- |
//! | [`clock`] | the boot clock | no |
//! | [`election`] | what to do next, decided purely | no |
//! | [`term`] | what a writer holds | no |
//! | `lease` | the adapter around the crate `kube-leader-election` | yes |
//! | `failure` | what an error means and its remedy | no |
//! | `tenure` | a term with its work | no |
//! | `driver` | the loop that joins them | yes |
//! | [`metrics`] | what `/metrics` says | no |

pub mod clock;
mod config;
mod driver;
#[cfg(test)]
mod driver_tests;
pub mod election;
#[cfg(test)]
mod election_tests;
mod failure;
#[cfg(test)]
mod fake_hub;
mod lease;
pub mod metrics;
mod tenure;
pub mod term;
mod view;
mod watch;

pub use clock::{BootClock, BootInstant, ManualClock, SystemBootClock};
pub use config::{ElectionConfig, ElectionError};
pub use driver::Election;
pub use metrics::{FailureReason, LeadershipMetrics};
pub use term::{Term, TermEnd, TermEnder, WriteError};
pub use view::LeadershipView;
