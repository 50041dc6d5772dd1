//! Label selectors, evaluated as Kubernetes does.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Whether the selector selects what carries these labels. An empty selector selects everything;
/// an operator that is none of Kubernetes' selects nothing.
#[must_use]
pub fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value))
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|requirement| holds(requirement, labels))
}

fn holds(requirement: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&requirement.key);
    let listed = value.is_some_and(|value| requirement.values.iter().flatten().any(|v| v == value));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(json: serde_json::Value) -> LabelSelector {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_selector_selects_as_kubernetes_does() {
        let labels = BTreeMap::from([
            ("app".to_owned(), "orders".to_owned()),
            ("tier".to_owned(), "a".to_owned()),
        ]);
        for (json, expected) in [
            (serde_json::json!({}), true),
            (serde_json::json!({"matchLabels": {"app": "orders"}}), true),
            (serde_json::json!({"matchLabels": {"app": "orders", "x": "y"}}), false),
            (expression("app", "In", &["orders", "other"]), true),
            (expression("app", "In", &["other"]), false),
            (expression("x", "In", &["other"]), false),
            (expression("app", "NotIn", &["other"]), true),
            (expression("app", "NotIn", &["orders"]), false),
            (expression("x", "NotIn", &["orders"]), true),
            (expression("tier", "Exists", &[]), true),
            (expression("x", "Exists", &[]), false),
            (expression("tier", "DoesNotExist", &[]), false),
            (expression("x", "DoesNotExist", &[]), true),
            (expression("tier", "Odd", &[]), false),
        ] {
            assert_eq!(selects(&selector(json.clone()), &labels), expected, "{json}");
        }
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> serde_json::Value {
        serde_json::json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }
}
