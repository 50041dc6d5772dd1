//! esfleet: one point of control for event-sourced applications in many Kubernetes clusters.
//!
//! The rooms, from top to bottom; a room may use the ones below it and none above
//! (`tests/layering.rs` holds this):
//!
//! | room | what lives there |
//! | --- | --- |
//! | [`cli`] | one file per subcommand: arguments in, exit code out |
//! | [`run`] | the composition root of `esfleet run`: the only place that knows fleet and reconcile both |
//! | [`http`] | `/livez`, `/readyz`, `/metrics`, `/api/v1/fleet` |
//! | [`listing`] | the fleet-wide snapshot with its age, rendered as table, JSON and YAML |
//! | [`reconcile`] | observe, plan, apply, report: what is done for one app |
//! | [`fleet`] | the members: from the config to living connections with probe and backoff |
//! | [`zookeeper`] | pooled, disposable sessions; roots and app leaders |
//! | [`kubernetes`] | clients with deadlines, watches reduced to slim projections, Events |
//! | [`leadership`] | which replica may write, and until when |
//! | [`app`] | pure decisions: wanted objects, plans, status |
//! | [`api`] | `EventSourcedApp`, `FleetConfig`, and the names in them, parsed once |
//! | [`support`] | YAML, retries, deadlines, supervised tasks |
//! | [`telemetry`] | logs and the metrics registry |

pub mod api;
pub mod app;
pub mod cli;
pub mod fleet;
pub mod http;
pub mod kubernetes;
pub mod leadership;
pub mod listing;
pub mod reconcile;
pub mod run;
pub mod support;
pub mod telemetry;
pub mod zookeeper;
