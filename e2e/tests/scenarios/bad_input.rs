//! Bad input: a message that names the thing and the remedy, the right exit code or row, and nothing else disturbed.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use esfleet::api::app::AppCondition;
use esfleet_e2e::esfleet::{esfleet as command, free_address};
use esfleet_e2e::member::{ACCOUNT, access, grant};
use esfleet_e2e::{TestContext, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::fleet_place::{ByHand, SOON, check_member, file, quick, resting_app, row, scale, served};

/// The top of every fleet config here.
const HEAD: &str = "apiVersion: es.your.domain/v1alpha1\nkind: FleetConfig\nmetadata: {name: f}\n";

/// A fleet config at fault ends the start with 2, says where and what, and nobody has been asked anything.
pub async fn a_faulty_fleet_config_ends_the_start(context: &TestContext) -> Result<()> {
    let hub = TcpListener::bind("127.0.0.1:0").await?;
    let address = hub.local_addr()?;
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]});
    let hub_path = file(context, "hub.kubeconfig", &kubeconfig.to_string())?
        .display()
        .to_string();
    let one = "{name: a, kubeconfig: {path: hub.kubeconfig}}";
    let cases: [(&str, String, &[&str]); 11] = [
        ("empty", "# nothing\n".to_owned(), &["is empty", "FleetConfig"]),
        ("not-yaml", "a: [1\nb: }".to_owned(), &["not-yaml.yaml:"]),
        (
            "kind",
            HEAD.replace("FleetConfig", "ConfigMap"),
            &["kind is \"ConfigMap\"", "\"FleetConfig\""],
        ),
        (
            "version",
            HEAD.replace("v1alpha1", "v9"),
            &["apiVersion is", "es.your.domain/v1alpha1"],
        ),
        (
            "unknown",
            format!("{HEAD}clusters: [{one}]\nextra: 1\n"),
            &["unknown.yaml:5", "extra"],
        ),
        (
            "deep",
            format!("{HEAD}clusters:\n- name: a\n  kubeconfig: {{file: x}}\n"),
            &["deep.yaml:6", "clusters[0].kubeconfig", "file"],
        ),
        (
            "twice",
            format!("{HEAD}clusters:\n- {one}\n- {one}\n"),
            &[
                "twice.yaml:6",
                "clusters[1].name",
                "name of clusters[0]",
                "a name of its own",
            ],
        ),
        (
            "name",
            format!("{HEAD}clusters: [{{name: A_b, inCluster: true}}]\n"),
            &["clusters[0].name", "A_b"],
        ),
        ("nobody", format!("{HEAD}clusters: []\n"), &["clusters", "at least one"]),
        (
            "neither",
            format!("{HEAD}clusters: [{{name: a}}]\n"),
            &["clusters[0]", "neither kubeconfig nor inCluster"],
        ),
        (
            "secret",
            format!("{HEAD}clusters: [{{name: a, kubeconfig: {{secretRef: {{name: s}}}}}}]\n"),
            &["clusters[0].kubeconfig.secretRef", "use path"],
        ),
    ];
    for (name, text, parts) in cases {
        let path = file(context, &format!("{name}.yaml"), &text)?.display().to_string();
        for verb in ["run", "status", "check"] {
            refused(verb, &path, &hub_path, &[&[&*path], parts].concat()).await?;
        }
    }
    let missing = context.state().join("missing.yaml").display().to_string();
    refused(
        "run",
        &missing,
        &hub_path,
        &[&missing, "cannot be read", "--fleet-config"],
    )
    .await?;
    let directory = context.state().display().to_string();
    refused("run", &directory, &hub_path, &[&directory, "cannot be read"]).await?;

    let good = file(context, "good.yaml", &format!("{HEAD}clusters: [{one}]\n"))?
        .display()
        .to_string();
    let nowhere = context.state().join("nowhere").display().to_string();
    refused("run", &good, &nowhere, &["the hub", &nowhere, "does not exist"]).await?;
    let taken = [
        "run",
        "--fleet-config",
        &good,
        "--hub-kubeconfig",
        &hub_path,
        "--http-addr",
        &address.to_string(),
    ];
    let output = command(&taken).await?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(2), "{}: {errors}", output.status);
    ensure!(
        errors.contains(&address.to_string()) && errors.contains("--http-addr"),
        "{errors}"
    );
    let asked = timeout(Duration::from_millis(100), hub.accept()).await;
    ensure!(asked.is_err(), "the hub was asked something");
    Ok(())
}

async fn refused(verb: &str, config: &str, hub: &str, parts: &[&str]) -> Result<()> {
    let mut arguments = vec![verb, "--fleet-config", config];
    if verb != "status" {
        arguments.extend(["--hub-kubeconfig", hub]);
    }
    let http = free_address()?.to_string();
    if verb == "run" {
        arguments.extend(["--http-addr", &*http]);
    }
    let output = command(&arguments).await?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(2),
        "{arguments:?}: {}: {errors}",
        output.status
    );
    ensure!(
        output.stdout.is_empty(),
        "{:?}",
        String::from_utf8_lossy(&output.stdout)
    );
    for part in parts {
        ensure!(
            errors.contains(part),
            "{verb} with {config} does not say {part:?}: {errors}"
        );
    }
    Ok(())
}

/// Faults of members are their rows, those of an app its conditions, and what is well is served beside them.
pub async fn faults_of_members_and_apps_are_told_where_they_belong(context: &TestContext) -> Result<()> {
    let good = context.member_kubeconfig("alpha").await?;
    let hub = access(
        &*context.cluster("alpha")?,
        None,
        &context.state().join("hub.kubeconfig"),
    )
    .await?;
    grant(&*context.cluster("alpha")?, &[], true).await?;
    let mut nowhere: Value = serde_json::from_str(&std::fs::read_to_string(&good.kubeconfig)?)?;
    nowhere["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", free_address()?));
    file(context, "nowhere.kubeconfig", &nowhere.to_string())?;
    nowhere["clusters"][0]["cluster"]["server"] = json!("https://api.nowhere.invalid:6443");
    file(context, "unresolved.kubeconfig", &nowhere.to_string())?;
    file(context, "broken.kubeconfig", "clusters: [")?;
    std::fs::create_dir_all(context.state().join("directory.kubeconfig"))?;
    let namespaces = json!([context.namespace("alpha").await?]);
    let path = |name: &str| json!({"name": name, "kubeconfig": {"path": format!("{name}.kubeconfig")}});
    let config = json!({"apiVersion": "es.your.domain/v1alpha1", "kind": "FleetConfig", "metadata": {"name": "f"},
        "clusters": [path("missing"), path("directory"), path("broken"), path("nowhere"), path("unresolved"),
            {"name": "context", "kubeconfig": {"path": good.kubeconfig, "context": "other"}},
            {"name": "inside", "inCluster": true},
            {"name": "alpha", "kubeconfig": {"path": good.kubeconfig}, "namespaces": namespaces}]});
    let config = file(context, "fleet.yaml", &config.to_string())?.display().to_string();
    let hub = hub.kubeconfig.display().to_string();
    let arguments = [
        "--fleet-config",
        &config,
        "--hub-kubeconfig",
        &hub,
        "--lease-name",
        context.id(),
    ];
    let esfleet = ByHand::start(context, "esfleet", &arguments, &[])?;
    let mut lost = resting_app(context, "alpha", "lost");
    lost.spec.zookeeper_connect_string = "zookeeper.nowhere.invalid:2181".to_owned();
    context.apply_app("alpha", &lost).await?;
    context
        .apply_app("alpha", &resting_app(context, "alpha", "orders"))
        .await?;
    served(context, "alpha", "orders").await?;
    let rows = [
        (
            "missing",
            "KubeconfigMissing",
            "missing.kubeconfig does not exist; put it there",
        ),
        ("directory", "KubeconfigUnreadable", "make it readable"),
        ("broken", "KubeconfigInvalid", "is no valid kubeconfig"),
        ("nowhere", "NotAnswering", "Connection refused"),
        ("unresolved", "NotAnswering", ""),
        ("context", "ContextMissing", "has no context \"other\"; it has"),
        ("inside", "NotInCluster", "use kubeconfig instead of inCluster"),
    ];
    let told = |listing: &Value| -> Result<()> {
        for (name, reason, part) in rows {
            let row = check_member(listing, name, "Unreachable", Some(reason))?;
            let message = row["message"].as_str().unwrap_or_default();
            ensure!(!message.is_empty() && message.contains(part), "{row}");
        }
        check_member(listing, "alpha", "Connected", None).map(drop)
    };
    eventually(SOON, "each fault is its member's row", || async {
        told(&esfleet.fleet().await?)
    })
    .await?;
    let output = command(&["status", "--fleet-config", &config, "-o", "json"]).await?;
    told(&serde_json::from_slice(&output.stdout)?)?;
    let output = command(&["check", "--fleet-config", &config, "--without-hub"]).await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.code() == Some(1), "{text}");
    for (name, _, part) in rows {
        let said = |line: &str| line.starts_with("FAIL") && line.contains(name) && line.contains(part);
        ensure!(text.lines().any(said), "{name}: {text}");
    }
    let app = context
        .wait_app(
            "alpha",
            "lost",
            "told that its connect string resolves to nothing",
            |app| condition(app, "ZooKeeperReady").is_some_and(|condition| condition.status == "False"),
        )
        .await?;
    let condition = condition(&app, "ZooKeeperReady").context("a condition")?;
    ensure!(condition.message.contains("zookeeper.nowhere.invalid"), "{condition:?}");
    scale(context, "alpha", "lost", 2).await // without ZooKeeper, all else goes on
}

fn condition<'a>(app: &'a esfleet::api::EventSourcedApp, kind: &str) -> Option<&'a AppCondition> {
    let conditions = &app.status.as_ref()?.conditions;
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// A namespace for the Lease that is not there is said in the log and by `/readyz`, and its coming is enough.
///
/// The hub is reached as its administrator: who may do less is refused (403) before the namespace is looked for.
pub async fn a_missing_lease_namespace_is_said_and_its_coming_seen(context: &TestContext) -> Result<()> {
    let alpha = context.cluster("alpha")?;
    let good = context.member_kubeconfig("alpha").await?;
    let namespaces = json!([context.namespace("alpha").await?]);
    let config = json!({"apiVersion": "es.your.domain/v1alpha1", "kind": "FleetConfig", "metadata": {"name": "f"},
        "clusters": [{"name": "alpha", "kubeconfig": {"path": good.kubeconfig}, "namespaces": namespaces}]});
    let config = file(context, "fleet.yaml", &config.to_string())?.display().to_string();
    let hub = alpha.kubeconfig().display().to_string();
    let missing = format!("{}-lease", context.id());
    let flags = [
        "--fleet-config",
        &*config,
        "--hub-kubeconfig",
        &hub,
        "--lease-namespace",
        &missing,
    ];
    let output = command(&[&["check"], &flags[..]].concat()).await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = |line: &str| line.starts_with("FAIL   hub") && line.contains("does not exist; apply");
    ensure!(output.status.code() == Some(1) && text.lines().any(said), "{text}");

    let esfleet = ByHand::start(context, "esfleet", &flags, &[])?;
    let remedy = format!("create it (kubectl create namespace {missing}) or name another by --lease-namespace");
    esfleet.logs(&[&missing, "does not exist", &remedy]).await?;
    let (code, body) = esfleet.get("/readyz").await?;
    ensure!(
        code == 503 && body.contains("nobody leads") && body.contains(&remedy),
        "{code}: {body}"
    );
    ensure!(esfleet.get("/livez").await?.0 == 200);
    alpha.kubectl(&["create", "namespace", &missing]).await?;
    esfleet.leads().await?;
    eventually(SOON, "it is ready", || async {
        let (code, body) = esfleet.get("/readyz").await?;
        ensure!(code == 200, "{body}");
        Ok(())
    })
    .await?;
    alpha
        .kubectl(&["delete", "namespace", &missing, "--wait=false"])
        .await
        .map(drop)
}

/// Two replicas under one identity are warned of, and contend as any other: one leads, and after it the other.
pub async fn a_second_replica_of_one_identity_is_an_ordinary_contender(context: &TestContext) -> Result<()> {
    let member = context.member("beta").await?;
    let esfleet = quick(context)?.with(member).start().await?;
    let first = esfleet.replica(0)?;
    ensure!(esfleet.leader().await? == 0);
    let config = first.fleet_config.display().to_string();
    let hub = first
        .fleet_config
        .with_file_name("hub.kubeconfig")
        .display()
        .to_string();
    let identity = &*first.identity;
    let flags = [
        "--fleet-config",
        &*config,
        "--hub-kubeconfig",
        &hub,
        "--lease-name",
        esfleet.lease_name(),
    ];
    let flags = [&flags[..], &["--identity", identity, "--lease-namespace", ACCOUNT.0]].concat();
    let second = ByHand::start(context, "second", &flags, &[])?;
    second.logs(&["WARN", identity, "--identity"]).await?;
    let listing = second.fleet().await?;
    ensure!(listing["leadership"]["leads"] == false, "{listing}");
    let own = listing["leadership"]["identity"].as_str().unwrap_or_default();
    let leases: Api<Lease> = Api::namespaced(context.client("alpha").await?, ACCOUNT.0);
    let lease = leases.get(esfleet.lease_name()).await?.spec.context("a spec")?;
    let holder = lease.holder_identity.context("a holder")?;
    ensure!(
        holder != own && holder.starts_with(&format!("{identity}_")),
        "{holder} and {own}"
    );
    first.process.kill()?;
    second.leads().await?;
    context
        .apply_app("beta", &resting_app(context, "beta", "orders"))
        .await?;
    served(context, "beta", "orders").await?;
    eventually(SOON, "it lists the app", || async {
        row(&second.fleet().await?, "apps", "orders").map(drop)
    })
    .await
}
