//! The pod template: ours, with the user's laid over it.

use k8s_openapi::DeepMerge;
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, EnvVarSource, ObjectFieldSelector, PodSpec, PodTemplateSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{APP_LABEL, CONTAINER, PORT, PORT_NAME, Target};

/// The pod template with `spec.template` merged over it. The overlay wins everywhere but in the
/// selector's labels, the image of `es-app` and our own environment variables.
///
/// Lists that Kubernetes merges by a key (containers, variables, volumes, ports, mounts, …) are
/// merged by it, others replaced; a value that is not given leaves ours, and none can be removed.
#[must_use]
pub fn merged_template(target: Target<'_>) -> PodTemplateSpec {
    let mut template = base(target);
    if let Some(overlay) = &target.spec.template {
        template.merge_from(overlay.as_ref().clone());
    }
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(APP_LABEL.to_owned(), target.name.to_owned());
    let containers = &mut template.spec.get_or_insert_default().containers;
    if let Some(container) = containers.iter_mut().find(|container| container.name == CONTAINER) {
        container.image = Some(target.spec.image.clone());
        let env = container.env.get_or_insert_default();
        for ours in variables(target) {
            if let Some(variable) = env.iter_mut().find(|variable| variable.name == ours.name) {
                *variable = ours;
            }
        }
    }
    template
}

fn base(target: Target<'_>) -> PodTemplateSpec {
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(target.labels()),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            containers: vec![Container {
                name: CONTAINER.to_owned(),
                image: Some(target.spec.image.clone()),
                ports: Some(vec![ContainerPort {
                    container_port: PORT,
                    name: Some(PORT_NAME.to_owned()),
                    protocol: Some("TCP".to_owned()),
                    ..ContainerPort::default()
                }]),
                env: Some(variables(target).into()),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
    }
}

/// What an app is told, in an order that lets later variables refer to earlier ones.
fn variables(target: Target<'_>) -> [EnvVar; 4] {
    [
        from_field("POD_NAME", "metadata.name"),
        from_field("POD_NAMESPACE", "metadata.namespace"),
        with_value("ZK_CONNECT_STRING", &target.spec.zookeeper_connect_string),
        with_value("ZK_ROOT_PATH", &target.spec.zookeeper_root_path),
    ]
}

fn from_field(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                // Without it the API server fills it in, and what it stores is not what was sent.
                api_version: Some("v1".to_owned()),
                field_path: path.to_owned(),
            }),
            ..EnvVarSource::default()
        }),
    }
}

fn with_value(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}
