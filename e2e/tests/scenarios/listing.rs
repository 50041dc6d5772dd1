//! What esfleet tells of a fleet: `status`, `check`, `/api/v1/fleet`, `/metrics` and its logs.

use anyhow::{Context as _, Result, ensure};
use esfleet_e2e::esfleet::free_address;
use esfleet_e2e::image::binary;
use esfleet_e2e::{Esfleet, Process, Replica, Signal, TestContext, eventually};
use serde_json::{Value, json};
use zookeeper_client::{Acls, CreateMode};

use super::fleet_place::{ByHand, SOON, check_member, file, quick, resting_app, row, scale, served};

/// What an app writes to steer the terminal of whoever lists it.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}orders-0\u{202e}";

/// Two members with apps and one that is gone, shown in every format, selected, checked and watched.
pub async fn the_listing_shows_selects_checks_and_watches(context: &TestContext) -> Result<()> {
    let gone = gone(context).await?;
    let (alpha, beta) = (context.member("alpha").await?, context.member("beta").await?);
    let esfleet = quick(context)?
        .with(beta)
        .with(alpha)
        .member_file("gone", &gone)
        .start()
        .await?;
    let mut gold = resting_app(context, "alpha", "orders");
    gold.metadata.labels = Some([("tier".to_owned(), "gold".to_owned())].into());
    gold.spec.image = "localhost/\u{1b}[31mred:1".to_owned();
    context.apply_app("alpha", &gold).await?;
    let plain = resting_app(context, "alpha", "payments");
    context.apply_app("alpha", &plain).await?;
    served(context, "alpha", "orders").await?;
    served(context, "alpha", "payments").await?;
    tables_are_aligned_and_harmless(context, &esfleet).await?;
    formats_agree(&esfleet).await?;
    selections_and_exit_codes(context, &esfleet).await?;
    a_watch_tells_changes(context, &esfleet).await?;
    the_server_tells_the_same(&esfleet).await
}

/// A kubeconfig of a server that is not there.
async fn gone(context: &TestContext) -> Result<std::path::PathBuf> {
    let access = context.member_kubeconfig("beta").await?;
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&access.kubeconfig)?)?;
    config["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", free_address()?));
    file(context, "gone.kubeconfig", &config.to_string())
}

async fn stdout(esfleet: &Esfleet, arguments: &[&str], code: i32) -> Result<String> {
    let output = esfleet.command("status", arguments).await?;
    let text = String::from_utf8(output.stdout)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(code),
        "status {arguments:?} ended with {}: {text}{errors}",
        output.status
    );
    Ok(text)
}

async fn tables_are_aligned_and_harmless(context: &TestContext, esfleet: &Esfleet) -> Result<()> {
    let zookeeper = context.zookeeper().await?;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let path = format!("{}/leader", context.root("alpha/orders"));
    zookeeper.create(&path, HOSTILE.as_bytes(), &open).await?;
    context
        .wait_app("alpha", "orders", "told that its leader is unreadable", |app| {
            let conditions = app
                .status
                .as_ref()
                .map(|status| &*status.conditions)
                .unwrap_or_default();
            conditions
                .iter()
                .any(|condition| condition.reason == "LeaderUnreadable")
        })
        .await?;
    let table = stdout(esfleet, &[], 0).await?;
    let of_orders = table.lines().find(|line| line.contains(" orders ")).unwrap_or_default();
    ensure!(of_orders.contains("<none>"), "{table}");
    let header = table.lines().next().unwrap_or_default();
    ensure!(header.starts_with("CLUSTER") && header.contains("STATE"), "{table}");
    let column = header.find("STATE").context("a column of states")?;
    for (name, state) in [("alpha", "Connected"), ("beta", "Connected"), ("gone", "Unreachable")] {
        let line = table.lines().find(|line| line.starts_with(name)).context("a row")?;
        ensure!(line[column..].starts_with(state), "{table}");
    }
    ensure!(
        table.contains("NotAnswering") && table.contains("Connection refused"),
        "{table}"
    );
    ensure!(!table.contains("localhost/"), "images are for -o wide: {table}");
    let wide = stdout(esfleet, &["-o", "wide"], 0).await?;
    ensure!(
        wide.contains("IMAGE") && wide.contains("localhost/\\u{1b}[31mred:1"),
        "{wide}"
    );
    for text in [&table, &wide] {
        ensure!(
            text.chars().all(|c| c == '\n' || !c.is_control()) && !text.contains('\u{202e}'),
            "{text:?}"
        );
    }
    zookeeper.set_data(&path, b"orders-0", None).await?;
    eventually(SOON, "the leader is shown once it can be read", || async {
        let listing = esfleet.status().await?;
        ensure!(row(&listing, "apps", "orders")?["leader"] == "orders-0", "{listing}");
        Ok(())
    })
    .await
}

async fn formats_agree(esfleet: &Esfleet) -> Result<()> {
    let listing: Value = serde_json::from_str(&stdout(esfleet, &["-o", "json"], 0).await?)?;
    let names = |list: &str| -> Vec<String> {
        let rows = listing[list].as_array().cloned().unwrap_or_default();
        rows.iter()
            .filter_map(|row| row["name"].as_str().map(str::to_owned))
            .collect()
    };
    ensure!(names("clusters") == ["alpha", "beta", "gone"], "{listing}");
    ensure!(names("apps") == ["orders", "payments"], "{listing}");
    let gone = check_member(&listing, "gone", "Unreachable", Some("NotAnswering"))?;
    ensure!(gone["lastSeen"].is_null() && gone["apps"]["total"] == 0, "{gone}");
    let app = row(&listing, "apps", "orders")?;
    let keys = "activeReplicas age cluster image lastConfirmed leader message name namespace ready reason replicas";
    let mut found: Vec<&str> = app.as_object().context("a row")?.keys().map(String::as_str).collect();
    found.sort_unstable();
    ensure!(found == keys.split(' ').collect::<Vec<_>>(), "{app}");
    ensure!(app["age"].is_u64() && app["lastConfirmed"].as_str().is_some_and(|time| time.ends_with('Z')));
    let yaml = stdout(esfleet, &["-o", "yaml"], 0).await?;
    for line in [
        "clusters:",
        "- name: gone",
        "  state: Unreachable",
        "  leader: orders-0",
        "  name: payments",
    ] {
        ensure!(yaml.lines().any(|found| found == line), "no {line:?} in {yaml}");
    }
    Ok(())
}

async fn selections_and_exit_codes(context: &TestContext, esfleet: &Esfleet) -> Result<()> {
    let apps = |text: String| -> Result<Vec<String>> {
        let listing: Value = serde_json::from_str(&text)?;
        let rows = listing["apps"].as_array().cloned().unwrap_or_default();
        Ok(rows
            .iter()
            .filter_map(|row| row["name"].as_str().map(str::to_owned))
            .collect())
    };
    let cases: [(&[&str], &[&str]); 6] = [
        (&["--cluster", "alpha"], &["orders", "payments"]),
        (&["--cluster", "beta,gone"], &[]),
        (&["-n", context.id()], &["orders", "payments"]),
        (&["-n", "elsewhere"], &[]),
        (&["--selector", "tier=gold"], &["orders"]),
        (&["-l", "!tier"], &["payments"]),
    ];
    for (arguments, wanted) in cases {
        let found = apps(stdout(esfleet, &[arguments, &["-o", "json"]].concat(), 0).await?)?;
        ensure!(found == wanted, "{arguments:?}: {found:?}");
    }
    stdout(esfleet, &["--check"], 1).await?;
    stdout(esfleet, &["--check", "--cluster", "alpha"], 1).await?; // its apps have no pods
    stdout(esfleet, &["--check", "--cluster", "beta"], 0).await?;
    stdout(esfleet, &["--check", "--cluster", "gone"], 1).await?;
    for usage in [&["--cluster", "delta"][..], &["-o", "xml"], &["--check", "--watch"]] {
        stdout(esfleet, usage, 2).await?;
    }
    Ok(())
}

async fn a_watch_tells_changes(context: &TestContext, esfleet: &Esfleet) -> Result<()> {
    let config = esfleet.fleet_config().await?.display().to_string();
    let arguments = ["status", "--fleet-config", &config, "--watch", "--cluster", "alpha"].map(str::to_owned);
    let log = context.state().join("watch.log");
    let watch = Process::start("status --watch", &binary("esfleet")?, &arguments, &[], &log)?;
    eventually(SOON, "the watch shows a listing", || async {
        ensure!(watch.log().contains("/1 "), "{}", watch.log());
        Ok(())
    })
    .await?;
    scale(context, "alpha", "payments", 7).await?;
    eventually(SOON, "the watch shows the change", || async {
        ensure!(watch.log().contains("/7 "), "{}", watch.log());
        Ok(())
    })
    .await?;
    ensure!(
        !watch.log().contains('\u{1b}'),
        "a pipe is not redrawn: {:?}",
        watch.log()
    );
    watch.signal(Signal::INT)?;
    let status = watch.wait(SOON).await?;
    ensure!(status.code() == Some(0), "{status}");
    Ok(())
}

/// What rows say, without what changes although nothing happens.
fn timeless(listing: &Value) -> Value {
    let mut rows = json!({"clusters": listing["clusters"], "apps": listing["apps"]});
    for cluster in rows["clusters"].as_array_mut().into_iter().flatten() {
        cluster["lastSeen"] = Value::Null;
    }
    for app in rows["apps"].as_array_mut().into_iter().flatten() {
        app["age"] = Value::Null;
        app["lastConfirmed"] = Value::Null;
    }
    rows
}

async fn the_server_tells_the_same(esfleet: &Esfleet) -> Result<()> {
    let replica = esfleet.replica(0)?;
    eventually(SOON, "/api/v1/fleet and status agree", || async {
        let (served, asked) = (timeless(&replica.fleet().await?), timeless(&esfleet.status().await?));
        ensure!(served == asked, "served: {served}\nasked: {asked}");
        Ok(())
    })
    .await?;
    let listing = replica.fleet().await?;
    let leadership = &listing["leadership"];
    ensure!(
        leadership["leads"] == true && leadership["holder"] == leadership["identity"],
        "{leadership}"
    );
    metrics_are_complete(replica).await
}

async fn metrics_are_complete(replica: &Replica) -> Result<()> {
    let (code, text) = replica.get("/metrics").await?;
    ensure!(code == 200 && text.ends_with("# EOF\n"), "{code}: {text}");
    let described = |line: &&str| line.starts_with("# TYPE ");
    let types: Vec<&str> = text.lines().filter(described).collect();
    let mut unique = types.clone();
    unique.sort_unstable();
    unique.dedup();
    ensure!(unique.len() == types.len(), "a metric is described twice: {types:?}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        ensure!(value.is_some(), "no sample: {line}");
    }
    let cases = [
        ("esfleet_members", "Connected", 2.0),
        ("esfleet_members", "Unreachable", 1.0),
        ("esfleet_leadership_leads", "", 1.0),
        ("esfleet_leadership_holder_changes_total", "", 0.0),
        ("esfleet_reconcile_queue_depth", "", 0.0),
        ("esfleet_zookeeper_sessions", "Connected", 1.0),
    ];
    for (name, labels, wanted) in cases {
        let found = replica.metric(name, labels).await?;
        ensure!(found == wanted, "{name} {labels}: {found}");
    }
    for name in [
        "esfleet_reconciles_total",
        "esfleet_reconcile_seconds_count",
        "esfleet_zookeeper_requests_total",
    ] {
        ensure!(replica.metric(name, "").await? >= 2.0, "{name} counts nothing: {text}");
    }
    Ok(())
}

/// Logs are lines of text or JSON objects; at the finest level too, no token of a kubeconfig is among them.
pub async fn logs_are_lines_without_secrets(context: &TestContext) -> Result<()> {
    let member = context.member("alpha").await?;
    let esfleet = quick(context)?
        .with(member)
        .environment("RUST_LOG", "trace")
        .start()
        .await?;
    context
        .apply_app("alpha", &resting_app(context, "alpha", "orders"))
        .await?;
    served(context, "alpha", "orders").await?;
    let replica = esfleet.replica(0)?;
    let hub = replica
        .fleet_config
        .with_file_name("hub.kubeconfig")
        .display()
        .to_string();
    let config = replica.fleet_config.display().to_string();
    let arguments = [
        "--fleet-config",
        &config,
        "--hub-kubeconfig",
        &hub,
        "--lease-name",
        context.id(),
    ];
    let json = ByHand::start(
        context,
        "json",
        &[&arguments[..], &["--log-format", "json"]].concat(),
        &[],
    )?;
    json.logs(&["\"connected\""]).await?;
    replica.process.terminate()?; // its last lines are looked at, too
    replica.process.wait(SOON).await?;
    json.leads().await?;
    json.process.terminate()?;
    ensure!(json.process.wait(SOON).await?.success());
    let (text, structured) = (replica.process.log(), json.process.log());
    ensure!(
        text.contains(" INFO esfleet starts") || text.contains("esfleet starts"),
        "{text}"
    );
    for line in structured.lines() {
        let line: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        let message = line["message"].as_str().unwrap_or_default();
        ensure!(
            line["level"].is_string() && line["timestamp"].is_string() && !message.is_empty(),
            "{line}"
        );
    }
    ensure!(structured.contains("\"cluster\":\"alpha\""), "{structured}");
    ensure!(structured.contains("esfleet ends"), "{structured}");
    for kubeconfig in [replica.kubeconfig("alpha")?, replica.kubeconfig("the hub")?] {
        let config: Value = serde_json::from_str(&std::fs::read_to_string(kubeconfig)?)?;
        let token = config["users"][0]["user"]["token"].as_str().context("a token")?;
        let signature = token.rsplit('.').next().context("a signature")?;
        for log in [&text, &structured] {
            ensure!(!log.contains(token) && !log.contains(signature), "a token is in a log");
        }
    }
    Ok(())
}

/// `esfleet check` has a line for all that is well, and for what is not a line with the remedy.
pub async fn check_says_what_is_well_and_what_to_do(context: &TestContext) -> Result<()> {
    let member = context.member("alpha").await?;
    let esfleet = quick(context)?.with(member).start().await?;
    context
        .apply_app("alpha", &resting_app(context, "alpha", "orders"))
        .await?;
    served(context, "alpha", "orders").await?;
    let hub = esfleet.replica(0)?.fleet_config.with_file_name("hub.kubeconfig");
    let hub = hub.display().to_string();
    let flags = ["--hub-kubeconfig", &*hub, "--lease-name", esfleet.lease_name()];
    let run = async |arguments: &[&str], code: i32| -> Result<String> {
        let output = esfleet.command("check", arguments).await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.code() == Some(code), "{}: {text}", output.status);
        Ok(text)
    };
    let text = run(&flags, 0).await?;
    for parts in [
        ["fleet config", "1 member"],
        ["hub", "reached"],
        ["hub", "leases in namespace esfleet"],
        ["hub", "exists"],
        ["alpha", "reached"],
        ["alpha", "definition is current"],
        ["alpha", "may do all"],
        ["alpha", "ZooKeeper"],
    ] {
        let ok = |line: &str| line.starts_with("OK") && parts.iter().all(|part| line.contains(part));
        ensure!(text.lines().any(ok), "{parts:?}: {text}");
    }
    ensure!(text.contains("0 failed"), "{text}");
    let mut lost = resting_app(context, "alpha", "lost");
    lost.spec.zookeeper_connect_string = free_address()?.to_string();
    context.apply_app("alpha", &lost).await?;
    let text = run(&[&flags[..], &["--lease-namespace", "nowhere"]].concat(), 1).await?;
    for parts in [["hub", "member manifest --hub"], ["alpha", "see that it runs"]] {
        let failed = |line: &str| line.starts_with("FAIL") && parts.iter().all(|part| line.contains(part));
        ensure!(text.lines().any(failed), "{parts:?}: {text}");
    }
    Ok(())
}
