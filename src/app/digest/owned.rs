//! The part of a live object that `metadata.managedFields` says is ours.

use serde_json::{Map, Value};

use crate::api::FIELD_MANAGER;

/// What esfleet applied of the object and still owns, in the object's shape; none when esfleet
/// never applied it.
pub(super) fn owned_values(object: &Value) -> Option<Value> {
    let entry = object
        .pointer("/metadata/managedFields")?
        .as_array()?
        .iter()
        .find(|entry| {
            entry["manager"] == FIELD_MANAGER
                && entry["operation"] == "Apply"
                && entry
                    .get("subresource")
                    .is_none_or(|s| s.as_str().is_none_or(str::is_empty))
        })?;
    owned(&entry["fieldsV1"], object)
}

/// What of `live` is at the paths of `set`, which is in the form of FieldsV1: `f:` names a field,
/// `k:` an item by its keys, `v:` an item by its value, `.` the thing itself.
fn owned(set: &Value, live: &Value) -> Option<Value> {
    let Some(set) = set.as_object().filter(|set| !set.is_empty()) else {
        return Some(live.clone());
    };
    match live {
        Value::Object(fields) => {
            let fields = set.iter().filter_map(|(path, below)| {
                let name = path.strip_prefix("f:")?;
                Some((name.to_owned(), owned(below, fields.get(name)?)?))
            });
            Some(Value::Object(fields.collect()))
        }
        Value::Array(items) => Some(Value::Array(
            items.iter().filter_map(|item| owned_item(set, item)).collect(),
        )),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(live.clone()),
    }
}

/// The part of a list's item that is ours; none when the item is not.
fn owned_item(set: &Map<String, Value>, item: &Value) -> Option<Value> {
    set.iter().find_map(|(path, below)| {
        if let Some(keys) = path.strip_prefix("k:") {
            let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
            let same = keys.iter().all(|(name, value)| item.get(name) == Some(value));
            return same.then(|| owned(below, item)).flatten();
        }
        let value: Value = serde_json::from_str(path.strip_prefix("v:")?).ok()?;
        (value == *item).then_some(value)
    })
}
