//! What to apply to a StatefulSet when that depends on what it is: it keeps its immutable fields,
//! and one that another operator made keeps its pod template for now.
//!
//! Taking over applies only what the live template has already, so nothing restarts, and marks the
//! StatefulSet with [`ADOPTED_TEMPLATE`]. What the template lacks of ours is added when the app's
//! image, connect string, root path or template next changes. Whoever does not want to wait removes
//! the annotation.

mod overlap;

use serde_json::{Map, Value, json};

use super::ChildKind;
use super::digest::{Digest, IMMUTABLE, Part, text_digest, value_digest, wanted_digest};
use super::observed::{ADOPTED_TEMPLATE, ObservedApp, ObservedStatefulSet};
use super::plan::{Memo, Step, Why, change, not_ours, target, with_preconditions};
use super::resources::{self, CONTAINER, Target};

/// That a StatefulSet keeps the template of whoever made it, as its annotation says:
/// `INPUTS-TEMPLATE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Adoption {
    /// The digest of what the template was judged against.
    inputs: Part,
    /// The digest of what was applied of the template.
    template: Part,
}

impl Adoption {
    /// What holds, as long as the StatefulSet was taken over under the present inputs.
    pub(super) fn still_holding(target: Target<'_>, observed: &ObservedStatefulSet) -> Option<Self> {
        let (inputs, template) = observed.adopted_template.as_deref()?.split_once('-')?;
        let adoption = Self {
            inputs: Part::parse(inputs)?,
            template: Part::parse(template)?,
        };
        (adoption.inputs == inputs_digest(target)).then_some(adoption)
    }

    /// The digest of the wanted StatefulSet when its template stays as it was taken over.
    pub(super) fn wanted_digest(&self, mut wanted: Value) -> Digest {
        self.annotate(&mut wanted);
        Digest {
            template: self.template,
            ..wanted_digest(ChildKind::StatefulSet, &wanted)
        }
    }

    fn annotate(&self, wanted: &mut Value) {
        wanted["metadata"]["annotations"][ADOPTED_TEMPLATE] = json!(format!("{}-{}", self.inputs, self.template));
    }
}

/// The step for a StatefulSet that has been read in full, after [`Step::NeedsLive`].
///
/// # Errors
/// A sentence when what was read is no StatefulSet.
pub fn resolve(app: &ObservedApp, live: &Value, memo: &Memo) -> Result<Step, String> {
    let (Ok(spec), false) = (&app.spec, app.deleting) else {
        return Ok(Step::Nothing);
    };
    let target = target(app, spec);
    let observed = ObservedStatefulSet::from_value(live)?;
    if let Some(step) = not_ours(ChildKind::StatefulSet, target, &observed.child) {
        return Ok(step);
    }
    let mut wanted = resources::wanted(ChildKind::StatefulSet, target);
    keep_fixed_fields(&mut wanted, &live["spec"]);
    let taken_over = observed.child.digest.is_none() || Adoption::still_holding(target, &observed).is_some();
    let kept = taken_over
        .then(|| kept_template(target, &wanted, &live["spec"]["template"]))
        .flatten();
    let Some(template) = kept else {
        return Ok(change(ChildKind::StatefulSet, wanted, &observed.child, memo));
    };
    wanted["spec"]["template"] = template;
    let adoption = Adoption {
        inputs: inputs_digest(target),
        template: wanted_digest(ChildKind::StatefulSet, &wanted).template,
    };
    adoption.annotate(&mut wanted);
    let digest = wanted_digest(ChildKind::StatefulSet, &wanted);
    if memo.settles(ChildKind::StatefulSet, digest, observed.child.digest) {
        return Ok(Step::Nothing);
    }
    Ok(Step::Change {
        why: if observed.child.digest.is_some() {
            Why::Differs
        } else {
            Why::Adopt
        },
        write: with_preconditions(wanted, digest, &observed.child),
    })
}

/// Puts the live immutable fields in the place of the wanted ones, and keeps the pods selected.
fn keep_fixed_fields(wanted: &mut Value, live: &Value) {
    let Some(spec) = wanted["spec"].as_object_mut() else {
        return;
    };
    for field in IMMUTABLE {
        match live.get(field) {
            Some(value) => spec.insert(field.to_owned(), value.clone()),
            None => spec.remove(field),
        };
    }
    let selected: Map<String, Value> = live["selector"]["matchLabels"].as_object().cloned().unwrap_or_default();
    if let Some(labels) = spec["template"]["metadata"]["labels"].as_object_mut() {
        labels.extend(selected);
    }
}

/// What the live template has of the wanted one; none when the app's spec asks for something else
/// than it has, or when it lacks nothing.
fn kept_template(target: Target<'_>, wanted: &Value, live: &Value) -> Option<Value> {
    let container = |template: &Value| {
        let containers = template["spec"]["containers"].as_array()?;
        containers.iter().find(|c| c["name"] == CONTAINER).cloned()
    };
    let running = container(live)?;
    let variable = |name: &str| {
        let variables = running["env"].as_array()?;
        variables.iter().find(|v| v["name"] == name).map(|v| v["value"].clone())
    };
    let spec = target.spec;
    let asked = running["image"] == spec.image.as_str()
        && variable("ZK_CONNECT_STRING").is_none_or(|v| v == spec.zookeeper_connect_string.as_str())
        && variable("ZK_ROOT_PATH").is_none_or(|v| v == spec.zookeeper_root_path.as_str())
        && spec
            .template
            .as_ref()
            .is_none_or(|overlay| overlap::contains(live, &json!(overlay)));
    let wanted = &wanted["spec"]["template"];
    let common = overlap::common(wanted, live)?;
    (asked && value_digest(&common) != value_digest(wanted)).then_some(common)
}

/// The digest of the parts of a spec that make the pod template. Over the text, as the annotation
/// outlives this process and the rules of [`super::digest`].
fn inputs_digest(target: Target<'_>) -> Part {
    let spec = target.spec;
    let inputs = json!([
        spec.image,
        spec.zookeeper_connect_string,
        spec.zookeeper_root_path,
        spec.template
    ]);
    text_digest(&inputs.to_string())
}

#[cfg(test)]
mod tests;
