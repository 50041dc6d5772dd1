//! Comparing a wanted pod template with a live one.

use serde_json::{Map, Value};

use crate::app::digest::{holds_amounts, value_digest};

/// The key by which Kubernetes merges the items of a list; none for lists that it replaces.
fn merge_key(list: &str) -> Option<&'static str> {
    Some(match list {
        "containers" | "env" | "ephemeralContainers" | "imagePullSecrets" | "initContainers" | "volumes" => "name",
        "ports" => "containerPort",
        "volumeMounts" => "mountPath",
        "volumeDevices" => "devicePath",
        "hostAliases" => "ip",
        "topologySpreadConstraints" => "topologyKey",
        _ => return None,
    })
}

/// Whether Kubernetes takes the value under this key as one.
fn is_atomic(key: &str) -> bool {
    matches!(
        key,
        "configMapKeyRef"
            | "fieldRef"
            | "labelSelector"
            | "nodeSelector"
            | "requiredDuringSchedulingIgnoredDuringExecution"
            | "resourceFieldRef"
            | "secretKeyRef"
            | "secretRef"
            | "valueFrom"
    )
}

/// Whether `live` has all that `part` says, in what either takes as one value exactly that.
pub(super) fn contains(live: &Value, part: &Value) -> bool {
    contains_at("", live, part)
}

fn contains_at(key: &str, live: &Value, part: &Value) -> bool {
    match (live, part) {
        (Value::Object(live), Value::Object(part)) if !is_atomic(key) => part.iter().all(|(name, value)| {
            let found = live.get(name).unwrap_or(&Value::Null);
            if holds_amounts(key) {
                same_amount(found, value)
            } else {
                contains_at(name, found, value)
            }
        }),
        (Value::Array(live), Value::Array(part)) if merge_key(key).is_some() => part
            .iter()
            .all(|item| counterpart(key, live, item).is_some_and(|found| contains_at("", found, item))),
        _ => same(key, live, part),
    }
}

/// What `wanted` and `live` have in common, in the order of `live`; none when that is nothing.
pub(super) fn common(wanted: &Value, live: &Value) -> Option<Value> {
    common_at("", wanted, live)
}

fn common_at(key: &str, wanted: &Value, live: &Value) -> Option<Value> {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) if !is_atomic(key) => {
            let shared: Map<String, Value> = wanted
                .iter()
                .filter_map(|(name, value)| {
                    let found = live.get(name)?;
                    let shared = if holds_amounts(key) {
                        same_amount(value, found).then(|| found.clone())
                    } else {
                        common_at(name, value, found)
                    };
                    Some((name.clone(), shared?))
                })
                .collect();
            (!shared.is_empty() || wanted.is_empty()).then_some(Value::Object(shared))
        }
        (Value::Array(wanted), Value::Array(live)) if merge_key(key).is_some() => {
            let shared: Vec<Value> = live
                .iter()
                .filter_map(|item| common_at("", counterpart(key, wanted, item)?, item))
                .filter(|item| key != "env" || item.as_object().is_some_and(|fields| fields.len() > 1))
                .collect();
            (!shared.is_empty()).then_some(Value::Array(shared))
        }
        _ => same(key, wanted, live).then(|| live.clone()),
    }
}

/// The item of `items` that has the key of `item`.
fn counterpart<'a>(list: &str, items: &'a [Value], item: &Value) -> Option<&'a Value> {
    let key = merge_key(list)?;
    items.iter().find(|candidate| candidate[key] == item[key])
}

/// Whether two values are the same amount, however it is spelt.
fn same_amount(one: &Value, other: &Value) -> bool {
    let requests = |amount: &Value| Value::Object(Map::from_iter([("amount".to_owned(), amount.clone())]));
    same("requests", &requests(one), &requests(other))
}

/// Whether two values mean the same to the API server.
fn same(key: &str, one: &Value, other: &Value) -> bool {
    let in_place = |value: &Value| value_digest(&Value::Object(Map::from_iter([(key.to_owned(), value.clone())])));
    one == other || in_place(one) == in_place(other)
}
