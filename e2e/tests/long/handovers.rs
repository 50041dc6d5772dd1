//! Many changes of the replica that leads.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use esfleet_e2e::{Esfleet, TestContext, eventually};

use super::figures::{figure, percentiles, size};

/// How many, unless `ESFLEET_LONG_HANDOVERS` says otherwise.
const HANDOVERS: usize = 50;
/// Promised after SIGTERM, and after SIGKILL (the lease and one retry), with something for a busy machine.
const PROMISED: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(17));
const SLACK: Duration = Duration::from_secs(3);

/// The replica that leads is ended fifty times, by SIGTERM and SIGKILL in turn; each time the other leads soon.
pub async fn fifty_hand_overs_leave_short_gaps(context: &TestContext) -> Result<()> {
    let cluster = context.light_cluster("lima", &[]).await?;
    let esfleet = context.esfleet()?.hub(&cluster).with(context.member("lima").await?);
    let mut esfleet = esfleet.replicas(2).start().await?;
    let (mut terminated, mut killed) = (Vec::new(), Vec::new());
    for round in 0..size("ESFLEET_LONG_HANDOVERS", HANDOVERS)? {
        let leader = esfleet.leader().await?;
        let holder = holder(&esfleet).await?.context("nobody holds the Lease")?;
        let replica = esfleet.replica(leader)?;
        let start = Instant::now();
        if round % 2 == 0 {
            replica.process.terminate()?;
        } else {
            replica.process.kill()?;
        }
        let gap = eventually(PROMISED.1 * 3, "another replica leads", || async {
            let now = self::holder(&esfleet).await?;
            ensure!(
                now.is_some() && now.as_ref() != Some(&holder),
                "{now:?} holds the Lease"
            );
            Ok(start.elapsed())
        })
        .await?;
        if round % 2 == 0 { &mut terminated } else { &mut killed }.push(gap);
        let status = esfleet.replica(leader)?.process.wait(Duration::from_secs(20)).await?;
        ensure!(round % 2 == 1 || status.success(), "after SIGTERM: {status}");
        let next = esfleet.add_replica().await?;
        esfleet.replica(next)?.serves().await?;
    }
    let what = "from the signal to another holder in the Lease (looked at every 0.1 s), p50 / p90 / p99 / longest";
    figure(
        &format!("{} times SIGTERM: {what}", terminated.len()),
        &percentiles(&mut terminated),
    )?;
    figure(
        &format!("{} times SIGKILL: {what}", killed.len()),
        &percentiles(&mut killed),
    )?;
    ensure!(
        terminated.last() < Some(&(PROMISED.0 + SLACK)),
        "after SIGTERM: {terminated:?}"
    );
    ensure!(killed.last() < Some(&(PROMISED.1 + SLACK)), "after SIGKILL: {killed:?}");
    Ok(())
}

async fn holder(esfleet: &Esfleet) -> Result<Option<String>> {
    let lease = esfleet.lease().await?;
    let holder = lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity);
    Ok(holder.filter(|holder| !holder.is_empty()))
}
