//! Servers that the scripts started and a scenario may kill, freeze and start again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::eventually::eventually;
use crate::process::{Process, Signal, send};

/// A directory with `run` and `pid`, made by `zookeeper-up` or `control-plane-up`.
#[derive(Debug)]
pub struct Server {
    directory: PathBuf,
    restarted: Mutex<Option<Process>>,
}

impl Server {
    pub(crate) fn at(directory: PathBuf) -> Server {
        Server {
            directory,
            restarted: Mutex::new(None),
        }
    }

    /// Where it keeps its log and data.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its process, if it runs. It is known by its directory, as a pid file may name another process by now.
    pub fn pid(&self) -> Option<u32> {
        let pid: u32 = fs::read_to_string(self.directory.join("pid"))
            .ok()?
            .trim()
            .parse()
            .ok()?;
        let directory = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        (directory == self.directory).then_some(pid)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        send(
            self.pid()
                .with_context(|| format!("{} does not run", self.directory.display()))?,
            signal,
        )
    }

    /// Kills it and returns once it is gone.
    pub async fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)?;
        eventually(Duration::from_secs(5), "a killed server is gone", || async {
            if let Some(process) = &*self.restarted.lock().unwrap_or_else(PoisonError::into_inner) {
                process.exited()?; // reaps it
            }
            ensure!(self.pid().is_none(), "it still runs");
            Ok(())
        })
        .await
    }

    /// Starts it again; returns at once.
    pub fn start(&self) -> Result<()> {
        ensure!(self.pid().is_none(), "{} runs already", self.directory.display());
        let name = self.directory.display().to_string();
        let process = Process::start(
            &name,
            &self.directory.join("run"),
            &[],
            &[],
            &self.directory.join("restart.log"),
        )?;
        *self.restarted.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        Ok(())
    }

    /// Freezes it: its connections stay open and nothing is answered.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen server go on.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }
}
