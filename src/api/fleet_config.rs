//! The fleet config: the file that lists the member clusters.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;

use super::names::{ClusterName, is_dns_label};
use super::{GROUP, VERSION};
use crate::support::yaml::{self, Step, YamlError};

/// The kind of a fleet config.
pub const FLEET_CONFIG_KIND: &str = "FleetConfig";

/// A fleet config whose every part has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetConfig {
    /// The fleet's name (`metadata.name`): a DNS label.
    pub name: ClusterName,
    /// The members, in the order of the file, at least one; names are unique.
    pub clusters: Vec<MemberConfig>,
}

/// One entry of `clusters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberConfig {
    /// The member's name.
    pub name: ClusterName,
    /// How the member is reached.
    pub source: MemberSource,
    /// The namespaces whose apps esfleet looks after; empty: all.
    pub namespaces: Vec<String>,
    /// Labels for selecting members.
    pub labels: BTreeMap<String, String>,
    /// While true, nothing is written to the member.
    pub paused: bool,
}

/// Where a member's connection comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberSource {
    /// A kubeconfig file.
    Kubeconfig {
        /// The file, already joined with the fleet config's directory.
        path: PathBuf,
        /// The context to use; none: the file's current one.
        context: Option<String>,
    },
    /// The ServiceAccount of the pod that esfleet runs in.
    InCluster,
}

/// What is wrong with a fleet config; the text names the file, the place and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FleetConfigError {
    /// The file is missing or cannot be read.
    #[error("fleet config {}: cannot be read: {reason}; name a readable file with --fleet-config", .file.display())]
    Unreadable {
        /// The file as it was named.
        file: PathBuf,
        /// What the operating system says.
        reason: String,
    },
    /// The file holds nothing but space and comments.
    #[error("fleet config {}: is empty; it must hold a {FLEET_CONFIG_KIND} of {GROUP}/{VERSION} that lists the members", .file.display())]
    Empty {
        /// The file as it was named.
        file: PathBuf,
    },
    /// The file holds an object of another kind or version.
    #[error("fleet config {}: {key} is {found}, but must be {wanted:?}", .file.display())]
    WrongKind {
        /// The file as it was named.
        file: PathBuf,
        /// `kind` or `apiVersion`.
        key: &'static str,
        /// What stands there, quoted, or "missing".
        found: String,
        /// What must stand there.
        wanted: String,
    },
    /// The file is no YAML, or a key or a value is wrong.
    #[error("fleet config {}{}: {message}", .file.display(), place(.location))]
    Invalid {
        /// The file as it was named.
        file: PathBuf,
        /// Line and column, counted from 1, where the parser knows them.
        location: Option<(usize, usize)>,
        /// The key path, what is wrong with it, and the remedy.
        message: String,
    },
}

fn place(location: &Option<(usize, usize)>) -> String {
    location
        .map(|(line, column)| format!(":{line}:{column}"))
        .unwrap_or_default()
}

impl FleetConfig {
    /// Reads and checks the file; the members' kubeconfigs are not opened.
    ///
    /// # Errors
    /// [`FleetConfigError`], which names the file, the key and the remedy.
    pub fn load(file: &Path) -> Result<Self, FleetConfigError> {
        let unreadable = |reason: String| FleetConfigError::Unreadable {
            file: file.to_owned(),
            reason,
        };
        let bytes = std::fs::read(file).map_err(|error| unreadable(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| unreadable("it is no UTF-8 text".to_owned()))?;
        Self::parse(&text, file)
    }

    /// Checks the text of a fleet config; `file` is named in errors, and relative paths start at its directory.
    ///
    /// # Errors
    /// [`FleetConfigError`], which names the file, the key and the remedy.
    pub fn parse(text: &str, file: &Path) -> Result<Self, FleetConfigError> {
        let invalid = |error: YamlError| FleetConfigError::Invalid {
            file: file.to_owned(),
            location: error.location,
            message: error.message,
        };
        if is_blank(text) {
            return Err(FleetConfigError::Empty { file: file.to_owned() });
        }
        let header: Option<Header> = yaml::from_str(text).map_err(invalid)?;
        let Some(header) = header else {
            return Err(FleetConfigError::Empty { file: file.to_owned() });
        };
        header.check("kind", header.kind.as_deref(), FLEET_CONFIG_KIND, file)?;
        header.check(
            "apiVersion",
            header.api_version.as_deref(),
            &format!("{GROUP}/{VERSION}"),
            file,
        )?;
        let parsed: FleetConfigFile = yaml::from_str(text).map_err(invalid)?;
        let directory = file.parent().unwrap_or(Path::new(""));
        parsed.check(directory).map_err(|fault| FleetConfigError::Invalid {
            file: file.to_owned(),
            location: yaml::locate(text, &fault.path),
            message: format!("{}: {}", fault.key_path(), fault.what),
        })
    }

    /// The member of that name.
    #[must_use]
    pub fn cluster(&self, name: &str) -> Option<&MemberConfig> {
        self.clusters.iter().find(|member| member.name.as_str() == name)
    }
}

fn is_blank(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .all(|line| line.is_empty() || line.starts_with('#') || line == "---")
}

/// What must be right before the rest is looked at, so that a file of another kind is called that.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a FleetConfig")]
struct Header {
    kind: Option<String>,
    api_version: Option<String>,
}

impl Header {
    fn check(&self, key: &'static str, found: Option<&str>, wanted: &str, file: &Path) -> Result<(), FleetConfigError> {
        if found == Some(wanted) {
            return Ok(());
        }
        Err(FleetConfigError::WrongKind {
            file: file.to_owned(),
            key,
            found: found.map_or_else(|| "missing".to_owned(), |text| format!("{text:?}")),
            wanted: wanted.to_owned(),
        })
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FleetConfigFile {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    metadata: MetadataEntry,
    clusters: Vec<MemberEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetadataEntry {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MemberEntry {
    name: String,
    kubeconfig: Option<KubeconfigEntry>,
    #[serde(default)]
    in_cluster: bool,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    paused: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KubeconfigEntry {
    path: Option<PathBuf>,
    context: Option<String>,
    secret_ref: Option<IgnoredAny>,
}

/// A rule that the file breaks at some node.
struct Fault {
    path: Vec<Step>,
    what: String,
}

impl Fault {
    fn new(what: impl Into<String>) -> Self {
        Self {
            path: Vec::new(),
            what: what.into(),
        }
    }

    /// The same fault, seen from the node above.
    fn under(mut self, step: Step) -> Self {
        self.path.insert(0, step);
        self
    }

    fn at_key(self, key: &str) -> Self {
        self.under(Step::Key(key.to_owned()))
    }

    fn key_path(&self) -> String {
        let mut text = String::new();
        for step in &self.path {
            match step {
                Step::Key(key) if text.is_empty() => text.push_str(key),
                Step::Key(key) => text.extend([".", key]),
                Step::Item(index) => text.push_str(&format!("[{index}]")),
            }
        }
        text
    }
}

impl FleetConfigFile {
    fn check(self, directory: &Path) -> Result<FleetConfig, Fault> {
        let name = cluster_name(&self.metadata.name).map_err(|fault| fault.at_key("metadata"))?;
        let mut clusters: Vec<MemberConfig> = Vec::new();
        for (index, entry) in self.clusters.into_iter().enumerate() {
            let here = |fault: Fault| fault.under(Step::Item(index)).at_key("clusters");
            let member = entry.check(directory).map_err(here)?;
            if let Some(first) = clusters.iter().position(|other| other.name == member.name) {
                let what = format!(
                    "{:?} is already the name of clusters[{first}]; give every member a name of its own",
                    member.name.as_str()
                );
                return Err(here(Fault::new(what).at_key("name")));
            }
            clusters.push(member);
        }
        if clusters.is_empty() {
            return Err(Fault::new("lists no member; add at least one").at_key("clusters"));
        }
        Ok(FleetConfig { name, clusters })
    }
}

impl MemberEntry {
    fn check(self, directory: &Path) -> Result<MemberConfig, Fault> {
        let MemberEntry {
            name,
            kubeconfig,
            in_cluster,
            namespaces,
            labels,
            paused,
        } = self;
        let name = cluster_name(&name)?;
        let source = match (kubeconfig, in_cluster) {
            (Some(kubeconfig), false) => kubeconfig
                .check(directory)
                .map_err(|fault| fault.at_key("kubeconfig"))?,
            (None, true) => MemberSource::InCluster,
            (Some(_), true) => {
                return Err(Fault::new(
                    "has both kubeconfig and inCluster; keep the one by which this member is reached",
                ));
            }
            (None, false) => {
                return Err(Fault::new(
                    "has neither kubeconfig nor inCluster; say how this member is reached, as in kubeconfig: {path: eu-west.kubeconfig}",
                ));
            }
        };
        check_namespaces(&namespaces).map_err(|fault| fault.at_key("namespaces"))?;
        check_labels(&labels).map_err(|fault| fault.at_key("labels"))?;
        Ok(MemberConfig {
            name,
            source,
            namespaces,
            labels,
            paused,
        })
    }
}

impl KubeconfigEntry {
    fn check(self, directory: &Path) -> Result<MemberSource, Fault> {
        let KubeconfigEntry {
            path,
            context,
            secret_ref,
        } = self;
        if secret_ref.is_some() {
            return Err(Fault::new("is not supported yet; use path").at_key("secretRef"));
        }
        let Some(path) = path else {
            return Err(Fault::new(
                "has no path; name a kubeconfig file, relative to the fleet config",
            ));
        };
        if path.as_os_str().is_empty() {
            return Err(Fault::new("is empty; name a kubeconfig file, relative to the fleet config").at_key("path"));
        }
        if context.as_deref() == Some("") {
            let what = "is empty; name a context of the kubeconfig, or leave the key out for its current one";
            return Err(Fault::new(what).at_key("context"));
        }
        let path = directory.join(path);
        Ok(MemberSource::Kubeconfig { path, context })
    }
}

fn cluster_name(name: &str) -> Result<ClusterName, Fault> {
    ClusterName::parse(name).map_err(|error| Fault::new(error.to_string()).at_key("name"))
}

fn check_namespaces(namespaces: &[String]) -> Result<(), Fault> {
    for (index, namespace) in namespaces.iter().enumerate() {
        let here = |what: String| Err(Fault::new(what).under(Step::Item(index)));
        if !is_dns_label(namespace) {
            return here(format!(
                "{namespace:?} is no namespace name; use 1 to 63 lowercase letters, digits and hyphens"
            ));
        }
        if namespaces[..index].contains(namespace) {
            return here(format!("{namespace:?} stands twice; list every namespace once"));
        }
    }
    Ok(())
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Fault> {
    const RULE: &str = "use at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit";
    for (key, value) in labels {
        let here = |what: String| Err(Fault::new(what).at_key(key));
        let name = key.rsplit_once('/').map_or(key.as_str(), |(_, name)| name);
        if name.is_empty() || !is_label_text(name) {
            return here(format!("{key:?} is no label key; {RULE}"));
        }
        if !is_label_text(value) {
            return here(format!("{value:?} is no label value; {RULE}"));
        }
    }
    Ok(())
}

/// Whether a text is empty or a Kubernetes label value.
fn is_label_text(text: &str) -> bool {
    let alphanumeric = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && alphanumeric(text.chars().next())
        && alphanumeric(text.chars().next_back())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests;
