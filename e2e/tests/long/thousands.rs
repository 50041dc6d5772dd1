//! Two members of a thousand apps each.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use esfleet::api::EventSourcedApp;
use esfleet_e2e::{TestContext, eventually};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use kube::Api;
use kube::api::ListParams;
use zookeeper_client::{Acls, Client, CreateMode};

use super::figures::{figure, seconds, size};
use super::objects_fleet::{Fleet, MEMBERS};

/// How many apps each member has, unless `ESFLEET_LONG_APPS` says otherwise.
const APPS: usize = 1000;
const SERVED: Duration = Duration::from_secs(600);
const IDLE: Duration = Duration::from_secs(60);
const IN_FLIGHT: usize = 64;

/// All are served and then left alone; ZooKeeper's servers are restarted one after the other, and after each of them the
/// new leader of every app is in its status.
pub async fn two_thousand_apps_are_served_left_alone_and_followed_through_restarts(
    context: &TestContext,
) -> Result<()> {
    let fleet = Fleet::start(context, size("ESFLEET_LONG_APPS", APPS)?, 3).await?;
    let start = Instant::now();
    fleet.create().await?;
    let created = start.elapsed();
    fleet.served(SERVED).await?;
    figure(
        &format!("{} apps created by the test, all served", fleet.len()),
        &format!("{}, {}", seconds(created), seconds(start.elapsed())),
    )?;
    for replica in fleet.esfleet.replicas() {
        let used = (replica.process.resident_kib()?, replica.process.cpu()?);
        let what = format!("{}: resident, CPU so far", role(&fleet, &replica.identity).await?);
        figure(&what, &format!("{} kB, {}", used.0, seconds(used.1)))?;
    }
    fleet.is_idle_for(IDLE).await?;
    figure("writes but the Lease's, and reads but probes, in an idle minute", "0")?;
    let unexpected = fleet.unexpected_writes()?;
    figure("apps that cost other than five writes", &unexpected.len().to_string())?;
    for server in 0..fleet.zookeeper.len() {
        fleet.zookeeper.kill(server).await?;
        fleet.zookeeper.restart(server).await?;
        let name = format!("leader-{server}");
        let client = fleet.zookeeper.client().await?;
        lead_all(&fleet, &client, &name).await?;
        let seen = all_led_by(&fleet, &name).await?;
        figure(
            &format!(
                "server {} restarted: all leaders changed, the last in its status after",
                server + 1
            ),
            &seconds(seen),
        )?;
    }
    ensure!(unexpected.is_empty(), "other than five writes: {unexpected:#?}");
    Ok(())
}

async fn role(fleet: &Fleet<'_>, identity: &str) -> Result<&'static str> {
    let leads = fleet.esfleet.replica(fleet.esfleet.leader().await?)?.identity == identity;
    Ok(if leads { "leading replica" } else { "other replica" })
}

async fn lead_all(fleet: &Fleet<'_>, client: &Client, name: &str) -> Result<()> {
    let mut all = Vec::new();
    for member in MEMBERS {
        for number in 0..fleet.len() / MEMBERS.len() {
            let path = format!("{}/leader", fleet.root(member, number));
            all.push(lead(client, path, name).boxed());
        }
    }
    stream::iter(all).buffer_unordered(IN_FLIGHT).try_collect().await
}

async fn lead(client: &Client, path: String, name: &str) -> Result<()> {
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    match client.create(&path, name.as_bytes(), &open).await {
        Err(zookeeper_client::Error::NodeExists) => client.set_data(&path, name.as_bytes(), None).await.map(drop)?,
        created => created.map(drop)?,
    }
    Ok(())
}

async fn all_led_by(fleet: &Fleet<'_>, name: &str) -> Result<Duration> {
    let (start, wanted) = (Instant::now(), fleet.len() / MEMBERS.len());
    for member in MEMBERS {
        let apps: Api<EventSourcedApp> = fleet.context.api(member).await?;
        let what = format!("every app of {member} is led by {name}");
        eventually(Duration::from_secs(180), &what, || async {
            let apps = apps.list(&ListParams::default()).await?.items;
            let led = apps
                .iter()
                .filter(|app| app.status.as_ref().and_then(|status| status.leader.as_deref()) == Some(name))
                .count();
            if led != wanted {
                tokio::time::sleep(Duration::from_secs(1)).await; // a look at all of them is no small thing
                bail!("{led} of {wanted} are");
            }
            Ok(())
        })
        .await?;
    }
    Ok(start.elapsed())
}
