//! The definition of `EventSourcedApp` in a member: there, and the one that this esfleet was built with?

use std::collections::BTreeSet;

use http::Request;
use kube::Client;
use serde_json::Value;

use super::Finding;
use super::member::REQUEST_LIMIT;
use crate::api::{GROUP, VERSION, crd::crd};
use crate::kubernetes::fault::{FaultClass, classify, describe};
use crate::support::deadline::within;

const KIND: &str = "EventSourcedApp";
const RULES: &str = "x-kubernetes-validations";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Reads what the API server publishes of the definition: every identity may, while reading the definition itself takes a permission.
pub(super) async fn check(member: &str, client: &Client) -> Finding {
    let request = match Request::get(format!("/openapi/v3/apis/{GROUP}/{VERSION}")).body(Vec::new()) {
        Ok(request) => request,
        Err(error) => return Finding::fail(member, format!("cannot ask for the definition: {error}")),
    };
    let outcome = within(REQUEST_LIMIT, "the definition", client.request::<Value>(request)).await;
    let published = match outcome {
        Ok(Ok(published)) => published,
        Ok(Err(error)) if classify(&error) == FaultClass::NotFound => {
            return Finding::fail(member, "has no EventSourcedApp definition; apply `esfleet crd`");
        }
        Ok(Err(error)) => {
            return Finding::fail(
                member,
                format!("its EventSourcedApp definition cannot be read: {}", describe(&error)),
            );
        }
        Err(late) => return Finding::fail(member, late.to_string()),
    };
    match difference(&definition(), &published) {
        None => Finding::ok(member, "the EventSourcedApp definition is current"),
        Some(path) => Finding::fail(
            member,
            format!("the EventSourcedApp definition differs from this version's at {path}; apply `esfleet crd`"),
        ),
    }
}

/// Our definition as JSON.
#[expect(clippy::expect_used, reason = "states the invariant")]
fn definition() -> Value {
    serde_json::to_value(crd()).expect("a definition has only text keys, so it is always JSON")
}

/// The path of the first thing that the API server publishes differently from our definition.
///
/// Descriptions do not count, nor what publishing adds: the object's own metadata, and `anyOf` beside int-or-string.
fn difference(ours: &Value, published: &Value) -> Option<String> {
    let mut schemas = published["components"]["schemas"].as_object().into_iter().flatten();
    let theirs = schemas.find(|(_, schema)| {
        let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
        kinds.is_some_and(|kinds| {
            kinds
                .iter()
                .any(|kind| kind["kind"] == KIND && kind["version"] == VERSION)
        })
    });
    let ours = &ours["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let Some((_, theirs)) = theirs else {
        return Some("its kind".to_owned());
    };
    for part in ["spec", "status"] {
        let (ours, theirs) = (&ours["properties"][part], &theirs["properties"][part]);
        if let Some(path) = first_difference(ours, theirs, part) {
            return Some(path);
        }
    }
    if let Some(path) = first_difference(&ours[RULES], &theirs[RULES], RULES) {
        return Some(path);
    }
    let paths: Vec<&String> = published["paths"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(path, _)| path)
        .collect();
    ["status", "scale"]
        .into_iter()
        .find(|subresource| {
            !paths
                .iter()
                .any(|path| path.ends_with(&format!("{{name}}/{subresource}")))
        })
        .map(|subresource| format!("its subresource {subresource}"))
}

fn first_difference<'s>(ours: &'s Value, theirs: &'s Value, path: &str) -> Option<String> {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            keys.into_iter().find_map(|key| {
                let added = key == "anyOf" && theirs.contains_key(INT_OR_STRING);
                // A property may be called "description": its schema is an object, the text is none.
                let told = key == "description" && !theirs.get(key).or(ours.get(key)).is_some_and(Value::is_object);
                if added || told {
                    return None;
                }
                let of = |schema: &'s serde_json::Map<String, Value>| schema.get(key).unwrap_or(&Value::Null);
                first_difference(of(ours), of(theirs), &below(path, key))
            })
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => ours
            .iter()
            .zip(theirs)
            .find_map(|(ours, theirs)| first_difference(ours, theirs, path)),
        // 1 and 1.0 are the same bound.
        (Value::Number(ours), Value::Number(theirs)) if ours.as_f64() == theirs.as_f64() => None,
        (ours, theirs) if ours == theirs => None,
        _ => Some(path.to_owned()),
    }
}

/// The path of a key as users know it: without the schema's own levels.
fn below(path: &str, key: &str) -> String {
    if matches!(key, "properties" | "items" | "additionalProperties") {
        path.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use serde_json::json;

    use super::*;

    /// Made once, as that takes its time without optimisation.
    static OURS: LazyLock<Value> = LazyLock::new(definition);

    /// What an API server publishes of our own definition (seen on 1.36.3).
    fn published() -> Value {
        let mut schema = OURS["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        schema["x-kubernetes-group-version-kind"] = json!([{"group": GROUP, "version": VERSION, "kind": KIND}]);
        schema["properties"]["spec"]["properties"]["replicas"]["minimum"] = json!(1);
        schema["properties"]["spec"]["description"] = json!("reworded");
        let collection = format!("/apis/{GROUP}/{VERSION}/namespaces/{{namespace}}/eventsourcedapps/{{name}}");
        json!({
            "components": {"schemas": {"domain.your.es.v1alpha1.EventSourcedApp": schema}},
            "paths": {format!("{collection}/status"): {}, format!("{collection}/scale"): {}},
        })
    }

    fn after(change: impl FnOnce(&mut Value)) -> Option<String> {
        let mut published = published();
        change(&mut published["components"]["schemas"]["domain.your.es.v1alpha1.EventSourcedApp"]);
        difference(&OURS, &published)
    }

    #[test]
    fn our_own_definition_as_an_api_server_publishes_it_is_current() {
        assert_eq!(difference(&OURS, &published()), None);
    }

    #[test]
    fn a_changed_rule_a_lost_field_and_a_changed_bound_are_named() {
        let spec = "spec";
        assert_eq!(
            after(|schema| schema["properties"][spec]["properties"]["replicas"]["minimum"] = json!(0)),
            Some("spec.replicas.minimum".to_owned())
        );
        assert_eq!(
            after(|schema| {
                schema["properties"][spec]["properties"]
                    .as_object_mut()
                    .unwrap()
                    .remove("paused");
            }),
            Some("spec.paused".to_owned())
        );
        assert_eq!(
            after(|schema| schema["properties"][spec]["properties"]["zookeeperRootPath"][RULES] = json!([])),
            Some("spec.zookeeperRootPath.x-kubernetes-validations".to_owned())
        );
        assert_eq!(after(|schema| schema[RULES] = Value::Null), Some(RULES.to_owned()));
    }

    #[test]
    fn an_answer_without_the_kind_is_not_called_current() {
        assert_eq!(difference(&OURS, &json!({})), Some("its kind".to_owned()));
    }

    #[test]
    fn a_definition_without_scale_is_named() {
        let mut published = published();
        published["paths"]
            .as_object_mut()
            .unwrap()
            .retain(|path, _| !path.ends_with("scale"));
        assert_eq!(difference(&OURS, &published), Some("its subresource scale".to_owned()));
    }
}
