//! What esfleet may do in a member and on the hub: the one list that `member manifest` grants and `check` asks for.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::api::{FIELD_MANAGER, GROUP};

/// The name of everything that a manifest makes.
const NAME: &str = "esfleet";
/// The name of the cluster-wide role beside namespaced ones.
const IDENTITY_ROLE: &str = "esfleet-cluster-identity";
/// The group of roles and bindings.
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// Verbs on one kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    /// The API group; empty: the core group.
    pub group: &'static str,
    /// The plural of the kind.
    pub resource: &'static str,
    /// A part of the object that has permissions of its own.
    pub subresource: Option<&'static str>,
    /// The one object that it is about; none: all of the kind.
    pub object: Option<&'static str>,
    /// What may be done.
    pub verbs: &'static [&'static str],
}

impl Permission {
    const fn new(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Self {
        Self {
            group,
            resource,
            subresource: None,
            object: None,
            verbs,
        }
    }

    /// Resource and subresource, as roles name them.
    #[must_use]
    pub fn full_resource(&self) -> String {
        match self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.resource),
            None => self.resource.to_owned(),
        }
    }

    /// The resource as messages name it: with the one object, if it is about one.
    #[must_use]
    pub fn named(&self) -> String {
        match self.object {
            Some(object) => format!("{} {object}", self.full_resource()),
            None => self.full_resource(),
        }
    }

    fn rule(&self) -> PolicyRule {
        PolicyRule {
            api_groups: Some(vec![self.group.to_owned()]),
            resources: Some(vec![self.full_resource()]),
            resource_names: self.object.map(|name| vec![name.to_owned()]),
            verbs: self.verbs.iter().map(|&verb| verb.to_owned()).collect(),
            non_resource_urls: None,
        }
    }
}

/// What esfleet does in a namespace that has apps.
pub const MEMBER: &[Permission] = &[
    Permission::new(GROUP, "eventsourcedapps", &["get", "list", "watch"]),
    Permission {
        subresource: Some("status"),
        ..Permission::new(GROUP, "eventsourcedapps", &["update"])
    },
    Permission::new("apps", "statefulsets", &["get", "list", "watch", "create", "patch"]),
    Permission::new("", "services", &["get", "list", "watch", "create", "patch"]),
    Permission::new(
        "policy",
        "poddisruptionbudgets",
        &["get", "list", "watch", "create", "patch", "delete"],
    ),
    Permission::new("events.k8s.io", "events", &["create"]),
];

/// What tells one cluster from another: the UID of `kube-system`.
pub const CLUSTER_IDENTITY: &[Permission] = &[Permission {
    object: Some("kube-system"),
    ..Permission::new("", "namespaces", &["get"])
}];

/// What the election does in the namespace of the Lease.
pub const HUB: &[Permission] = &[Permission::new(
    "coordination.k8s.io",
    "leases",
    &["get", "list", "watch", "create", "patch"],
)];

fn rules(permissions: &[&[Permission]]) -> Vec<PolicyRule> {
    permissions
        .iter()
        .flat_map(|list| list.iter())
        .map(Permission::rule)
        .collect()
}

/// The objects of a member, but for the definition: namespace, ServiceAccount, roles and bindings.
///
/// With `app_namespaces` the permissions end at these namespaces, which must exist; empty: all.
#[must_use]
pub fn member_objects(namespace: &str, app_namespaces: &[String]) -> Vec<Value> {
    let mut objects = account(namespace);
    if app_namespaces.is_empty() {
        objects.extend(cluster_wide(NAME, rules(&[MEMBER, CLUSTER_IDENTITY]), namespace));
    } else {
        objects.extend(cluster_wide(IDENTITY_ROLE, rules(&[CLUSTER_IDENTITY]), namespace));
        for app_namespace in app_namespaces {
            objects.extend(namespaced(app_namespace, NAME, rules(&[MEMBER]), namespace));
        }
    }
    objects
}

/// The objects of the hub: namespace, ServiceAccount, and the role on Leases in that namespace.
#[must_use]
pub fn hub_objects(namespace: &str) -> Vec<Value> {
    let mut objects = account(namespace);
    objects.extend(namespaced(namespace, "esfleet-lease", rules(&[HUB]), namespace));
    objects
}

fn metadata(namespace: Option<&str>, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some([("app.kubernetes.io/name".to_owned(), FIELD_MANAGER.to_owned())].into()),
        ..ObjectMeta::default()
    }
}

fn account(namespace: &str) -> Vec<Value> {
    vec![
        object(&Namespace {
            metadata: metadata(None, namespace),
            ..Namespace::default()
        }),
        object(&ServiceAccount {
            metadata: metadata(Some(namespace), NAME),
            ..ServiceAccount::default()
        }),
    ]
}

fn cluster_wide(name: &str, rules: Vec<PolicyRule>, account_namespace: &str) -> Vec<Value> {
    let role = ClusterRole {
        metadata: metadata(None, name),
        rules: Some(rules),
        aggregation_rule: None,
    };
    let binding = ClusterRoleBinding {
        metadata: metadata(None, name),
        role_ref: role_ref("ClusterRole", name),
        subjects: Some(vec![subject(account_namespace)]),
    };
    vec![object(&role), object(&binding)]
}

fn namespaced(namespace: &str, name: &str, rules: Vec<PolicyRule>, account_namespace: &str) -> Vec<Value> {
    let role = Role {
        metadata: metadata(Some(namespace), name),
        rules: Some(rules),
    };
    let binding = RoleBinding {
        metadata: metadata(Some(namespace), name),
        role_ref: role_ref("Role", name),
        subjects: Some(vec![subject(account_namespace)]),
    };
    vec![object(&role), object(&binding)]
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef {
        api_group: RBAC_GROUP.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

fn subject(namespace: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: NAME.to_owned(),
        namespace: Some(namespace.to_owned()),
        api_group: None,
    }
}

/// A typed object with its kind and API version, as files need them.
#[expect(clippy::expect_used, reason = "states the invariant")]
fn object<T: serde::Serialize>(object: &T) -> Value {
    serde_json::to_value(object).expect("Kubernetes objects have only text keys, so they are always JSON")
}

#[cfg(test)]
mod tests;
