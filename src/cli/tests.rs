use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::kubernetes::client::HubSource;
use crate::run::RunOptions;

fn parse(arguments: &[&str]) -> Result<Command, clap::Error> {
    let arguments: Vec<OsString> = ["esfleet"].iter().chain(arguments).map(OsString::from).collect();
    let matches = parser(&arguments).try_get_matches_from(&arguments)?;
    Ok(Arguments::from_arg_matches(&matches)?.command)
}

fn run_options(arguments: &[&str]) -> Result<(RunOptions, LogFormat), String> {
    let all: Vec<&str> = ["run", "--fleet-config", "f.yaml"]
        .iter()
        .chain(arguments)
        .copied()
        .collect();
    match parse(&all) {
        Ok(Command::Run(arguments)) => arguments.parse().map_err(|error| error.to_string()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn the_command_line_is_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn a_run_without_flags_has_the_documented_defaults() {
    assert_eq!(
        run_options(&["--identity", "me"]),
        Ok((
            RunOptions {
                fleet_config: PathBuf::from("f.yaml"),
                hub: HubSource::default(),
                lease_namespace: "esfleet".to_owned(),
                lease_name: "esfleet".to_owned(),
                identity: "me".to_owned(),
                lease_duration: Duration::from_secs(15),
                renew_deadline: Duration::from_secs(10),
                retry_period: Duration::from_secs(2),
                http_addr: "127.0.0.1:8080".parse().unwrap(),
                session_timeout: Duration::from_secs(30),
                probe_interval: Duration::from_secs(10),
            },
            LogFormat::Text
        ))
    );
}

#[test]
fn timings_that_cannot_work_are_refused_with_both_flags() {
    for (arguments, message) in [
        (
            ["--lease-duration", "10s"],
            "--renew-deadline 10s must be shorter than --lease-duration 10s, or two replicas could write",
        ),
        (
            ["--lease-duration", "15500ms"],
            "--lease-duration 15.5s must be whole seconds, as Leases hold no others",
        ),
        (
            ["--retry-period", "10s"],
            "--retry-period 10s must be shorter than --renew-deadline 10s, or no renewal comes in time",
        ),
        (
            ["--session-timeout", "10ms"],
            "--session-timeout 10ms must be from 1s to 1h",
        ),
        (
            ["--identity", "a b"],
            "--identity \"a b\" must be 1 to 200 characters without spaces",
        ),
    ] {
        assert_eq!(run_options(&arguments), Err(message.to_owned()));
    }
}

#[test]
fn every_flag_of_run_is_also_a_variable() {
    let command = Arguments::command();
    let run = command.find_subcommand("run").unwrap();
    for argument in run.get_arguments() {
        let long = argument.get_long().unwrap();
        let expected = format!("ESFLEET_{}", long.to_uppercase().replace('-', "_"));
        assert_eq!(
            argument.get_env().map(|name| name.to_string_lossy().into_owned()),
            Some(expected),
            "--{long}"
        );
    }
}

#[test]
fn usage_errors_end_with_2_and_help_with_0() {
    let code = |arguments: &[&str]| {
        let arguments: Vec<OsString> = ["esfleet"].iter().chain(arguments).map(OsString::from).collect();
        format!("{:?}", main(arguments))
    };
    let expect = |code: u8| format!("{:?}", ExitCode::from(code));
    assert_eq!(code(&["--help"]), expect(0));
    assert_eq!(code(&["--version"]), expect(0));
    for wrong in [
        &["walk"][..],
        &["status"],
        &["status", "--fleet-config", "f", "-o", "xml"],
        &["status", "--fleet-config", "f", "--watch", "--check"],
        &["run", "--fleet-config", "f", "--http-addr", "nowhere"],
        &["run", "--fleet-config", "f", "--retry-period", "2"],
        &["member", "manifest", "--namespaces", "A_b"],
        &["member", "manifest", "--hub", "--namespaces", "a"],
    ] {
        assert_eq!(code(wrong), expect(2), "{wrong:?}");
    }
}

#[test]
fn as_a_kubectl_plugin_it_calls_itself_that() {
    let usage = |name: &str| {
        let arguments = [OsString::from(name)];
        parser(&arguments).render_usage().to_string()
    };
    assert_eq!(usage("/usr/bin/kubectl-esfleet"), "Usage: kubectl esfleet <COMMAND>");
    assert_eq!(usage("target/debug/esfleet"), "Usage: esfleet <COMMAND>");
}
