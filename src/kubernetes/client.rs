//! From a member's source to a client: kubeconfig or ServiceAccount in, deadlines on everything.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::{AuthError, ClientBuilder};
use kube::config::{AuthInfo, ExecInteractiveMode, InClusterError, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use thiserror::Error;

use crate::api::fleet_config::MemberSource;
use crate::support::deadline::within;

/// How every request of esfleet introduces itself.
pub const USER_AGENT_VALUE: &str = concat!("esfleet/", env!("CARGO_PKG_VERSION"));

/// How long a connection may take to stand, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one write to the socket may hang.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer may be silent. A watch of ours lasts 60 s and is then ended by the server; what is silent for
/// longer, a list in the middle of its pages included, comes from a connection that is dead.
const READ_TIMEOUT: Duration = Duration::from_secs(70);
/// How long building a client may take; it reads files and may run a credential plugin. Shorter than
/// what callers give a whole member (10 s), so that the member's row can name the plugin.
const BUILD_LIMIT: Duration = Duration::from_secs(8);

/// A client for one cluster.
#[derive(Clone)]
pub struct Connection {
    /// The client: no retries of its own, a connect timeout, our user agent.
    pub client: Client,
    /// The API server's address, for messages.
    pub server: String,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// How the hub is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HubSource {
    /// A kubeconfig file; none: the pod's ServiceAccount, outside a pod `$KUBECONFIG` or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; none: its current one.
    pub context: Option<String>,
}

/// Why there is no client; a closed set, fit for reasons and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectErrorClass {
    /// The kubeconfig file does not exist.
    KubeconfigMissing,
    /// The kubeconfig file exists and cannot be read.
    KubeconfigUnreadable,
    /// The kubeconfig file is no kubeconfig, or a part that it refers to is missing or broken.
    KubeconfigInvalid,
    /// The kubeconfig has no context of that name, or no current one.
    ContextMissing,
    /// A credential plugin, token file or certificate gave no credentials.
    CredentialsUnavailable,
    /// esfleet does not run in a pod that has a ServiceAccount.
    NotInCluster,
    /// Building the client took too long: a plugin or a file system hangs.
    TimedOut,
}

impl ConnectErrorClass {
    /// The class as a reason: one CamelCase word.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::KubeconfigMissing => "KubeconfigMissing",
            Self::KubeconfigUnreadable => "KubeconfigUnreadable",
            Self::KubeconfigInvalid => "KubeconfigInvalid",
            Self::ContextMissing => "ContextMissing",
            Self::CredentialsUnavailable => "CredentialsUnavailable",
            Self::NotInCluster => "NotInCluster",
            Self::TimedOut => "TimedOut",
        }
    }
}

/// Why there is no client, and what to do about it. Never holds what a kubeconfig or a plugin said, as that may be secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ConnectError {
    /// The kind of trouble.
    pub class: ConnectErrorClass,
    /// What is wrong, where, and the remedy.
    pub message: String,
}

impl ConnectError {
    fn new(class: ConnectErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
        }
    }
}

/// Makes a client for a member; nothing is sent to it yet.
///
/// # Errors
/// [`ConnectError`] with its class; it is that member's trouble and nobody else's.
pub async fn connect(source: &MemberSource) -> Result<Connection, ConnectError> {
    let key = format!("{source:?}");
    let source = source.clone();
    build_within(BUILD_LIMIT, key, move || match source {
        MemberSource::Kubeconfig { path, context } => from_file(&path, context),
        MemberSource::InCluster => in_cluster(),
    })
    .await
}

/// Makes a client for the hub; nothing is sent to it yet.
///
/// # Errors
/// [`ConnectError`] with its class.
pub async fn connect_hub(source: &HubSource) -> Result<Connection, ConnectError> {
    let key = format!("{source:?}");
    let HubSource { kubeconfig, context } = source.clone();
    build_within(BUILD_LIMIT, key, move || match (kubeconfig, context) {
        (Some(path), context) => from_file(&path, context),
        (None, Some(context)) => usual_kubeconfig(Some(context)),
        (None, None) if runs_in_pod() => in_cluster(),
        (None, None) => usual_kubeconfig(None),
    })
    .await
}

fn runs_in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Runs `make_config` and builds the client of its result where blocking is allowed, and waits for it no longer than
/// `limit`. What hangs (a credential plugin) cannot be ended from here, so attempts on the same source are limited until it ends.
async fn build_within(
    limit: Duration,
    key: String,
    make_config: impl FnOnce() -> Result<Config, ConnectError> + Send + 'static,
) -> Result<Connection, ConnectError> {
    let Some(building) = Building::begin(key) else {
        return Err(ConnectError::new(
            ConnectErrorClass::TimedOut,
            "earlier attempts to load the credentials still hang; see why the kubeconfig's credential plugin does not end",
        ));
    };
    let task = tokio::task::spawn_blocking(move || {
        let _building = building;
        make_config().and_then(build)
    });
    match within(limit, "loading the credentials", task).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(ended)) => Err(ConnectError::new(
            ConnectErrorClass::CredentialsUnavailable,
            format!("loading the credentials ended abnormally: {ended}"),
        )),
        Err(late) => Err(ConnectError::new(
            ConnectErrorClass::TimedOut,
            format!("{late}; see why the kubeconfig's credential plugin or file system does not answer"),
        )),
    }
}

/// How many attempts on one source may hang at once; members may share a source, and plugins are processes.
const ATTEMPTS_MAX: usize = 4;

/// The sources whose clients are being built at this moment, and by how many attempts.
static BUILDING: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// One attempt in [`BUILDING`] for as long as it lives.
struct Building(String);

impl Building {
    fn begin(key: String) -> Option<Self> {
        let mut building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        let attempts = building.entry(key.clone()).or_default();
        if *attempts == ATTEMPTS_MAX {
            return None;
        }
        *attempts += 1;
        Some(Self(key))
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        let mut building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        match building.get_mut(&self.0) {
            Some(attempts) if *attempts > 1 => *attempts -= 1,
            _ => drop(building.remove(&self.0)),
        }
    }
}

fn from_file(path: &Path, context: Option<String>) -> Result<Config, ConnectError> {
    let shown = format!("kubeconfig {}", path.display());
    // Looked at first, as the parser's error does not tell "missing" from "unreadable".
    std::fs::read(path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            let message = format!("{shown} does not exist; put it there or correct its path");
            ConnectError::new(ConnectErrorClass::KubeconfigMissing, message)
        } else {
            let message = format!("{shown} cannot be read: {error}; make it readable for esfleet");
            ConnectError::new(ConnectErrorClass::KubeconfigUnreadable, message)
        }
    })?;
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| kubeconfig_error(&shown, &error))?;
    from_kubeconfig(&shown, kubeconfig, context)
}

fn usual_kubeconfig(context: Option<String>) -> Result<Config, ConnectError> {
    let shown = match std::env::var("KUBECONFIG") {
        Ok(files) if !files.is_empty() => format!("kubeconfig {files} (from KUBECONFIG)"),
        _ => "kubeconfig ~/.kube/config".to_owned(),
    };
    let kubeconfig = Kubeconfig::read().map_err(|error| match error {
        KubeconfigError::ReadConfig(error, path) if error.kind() == std::io::ErrorKind::NotFound => ConnectError::new(
            ConnectErrorClass::KubeconfigMissing,
            format!(
                "kubeconfig {} does not exist, and esfleet does not run in a pod; name a kubeconfig with --hub-kubeconfig",
                path.display()
            ),
        ),
        error => kubeconfig_error(&shown, &error),
    })?;
    from_kubeconfig(&shown, kubeconfig, context)
}

fn from_kubeconfig(shown: &str, mut kubeconfig: Kubeconfig, context: Option<String>) -> Result<Config, ConnectError> {
    let wanted = context
        .or(kubeconfig.current_context.take())
        .filter(|name| !name.is_empty());
    let known: Vec<String> = kubeconfig.contexts.iter().map(|c| format!("{:?}", c.name)).collect();
    let known = if known.is_empty() {
        "no context at all".to_owned()
    } else {
        known.join(", ")
    };
    let missing = |what: String| ConnectError::new(ConnectErrorClass::ContextMissing, what);
    let Some(wanted) = wanted else {
        let what = format!("{shown} has no current context; name one with context (it has {known})");
        return Err(missing(what));
    };
    if !kubeconfig
        .contexts
        .iter()
        .any(|c| c.name == wanted && c.context.is_some())
    {
        return Err(missing(format!("{shown} has no context {wanted:?}; it has {known}")));
    }
    kubeconfig.current_context = Some(wanted);
    Config::try_from(kubeconfig).map_err(|error| kubeconfig_error(shown, &error))
}

/// Tells what is wrong with a kubeconfig without quoting from it.
fn kubeconfig_error(shown: &str, error: &KubeconfigError) -> ConnectError {
    let invalid = |what: String| ConnectError::new(ConnectErrorClass::KubeconfigInvalid, format!("{shown} {what}"));
    let credentials =
        |what: String| ConnectError::new(ConnectErrorClass::CredentialsUnavailable, format!("{shown} {what}"));
    match error {
        KubeconfigError::CurrentContextNotSet | KubeconfigError::LoadContext(_) => {
            ConnectError::new(ConnectErrorClass::ContextMissing, format!("{shown}: {error}"))
        }
        KubeconfigError::LoadClusterOfContext(name) => invalid(format!(
            "has no cluster {name:?}, which its context refers to; add it or choose another context"
        )),
        KubeconfigError::ReadConfig(error, path) => ConnectError::new(
            ConnectErrorClass::KubeconfigUnreadable,
            format!(
                "kubeconfig {} cannot be read: {error}; make it readable for esfleet",
                path.display()
            ),
        ),
        KubeconfigError::Parse(_) => {
            invalid("is no valid kubeconfig; compare it with what `kubectl config view` shows".to_owned())
        }
        KubeconfigError::MissingClusterUrl => {
            invalid("names no server for its cluster; add clusters[].cluster.server".to_owned())
        }
        KubeconfigError::ParseClusterUrl(error) => invalid(format!(
            "has a server that is no URL ({error}); correct clusters[].cluster.server"
        )),
        KubeconfigError::ParseProxyUrl(error) => invalid(format!(
            "or HTTPS_PROXY has a proxy that is no URL ({error}); correct it"
        )),
        KubeconfigError::LoadCertificateAuthority(error) => invalid(format!(
            "has an unusable certificate authority: {error}; correct certificate-authority or its data"
        )),
        KubeconfigError::ParseCertificates(_) => {
            invalid("has a certificate authority that is no PEM; correct certificate-authority or its data".to_owned())
        }
        KubeconfigError::LoadClientCertificate(error) => credentials(format!(
            "has an unusable client certificate: {error}; correct client-certificate or its data"
        )),
        KubeconfigError::LoadClientKey(error) => credentials(format!(
            "has an unusable client key: {error}; correct client-key or its data"
        )),
        KubeconfigError::FindPath => ConnectError::new(
            ConnectErrorClass::KubeconfigMissing,
            "there is no home directory to find a kubeconfig in; name one with --hub-kubeconfig",
        ),
        KubeconfigError::KindMismatch | KubeconfigError::ApiVersionMismatch => {
            invalid(format!("cannot be merged: {error}"))
        }
    }
}

fn in_cluster() -> Result<Config, ConnectError> {
    Config::incluster().map_err(|error| {
        let what = match error {
            InClusterError::ReadEnvironmentVariable(_) => {
                "esfleet does not run in a pod (KUBERNETES_SERVICE_HOST is not set); use kubeconfig instead of inCluster"
                    .to_owned()
            }
            error => format!(
                "the pod's ServiceAccount cannot be used: {error}; see that automountServiceAccountToken is not false"
            ),
        };
        ConnectError::new(ConnectErrorClass::NotInCluster, what)
    })
}

/// Builds the client. May block: credential plugins run here.
fn build(mut config: Config) -> Result<Connection, ConnectError> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE)));
    if let Some(exec) = &mut config.auth_info.exec {
        // A controller has nobody to ask, and a plugin's own output must not end up in our logs.
        exec.interactive_mode = Some(ExecInteractiveMode::Never);
    }
    let server = config.cluster_url.to_string();
    let credentials = credentials_name(&config.auth_info);
    let client = ClientBuilder::try_from(config)
        .map_err(|error| build_error(&server, &credentials, &error))?
        .build();
    Ok(Connection { client, server })
}

fn credentials_name(auth: &AuthInfo) -> String {
    match (&auth.exec, &auth.token_file) {
        (Some(exec), _) => format!("credential plugin {:?}", exec.command.as_deref().unwrap_or_default()),
        (None, Some(file)) => format!("token file {file:?}"),
        (None, None) => "credentials".to_owned(),
    }
}

/// Tells why no client could be built, without what a plugin printed.
fn build_error(server: &str, credentials: &str, error: &kube::Error) -> ConnectError {
    let what = match error {
        kube::Error::Auth(AuthError::AuthExecStart(error)) => {
            format!("the {credentials} cannot be started: {error}; install it where esfleet runs")
        }
        kube::Error::Auth(AuthError::AuthExecRun { status, .. }) => {
            format!("the {credentials} failed with {status}; run it by hand to see why")
        }
        kube::Error::Auth(AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed) => {
            format!("the {credentials} printed no ExecCredential; run it by hand to see why")
        }
        kube::Error::Auth(AuthError::ReadTokenFile(error, _)) => {
            format!("the {credentials} cannot be read: {error}; make it readable for esfleet")
        }
        kube::Error::Auth(_) => format!("the {credentials} cannot be used; correct the kubeconfig's user"),
        kube::Error::RustlsTls(error) => {
            format!("the TLS settings cannot be used: {error}; correct the kubeconfig's certificates and key")
        }
        error => format!("no client can be built: {error}; correct the kubeconfig"),
    };
    ConnectError::new(
        ConnectErrorClass::CredentialsUnavailable,
        format!("for {server}, {what}"),
    )
}

#[cfg(test)]
mod tests;
