//! What all scenarios of a run share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;

use crate::cluster::Cluster;
use crate::eventually::step;
use crate::image;
use crate::paths::Paths;
use crate::zookeeper::ZooKeeper;

/// Kubeconfigs of existing clusters, separated by commas, in the order alpha, beta.
pub const KUBECONFIGS: &str = "ESFLEET_E2E_KUBECONFIGS";
/// The connect string of an existing ZooKeeper, which this machine and the pods reach alike.
pub const ZOOKEEPER: &str = "ESFLEET_E2E_ZOOKEEPER";
/// The image of the sample app in existing clusters, with the name but without the tag (tags 1 and 2 are used).
pub const SAMPLE_IMAGE: &str = "ESFLEET_E2E_SAMPLE_IMAGE";

/// The names of the two shared clusters.
pub const CLUSTERS: [&str; 2] = ["alpha", "beta"];

/// The shared clusters and ZooKeeper services of one run.
#[derive(Debug)]
pub struct World {
    /// The scripts and what they built.
    pub paths: Paths,
    state: PathBuf,
    clusters: BTreeMap<String, Arc<Cluster>>,
    zookeeper: ZooKeeper,
    single: ZooKeeper,
    existing: bool,
}

impl World {
    /// Sets up what is missing and starts everything side by side, or uses what the environment names.
    pub async fn start() -> Result<Arc<World>> {
        let kubeconfigs = std::env::var(KUBECONFIGS).ok().filter(|value| !value.is_empty());
        let connect = std::env::var(ZOOKEEPER).ok().filter(|value| !value.is_empty());
        let in_ci = std::env::var_os("CI").is_some();
        ensure!(
            !in_ci || (kubeconfigs.is_none() && connect.is_none()),
            "{KUBECONFIGS} and {ZOOKEEPER} are for people: in CI the tests run on clusters that they start"
        );
        let paths = Paths::find().await?;
        step("setup", paths.setup()).await?;
        let state = paths.cache.join("state").join(format!("run-{}", std::process::id()));
        std::fs::create_dir_all(&state).with_context(|| format!("cannot create {}", state.display()))?;
        sweep_after_us(&paths, &state)?;
        let (ensemble, one) = (state.join("ensemble"), state.join("single"));
        let clusters = start_clusters(&paths, &state, kubeconfigs.as_deref());
        let (zookeeper, single) = step("ZooKeeper: an ensemble of three and a single server", async {
            match &connect {
                Some(connect) => anyhow::Ok((
                    ZooKeeper::existing(&paths, connect),
                    ZooKeeper::existing(&paths, connect),
                )),
                None => tokio::try_join!(
                    ZooKeeper::start(&paths, &ensemble, 3, &[]),
                    ZooKeeper::start(&paths, &one, 1, &[]),
                ),
            }
        })
        .await?; // before the clusters: its elections starve beside them on two cores
        let clusters = step("clusters alpha and beta", clusters).await?;
        let existing = kubeconfigs.is_some() || connect.is_some();
        let world = Arc::new(World {
            paths,
            state,
            clusters,
            zookeeper,
            single,
            existing,
        });
        step("images of the sample app", world.load_sample()).await?;
        Ok(world)
    }

    /// A shared cluster.
    pub fn cluster(&self, name: &str) -> Result<&Arc<Cluster>> {
        self.clusters
            .get(name)
            .with_context(|| format!("there is no shared cluster {name}"))
    }

    /// All shared clusters.
    pub fn clusters(&self) -> impl Iterator<Item = &Arc<Cluster>> {
        self.clusters.values()
    }

    /// The shared ensemble of three servers. Scenarios that break it are exclusive.
    pub fn zookeeper(&self) -> &ZooKeeper {
        &self.zookeeper
    }

    /// The shared single server. Scenarios that break it are exclusive.
    pub fn single_zookeeper(&self) -> &ZooKeeper {
        &self.single
    }

    /// Whether clusters or ZooKeeper were there before, so that they must not be broken.
    pub fn is_existing(&self) -> bool {
        self.existing
    }

    /// The directory of all that this run keeps; removed at its end.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The image of the sample app; versions 1 and 2 differ in what they say of themselves.
    pub fn sample_image(&self, version: u32) -> String {
        let name = std::env::var(SAMPLE_IMAGE).unwrap_or_else(|_| "localhost/es-sample".to_owned());
        format!("{name}:{version}")
    }

    async fn load_sample(&self) -> Result<()> {
        if self.clusters.values().all(|cluster| !cluster.is_full()) {
            return Ok(());
        }
        let Ok(program) = image::binary("es-sample") else {
            eprintln!("es-sample is not built: scenarios that need its pods will fail");
            return Ok(());
        };
        for version in [1, 2] {
            self.load_image(&program, &self.sample_image(version), &version.to_string())
                .await?;
        }
        Ok(())
    }

    /// Packs a program into an image and loads it into the full clusters.
    pub async fn load_image(&self, program: &Path, image: &str, version: &str) -> Result<()> {
        let tar = self.state.join(format!("{}.tar", image.replace(['/', ':'], "-")));
        image::pack(&self.paths, program, image, version, &tar).await?;
        let full = self.clusters.values().filter(|cluster| cluster.is_full());
        try_join_all(full.map(|cluster| cluster.load_image(&tar))).await?;
        std::fs::remove_file(&tar).context("cannot remove the image's tar")
    }

    /// Ends all that is ours. What is missed here, `sweep-after` finds once this process is gone.
    pub async fn finish(&self) -> Result<()> {
        let clusters = try_join_all(self.clusters.values().map(|cluster| cluster.down()));
        tokio::try_join!(clusters, self.zookeeper.down(), self.single.down())?;
        Ok(())
    }
}

async fn start_clusters(
    paths: &Paths,
    state: &Path,
    kubeconfigs: Option<&str>,
) -> Result<BTreeMap<String, Arc<Cluster>>> {
    let clusters = match kubeconfigs {
        None => {
            let state = state.join("shared");
            try_join_all(CLUSTERS.map(|name| Cluster::full(paths, name, &state))).await?
        }
        Some(list) => {
            let files: Vec<&str> = list.split(',').map(str::trim).collect();
            if files.len() != CLUSTERS.len() {
                bail!(
                    "{KUBECONFIGS} names {} files; wanted are {}, for {CLUSTERS:?}",
                    files.len(),
                    CLUSTERS.len()
                );
            }
            let pairs = CLUSTERS.iter().zip(files);
            pairs
                .map(|(name, file)| Cluster::existing(paths, name, Path::new(file)))
                .collect()
        }
    };
    Ok(clusters
        .into_iter()
        .map(|cluster| (cluster.name().to_owned(), Arc::new(cluster)))
        .collect())
}

/// Starts the process that cleans up after us however we end.
fn sweep_after_us(paths: &Paths, state: &Path) -> Result<()> {
    let mut command = Command::new("setsid");
    command
        .arg("--fork")
        .arg(paths.scripts.join("sweep-after"))
        .arg(std::process::id().to_string())
        .arg(state);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().context("cannot start sweep-after")?;
    ensure!(status.success(), "sweep-after did not start ({status})");
    Ok(())
}
