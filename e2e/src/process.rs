//! Processes that end with this one, however it ends.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, kill_process};

pub use rustix::process::Signal;

use crate::eventually::eventually;

/// Kernel clock ticks per second, as `/proc` counts CPU time (fixed to 100 for user space on Linux).
const TICKS_PER_SECOND: u64 = 100;

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// The one thread that forks: the death signal that `setpriv` asks for fires when the *thread* ends that forked,
/// and this one lives as long as the process.
static SPAWNER: LazyLock<Mutex<mpsc::Sender<Job>>> = LazyLock::new(|| {
    let (sender, jobs) = mpsc::channel::<Job>();
    thread::spawn(move || {
        for (mut command, reply) in jobs {
            drop(reply.send(command.spawn()));
        }
    });
    Mutex::new(sender)
});

/// Starts a command that the kernel kills when this process ends.
fn spawn_bound(program: &Path, arguments: &[String], environment: &[(String, String)], log: File) -> io::Result<Child> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
    command.envs(environment.iter().map(|(key, value)| (key, value)));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let (reply, answer) = mpsc::channel();
    let gone = |_| io::Error::other("the spawning thread is gone");
    SPAWNER
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send((command, reply))
        .map_err(|_| gone(()))?;
    answer.recv().map_err(|_| gone(()))?
}

/// A running program whose output goes to a file.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    child: Mutex<Child>,
    log: PathBuf,
}

impl Process {
    /// Starts `program`; standard output and error are appended to `log`.
    pub fn start(
        name: &str,
        program: &Path,
        arguments: &[String],
        environment: &[(String, String)],
        log: &Path,
    ) -> Result<Process> {
        let file = File::options().create(true).append(true).open(log);
        let file = file.with_context(|| format!("cannot write {}", log.display()))?;
        let child = spawn_bound(program, arguments, environment, file)
            .with_context(|| format!("cannot start {name} ({})", program.display()))?;
        Ok(Process {
            name: name.to_owned(),
            pid: child.id(),
            child: Mutex::new(child),
            log: log.to_owned(),
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The file that its output goes to.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// All that it has written so far.
    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Sends a signal; an error when the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        if let Some(status) = self.exited()? {
            bail!("{} has ended ({status})", self.name);
        }
        send(self.pid, signal)
    }

    /// Asks it to end.
    pub fn terminate(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Ends it without asking.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)
    }

    /// Freezes it; `resume` lets it go on.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen process go on.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// How it ended, if it has.
    pub fn exited(&self) -> Result<Option<ExitStatus>> {
        Ok(self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?)
    }

    /// Waits for its end.
    pub async fn wait(&self, limit: Duration) -> Result<ExitStatus> {
        eventually(limit, &format!("{} ends", self.name), || async {
            self.exited()?
                .with_context(|| format!("still running; its log ends with: {}", tail(&self.log(), 5)))
        })
        .await
    }

    /// Its resident memory in KiB.
    pub fn resident_kib(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).context("the process is gone")?;
        let field = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = field.and_then(|value| value.split_whitespace().next());
        number
            .context("no VmRSS: the process has ended")?
            .parse()
            .context("VmRSS is no number")
    }

    /// The CPU time that it has used, its threads' included.
    pub fn cpu(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).context("the process is gone")?;
        let fields = stat.rsplit(')').next().unwrap_or_default(); // the command's name may hold spaces
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|n| n.parse::<u64>().ok())
            .sum();
        Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        if matches!(child.try_wait(), Ok(None)) {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Sends a signal to any process.
pub(crate) fn send(pid: u32, signal: Signal) -> Result<()> {
    let target = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("no process id")?;
    kill_process(target, signal).with_context(|| format!("cannot signal process {pid}"))
}

/// The last `lines` lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
