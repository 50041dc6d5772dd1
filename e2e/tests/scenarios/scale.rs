//! Many apps: what they are given, and that they are then left alone.

use std::time::Duration;

use anyhow::{Result, ensure};
use esfleet_e2e::TestContext;

use super::objects_fleet::Fleet;

/// How many apps each of the two members has.
const APPS: usize = 200;
/// How long all of them may take to be served.
const SERVED: Duration = Duration::from_secs(90);
/// For how long nothing may happen.
const IDLE: Duration = Duration::from_secs(60);

/// 200 apps in each of two members share one session; each costs five writes; then there is no write but the Lease's, no
/// read but probes and watches that are renewed, and ZooKeeper gets nothing but pings.
pub async fn four_hundred_apps_share_a_session_cost_five_writes_each_and_are_left_alone(
    context: &TestContext,
) -> Result<()> {
    let fleet = Fleet::start(context, APPS, 1).await?;
    fleet.create().await?;
    let served = fleet.served(SERVED).await?;
    fleet.is_idle_for(IDLE).await?;
    let unexpected = fleet.unexpected_writes()?;
    ensure!(unexpected.is_empty(), "other than five writes: {unexpected:#?}");
    for replica in fleet.esfleet.replicas() {
        let kib = replica.process.resident_kib()?;
        eprintln!(
            "{}: {kib} KiB resident, {:.1?} of CPU",
            replica.identity,
            replica.process.cpu()?
        );
    }
    eprintln!(
        "{} apps: the last was served {served:.1?} after all were created",
        fleet.len()
    );
    Ok(())
}
