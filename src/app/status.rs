//! What an app is told about itself.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::conditions::{ConditionType, Reason, State, Verdict, dated, find, whole_seconds};
use super::ensemble::{EnsembleView, LastLeader, LeaderView, RootView};
use super::observed::{AppSpec, ObservedApp, ObservedStatefulSet};
use super::plan::{Conflict, FixedField, Plan, Step};
use super::resources::APP_LABEL;
use crate::api::EventSourcedAppStatus;

/// What is known of an app's objects after a round of work.
#[derive(Debug, Clone, Default)]
pub struct WorkloadView<'a> {
    /// The app's own StatefulSet: as the API server returned it from the apply, or as it was observed.
    pub stateful_set: Option<&'a ObservedStatefulSet>,
    /// The objects that are somebody else's.
    pub conflicts: Vec<Conflict>,
    /// Whether an object of an earlier app of this name is still there.
    pub being_deleted: bool,
    /// The fields that differ and can never be changed.
    pub fixed: Vec<FixedField>,
    /// Why a write of this round failed: a sentence that names the object.
    pub failure: Option<String>,
}

impl<'a> WorkloadView<'a> {
    /// What a plan knows, with the StatefulSet as it is now (ignored where the plan says it is not the app's).
    #[must_use]
    pub fn new(plan: &Plan, stateful_set: Option<&'a ObservedStatefulSet>, failure: Option<String>) -> Self {
        let is_ours = !matches!(plan.stateful_set, Step::Conflict(_) | Step::Wait);
        Self {
            stateful_set: stateful_set.filter(|_| is_ours),
            conflicts: plan.conflicts().cloned().collect(),
            being_deleted: plan.steps().iter().any(|(_, step)| matches!(step, Step::Wait)),
            fixed: plan.fixed.clone(),
            failure,
        }
    }
}

/// The whole status of an app. It equals the old one ([`is_current`]) when nothing has changed.
///
/// While nothing has been learnt of the ensemble in this term, what was known before stays.
#[must_use]
pub fn status(
    app: &ObservedApp,
    workload: &WorkloadView<'_>,
    ensemble: &EnsembleView,
    now: Timestamp,
) -> EventSourcedAppStatus {
    let old = &app.status;
    let condition = |kind, verdict: Option<Verdict>| match verdict {
        Some(verdict) => dated(kind, verdict, find(&old.conditions, kind), app.generation, now),
        None => kept(kind, old, app.generation, now),
    };
    let (zookeeper, work, elected) = match &app.spec {
        Ok(spec) => (
            zookeeper_ready(spec, ensemble),
            Some(workload_ready(app, spec, workload)),
            leader_elected(spec, ensemble),
        ),
        Err(fault) => {
            let invalid = |state| Some(Verdict::new(state, Reason::InvalidSpec, format!("{fault}; correct it")));
            (invalid(State::Unknown), invalid(State::False), invalid(State::Unknown))
        }
    };
    let mut conditions = vec![
        condition(ConditionType::ZooKeeperReady, zookeeper),
        condition(ConditionType::WorkloadReady, work),
        condition(ConditionType::LeaderElected, elected),
    ];
    let paused = app.spec.as_ref().is_ok_and(|spec| spec.raw.paused);
    let summary = dated_summary(&conditions, old, paused, app.generation, now);
    conditions.push(summary);
    let (leader, leader_since) = leader(old, ensemble, app.spec.is_ok());
    EventSourcedAppStatus {
        observed_generation: Some(app.generation),
        conditions,
        leader,
        leader_since,
        active_replicas: Some(workload.stateful_set.map_or(0, |set| set.ready_replicas)),
        replicas: Some(workload.stateful_set.map_or(0, |set| set.replicas)),
        updated_replicas: Some(workload.stateful_set.map_or(0, |set| set.updated_replicas)),
        selector: Some(format!("{APP_LABEL}={}", app.name)),
    }
}

/// Whether an app's status says already what `wanted` says. Conditions of other types, which another
/// controller may have left there, do not count.
#[must_use]
pub fn is_current(observed: &EventSourcedAppStatus, wanted: &EventSourcedAppStatus) -> bool {
    let ours = EventSourcedAppStatus {
        conditions: ConditionType::ALL
            .iter()
            .filter_map(|kind| find(&observed.conditions, *kind).cloned())
            .collect(),
        ..observed.clone()
    };
    ours == *wanted
}

/// The condition while nothing has been learnt: the old one, or that esfleet is on its way.
fn kept(kind: ConditionType, old: &EventSourcedAppStatus, generation: i64, now: Timestamp) -> Condition {
    find(&old.conditions, kind).cloned().unwrap_or_else(|| {
        let verdict = Verdict::new(State::Unknown, Reason::Connecting, "esfleet is connecting to ZooKeeper");
        dated(kind, verdict, None, generation, now)
    })
}

fn zookeeper_ready(spec: &AppSpec, ensemble: &EnsembleView) -> Option<Verdict> {
    let root = &spec.root;
    Some(match ensemble {
        EnsembleView::Pending => return None,
        EnsembleView::Unreachable { message, .. } => Verdict::new(
            State::False,
            Reason::Unreachable,
            format!("{message}; check spec.zookeeperConnectString and the ensemble"),
        ),
        EnsembleView::Known { root: view, .. } => match view {
            RootView::Exists => Verdict::new(State::True, Reason::RootExists, format!("the root {root} exists")),
            RootView::Missing => Verdict::new(
                State::False,
                Reason::RootMissing,
                format!("the root {root} does not exist, and esfleet creates none while spec.paused is true"),
            ),
            RootView::Forbidden(message) => Verdict::new(
                State::False,
                Reason::RootForbidden,
                format!("{message}; give esfleet access by an ACL on the root or its parent"),
            ),
            RootView::Failed(message) => Verdict::new(State::False, Reason::RootFailed, message.clone()),
        },
    })
}

fn workload_ready(app: &ObservedApp, spec: &AppSpec, workload: &WorkloadView<'_>) -> Verdict {
    if !workload.conflicts.is_empty() {
        let conflicts: Vec<_> = workload.conflicts.iter().map(ToString::to_string).collect();
        let message = format!(
            "{}; remove what is in the way, or give the app another name",
            conflicts.join("; ")
        );
        return Verdict::new(State::False, Reason::Conflict, message);
    }
    if workload.being_deleted {
        let message = "objects of this name are still being deleted; they are made anew once they are gone";
        return Verdict::new(State::False, Reason::BeingDeleted, message);
    }
    if let Some(failure) = &workload.failure {
        return Verdict::new(State::False, Reason::WriteFailed, failure.clone());
    }
    let kept = kept_fields(app, &workload.fixed);
    if workload.fixed.iter().any(|field| asked_for(*field)) {
        return Verdict::new(State::False, Reason::ImmutableField, kept);
    }
    let mut verdict = match workload.stateful_set {
        Some(set) => pods(spec.raw.replicas, set),
        None if spec.raw.paused => Verdict::new(
            State::False,
            Reason::Paused,
            format!(
                "StatefulSet {} does not exist, and esfleet creates none while spec.paused is true",
                app.name
            ),
        ),
        None => Verdict::new(
            State::False,
            Reason::Progressing,
            format!("StatefulSet {} does not exist yet", app.name),
        ),
    };
    if !kept.is_empty() {
        verdict.message = format!("{}; {kept}", verdict.message);
    }
    verdict
}

/// What the pods do.
fn pods(wanted: i32, set: &ObservedStatefulSet) -> Verdict {
    let (name, namespace) = (&set.child.name, &set.child.namespace);
    let (ready, updated) = (set.ready_replicas, set.updated_replicas);
    if set.observed_generation < set.generation || set.spec_replicas != wanted {
        let message = format!("the newest change to StatefulSet {name} has not been carried out yet");
        Verdict::new(State::False, Reason::Progressing, message)
    } else if ready < wanted {
        let message =
            format!("{ready} of {wanted} pods are Ready; look at: kubectl -n {namespace} describe pods -l app={name}");
        Verdict::new(State::False, Reason::ReplicasPending, message)
    } else if set.revisions_differ && updated < wanted {
        let message = format!("{updated} of {wanted} pods run the newest template");
        Verdict::new(State::False, Reason::RollingOut, message)
    } else if set.replicas > wanted {
        let message = format!("{} pods exist, {wanted} are to stay", set.replicas);
        Verdict::new(State::False, Reason::ScalingDown, message)
    } else {
        Verdict::new(
            State::True,
            Reason::ReplicasReady,
            format!("{ready} of {wanted} pods are Ready"),
        )
    }
}

/// Whether the app's spec asks for this field, so that it is not fulfilled as long as it differs.
fn asked_for(field: FixedField) -> bool {
    match field {
        FixedField::VolumeClaimTemplates | FixedField::ClusterIp => true,
        FixedField::Selector | FixedField::ServiceName | FixedField::PodManagementPolicy => false,
    }
}

/// A sentence about fields that cannot be changed; empty when there are none.
fn kept_fields(app: &ObservedApp, fixed: &[FixedField]) -> String {
    let (name, namespace) = (&app.name, &app.namespace);
    let sentences: Vec<String> = fixed
        .iter()
        .map(|field| {
            let (kind, path) = field.path();
            let remedy = match field {
                FixedField::ClusterIp => format!("kubectl -n {namespace} delete service {name}"),
                FixedField::Selector
                | FixedField::ServiceName
                | FixedField::PodManagementPolicy
                | FixedField::VolumeClaimTemplates => {
                    format!("kubectl -n {namespace} delete statefulset {name} --cascade=orphan")
                }
            };
            format!("{path} of {kind} {name} differs and can never be changed (to have it made anew: {remedy})")
        })
        .collect();
    sentences.join("; ")
}

fn leader_elected(spec: &AppSpec, ensemble: &EnsembleView) -> Option<Verdict> {
    let path = spec.root.leader();
    Some(match ensemble {
        EnsembleView::Pending => return None,
        EnsembleView::Unreachable { last, .. } => {
            let known = match last {
                Some(LastLeader { name, confirmed }) => format!("{name} led at {}", whole_seconds(*confirmed)),
                None => "none was ever seen".to_owned(),
            };
            let message = format!("ZooKeeper does not answer, so nobody can tell who leads; {known}");
            Verdict::new(State::Unknown, Reason::Unreachable, message)
        }
        EnsembleView::Known { leader, .. } => match leader {
            LeaderView::Named { name, .. } => Verdict::new(State::True, Reason::Elected, format!("{name} leads")),
            LeaderView::Absent => Verdict::new(
                State::False,
                Reason::NoLeader,
                format!("no pod holds {path}; if this lasts, look at the pods' logs"),
            ),
            LeaderView::Unreadable(what) => Verdict::new(
                State::False,
                Reason::LeaderUnreadable,
                format!("{what}; the app has to write the leader's name there"),
            ),
            LeaderView::Forbidden(message) => Verdict::new(
                State::Unknown,
                Reason::LeaderForbidden,
                format!("{message}; let esfleet read it by an ACL"),
            ),
            LeaderView::Failed(message) => Verdict::new(State::Unknown, Reason::LeaderFailed, message.clone()),
        },
    })
}

fn leader(old: &EventSourcedAppStatus, ensemble: &EnsembleView, usable: bool) -> (Option<String>, Option<Time>) {
    match ensemble {
        EnsembleView::Pending if usable => (old.leader.clone().filter(|l| !l.is_empty()), old.leader_since.clone()),
        EnsembleView::Known {
            leader: LeaderView::Named { name, since },
            ..
        } if usable => (Some(name.clone()), Some(Time(whole_seconds(*since)))),
        EnsembleView::Pending | EnsembleView::Known { .. } | EnsembleView::Unreachable { .. } => (None, None),
    }
}

/// `Ready`: all of the others, or the reason and message of the first that is false, else of the
/// first that is unknown.
fn dated_summary(
    conditions: &[Condition],
    old: &EventSourcedAppStatus,
    paused: bool,
    generation: i64,
    now: Timestamp,
) -> Condition {
    let first = |state: State| conditions.iter().find(|condition| condition.status == state.as_str());
    let culprit = first(State::False).or_else(|| first(State::Unknown));
    let verdict = Verdict {
        state: culprit.map_or(State::True, |condition| State::parse(&condition.status)),
        reason: Reason::AllReady,
        message: match (culprit, paused) {
            (Some(culprit), false) => culprit.message.clone(),
            (Some(culprit), true) => format!("{} (paused: esfleet changes nothing)", culprit.message),
            (None, false) => "pods are Ready and one leads".to_owned(),
            (None, true) => "pods are Ready and one leads (paused: esfleet changes nothing)".to_owned(),
        },
    };
    let before = find(&old.conditions, ConditionType::Ready);
    let mut summary = dated(ConditionType::Ready, verdict, before, generation, now);
    if let Some(culprit) = culprit {
        summary.reason.clone_from(&culprit.reason);
    }
    summary
}

#[cfg(test)]
mod tests;
