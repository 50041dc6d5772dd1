//! The API server of `ESFLEET_TEST_KUBECONFIG`, with the CRD and a namespace for the test.

use esfleet::api::crd::crd;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

/// A server and a namespace in it.
pub struct World {
    pub client: kube::Client,
    pub namespace: String,
}

/// Connects, applies the CRD, and makes a namespace that goes with the server.
pub async fn world(namespace: &str) -> World {
    let path = std::env::var("ESFLEET_TEST_KUBECONFIG").expect("ESFLEET_TEST_KUBECONFIG must name a kubeconfig");
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let ours = PatchParams::apply("esfleet-test").force();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .patch("eventsourcedapps.es.your.domain", &ours, &Patch::Apply(crd()))
        .await
        .unwrap();
    let served = kube::runtime::conditions::is_crd_established();
    let waiting = kube::runtime::wait::await_condition(definitions, "eventsourcedapps.es.your.domain", served);
    tokio::time::timeout(std::time::Duration::from_secs(30), waiting)
        .await
        .unwrap()
        .unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let name = format!("{namespace}-{}", std::process::id());
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    namespaces.patch(&name, &ours, &Patch::Apply(object)).await.unwrap();
    World {
        client,
        namespace: name,
    }
}
