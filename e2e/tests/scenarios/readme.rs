//! What the README tells a stranger to type.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use esfleet_e2e::TestContext;
use esfleet_e2e::paths::Paths;

/// The commands of the README that are marked as a shell's.
fn commands(readme: &str) -> Vec<&str> {
    readme
        .split("\n```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("\n```").next())
        .collect()
}

/// Everything under "Five minutes to a first app", as it stands there.
pub async fn five_minutes_lead_to_a_first_app(context: &TestContext) -> Result<()> {
    let readme = include_str!("../../../README.md");
    let blocks = commands(readme);
    ensure!(blocks.len() >= 5, "the README has {} blocks of commands", blocks.len());
    let folder = context.state().join("readme");
    std::fs::create_dir_all(&folder)?;
    for (member, cluster) in [("eu-west", "alpha"), ("us-east", "beta")] {
        symlink(
            context.cluster(cluster)?.kubeconfig(),
            folder.join(format!("{member}.admin")),
        )?;
    }
    let script = blocks.join("\n");
    let namespace = context.namespace("alpha").await?;
    // the README's namespace and root are everybody's: this run has its own
    let script = script
        .replace("namespace: default", &format!("namespace: {namespace}"))
        .replace(
            "kubectl --kubeconfig eu-west.admin wait",
            &format!("kubectl -n {namespace} --kubeconfig eu-west.admin wait"),
        )
        .replace(
            "kubectl --kubeconfig eu-west.admin get",
            &format!("kubectl -n {namespace} --kubeconfig eu-west.admin get"),
        )
        .replace("/example/orders", &context.root("orders"));
    let output = run(&script, &folder, context).await?;
    ensure!(
        output.contains("eventsourcedapp.es.your.domain/orders condition met"),
        "{output}"
    );
    let listed = output
        .lines()
        .any(|line| line.starts_with("eu-west") && line.contains("orders") && line.contains("True"));
    ensure!(listed, "the listing shows no ready app:\n{output}");
    Ok(())
}

async fn run(script: &str, folder: &Path, context: &TestContext) -> Result<String> {
    let paths = Paths::find().await?;
    let program = esfleet_e2e::image::binary("esfleet")?;
    let programs = program.parent().context("a program lies in a folder")?;
    let path = format!(
        "{}:{}:{}",
        programs.display(),
        paths.bin.display(),
        std::env::var("PATH")?
    );
    let child = tokio::process::Command::new("bash")
        .args([
            "-euo",
            "pipefail",
            "-c",
            &format!("trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT\n{script}"),
        ])
        .current_dir(folder)
        .env("PATH", path)
        .env("ZOOKEEPER", context.world().zookeeper().connect_string())
        .env("IMAGE", context.world().sample_image(1))
        .env("ESFLEET_HTTP_ADDR", "127.0.0.1:0")
        .env("ESFLEET_LEASE_NAME", context.id())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = tokio::time::timeout(Duration::from_secs(140), child.wait_with_output())
        .await
        .context("the README's commands did not end in time")??;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(
        output.status.success(),
        "the README's commands failed ({}):\n{said}",
        output.status
    );
    Ok(said)
}
