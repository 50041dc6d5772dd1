//! Carries out a plan, under the term.

use std::sync::Arc;

use serde_json::{Value, json};

use super::controller::Context;
use super::observe::Children;
use crate::app::ChildKind;
use crate::app::digest::Digest;
use crate::app::live::resolve;
use crate::app::observed::{ObservedApp, ObservedBudget, ObservedService, ObservedStatefulSet};
use crate::app::plan::{Plan, Step, Write};
use crate::app::resources::CONTAINER;
use crate::kubernetes::projection::{ObjectKey, Projected, Projection};
use crate::kubernetes::store::ChildStore;
use crate::kubernetes::writer::RequestError;

/// What became of a plan.
#[derive(Debug)]
pub struct Outcome {
    /// The plan, with what was found out on the way.
    pub plan: Plan,
    /// The StatefulSet as the last answer or the watch named it.
    pub stateful_set: Option<Arc<ObservedStatefulSet>>,
    /// The first write that failed.
    pub failure: Option<Failure>,
}

/// A write that failed.
#[derive(Debug)]
pub struct Failure {
    /// The kind of object that was written.
    pub kind: ChildKind,
    /// Why it failed.
    pub error: RequestError,
}

/// Takes every step of the plan. A step that fails does not keep the others from being taken.
pub async fn apply(
    context: &Context,
    key: &ObjectKey,
    app: &ObservedApp,
    children: &Children,
    mut plan: Plan,
) -> Outcome {
    let hand = Hand { context, key, app };
    let mut failure = None;
    let scope = &context.scope;
    let steps = [
        (ChildKind::Service, hand.take(&scope.services, &mut plan.service).await),
        (
            ChildKind::StatefulSet,
            hand.take(&scope.stateful_sets, &mut plan.stateful_set).await,
        ),
        (ChildKind::Budget, hand.take(&scope.budgets, &mut plan.budget).await),
    ];
    for (kind, result) in steps {
        if let Err(error) = result {
            failure.get_or_insert(Failure { kind, error });
        }
    }
    let stateful_set = scope
        .stateful_sets
        .get(key)
        .and_then(Result::ok)
        .or_else(|| children.stateful_set.clone());
    Outcome {
        plan,
        stateful_set,
        failure,
    }
}

/// Whether an object was refused because of what somebody else has in it: an entry of a list that
/// collides with ours, or the `value` of a variable that we give a `valueFrom`. Nothing else is worth
/// a repair, which takes away what others added and could restart pods for a spec that is invalid.
fn is_collision(reason: &str) -> bool {
    reason.contains("Duplicate value") || reason.contains("may not be specified when `value` is not empty")
}

/// What is written for an app.
trait Written: Projection {
    const KIND: ChildKind;

    fn digest(&self) -> Option<Digest>;

    /// A patch, and its content type, that takes away what keeps an apply of `wanted` from being
    /// accepted: entries of keyed lists that somebody gave another key, which an apply can only add
    /// to. None where nothing can.
    fn repair(wanted: &Value) -> Option<Repair>;
}

/// See [`Written::repair`].
enum Repair {
    Merge(Value),
    Strategic(Value),
}

impl Written for ObservedService {
    const KIND: ChildKind = ChildKind::Service;

    fn digest(&self) -> Option<Digest> {
        self.child.digest
    }

    fn repair(wanted: &Value) -> Option<Repair> {
        Some(Repair::Merge(json!({ "spec": { "ports": wanted["spec"]["ports"] } })))
    }
}

impl Written for ObservedStatefulSet {
    const KIND: ChildKind = ChildKind::StatefulSet;

    fn digest(&self) -> Option<Digest> {
        self.child.digest
    }

    fn repair(wanted: &Value) -> Option<Repair> {
        let containers = wanted["spec"]["template"]["spec"]["containers"].as_array()?;
        let container = containers.iter().find(|container| container["name"] == CONTAINER)?;
        let replaced = |list: &Value| {
            let entries = list.as_array().cloned().unwrap_or_default();
            Value::Array(std::iter::once(json!({ "$patch": "replace" })).chain(entries).collect())
        };
        let container =
            json!({ "name": CONTAINER, "ports": replaced(&container["ports"]), "env": replaced(&container["env"]) });
        Some(Repair::Strategic(
            json!({ "spec": { "template": { "spec": { "containers": [container] } } } }),
        ))
    }
}

impl Written for ObservedBudget {
    const KIND: ChildKind = ChildKind::Budget;

    fn digest(&self) -> Option<Digest> {
        self.child.digest
    }

    fn repair(_: &Value) -> Option<Repair> {
        None
    }
}

struct Hand<'a> {
    context: &'a Context,
    key: &'a ObjectKey,
    app: &'a ObservedApp,
}

impl Hand<'_> {
    async fn take<P: Written>(&self, store: &ChildStore<P>, step: &mut Step) -> Result<(), RequestError> {
        if let Step::NeedsLive(_) = step {
            *step = self.look(store).await?;
        }
        let wanted = match step {
            Step::Create(write) | Step::Change { write, .. } => Some(write.wanted),
            Step::Delete { .. } => None,
            Step::Nothing | Step::NeedsLive(_) | Step::Conflict(_) | Step::Wait => return Ok(()),
        };
        let memory = &self.context.memory;
        if let Some(error) = memory.refused(self.key, P::KIND, wanted) {
            return Err(error);
        }
        let result = self.carry_out(store, step).await;
        memory.tried(self.key, P::KIND, wanted, result.as_ref().copied());
        result
    }

    async fn carry_out<P: Written>(&self, store: &ChildStore<P>, step: &Step) -> Result<(), RequestError> {
        match step {
            Step::Create(write) => self.write(store, write).await,
            Step::Change { write, why } => {
                tracing::info!(
                    cluster = %self.context.cluster, app = %self.key, object = P::KIND.as_str(), ?why, "changing an object"
                );
                match self.write(store, write).await {
                    Err(RequestError::Rejected(reason)) if is_collision(&reason) => {
                        self.repair(store, write, reason).await
                    }
                    result => result,
                }
            }
            Step::Delete { uid, resource_version } => {
                let deleted = self
                    .context
                    .writer
                    .delete::<P::Of>(self.key, uid, resource_version)
                    .await;
                self.refresh_if_stale(store, deleted).await
            }
            Step::Nothing | Step::NeedsLive(_) | Step::Conflict(_) | Step::Wait => Ok(()),
        }
    }

    /// Reads the object whole and decides by it.
    async fn look<P: Written>(&self, store: &ChildStore<P>) -> Result<Step, RequestError> {
        let Some(live) = self.read(store).await? else {
            return Err(RequestError::Stale("the object went meanwhile".to_owned()));
        };
        resolve(self.app, &live, &self.context.memory.memo(self.key)).map_err(RequestError::Failed)
    }

    async fn write<P: Written>(&self, store: &ChildStore<P>, write: &Write) -> Result<(), RequestError> {
        let answer = self.context.writer.apply::<P::Of>(self.key, &write.object).await;
        let answer = self.refresh_if_stale(store, answer).await?;
        let projected = Projected::<P>::from_value(&answer);
        let digest = projected.data.as_ref().ok().and_then(Written::digest);
        self.context.memory.applied(self.key, P::KIND, write.wanted, digest);
        store.take_answer(projected);
        Ok(())
    }

    /// Somebody was faster, or an object that we have not been told of exists: look at it, so that the
    /// next plan knows it.
    async fn refresh_if_stale<P: Written, T>(
        &self,
        store: &ChildStore<P>,
        result: Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        if let Err(RequestError::Stale(_)) = &result {
            self.read(store).await?;
        }
        result
    }

    /// Reads the object, so that the store knows it as it is now, or that there is none.
    async fn read<P: Written>(&self, store: &ChildStore<P>) -> Result<Option<Value>, RequestError> {
        let known = store.version(self.key);
        let live = self.context.writer.read::<P::Of>(self.key).await?;
        match &live {
            Some(live) => store.take_answer(Projected::from_value(live)),
            None => store.take_absence(self.key, known),
        }
        Ok(live)
    }

    /// An apply is refused when somebody gave an entry of a keyed list another key: ours would be
    /// added beside it, and the two collide. Such lists are replaced once, then ours is applied.
    async fn repair<P: Written>(
        &self,
        store: &ChildStore<P>,
        write: &Write,
        reason: String,
    ) -> Result<(), RequestError> {
        let (Some(repair), metadata) = (P::repair(&write.object), &write.object["metadata"]) else {
            return Err(RequestError::Rejected(reason));
        };
        let preconditions = json!({ "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"] });
        let writer = &self.context.writer;
        let repaired = match repair {
            Repair::Merge(mut patch) => {
                patch["metadata"] = preconditions;
                writer.merge::<P::Of>(self.key, &patch).await
            }
            Repair::Strategic(mut patch) => {
                patch["metadata"] = preconditions;
                writer.strategic_merge::<P::Of>(self.key, &patch).await
            }
        };
        let repaired = match repaired {
            Ok(repaired) => repaired,
            // the world moved on between the two: the next look repairs it, and nobody needs to be told
            Err(error) if error.is_passing() => return Err(error),
            Err(_) => return Err(RequestError::Rejected(reason)),
        };
        let mut object = write.object.clone();
        object["metadata"]["resourceVersion"] = repaired["metadata"]["resourceVersion"].clone();
        self.write(
            store,
            &Write {
                object,
                wanted: write.wanted,
            },
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::is_collision;

    #[test]
    fn only_what_others_put_in_the_way_is_repaired() {
        for (reason, collides) in [
            (
                r#"Service "a" is invalid: spec.ports[1].name: Duplicate value: "http""#,
                true,
            ),
            (
                r#"StatefulSet "a" is invalid: spec.template.spec.containers[0].env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty"#,
                true,
            ),
            (
                r#"StatefulSet "a" is invalid: spec.template.spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#,
                false,
            ),
            ("admission webhook \"policy\" denied the request: no", false),
        ] {
            assert_eq!(is_collision(reason), collides, "{reason}");
        }
    }
}
