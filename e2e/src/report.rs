//! What is kept of a scenario that failed: logs, objects, events.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tokio::process::Command;

use crate::cluster::Cluster;
use crate::context::TestContext;
use crate::paths::run;

/// Where reports go; `target/e2e-reports` of the workspace otherwise.
pub const REPORTS: &str = "ESFLEET_E2E_REPORTS";

/// Collects everything that helps to understand a failure, and returns the folder.
pub async fn collect(context: &TestContext) -> Result<PathBuf> {
    let root = match std::env::var_os(REPORTS) {
        Some(root) => PathBuf::from(root),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/e2e-reports"),
    };
    let folder = root.join(context.id());
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut copy = Command::new("sh"); // logs and configs, not the data of servers, and no tokens
    copy.args([
        "-c",
        r#"cd "$1" && find . -type f \( -name log -o -name '*.log' -o -name '*.yaml' \) -exec cp --parents {} "$2" \;"#,
        "sh",
    ]);
    copy.arg(context.state()).arg(&folder);
    run(copy, "copying logs").await?;
    for (name, namespace) in context.namespaces().await {
        let cluster = context.cluster(&name)?;
        save(&cluster, &folder, &namespace).await?;
    }
    let zookeeper = context.world().zookeeper();
    for index in 0..zookeeper.len() {
        let answer = zookeeper
            .word(index, "mntr")
            .await
            .unwrap_or_else(|error| format!("{error:#}"));
        std::fs::write(folder.join(format!("zookeeper-{index}.mntr")), answer)?;
    }
    Ok(folder.canonicalize()?)
}

async fn save(cluster: &Cluster, folder: &Path, namespace: &str) -> Result<()> {
    let kinds = "pods,statefulsets,services,poddisruptionbudgets,roles,rolebindings";
    let looks: [(&str, &[&str]); 4] = [
        ("objects.yaml", &["get", kinds, "-o", "yaml"]),
        (
            "apps.yaml",
            &["get", "eventsourcedapps", "-o", "yaml", "--show-managed-fields"],
        ),
        ("events.txt", &["get", "events", "--sort-by=.lastTimestamp"]),
        ("pods.txt", &["describe", "pods"]),
    ];
    for (file, arguments) in looks {
        let text = cluster.kubectl(&[&["-n", namespace], arguments].concat()).await;
        let text = text.unwrap_or_else(|error| format!("{error:#}"));
        std::fs::write(folder.join(format!("{}-{file}", cluster.name())), text)?;
    }
    let pods = cluster
        .kubectl(&["-n", namespace, "get", "pods", "-o", "name"])
        .await
        .unwrap_or_default();
    for pod in pods.lines().take(12) {
        let log = cluster.kubectl(&["-n", namespace, "logs", "--tail=500", pod]).await;
        let file = format!("{}-{}.log", cluster.name(), pod.replace('/', "-"));
        std::fs::write(folder.join(file), log.unwrap_or_else(|error| format!("{error:#}")))?;
    }
    Ok(())
}
