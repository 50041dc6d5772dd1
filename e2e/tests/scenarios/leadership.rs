//! Which replica may write: handed over by SIGTERM, taken over after SIGKILL and SIGSTOP, and never a follower.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use esfleet_e2e::{Esfleet, Replica, TestContext, eventually};

use super::fleet_place::{SOON, but_the_lease, order, prove_audit_is_live, quick, resting_app, row, scale, served};

/// How long the other replica may take after a SIGTERM.
const AFTER_TERM: Duration = Duration::from_secs(2);
/// How long it may take after a SIGKILL: the default lease and one retry.
const AFTER_KILL: Duration = Duration::from_secs(15 + 2);
/// How late a look at the Lease may notice that.
const LOOK: Duration = Duration::from_millis(500);

/// Waits until some replica but `old` leads; how long that took from `since`.
async fn other_leads(esfleet: &Esfleet, old: &Replica, since: Instant) -> Result<(usize, Duration)> {
    let leader = eventually(SOON, "another replica holds the Lease", || async {
        let holder = esfleet.lease().await?.and_then(|lease| lease.spec?.holder_identity);
        let holder = holder.context("nobody holds it")?;
        let index = esfleet
            .replicas()
            .iter()
            .position(|replica| holder.starts_with(&format!("{}_", replica.identity)));
        let index = index.with_context(|| format!("{holder} is nobody's"))?;
        ensure!(
            esfleet.replica(index)?.identity != old.identity,
            "the old one still holds it"
        );
        Ok(index)
    })
    .await?;
    Ok((leader, since.elapsed()))
}

/// How many TCP connections a process has to these addresses of ZooKeeper (IPv4).
fn connections(replica: &Replica, connect: &str) -> Result<usize> {
    let servers: Vec<std::net::SocketAddrV4> = connect.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let remote = |server: &std::net::SocketAddrV4| {
        format!("{:08X}:{:04X}", u32::from_le_bytes(server.ip().octets()), server.port())
    };
    let remotes: Vec<String> = servers.iter().map(remote).collect();
    let directory = format!("/proc/{}/fd", replica.process.pid());
    let sockets: Vec<String> = std::fs::read_dir(directory)?
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", replica.process.pid()))?;
    let ours = table.lines().filter(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 9
            && remotes.iter().any(|remote| remote == fields[2])
            && sockets.contains(&format!("socket:[{}]", fields[9]))
    });
    Ok(ours.count())
}

/// The follower knows what the leader knows, writes nothing and holds no session; SIGTERM hands over within 2 s.
pub async fn a_follower_writes_nothing_until_the_leader_is_ended(context: &TestContext) -> Result<()> {
    let member = context.member("alpha").await?;
    let esfleet = quick(context)?.with(member).replicas(2).start().await?;
    context
        .apply_app("alpha", &resting_app(context, "alpha", "orders"))
        .await?;
    served(context, "alpha", "orders").await?;
    let leader = esfleet.replica(esfleet.leader().await?)?;
    let follower = esfleet.replica(esfleet.follower().await?)?;
    let alpha = context.cluster("alpha")?;

    let mark = alpha.audit()?.mark()?;
    scale(context, "alpha", "orders", 2).await?;
    eventually(SOON, "the follower's listing has the change", || async {
        let listing = follower.fleet().await?;
        ensure!(row(&listing, "apps", "orders")?["replicas"] == 2, "{listing}");
        let leadership = &listing["leadership"];
        let holder = leadership["holder"].as_str().unwrap_or_default();
        ensure!(
            leadership["leads"] == false && holder.starts_with(&leader.identity),
            "{leadership}"
        );
        ensure!(listing["zookeeperSessions"] == serde_json::json!([]), "{listing}");
        Ok(())
    })
    .await?;
    prove_audit_is_live(context, "alpha").await?;
    let by_follower = follower.writes_since(&alpha, mark)?;
    ensure!(by_follower.is_empty(), "the follower wrote {by_follower:?}");
    ensure!(
        !but_the_lease(leader.writes_since(&alpha, mark)?).is_empty(),
        "the leader wrote nothing"
    );
    let connect = context.world().zookeeper().connect_string();
    let held = (connections(leader, connect)?, connections(follower, connect)?);
    ensure!(held == (1, 0), "connections to ZooKeeper: {held:?}");

    let start = Instant::now();
    leader.process.terminate()?;
    let (now_leads, took) = other_leads(&esfleet, leader, start).await?;
    ensure!(took < AFTER_TERM, "it took {took:?}");
    ensure!(esfleet.replica(now_leads)?.identity == follower.identity);
    let mark = alpha.audit()?.mark()?;
    let status = leader.process.wait(SOON).await?;
    ensure!(status.code() == Some(0), "{status}");
    scale(context, "alpha", "orders", 3).await?;
    let late = leader.writes_since(&alpha, mark)?;
    ensure!(late.is_empty(), "it wrote after it had handed over: {late:?}");
    ensure!(
        !but_the_lease(follower.writes_since(&alpha, mark)?).is_empty(),
        "its successor wrote nothing"
    );
    Ok(())
}

/// With the default times, the other replica leads within the lease time and one retry, and goes on.
pub async fn a_killed_leader_is_replaced_within_the_lease_and_a_retry(context: &TestContext) -> Result<()> {
    let member = context.member("beta").await?;
    let esfleet = context.esfleet()?.with(member).replicas(2).start().await?;
    context
        .apply_app("beta", &resting_app(context, "beta", "orders"))
        .await?;
    served(context, "beta", "orders").await?;
    let old = esfleet.replica(esfleet.leader().await?)?;
    let term = esfleet.lease().await?.and_then(|lease| lease.spec?.lease_transitions);
    let start = Instant::now();
    old.process.kill()?;
    order(context, "beta", "orders", 2).await?;
    let (leader, took) = other_leads(&esfleet, old, start).await?;
    ensure!(took < AFTER_KILL + LOOK, "it took {took:?}");
    let next = esfleet.lease().await?.and_then(|lease| lease.spec?.lease_transitions);
    ensure!(next == term.map(|term| term + 1), "from term {term:?} to {next:?}");
    super::fleet_place::has_replicas(context, "beta", "orders", 2).await?;
    let changes = esfleet
        .replica(leader)?
        .metric("esfleet_leadership_holder_changes_total", "")
        .await?;
    ensure!(changes == 1.0, "{changes} changes of the holder");
    Ok(())
}

/// A leader that was frozen past its lease writes nothing when it goes on: it looks at its clock before each write.
///
/// This is the best that a deadline can do. A write that had left it before the freeze, held back by the network, is not
/// shown here: refusing that takes a fence.
pub async fn a_frozen_leader_writes_nothing_when_it_goes_on(context: &TestContext) -> Result<()> {
    let member = context.member("alpha").await?;
    let esfleet = quick(context)?.with(member).replicas(2).start().await?;
    context
        .apply_app("alpha", &resting_app(context, "alpha", "orders"))
        .await?;
    served(context, "alpha", "orders").await?;
    let old = esfleet.replica(esfleet.leader().await?)?;
    let alpha = context.cluster("alpha")?;
    old.process.freeze()?;
    order(context, "alpha", "orders", 2).await?; // it has something to write when it goes on
    let (leader, _) = other_leads(&esfleet, old, Instant::now()).await?;
    super::fleet_place::has_replicas(context, "alpha", "orders", 2).await?;
    order(context, "alpha", "orders", 3).await?;
    let mark = alpha.audit()?.mark()?;
    old.process.resume()?;
    eventually(SOON, "the old leader knows that it is none", || async {
        let listing = old.fleet().await?;
        ensure!(listing["leadership"]["leads"] == false, "{}", listing["leadership"]);
        ensure!(row(&listing, "apps", "orders")?["replicas"] == 3, "{listing}");
        Ok(())
    })
    .await?;
    super::fleet_place::has_replicas(context, "alpha", "orders", 3).await?;
    prove_audit_is_live(context, "alpha").await?;
    let late = but_the_lease(old.writes_since(&alpha, mark)?);
    ensure!(late.is_empty(), "after its term it wrote {late:?}");
    let on_the_lease: Vec<_> = old.writes_since(&alpha, mark)?;
    ensure!(
        on_the_lease.iter().all(|event| event.code == 409),
        "after its term it changed the Lease: {on_the_lease:?}"
    );
    let ended = old
        .metric("esfleet_leadership_terms_ended_total", "DeadlinePassed")
        .await?;
    ensure!(ended == 1.0, "{ended} terms ended by their deadline");
    ensure!(esfleet.leader().await? == leader, "leadership moved once more");
    Ok(())
}
