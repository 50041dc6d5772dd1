//! Specs that the API server has to refuse, and ones that it has to accept.

use serde_json::{Value, json};

/// An app that is refused when it is created.
pub struct Refused {
    /// What is wrong with it, for people.
    pub what: &'static str,
    /// The object's name.
    pub name: String,
    /// The fields of `spec` that differ from [`good_spec`]; null takes a field out.
    pub spec: Value,
    /// What the API server's message has to contain: the field, and enough of the reason.
    pub message: &'static str,
}

/// A spec that is accepted.
pub fn good_spec() -> Value {
    json!({
        "replicas": 3,
        "image": "localhost/ledger:1",
        "zookeeperConnectString": "zk-0.zookeeper:2181,zk-1.zookeeper:2181/fleet",
        "zookeeperRootPath": "/orders/eu",
    })
}

/// [`good_spec`] with some fields replaced; null takes a field out.
pub fn spec_with(fields: &Value) -> Value {
    let mut spec = good_spec();
    for (field, value) in fields.as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(spec.as_object_mut().map(|spec| spec.remove(field))),
            value => spec[field] = value.clone(),
        }
    }
    spec
}

/// Changes to [`good_spec`] that are accepted on creation.
pub fn accepted() -> Vec<(&'static str, Value)> {
    let mut accepted = vec![
        ("as it is", json!({})),
        ("one replica", json!({"replicas": 1})),
        ("paused", json!({"paused": true})),
        (
            "an overlay without containers",
            json!({"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}),
        ),
        (
            "an overlay of our container",
            json!({"template": {"spec": {"containers": [
            {"name": "es-app", "resources": {"requests": {"cpu": 1, "memory": "512Mi"}}}]}}}),
        ),
    ];
    let connect = [
        "zk",
        "ZK-0.Example:2182 , zk-1",
        "10.0.0.1:2181,10.0.0.2",
        "[::1]:2183,[2001:DB8::1]",
        "zk.:2181",
        "zk:2181/",
        "zk/a/b/",
        "zk_1:65535",
        "zk:02181",
    ];
    accepted.extend(connect.map(|text| ("a connect string", json!({"zookeeperConnectString": text}))));
    let roots = ["/a", "/a.b/..c", "/zookeeper2", "/esfleet-x/y", "/a b", "/ä/日本"];
    accepted.extend(roots.map(|text| ("a root path", json!({"zookeeperRootPath": text}))));
    accepted
}

/// The apps that are refused.
pub fn refused() -> Vec<Refused> {
    let mut refused = fields();
    let name = "metadata.name must be a DNS label of at most 52 characters";
    for (what, bad) in [
        ("a name with a dot", "a.b".to_owned()),
        ("a name that starts with a digit", "1a".to_owned()),
        ("a name of 53 characters", "a".repeat(53)),
    ] {
        refused.push(Refused {
            what,
            name: bad,
            spec: json!({}),
            message: name,
        });
    }
    refused
}

fn fields() -> Vec<Refused> {
    let root = |what, path: &str, message| (what, json!({"zookeeperRootPath": path}), message);
    let connect = |what, text: &str| {
        (
            what,
            json!({"zookeeperConnectString": text}),
            "zookeeperConnectString must be host:port",
        )
    };
    let level = "zookeeperRootPath must not contain \".\" or \"..\" levels";
    let slash = "zookeeperRootPath must not end with a slash";
    let character = "zookeeperRootPath must not contain control characters";
    let reserved = "zookeeperRootPath must not be /zookeeper or /esfleet";
    let cases = [
        (
            "no replicas",
            json!({"replicas": null}),
            "spec.replicas: Required value",
        ),
        ("replicas 0", json!({"replicas": 0}), "spec.replicas: Invalid value"),
        (
            "negative replicas",
            json!({"replicas": -1}),
            "spec.replicas: Invalid value",
        ),
        (
            "replicas as text",
            json!({"replicas": "3"}),
            "spec.replicas: Invalid value",
        ),
        ("no image", json!({"image": null}), "spec.image: Required value"),
        ("an empty image", json!({"image": ""}), "spec.image: Invalid value"),
        (
            "no root path",
            json!({"zookeeperRootPath": null}),
            "spec.zookeeperRootPath: Required value",
        ),
        root("an empty root path", "", "spec.zookeeperRootPath: Invalid value"),
        root(
            "a root path without a leading slash",
            "a/b",
            "spec.zookeeperRootPath: Invalid value",
        ),
        root("a root path with a trailing slash", "/a/", slash),
        root("the top as root path", "/", slash),
        root("an empty level", "/a//b", "zookeeperRootPath must not contain \"//\""),
        root("a . level", "/a/./b", level),
        root("a . level at the end", "/a/.", level),
        root("a .. level", "/../b", level),
        root("a .. level at the end", "/a/..", level),
        root("NUL", "/a\0b", character),
        root("a line feed", "/a\nb", character),
        root("a private-use character", "/a\u{e000}", character),
        root("ZooKeeper's own root", "/zookeeper", reserved),
        root("below ZooKeeper's own root", "/zookeeper/quota", reserved),
        root("our own root", "/esfleet", reserved),
        root("below our own root", "/esfleet/claims", reserved),
        (
            "no connect string",
            json!({"zookeeperConnectString": null}),
            "spec.zookeeperConnectString: Required value",
        ),
        (
            "an empty connect string",
            json!({"zookeeperConnectString": ""}),
            "spec.zookeeperConnectString: Invalid value",
        ),
        connect("spaces as connect string", "  "),
        connect("two commas", "a,,b"),
        connect("a comma at the end", "a,"),
        connect("a chroot alone", "/chroot"),
        connect("a host with a space", "a b:1"),
        connect("a host that starts with a hyphen", "-a:1"),
        connect("an empty label", "a:1,b..c:1"),
        connect("an address without brackets", "::1:2181"),
        connect("no address in brackets", "[::g]:1"),
        connect("no port after the colon", "a:"),
        connect("port 0", "a:0"),
        connect("port 65536", "a:65536"),
        connect("a port that is no number", "a:x"),
        connect("a server after the chroot", "a/c,b:1"),
        connect("an empty level in the chroot", "a/b//c"),
        (
            "a .. level in the chroot",
            json!({"zookeeperConnectString": "a/../b"}),
            "zookeeperConnectString must not contain",
        ),
        (
            "an unknown field",
            json!({"replica": 3}),
            "unknown field \"spec.replica\"",
        ),
        (
            "an unknown field in the overlay",
            json!({"template": {"spec": {"nodeSelektor": {}}}}),
            "unknown field \"spec.template.spec.nodeSelektor\"",
        ),
        (
            "a container without a name",
            json!({"template": {"spec": {"containers": [{"image": "x"}]}}}),
            "spec.template.spec.containers[0].name: Required value",
        ),
    ];
    let named = |(what, spec, message)| Refused {
        what,
        name: "orders".to_owned(),
        spec,
        message,
    };
    cases.into_iter().map(named).collect()
}
