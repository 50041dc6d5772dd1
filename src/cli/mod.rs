//! The command line: one file per subcommand, arguments in, exit code out.
//!
//! Results go to standard output, logs and errors to standard error.

mod check;
mod flags;
mod member;
mod output;
mod run;
mod status;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use thiserror::Error;

use crate::api::fleet_config::FleetConfigError;
use crate::run::RunError;
use crate::telemetry::logs::{self, LogFormat};

/// One point of control for event-sourced applications in many Kubernetes clusters.
#[derive(Debug, Parser)]
#[command(name = "esfleet", version, propagate_version = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controller until SIGTERM
    Run(run::RunArguments),
    /// List the whole fleet, straight from the members
    Status(status::StatusArguments),
    /// Check before going live that everything esfleet needs is there
    Check(check::CheckArguments),
    /// What a member cluster needs
    Member(member::MemberArguments),
    /// Print the CustomResourceDefinition of EventSourcedApp, for `kubectl apply -f -`
    Crd,
}

/// How a command ended that did what it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// All is well: exit code 0.
    Good,
    /// Something that was checked is not well: exit code 1.
    Bad,
}

/// Why a command did not do what it was asked to.
#[derive(Debug, Error)]
enum CommandError {
    /// Arguments or the fleet config are at fault, and nothing was touched: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Anything else: exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl From<FleetConfigError> for CommandError {
    fn from(error: FleetConfigError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<RunError> for CommandError {
    fn from(error: RunError) -> Self {
        if error.is_usage() {
            Self::Usage(error.to_string())
        } else {
            Self::Failed(error.to_string())
        }
    }
}

/// Does what the arguments say. The exit code is 0 when all is well, 1 when something failed or is
/// not healthy, and 2 when the arguments or the fleet config are at fault.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let parsed = parser(&arguments)
        .try_get_matches_from(&arguments)
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help and version are no errors; a pipe that is closed already is none either.
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(2)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match execute(parsed.command) {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::FAILURE,
        Err(error) => {
            output::complain(&error);
            match error {
                CommandError::Usage(_) => ExitCode::from(2),
                CommandError::Failed(_) => ExitCode::FAILURE,
            }
        }
    }
}

/// The parser; as a kubectl plugin it calls itself `kubectl esfleet`.
fn parser(arguments: &[OsString]) -> clap::Command {
    let called = arguments.first().and_then(|name| Path::new(name).file_stem());
    let name = if called.is_some_and(|name| name == "kubectl-esfleet") {
        "kubectl esfleet"
    } else {
        "esfleet"
    };
    Arguments::command().bin_name(name)
}

fn execute(command: Command) -> Result<Outcome, CommandError> {
    match command {
        Command::Run(arguments) => {
            let (options, log_format) = arguments.parse()?;
            start_logs(log_format)?;
            block_on(async { crate::run::run(options).await.map_err(CommandError::from) })?;
            Ok(Outcome::Good)
        }
        Command::Status(arguments) => {
            start_logs(LogFormat::Text)?;
            block_on(status::execute(arguments))
        }
        Command::Check(arguments) => {
            start_logs(LogFormat::Text)?;
            block_on(check::execute(arguments))
        }
        Command::Member(arguments) => member::execute(&arguments),
        Command::Crd => output::print(&crate::api::crd::crd_yaml()).map(|()| Outcome::Good),
    }
}

fn start_logs(format: LogFormat) -> Result<(), CommandError> {
    logs::init(format).map_err(|error| CommandError::Usage(error.to_string()))
}

fn block_on<T>(work: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::Failed(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(work);
    // A credential plugin that hangs must not keep the process.
    runtime.shutdown_background();
    outcome
}

#[cfg(test)]
mod tests;
