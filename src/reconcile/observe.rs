//! What is known of an app's objects, from the scope's projections. Asks nobody.

use std::sync::Arc;

use crate::app::observed::{ObservedApp, ObservedBudget, ObservedService, ObservedStatefulSet, Owner};
use crate::app::plan::ObservedChildren;
use crate::kubernetes::projection::ObjectKey;
use crate::kubernetes::scope::Scope;
use crate::zookeeper::Target;

use super::controller::Context;

/// The objects that bear an app's name, and the budgets beside them.
#[derive(Debug, Default)]
pub struct Children {
    service: Option<Arc<ObservedService>>,
    /// The StatefulSet, which the report needs too.
    pub stateful_set: Option<Arc<ObservedStatefulSet>>,
    budget: Option<Arc<ObservedBudget>>,
    budgets: Vec<Arc<ObservedBudget>>,
}

impl Children {
    /// The objects as they are known now.
    #[must_use]
    pub fn of(scope: &Scope, key: &ObjectKey) -> Self {
        Self {
            service: scope.services.get(key).and_then(Result::ok),
            stateful_set: scope.stateful_sets.get(key).and_then(Result::ok),
            budget: scope.budgets.get(key).and_then(Result::ok),
            budgets: scope
                .budgets
                .select(&key.namespace, |budget| !matches!(budget.child.owner, Owner::App(_))),
        }
    }

    /// The same, as the plan takes it.
    #[must_use]
    pub fn view(&self) -> ObservedChildren<'_> {
        ObservedChildren {
            service: self.service.as_deref(),
            stateful_set: self.stateful_set.as_deref(),
            budget: self.budget.as_deref(),
            budgets: self.budgets.iter().map(AsRef::as_ref).collect(),
        }
    }
}

/// Tells the pool which part of which ensemble this app is, or that it is none of its concern any more.
pub fn register(context: &Context, key: &ObjectKey, app: &ObservedApp) {
    let app_key = context.app_key(key);
    match &app.spec {
        Ok(spec) if !app.deleting => {
            let target = Target {
                connect: spec.connect.clone(),
                root: spec.root.clone(),
                may_create: !spec.raw.paused,
            };
            context.pool.register(app_key, target, context.changed.clone());
        }
        Ok(_) | Err(_) => context.pool.forget(&app_key),
    }
}
