//! What is done for one app: observe, plan, apply, report.
//!
//! | step | reads | writes | talks to |
//! | --- | --- | --- | --- |
//! | [`observe`] | the scope's projections | nothing | nobody |
//! | `app::plan` | what was observed | nothing | nobody |
//! | [`apply`] | the objects that the plan needs whole | the app's objects, under a term | the member |
//! | [`report`] | what was applied, and the ensemble's view | status and Events, under a term | the member |

pub mod apply;
pub mod controller;
#[cfg(test)]
mod fake_member;
pub mod memory;
pub mod metrics;
pub mod observe;
pub mod report;

pub use controller::{Context, control};

#[cfg(test)]
mod tests;
