//! Where the scripts of `cluster/` are and where they keep what they build.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::Command;
use tokio::time::timeout;

/// The longest that one of the scripts may take; `setup` on an empty cache takes its own time.
const SCRIPT_LIMIT: Duration = Duration::from_secs(150);

/// The scripts, and what `setup` made.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The scripts of the local clusters.
    pub scripts: PathBuf,
    /// The root of all that is cached.
    pub cache: PathBuf,
    /// `kubectl`, `kube-apiserver` and the others.
    pub bin: PathBuf,
}

impl Paths {
    /// Asks the scripts; nothing has to be set up for that.
    pub async fn find() -> Result<Paths> {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster");
        let output = run(Command::new(scripts.join("paths")), "paths").await?;
        let value = |name: &str| -> Result<PathBuf> {
            let line = output.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
            Ok(PathBuf::from(
                line.with_context(|| format!("paths does not print {name}"))?,
            ))
        };
        Ok(Paths {
            cache: value("CACHE")?,
            bin: value("BIN")?,
            scripts,
        })
    }

    /// Builds and installs what is missing; its progress goes to standard error.
    pub async fn setup(&self) -> Result<()> {
        let status = Command::new(self.scripts.join("setup"))
            .stdout(std::io::stderr())
            .kill_on_drop(true)
            .status()
            .await
            .context("cannot start setup")?;
        ensure!(status.success(), "setup failed ({status})");
        Ok(())
    }

    /// Runs one of the scripts for this process as the owner of what it starts, and returns what it prints.
    pub async fn script(&self, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Result<String> {
        let mut command = Command::new(self.scripts.join(name));
        command
            .args(arguments)
            .env("ESFLEET_OWNER", std::process::id().to_string())
            .envs(environment.iter().copied());
        run(command, name).await
    }
}

/// Runs a command to its end within a limit, and returns its standard output; both outputs are in the error.
pub(crate) async fn run(mut command: Command, what: &str) -> Result<String> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(SCRIPT_LIMIT, command.output()).await {
        Ok(output) => output.with_context(|| format!("cannot start {what}"))?,
        Err(_) => bail!("{what} did not end within {SCRIPT_LIMIT:?}"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{what} failed ({}): {}{}", output.status, errors, text);
    }
    Ok(text.into_owned())
}
