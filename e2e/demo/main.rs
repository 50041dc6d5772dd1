//! `esfleet-demo`: esfleet doing its main job on real clusters, while one watches.
//!
//! Without settings it starts two clusters and a ZooKeeper ensemble on this machine. `KEEP=1` keeps all of it up at the
//! end. `ESFLEET_E2E_KUBECONFIGS`, `ESFLEET_E2E_ZOOKEEPER` and `ESFLEET_E2E_SAMPLE_IMAGE` name one's own.

use std::future::Future;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use esfleet::api::EventSourcedApp;
use esfleet_e2e::{Cluster, Esfleet, TestContext, World, eventually, report};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

/// The namespace in both clusters, the name of the fleet, and the top of the roots.
const DEMO: &str = "esfleet-demo";

/// Cluster, name and pods of the demo's apps; two of them have the same name.
const APPS: [(&str, &str, i32); 3] = [("alpha", "orders", 3), ("alpha", "payments", 2), ("beta", "orders", 3)];

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let start = Instant::now();
    let world = say("Two Kubernetes clusters, alpha and beta, and ZooKeeper", World::start()).await?;
    let context = TestContext::with_id(&world, "demo", DEMO)?;
    let shown = tokio::select! {
        shown = show(&context, start) => shown,
        _ = tokio::signal::ctrl_c() => if keep() { Ok(()) } else { Err(anyhow::anyhow!("interrupted")) },
    };
    if shown.is_err()
        && let Ok(folder) = report::collect(&context).await
    {
        eprintln!("logs and objects: {}", folder.display());
    }
    let finished = context.finish().await;
    let ended = say("Everything that was started ends", world.finish()).await;
    shown?;
    finished?;
    ended
}

async fn show(context: &TestContext, start: Instant) -> Result<()> {
    let esfleet = say(
        "Two replicas of esfleet, with exactly the permissions of its manifest",
        replicas(context),
    )
    .await?;
    let leader = say("They elect one through a Lease in alpha", esfleet.leader()).await?;
    println!("    {} leads", esfleet.replica(leader)?.identity);
    say(
        "Three apps in two clusters, eight pods: esfleet makes what they need, and they elect their leaders",
        async {
            for (cluster, name, pods) in APPS {
                let mut app = context.app(name);
                app.spec.replicas = pods;
                app.spec.zookeeper_root_path = format!("/{DEMO}/{cluster}/{name}");
                context.apply_app(cluster, &app).await?;
            }
            for (cluster, name, _) in APPS {
                context.wait_ready(cluster, name).await?;
            }
            Ok(())
        },
    )
    .await?;
    listing(&esfleet).await?;
    say("The app orders in alpha is given ten events", deposit(context, 10)).await?;

    let survivor = say(
        "The leading replica of esfleet is killed (SIGKILL); the other takes over when the lease is old",
        async {
            esfleet.replica(leader)?.process.kill()?;
            esfleet.leader().await
        },
    )
    .await?;
    println!("    {} leads", esfleet.replica(survivor)?.identity);

    let before = leader_of(&context.wait_ready("alpha", "orders").await?)?;
    let what =
        format!("The leader pod of orders in alpha, {before}, is killed; another takes over, and esfleet says so");
    let after = say(&what, replace_leader(context, &before)).await?;
    println!("    {after} leads");
    say("Nothing that orders had acknowledged is lost", kept(context, 10)).await?;
    say(
        "The app payments is scaled from two pods to three, by the replica that is left",
        async {
            context
                .kubectl("alpha", &["scale", "eventsourcedapp/payments", "--replicas=3"])
                .await?;
            let scaled = |app: &EventSourcedApp| {
                app.status
                    .as_ref()
                    .is_some_and(|status| status.active_replicas == Some(3))
            };
            context
                .wait_app("alpha", "payments", "three pods", scaled)
                .await
                .map(drop)
        },
    )
    .await?;
    listing(&esfleet).await?;
    println!("\nDone, {:.0} s in all.", start.elapsed().as_secs_f64());
    if keep() {
        look_around(context, &esfleet).await?;
        std::future::pending::<()>().await; // until Ctrl-C
    }
    Ok(())
}

/// Whether everything stays up at the end.
fn keep() -> bool {
    std::env::var_os("KEEP").is_some_and(|keep| !keep.is_empty() && keep != "0")
}

async fn replicas(context: &TestContext) -> Result<Esfleet> {
    let (alpha, beta) = (context.member("alpha").await?, context.member("beta").await?);
    context.esfleet()?.with(alpha).with(beta).replicas(2).start().await
}

/// Prints what happens, that it goes on, and then how long it took.
async fn say<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    println!("\n==> {what}.");
    let start = Instant::now();
    let mut work = std::pin::pin!(work);
    let result = loop {
        match tokio::time::timeout(Duration::from_secs(5), work.as_mut()).await {
            Ok(result) => break result,
            Err(_) => println!("    ... {:.0} s", start.elapsed().as_secs_f64()),
        }
    };
    let word = if result.is_ok() { "done" } else { "FAILED" };
    println!("    {word}, {:.1} s", start.elapsed().as_secs_f64());
    result
}

async fn listing(esfleet: &Esfleet) -> Result<()> {
    println!("\n==> The whole fleet in one listing: esfleet status.");
    let output = esfleet.command("status", &[]).await?;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        println!("    {line}");
    }
    ensure!(
        output.status.success(),
        "esfleet status: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn leader_of(app: &EventSourcedApp) -> Result<String> {
    let leader = app.status.as_ref().and_then(|status| status.leader.clone());
    leader.context("status.leader is empty")
}

async fn deposit(context: &TestContext, count: u64) -> Result<()> {
    for number in 1..=count {
        let event = json!({"id": format!("demo-{number}"), "command": {"deposit": {"account": "alice", "amount": 5}}});
        eventually(Duration::from_secs(20), "the app takes an event", || async {
            let app: Api<EventSourcedApp> = context.api("alpha").await?;
            let leader = leader_of(&app.get("orders").await?)?;
            context.pod_post("alpha", &leader, "/events", &event).await
        })
        .await?;
    }
    Ok(())
}

async fn replace_leader(context: &TestContext, old: &str) -> Result<String> {
    let pods: Api<Pod> = context.api("alpha").await?;
    pods.delete(
        old,
        &DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        },
    )
    .await?;
    let another = |app: &EventSourcedApp| leader_of(app).is_ok_and(|leader| leader != old);
    leader_of(&context.wait_app("alpha", "orders", "another leader", another).await?)
}

async fn kept(context: &TestContext, count: u64) -> Result<()> {
    let leader = leader_of(&context.wait_ready("alpha", "orders").await?)?;
    let applied = eventually(Duration::from_secs(20), "the new leader knows all events", || async {
        let state = context.pod_get("alpha", &leader, "/state").await?;
        match state["applied"].as_u64() {
            Some(applied) if applied >= count => Ok(applied),
            applied => bail!("it has applied {applied:?}"),
        }
    })
    .await?;
    println!("    {leader} has applied {applied} events");
    Ok(())
}

/// Says how to look around.
async fn look_around(context: &TestContext, esfleet: &Esfleet) -> Result<()> {
    let kubectl = context.world().paths.bin.join("kubectl");
    let describe = |cluster: &Cluster| {
        format!(
            "{} --kubeconfig {} -n {DEMO}",
            kubectl.display(),
            cluster.kubeconfig().display()
        )
    };
    let leader = esfleet.replica(esfleet.leader().await?)?;
    println!("\nIt stays up until Ctrl-C. From another terminal:");
    for cluster in context.world().clusters() {
        println!("  {} get esapp,statefulset,pods", describe(cluster));
    }
    let program = esfleet_e2e::image::binary("esfleet")?;
    println!(
        "  {} status --fleet-config {}",
        program.display(),
        esfleet.fleet_config().await?.display()
    );
    println!("  curl http://{}/api/v1/fleet", leader.http);
    println!("  curl http://{}/metrics", leader.http);
    println!("  tail -f {}", leader.process.log_path().display());
    println!("  kill -9 {}    # the replica that leads", leader.process.pid());
    println!("  ZooKeeper: {}", context.world().zookeeper().connect_string());
    Ok(())
}
