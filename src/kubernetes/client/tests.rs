use super::*;

/// A directory of its own for one test, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("esfleet-client-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.0.join("kubeconfig");
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn kubeconfig(server: &str, user: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: '{server}'}}}}]
users: [{{name: u, user: {user}}}]
contexts: [{{name: admin, context: {{cluster: c, user: u}}}}, {{name: lost, context: {{cluster: gone, user: u}}}}]
current-context: admin
"
    )
}

async fn error_of(path: &Path, context: Option<&str>) -> (ConnectErrorClass, String) {
    let source = MemberSource::Kubeconfig {
        path: path.to_owned(),
        context: context.map(str::to_owned),
    };
    let error = connect(&source).await.unwrap_err();
    let message = error.message.replace(&path.display().to_string(), "FILE");
    (error.class, message)
}

#[tokio::test]
async fn a_sound_kubeconfig_gives_a_client_that_names_its_server() {
    let scratch = Scratch::new();
    let path = scratch.write(&kubeconfig("https://eu.example:6443", "{token: s3cret}"));
    let source = MemberSource::Kubeconfig {
        path,
        context: Some("admin".to_owned()),
    };
    let connection = connect(&source).await.unwrap();
    assert_eq!(
        format!("{connection:?}"),
        "Connection { server: \"https://eu.example:6443/\", .. }"
    );
}

#[tokio::test]
async fn each_fault_of_a_kubeconfig_has_its_class_and_remedy() {
    use ConnectErrorClass::*;
    let sound = kubeconfig("https://eu.example", "{token: s3cret}");
    let plugin = |command: &str| {
        kubeconfig(
            "https://eu.example",
            &format!("{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {command}}}}}"),
        )
    };
    let cases = [
        (
            sound.clone(),
            Some("nobody"),
            ContextMissing,
            "kubeconfig FILE has no context \"nobody\"; it has \"admin\", \"lost\"",
        ),
        (
            sound.replace("current-context: admin", ""),
            None,
            ContextMissing,
            "kubeconfig FILE has no current context; name one with context (it has \"admin\", \"lost\")",
        ),
        (
            String::new(),
            None,
            ContextMissing,
            "kubeconfig FILE has no current context; name one with context (it has no context at all)",
        ),
        (
            sound.clone(),
            Some("lost"),
            KubeconfigInvalid,
            "kubeconfig FILE has no cluster \"gone\", which its context refers to; add it or choose another context",
        ),
        (
            "token: s3cret: [".to_owned(),
            None,
            KubeconfigInvalid,
            "kubeconfig FILE is no valid kubeconfig; compare it with what `kubectl config view` shows",
        ),
        (
            kubeconfig("https://no host", "{}"),
            None,
            KubeconfigInvalid,
            "kubeconfig FILE has a server that is no URL (invalid uri character); correct clusters[].cluster.server",
        ),
        (
            kubeconfig("https://eu.example", "{tokenFile: /nowhere/token}"),
            None,
            CredentialsUnavailable,
            "for https://eu.example/, the token file \"/nowhere/token\" cannot be read: No such file or directory (os error 2); make it readable for esfleet",
        ),
        (
            plugin("/nowhere/plugin"),
            None,
            CredentialsUnavailable,
            "for https://eu.example/, the credential plugin \"/nowhere/plugin\" cannot be started: No such file or directory (os error 2); install it where esfleet runs",
        ),
        (
            plugin("'false'"),
            None,
            CredentialsUnavailable,
            "for https://eu.example/, the credential plugin \"false\" failed with exit status: 1; run it by hand to see why",
        ),
        (
            plugin("echo, args: ['token: s3cret: [']"),
            None,
            CredentialsUnavailable,
            "for https://eu.example/, the credential plugin \"echo\" printed no ExecCredential; run it by hand to see why",
        ),
    ];
    for (text, context, class, message) in cases {
        let scratch = Scratch::new();
        let path = scratch.write(&text);
        assert_eq!(error_of(&path, context).await, (class, message.to_owned()));
    }
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_there_or_no_file_is_told_apart() {
    let scratch = Scratch::new();
    assert_eq!(
        error_of(&scratch.0.join("gone"), None).await,
        (
            ConnectErrorClass::KubeconfigMissing,
            "kubeconfig FILE does not exist; put it there or correct its path".to_owned()
        )
    );
    assert_eq!(
        error_of(&scratch.0, None).await,
        (
            ConnectErrorClass::KubeconfigUnreadable,
            "kubeconfig FILE cannot be read: Is a directory (os error 21); make it readable for esfleet".to_owned()
        )
    );
}

#[tokio::test]
async fn outside_a_pod_in_cluster_is_an_error_that_says_so() {
    let error = connect(&MemberSource::InCluster).await.unwrap_err();
    assert_eq!(error.class, ConnectErrorClass::NotInCluster);
    assert!(error.message.contains("use kubeconfig instead of inCluster"), "{error}");
}

#[tokio::test]
async fn what_hangs_is_waited_for_until_the_limit_and_not_piled_up() {
    let (release, hang) = std::sync::mpsc::channel::<()>();
    let hang = std::sync::Arc::new(Mutex::new(hang));
    let attempt = |hang: std::sync::Arc<Mutex<std::sync::mpsc::Receiver<()>>>| {
        build_within(Duration::from_millis(20), "a test of hanging".to_owned(), move || {
            let _ = hang.lock().unwrap().recv();
            in_cluster()
        })
    };
    let mut messages = Vec::new();
    for _ in 0..=ATTEMPTS_MAX {
        let error = attempt(hang.clone()).await.unwrap_err();
        assert_eq!(error.class, ConnectErrorClass::TimedOut);
        messages.push(error.message);
    }
    drop(release);
    let late = "loading the credentials did not finish within 20ms; see why the kubeconfig's credential plugin or file system does not answer";
    let refused =
        "earlier attempts to load the credentials still hang; see why the kubeconfig's credential plugin does not end";
    assert_eq!(messages, [late, late, late, late, refused]);
}
