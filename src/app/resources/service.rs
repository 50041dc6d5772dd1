//! The headless Service.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{PORT, PORT_NAME, Target};

/// Gives each pod a name, from before it is ready.
#[must_use]
pub fn service(target: Target<'_>) -> Service {
    Service {
        metadata: target.metadata(),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(target.selector_labels()),
            ports: Some(vec![ServicePort {
                name: Some(PORT_NAME.to_owned()),
                port: PORT,
                protocol: Some("TCP".to_owned()),
                target_port: Some(IntOrString::Int(PORT)),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
