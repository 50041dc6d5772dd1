//! `es-sample`: a small event-sourced ledger on ZooKeeper, the app that esfleet's demo and tests run.
//!
//! Its contract is in `README.md` beside this file. It knows nothing of esfleet.

mod config;
mod http;
mod layout;
mod leader;
mod ledger;
mod recent;
mod replica;
mod session;
mod shared;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::config::Config;
use crate::replica::{Replica, stopped};
use crate::shared::Shared;

/// The longest that a leader may take to finish and resign; after that its leader node goes with its session.
const RESIGN_LIMIT: Duration = Duration::from_secs(5);

/// The longest that clients may take to read their last answers.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,zookeeper_client=error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    run(config).await
}

/// Serves until SIGTERM or SIGINT.
async fn run(config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("cannot listen on {}", config.listen))?;
    let identity = http::Identity {
        pod: config.pod_name.clone(),
        version: config.version(),
    };
    info!(
        "{} {} serves on {}",
        identity.pod,
        identity.version,
        listener.local_addr()?
    );

    let shared = Arc::new(Shared::default());
    let (stop, stop_receiver) = watch::channel(false);
    let (drain, mut drain_receiver) = watch::channel(false);
    let mut replica = tokio::spawn(
        Replica {
            config,
            shared: Arc::clone(&shared),
            stop: stop_receiver,
        }
        .run(),
    );
    let server = axum::serve(listener, http::router(identity, shared))
        .with_graceful_shutdown(async move { stopped(&mut drain_receiver).await });
    let mut server = tokio::spawn(server.into_future());

    tokio::select! {
        _ = terminate.recv() => info!("told to stop by SIGTERM"),
        _ = interrupt.recv() => info!("told to stop by SIGINT"),
        ended = &mut replica => return ended.context("the replica failed"),
        ended = &mut server => return ended.context("the server failed")?.context("cannot serve HTTP"),
    }
    stop.send_replace(true);
    match timeout(RESIGN_LIMIT, &mut replica).await {
        Ok(ended) => ended.context("the replica failed")?,
        Err(_) => warn!("could not resign within {RESIGN_LIMIT:?}"),
    }
    drain.send_replace(true);
    if timeout(DRAIN_LIMIT, &mut server).await.is_err() {
        info!("some clients did not read their answers");
    }
    Ok(())
}
