//! What has to be done for an app's objects: nothing, most of the time.
//!
//! Every change is a server-side apply under preconditions. A new object is applied with
//! [`ABSENT`] as resource version: the API server creates it, or answers 409 when one is there, so
//! that an object of somebody else is never touched. An existing one is applied with the UID and
//! resource version that the plan was made from.
//!
//! A StatefulSet keeps its immutable fields; one that was made by another operator also keeps its
//! pod template until the app's spec asks for another one, so that taking it over restarts nothing.
//! For both the live object is needed: the plan then says [`Step::NeedsLive`], and
//! [`crate::app::live::resolve`] goes on from there.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use super::ChildKind;
use super::digest::{Digest, claims_digest, wanted_digest};
use super::live::Adoption;
use super::observed::{AppSpec, Child, ObservedApp, ObservedBudget, ObservedService, ObservedStatefulSet, Owner};
use super::resources::{self, Target};
use super::selector::selects;

/// The resource version that no object has: an apply that carries it creates, or is refused with 409.
pub const ABSENT: &str = "1";

/// The objects that bear an app's name in its namespace, and the budgets beside them.
#[derive(Debug, Clone, Default)]
pub struct ObservedChildren<'a> {
    /// The Service of the app's name.
    pub service: Option<&'a ObservedService>,
    /// The StatefulSet of the app's name.
    pub stateful_set: Option<&'a ObservedStatefulSet>,
    /// The PodDisruptionBudget of the app's name.
    pub budget: Option<&'a ObservedBudget>,
    /// Other PodDisruptionBudgets of the namespace (the app's own may be among them).
    pub budgets: Vec<&'a ObservedBudget>,
}

/// What has to be done for an app's objects, in this order.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// For the Service.
    pub service: Step,
    /// For the StatefulSet.
    pub stateful_set: Step,
    /// For the PodDisruptionBudget.
    pub budget: Step,
    /// The fields in which an existing object differs and can never be changed.
    pub fixed: Vec<FixedField>,
}

/// What has to be done for one object.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// It is as it should be, or should not be and is not, or the app is paused or going.
    Nothing,
    /// It is missing: apply this.
    Create(Write),
    /// It is the app's and differs: apply this.
    Change {
        /// What to apply, preconditions included.
        write: Write,
        /// Why.
        why: Why,
    },
    /// It is the app's, and what to apply depends on more than is kept of it: read it and ask
    /// [`crate::app::live::resolve`].
    NeedsLive(Why),
    /// It is the app's and no longer wanted: delete it under both preconditions.
    Delete {
        /// The UID that it must have.
        uid: String,
        /// The resource version that it must have.
        resource_version: String,
    },
    /// It is somebody else's: leave it alone and say so.
    Conflict(Conflict),
    /// It, or its predecessor, is being deleted; its disappearance will be seen.
    Wait,
}

/// An object to apply, with field manager `esfleet` and force.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The object, with the preconditions in its metadata.
    pub object: Value,
    /// Its digest, for [`Memo::remember`].
    pub wanted: Digest,
}

/// Why an object is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The app's spec, or a field of ours in the object, has changed.
    Differs,
    /// Another operator made it: it is taken over.
    Adopt,
}

/// An object of the app's name that the app does not own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The object's kind.
    pub kind: ChildKind,
    /// The object's name.
    pub name: String,
    /// Whose it is, as "Kind name"; none when nobody controls it.
    pub owner: Option<String>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, owner } = self;
        match owner {
            Some(owner) => write!(f, "{kind} {name} belongs to {owner} and is left alone"),
            None => write!(f, "{kind} {name} does not belong to this app and is left alone"),
        }
    }
}

/// A field of an existing object that differs and can never be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FixedField {
    /// The pods' selector.
    Selector,
    /// The governing Service.
    ServiceName,
    /// The order in which pods come and go.
    PodManagementPolicy,
    /// What volumes pods get.
    VolumeClaimTemplates,
    /// The Service's address, which a headless one has not.
    ClusterIp,
}

impl FixedField {
    /// The field's kind and path.
    #[must_use]
    pub fn path(self) -> (ChildKind, &'static str) {
        match self {
            Self::Selector => (ChildKind::StatefulSet, "spec.selector"),
            Self::ServiceName => (ChildKind::StatefulSet, "spec.serviceName"),
            Self::PodManagementPolicy => (ChildKind::StatefulSet, "spec.podManagementPolicy"),
            Self::VolumeClaimTemplates => (ChildKind::StatefulSet, "spec.volumeClaimTemplates"),
            Self::ClusterIp => (ChildKind::Service, "spec.clusterIP"),
        }
    }
}

/// What an apply of ours has led to, for the rules of [`crate::app::digest`] do not know every way
/// in which an API server rewrites what it is sent. Kept in memory, per app.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memo(BTreeMap<ChildKind, (Digest, Digest)>);

impl Memo {
    /// Remembers what the API server made of a write: `answer` is the digest of the object that it returned.
    pub fn remember(&mut self, kind: ChildKind, wanted: Digest, answer: Option<Digest>) {
        match answer {
            Some(answer) => drop(self.0.insert(kind, (wanted, answer))),
            None => drop(self.0.remove(&kind)),
        }
    }

    /// Whether an object with this digest is what `wanted` leads to.
    pub(super) fn settles(&self, kind: ChildKind, wanted: Digest, observed: Option<Digest>) -> bool {
        observed.is_some_and(|observed| observed == wanted || self.0.get(&kind) == Some(&(wanted, observed)))
    }
}

impl Plan {
    /// Nothing to do.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            service: Step::Nothing,
            stateful_set: Step::Nothing,
            budget: Step::Nothing,
            fixed: Vec::new(),
        }
    }

    /// Each object's step, in the order in which they are taken.
    #[must_use]
    pub fn steps(&self) -> [(ChildKind, &Step); 3] {
        [
            (ChildKind::Service, &self.service),
            (ChildKind::StatefulSet, &self.stateful_set),
            (ChildKind::Budget, &self.budget),
        ]
    }

    /// The objects that are somebody else's.
    pub fn conflicts(&self) -> impl Iterator<Item = &Conflict> {
        self.steps().into_iter().filter_map(|(_, step)| match step {
            Step::Conflict(conflict) => Some(conflict),
            Step::Nothing
            | Step::Create(_)
            | Step::Change { .. }
            | Step::NeedsLive(_)
            | Step::Delete { .. }
            | Step::Wait => None,
        })
    }
}

impl Step {
    /// The step without what it would write.
    fn observed_only(self) -> Self {
        match self {
            Self::Conflict(conflict) => Self::Conflict(conflict),
            Self::Wait => Self::Wait,
            Self::Nothing | Self::Create(_) | Self::Change { .. } | Self::NeedsLive(_) | Self::Delete { .. } => {
                Self::Nothing
            }
        }
    }
}

/// Compares what the app should have with what there is.
///
/// An app that is being deleted, or whose spec cannot be used, is left alone; of a paused one only
/// conflicts and differences are reported.
#[must_use]
pub fn plan(app: &ObservedApp, children: &ObservedChildren<'_>, memo: &Memo) -> Plan {
    let (Ok(spec), false) = (&app.spec, app.deleting) else {
        return Plan::nothing();
    };
    let target = target(app, spec);
    let (service, has_address) = plan_service(target, children.service, memo);
    let (stateful_set, mut fixed) = plan_stateful_set(target, children.stateful_set, memo);
    fixed.extend(has_address.then_some(FixedField::ClusterIp));
    let plan = Plan {
        service,
        stateful_set,
        budget: plan_budget(target, children, memo),
        fixed,
    };
    if spec.raw.paused {
        Plan {
            service: plan.service.observed_only(),
            stateful_set: plan.stateful_set.observed_only(),
            budget: plan.budget.observed_only(),
            fixed: plan.fixed,
        }
    } else {
        plan
    }
}

/// The app as the makers of objects see it.
pub(super) fn target<'a>(app: &'a ObservedApp, spec: &'a AppSpec) -> Target<'a> {
    Target {
        namespace: &app.namespace,
        name: &app.name,
        uid: &app.uid,
        spec: &spec.raw,
    }
}

fn plan_service(target: Target<'_>, observed: Option<&ObservedService>, memo: &Memo) -> (Step, bool) {
    let wanted = resources::wanted(ChildKind::Service, target);
    let Some(observed) = observed else {
        return (create(ChildKind::Service, wanted), false);
    };
    if let Some(step) = not_ours(ChildKind::Service, target, &observed.child) {
        return (step, false);
    }
    if observed.has_cluster_ip {
        return (Step::Nothing, true);
    }
    (change(ChildKind::Service, wanted, &observed.child, memo), false)
}

fn plan_stateful_set(
    target: Target<'_>,
    observed: Option<&ObservedStatefulSet>,
    memo: &Memo,
) -> (Step, Vec<FixedField>) {
    let wanted = resources::wanted(ChildKind::StatefulSet, target);
    let Some(observed) = observed else {
        return (create(ChildKind::StatefulSet, wanted), Vec::new());
    };
    if let Some(step) = not_ours(ChildKind::StatefulSet, target, &observed.child) {
        return (step, Vec::new());
    }
    let fixed = fixed_differences(&wanted, observed);
    if observed.child.digest.is_none() {
        return (Step::NeedsLive(Why::Adopt), fixed);
    }
    if let Some(adoption) = Adoption::still_holding(target, observed) {
        let settled = memo.settles(
            ChildKind::StatefulSet,
            adoption.wanted_digest(wanted),
            observed.child.digest,
        );
        let step = if settled {
            Step::Nothing
        } else {
            Step::NeedsLive(Why::Differs)
        };
        return (step, fixed);
    }
    let step = match change(ChildKind::StatefulSet, wanted, &observed.child, memo) {
        Step::Change { why, .. } if !fixed.is_empty() => Step::NeedsLive(why),
        step => step,
    };
    (step, fixed)
}

fn plan_budget(target: Target<'_>, children: &ObservedChildren<'_>, memo: &Memo) -> Step {
    let pods = resources::merged_template(target)
        .metadata
        .and_then(|metadata| metadata.labels)
        .unwrap_or_default();
    let is_ours = |child: &Child| child.owner == Owner::App(target.uid.to_owned());
    let others = children.budgets.iter().copied().chain(children.budget);
    let covered = others
        .filter(|budget| !budget.child.deleting && !is_ours(&budget.child))
        .filter_map(|budget| budget.selector.as_deref())
        .any(|selector| selects(selector, &pods));
    if target.spec.replicas > 1 && !covered {
        let wanted = resources::wanted(ChildKind::Budget, target);
        let Some(observed) = children.budget else {
            return create(ChildKind::Budget, wanted);
        };
        return not_ours(ChildKind::Budget, target, &observed.child)
            .unwrap_or_else(|| change(ChildKind::Budget, wanted, &observed.child, memo));
    }
    match children.budget {
        Some(observed) if is_ours(&observed.child) && !observed.child.deleting => Step::Delete {
            uid: observed.child.uid.clone(),
            resource_version: observed.child.resource_version.clone(),
        },
        Some(_) | None => Step::Nothing,
    }
}

/// The step for an object that cannot be changed, because it is going or is not the app's.
pub(super) fn not_ours(kind: ChildKind, target: Target<'_>, child: &Child) -> Option<Step> {
    let conflict = |owner| {
        Some(Step::Conflict(Conflict {
            kind,
            name: child.name.clone(),
            owner,
        }))
    };
    match &child.owner {
        Owner::App(uid) if uid == target.uid => child.deleting.then_some(Step::Wait),
        // An app of this name that is gone: its objects follow it.
        Owner::App(_) => Some(Step::Wait),
        Owner::Other(owner) => conflict(Some(owner.clone())),
        Owner::None => conflict(None),
    }
}

/// The immutable fields in which an existing StatefulSet differs from the wanted one.
fn fixed_differences(wanted: &Value, observed: &ObservedStatefulSet) -> Vec<FixedField> {
    let fixed = observed.fixed;
    let same_claims = claims_digest(wanted["spec"].get("volumeClaimTemplates")) == fixed.volume_claim_templates;
    [
        (fixed.selector_is_ours, FixedField::Selector),
        (fixed.service_name_is_ours, FixedField::ServiceName),
        (fixed.is_parallel, FixedField::PodManagementPolicy),
        (same_claims, FixedField::VolumeClaimTemplates),
    ]
    .into_iter()
    .filter_map(|(same, field)| (!same).then_some(field))
    .collect()
}

fn create(kind: ChildKind, mut object: Value) -> Step {
    let wanted = wanted_digest(kind, &object);
    object["metadata"]["resourceVersion"] = json!(ABSENT);
    Step::Create(Write { object, wanted })
}

/// The step that makes an object of the app what it should be.
pub(super) fn change(kind: ChildKind, object: Value, child: &Child, memo: &Memo) -> Step {
    let wanted = wanted_digest(kind, &object);
    if memo.settles(kind, wanted, child.digest) {
        return Step::Nothing;
    }
    let why = if child.digest.is_some() {
        Why::Differs
    } else {
        Why::Adopt
    };
    Step::Change {
        write: with_preconditions(object, wanted, child),
        why,
    }
}

/// A write that goes through only while the object is as it was observed.
pub(super) fn with_preconditions(mut object: Value, wanted: Digest, child: &Child) -> Write {
    object["metadata"]["uid"] = json!(child.uid);
    object["metadata"]["resourceVersion"] = json!(child.resource_version);
    Write { object, wanted }
}

#[cfg(test)]
mod tests;
