//! How members let esfleet in: what they lack is a row that heals, and in a pod the ServiceAccount is enough.

use anyhow::{Context as _, Result, bail, ensure};
use esfleet_e2e::esfleet::esfleet as command;
use esfleet_e2e::image::binary;
use esfleet_e2e::member::{ACCOUNT, access, grant};
use esfleet_e2e::{Cluster, TestContext, eventually};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::fleet_place::{SOON, check_member, member_is, quick, ready, resting_app, row, served, told};

/// All of the manifest but the definition.
async fn grant_without_definition(cluster: &Cluster) -> Result<()> {
    let output = command(&["member", "manifest"]).await?;
    let manifest = String::from_utf8(output.stdout)?;
    let rest: Vec<&str> = manifest
        .split("---\n")
        .filter(|document| !document.contains("kind: CustomResourceDefinition"))
        .collect();
    cluster.apply(&rest.join("---\n")).await
}

/// An API server that knows no apps, and one that lets us see none, are rows with the remedy; doing what it says heals.
pub async fn what_a_member_lacks_is_said_and_its_coming_seen(context: &TestContext) -> Result<()> {
    let gamma = context.light_cluster("gamma", &[]).await?;
    grant_without_definition(&gamma).await?;
    let bare = access(&gamma, None, &context.state().join("gamma.kubeconfig")).await?;
    let closed = context.member_kubeconfig("beta").await?; // for the scenario's namespace
    let other = format!("{}-closed", context.id());
    let builder = quick(context)?
        .member_file("gamma", &bare.kubeconfig)
        .member_file("closed", &closed.kubeconfig)
        .last(|member| member.namespaces = vec![other.clone()]);
    let esfleet = builder.start().await?;
    let replica = esfleet.replica(0)?;
    let lacks = member_is(replica, "gamma", "Degraded", Some("CRDMissing")).await?;
    ensure!(told(&lacks)?.contains("esfleet crd"), "{lacks}");
    let lacks = member_is(replica, "closed", "Degraded", Some("Forbidden")).await?;
    ensure!(told(&lacks)?.contains("esfleet member manifest"), "{lacks}");
    ready(replica).await?;
    let output = esfleet.command("status", &["-o", "json"]).await?;
    let listing: Value = serde_json::from_slice(&output.stdout)?;
    check_member(&listing, "gamma", "Degraded", Some("CRDMissing"))?;
    check_member(&listing, "closed", "Degraded", Some("Forbidden"))?;
    let checked = esfleet.command("check", &["--without-hub"]).await?;
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    for (member, remedy) in [("gamma", "esfleet crd"), ("closed", "esfleet member manifest")] {
        let said = |line: &str| line.starts_with(&format!("FAIL   {member}")) && line.contains(remedy);
        ensure!(text.lines().any(said), "no remedy for {member}: {text}");
    }

    let definition = command(&["crd"]).await?;
    gamma.apply(&String::from_utf8(definition.stdout)?).await?;
    member_is(replica, "gamma", "Connected", None).await?;
    let app = resting_app(context, "gamma", "orders");
    context.apply_app("gamma", &app).await?;
    served(context, "gamma", "orders").await?;
    let beta = context.cluster("beta")?;
    beta.kubectl(&["create", "namespace", &other]).await?;
    grant(&beta, std::slice::from_ref(&other), false).await?;
    member_is(replica, "closed", "Connected", None).await?;
    beta.kubectl(&["delete", "namespace", &other, "--wait=false"]).await?;
    Ok(())
}

/// In a pod, with the ServiceAccount of the manifest, `inCluster` and the hub are the cluster that the pod runs in.
pub async fn esfleet_in_a_pod_serves_the_cluster_that_it_runs_in(context: &TestContext) -> Result<()> {
    let namespace = context.namespace("alpha").await?;
    let alpha = context.cluster("alpha")?;
    grant(&alpha, std::slice::from_ref(&namespace), false).await?;
    grant(&alpha, &[], true).await?;
    let image = "localhost/esfleet:e2e";
    context.world().load_image(&binary("esfleet")?, image, "e2e").await?;
    let config = json!({"apiVersion": "es.your.domain/v1alpha1", "kind": "FleetConfig",
        "metadata": {"name": context.id()},
        "clusters": [{"name": "here", "inCluster": true, "namespaces": [namespace]}]});
    let client = context.client("alpha").await?;
    let map: ConfigMap = serde_json::from_value(
        json!({"metadata": {"name": context.id()}, "data": {"fleet.yaml": config.to_string()}}),
    )?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), ACCOUNT.0);
    maps.create(&PostParams::default(), &map).await?;
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": context.id()}, "spec": {
        "serviceAccountName": ACCOUNT.1, "terminationGracePeriodSeconds": 10,
        "volumes": [{"name": "config", "configMap": {"name": context.id()}}],
        "containers": [{"name": "esfleet", "image": image, "imagePullPolicy": "Never",
            "args": ["run", "--fleet-config", "/etc/fleet/fleet.yaml", "--lease-name", context.id(), "--http-addr", "0.0.0.0:8080"],
            "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1},
            "securityContext": {"runAsUser": 65534, "runAsNonRoot": true, "readOnlyRootFilesystem": true},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/fleet"}]}]}}))?;
    let pods: Api<Pod> = Api::namespaced(client, ACCOUNT.0);
    pods.create(&PostParams::default(), &pod).await?;
    context.apply_app("alpha", &context.app("orders")).await?;
    let app = context.wait_ready("alpha", "orders").await?;
    ensure!(app.status.and_then(|status| status.leader).as_deref() == Some("orders-0"));
    eventually(SOON, "its pod is ready", || async {
        let status = pods.get(context.id()).await?.status.context("a status")?;
        let ready = status.conditions.unwrap_or_default();
        if !ready.iter().any(|one| one.type_ == "Ready" && one.status == "True") {
            bail!("{ready:?}");
        }
        Ok(())
    })
    .await?;
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}:8080/proxy/api/v1/fleet",
        ACCOUNT.0,
        context.id()
    );
    let listing: Value = serde_json::from_str(&alpha.kubectl(&["get", "--raw", &path]).await?)?;
    check_member(&listing, "here", "Connected", None)?;
    ensure!(row(&listing, "apps", "orders")?["ready"] == "True", "{listing}");
    let identity = listing["leadership"]["identity"].as_str().unwrap_or_default();
    ensure!(identity.starts_with(&format!("{}_", context.id())), "{identity}");
    pods.delete(context.id(), &DeleteParams::default()).await?;
    maps.delete(context.id(), &DeleteParams::default()).await?;
    Ok(())
}
