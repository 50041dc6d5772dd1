//! `EventSourcedApp`: the custom resource.

use k8s_openapi::api::apps::v1::StatefulSetPersistentVolumeClaimRetentionPolicy;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// A condition of an app, as Kubernetes defines conditions.
pub type AppCondition = Condition;

/// The kind's name.
pub const KIND: &str = "EventSourcedApp";

/// What an app should be.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "es.your.domain",
    version = "v1alpha1",
    kind = "EventSourcedApp",
    plural = "eventsourcedapps",
    shortname = "esapp",
    namespaced,
    status = "EventSourcedAppStatus",
    doc = "An event-sourced application: one pod leads and writes events, the others follow, and ZooKeeper holds the election.",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    validation = Rule::new("self.metadata.name.size() <= 52 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name must be a DNS label of at most 52 characters that starts with a letter, as it names a Service and labels pods"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Active", type_ = "integer", json_path = ".status.activeReplicas"),
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason", priority = 1)
)]
pub struct EventSourcedAppSpec {
    /// How many pods run; one of them leads.
    #[schemars(range(min = 1))]
    pub replicas: i32,

    /// The container image of the container `es-app`.
    #[schemars(length(min = 1, max = 1024))]
    pub image: String,

    /// The servers of the ZooKeeper ensemble: `host:port[,host:port…][/chroot]`; the default port is 2181.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(
        validation = Rule::new(r"self.matches('^ *([A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?([.][A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?)*[.]?|\\[[0-9A-Fa-f:.]+\\])(:0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))? *(, *([A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?([.][A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?)*[.]?|\\[[0-9A-Fa-f:.]+\\])(:0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))? *)*(/[^/,]+)*/? *$')")
            .message("zookeeperConnectString must be host:port[,host:port...][/chroot], with ports from 1 to 65535 and the chroot once, at the end"),
        validation = Rule::new(r"!self.matches('/[.]{1,2}(/| *$)')")
            .message("the chroot of zookeeperConnectString must not contain \".\" or \"..\" levels")
    )]
    pub zookeeper_connect_string: String,

    /// The app's root znode, below the connect string's chroot if it has one. It cannot be changed.
    #[schemars(length(min = 1, max = 512), regex(pattern = "^/.*"))]
    #[x_kube(
        validation = Rule::new("self.startsWith('/')").message("zookeeperRootPath must start with a slash"),
        validation = Rule::new("!self.endsWith('/')").message("zookeeperRootPath must not end with a slash, and \"/\" is no root path"),
        validation = Rule::new("!self.contains('//')").message("zookeeperRootPath must not contain \"//\""),
        validation = Rule::new("!self.matches('/[.]{1,2}(/|$)')").message("zookeeperRootPath must not contain \".\" or \"..\" levels"),
        validation = Rule::new(r"!self.matches('[\\x00-\\x1f\\x7f-\\x{9f}\\x{e000}-\\x{f8ff}\\x{fff0}-\\x{ffff}]')")
            .message("zookeeperRootPath must not contain control characters (NUL among them) or others that ZooKeeper refuses"),
        validation = Rule::new("!self.matches('^/(zookeeper|esfleet)(/|$)')")
            .message("zookeeperRootPath must not be /zookeeper or /esfleet or below them, which are reserved"),
        validation = Rule::new("self == oldSelf").message("zookeeperRootPath is immutable: the app's events stay where they are")
    )]
    pub zookeeper_root_path: String,

    /// Merged over the pod template that esfleet makes, under strategic-merge rules. The app's
    /// container is named `es-app`. The pod label `app`, the image of `es-app` and the environment
    /// variables POD_NAME, POD_NAMESPACE, ZK_CONNECT_STRING and
    /// ZK_ROOT_PATH stay esfleet's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Box<PodTemplateSpec>>,

    /// Volume claims of each pod, as in a StatefulSet. A StatefulSet that exists keeps its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<PersistentVolumeClaim>,

    /// What becomes of the volume claims, as in a StatefulSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_retention_policy: Option<StatefulSetPersistentVolumeClaimRetentionPolicy>,

    /// While true, esfleet observes and reports, and changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// What an app is, as far as esfleet knows.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventSourcedAppStatus {
    /// The generation that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `ZooKeeperReady`, `WorkloadReady`, `LeaderElected`, and `Ready`, which is all three.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<AppCondition>,

    /// The pod that leads, as the app wrote it in `<root>/leader`; absent while nobody leads or nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub leader: Option<String>,

    /// When that znode was created, by the ensemble's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_since: Option<Time>,

    /// Pods that are Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_replicas: Option<i32>,

    /// Pods that exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// Pods that run the newest revision of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,

    /// The label selector of the app's pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub selector: Option<String>,
}
