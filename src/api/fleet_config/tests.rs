use super::*;

const HEAD: &str = "apiVersion: es.your.domain/v1alpha1\nkind: FleetConfig\nmetadata: {name: production}\n";

fn parse(body: &str) -> Result<FleetConfig, FleetConfigError> {
    FleetConfig::parse(&format!("{HEAD}{body}"), Path::new("/etc/esfleet/fleet.yaml"))
}

fn message(outcome: Result<FleetConfig, FleetConfigError>) -> String {
    outcome.unwrap_err().to_string()
}

#[test]
fn a_whole_fleet_config_is_read_with_paths_relative_to_it() {
    let config = parse(
        "clusters:
  - name: eu-west
    kubeconfig: {path: eu-west.kubeconfig, context: admin}
    namespaces: [orders]
    labels: {region: eu}
  - name: us-east
    kubeconfig: {path: /keys/us}
    paused: true
  - name: hub
    inCluster: true
",
    );
    let member = |name: &str, source| MemberConfig {
        name: ClusterName::parse(name).unwrap(),
        source,
        namespaces: Vec::new(),
        labels: BTreeMap::new(),
        paused: false,
    };
    let kubeconfig = |path: &str, context: Option<&str>| MemberSource::Kubeconfig {
        path: path.into(),
        context: context.map(str::to_owned),
    };
    assert_eq!(
        config,
        Ok(FleetConfig {
            name: ClusterName::parse("production").unwrap(),
            clusters: vec![
                MemberConfig {
                    namespaces: vec!["orders".to_owned()],
                    labels: BTreeMap::from([("region".to_owned(), "eu".to_owned())]),
                    ..member("eu-west", kubeconfig("/etc/esfleet/eu-west.kubeconfig", Some("admin")))
                },
                MemberConfig {
                    paused: true,
                    ..member("us-east", kubeconfig("/keys/us", None))
                },
                member("hub", MemberSource::InCluster),
            ],
        })
    );
}

#[test]
fn each_fault_names_file_place_key_and_remedy() {
    const LABEL_RULE: &str =
        "use at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit";
    let cases: &[(&str, &str)] = &[
        ("", "1:1: missing field `clusters`"),
        ("clusters: []\n", "4:11: clusters: lists no member; add at least one"),
        (
            "clusters: {}\n",
            "4:11: clusters: invalid type: map, expected a sequence",
        ),
        (
            "clusters:\n  - name: a\n",
            "5:5: clusters[0]: has neither kubeconfig nor inCluster; say how this member is reached, as in kubeconfig: {path: eu-west.kubeconfig}",
        ),
        (
            "clusters:\n  - name: a\n    inCluster: true\n    kubeconfig: {path: x}\n",
            "5:5: clusters[0]: has both kubeconfig and inCluster; keep the one by which this member is reached",
        ),
        (
            "clusters:\n  - name: a\n    inCluster: true\n  - name: a\n    inCluster: true\n",
            "7:11: clusters[1].name: \"a\" is already the name of clusters[0]; give every member a name of its own",
        ),
        (
            "clusters:\n  - name: A_b\n    inCluster: true\n",
            "5:11: clusters[0].name: \"A_b\" is no DNS label: use 1 to 63 lowercase letters, digits and hyphens, starting and ending with a letter or digit",
        ),
        (
            "clusters:\n  - inCluster: true\n",
            "5:5: clusters[0]: missing field `name`",
        ),
        (
            "clusters:\n  - name: a\n    inCluster: true\n  - name: b\n    inClutser: true\n",
            "8:5: clusters[1]: unknown field `inClutser`, expected one of `name`, `kubeconfig`, `inCluster`, `namespaces`, `labels`, `paused`",
        ),
        (
            "clusters:\n  - name: a\n    kubeconfig: {}\n",
            "6:17: clusters[0].kubeconfig: has no path; name a kubeconfig file, relative to the fleet config",
        ),
        (
            "clusters:\n  - name: a\n    kubeconfig: {path: ''}\n",
            "6:24: clusters[0].kubeconfig.path: is empty; name a kubeconfig file, relative to the fleet config",
        ),
        (
            "clusters:\n  - name: a\n    kubeconfig: {path: x, context: ''}\n",
            "6:36: clusters[0].kubeconfig.context: is empty; name a context of the kubeconfig, or leave the key out for its current one",
        ),
        (
            "clusters:\n  - name: a\n    kubeconfig:\n      secretRef: {name: x, key: y}\n",
            "7:18: clusters[0].kubeconfig.secretRef: is not supported yet; use path",
        ),
        (
            "clusters:\n  - name: a\n    inCluster: true\n    namespaces: [b, B]\n",
            "7:21: clusters[0].namespaces[1]: \"B\" is no namespace name; use 1 to 63 lowercase letters, digits and hyphens",
        ),
        (
            "clusters:\n  - name: a\n    inCluster: true\n    namespaces: [b, b]\n",
            "7:21: clusters[0].namespaces[1]: \"b\" stands twice; list every namespace once",
        ),
        (
            "clusters:\n  - name: a\n    inCluster: true\n    labels: {region: 'a b'}\n",
            &format!("7:22: clusters[0].labels.region: \"a b\" is no label value; {LABEL_RULE}"),
        ),
        (
            "clusters:\n  - name: a\n    inCluster: perhaps\n",
            "6:16: clusters[0].inCluster: invalid type: string \"perhaps\", expected a boolean",
        ),
        (
            "clusters:\n  - name: a\n    inCluster: true\n    inCluster: true\n",
            "5:5: clusters[0]: duplicate field `inCluster`",
        ),
        (
            "clusters:\n  - name: a\n    inCluster: true\nmembers: []\n",
            "7:1: unknown field `members`, expected one of `apiVersion`, `kind`, `metadata`, `clusters`",
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(
            message(parse(body)),
            format!("fleet config /etc/esfleet/fleet.yaml:{expected}")
        );
    }
}

#[test]
fn a_fleet_needs_a_name_that_is_a_dns_label() {
    let parse = |metadata: &str| {
        let text = format!(
            "apiVersion: es.your.domain/v1alpha1\nkind: FleetConfig\n{metadata}clusters: [{{name: a, inCluster: true}}]\n"
        );
        message(FleetConfig::parse(&text, Path::new("f")))
    };
    assert_eq!(
        parse("metadata: {name: Prod}\n"),
        "fleet config f:3:18: metadata.name: \"Prod\" is no DNS label: use 1 to 63 lowercase letters, digits and hyphens, starting and ending with a letter or digit"
    );
    assert_eq!(
        parse("metadata: {}\n"),
        "fleet config f:3:11: metadata: missing field `name`"
    );
    assert_eq!(parse(""), "fleet config f:1:1: missing field `metadata`");
}

#[test]
fn a_file_that_is_no_fleet_config_is_called_what_it_is() {
    let parse = |text: &str| message(FleetConfig::parse(text, Path::new("f")));
    let empty =
        "fleet config f: is empty; it must hold a FleetConfig of es.your.domain/v1alpha1 that lists the members";
    for text in ["", "\n  \n", "# nothing yet\n---\n", "null\n", "~"] {
        assert_eq!(parse(text), empty, "{text:?}");
    }
    assert_eq!(
        parse("kind: Config\napiVersion: v1\nclusters: []\n"),
        "fleet config f: kind is \"Config\", but must be \"FleetConfig\""
    );
    assert_eq!(
        parse("kind: FleetConfig\napiVersion: es.your.domain/v2\n"),
        "fleet config f: apiVersion is \"es.your.domain/v2\", but must be \"es.your.domain/v1alpha1\""
    );
    assert_eq!(
        parse("clusters: []\n"),
        "fleet config f: kind is missing, but must be \"FleetConfig\""
    );
    assert_eq!(
        parse("just words"),
        "fleet config f:1:1: invalid type: string \"just words\", expected a FleetConfig"
    );
    let no_yaml = parse("a: [1\nb: 2\n");
    assert!(no_yaml.starts_with("fleet config f:"), "{no_yaml}");
    assert!(no_yaml.contains("did not find expected ',' or ']'"), "{no_yaml}");
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_reason() {
    let load = |path: &str| message(FleetConfig::load(Path::new(path)));
    assert_eq!(
        load("/nowhere/fleet.yaml"),
        "fleet config /nowhere/fleet.yaml: cannot be read: No such file or directory (os error 2); name a readable file with --fleet-config"
    );
    assert_eq!(
        load("/"),
        "fleet config /: cannot be read: Is a directory (os error 21); name a readable file with --fleet-config"
    );
}

#[test]
fn every_example_is_loaded() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fleet-config");
    let mut loaded = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if let Err(error) = FleetConfig::load(&path) {
            panic!("{error}");
        }
        loaded.push(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    loaded.sort();
    assert_eq!(loaded, ["full.yaml", "local.yaml", "minimal.yaml"]);
}
