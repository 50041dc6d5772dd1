//! The binary as a user meets it: exit codes, what goes where, closed pipes.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn esfleet(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esfleet"));
    command
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("RUST_LOG")
        .env("HOME", "/nowhere")
        .stdin(Stdio::null());
    command
}

/// Exit code, standard output, standard error.
fn outcome(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A fleet config whose only member has no kubeconfig; gone when dropped.
struct Fleet(PathBuf);

impl Fleet {
    fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("esfleet-cli-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&directory).unwrap();
        let text = "apiVersion: es.your.domain/v1alpha1\nkind: FleetConfig\nmetadata: {name: test}\nclusters:\n- name: eu\n  kubeconfig: {path: /nowhere/eu}\n";
        std::fs::write(directory.join("fleet.yaml"), text).unwrap();
        Self(directory)
    }

    fn file(&self) -> String {
        self.0.join("fleet.yaml").display().to_string()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_fleet_config_at_fault_ends_every_command_with_2_before_anything_is_done() {
    let message = "error: fleet config /nowhere/f: cannot be read: No such file or directory (os error 2); name a readable file with --fleet-config\n";
    for command in ["status", "check"] {
        let output = esfleet(&[command, "--fleet-config", "/nowhere/f"]).output().unwrap();
        assert_eq!(outcome(output), (2, String::new(), message.to_owned()), "{command}");
    }
}

#[test]
fn a_member_at_fault_is_a_row_and_fails_only_with_check() {
    let fleet = Fleet::new();
    let table = "CLUSTER   STATE         APPS   READY   REASON              MESSAGE
eu        Unreachable   0      0       KubeconfigMissing   kubeconfig /nowhere/eu does not exist; put it there or correct its path

No apps found.
";
    let output = esfleet(&["status", "--fleet-config", &fleet.file()]).output().unwrap();
    assert_eq!(outcome(output), (0, table.to_owned(), String::new()));
    let output = esfleet(&["status", "--check", "--fleet-config", &fleet.file()])
        .output()
        .unwrap();
    assert_eq!(outcome(output), (1, table.to_owned(), String::new()));
}

#[test]
fn a_check_that_fails_says_so_line_by_line_and_ends_with_1() {
    let fleet = Fleet::new();
    let output = esfleet(&["check", "--fleet-config", &fleet.file()]).output().unwrap();
    let (code, text, errors) = outcome(output);
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!((code, errors.as_str()), (1, ""));
    assert_eq!(
        lines,
        [
            "FAIL   hub            kubeconfig /nowhere/.kube/config does not exist, and esfleet does not run in a pod; name a kubeconfig with --hub-kubeconfig",
            "FAIL   eu             kubeconfig /nowhere/eu does not exist; put it there or correct its path",
            "",
            "3 checks: 2 failed, 0 with a warning",
        ]
    );
}

#[test]
fn the_fleet_config_may_come_from_the_environment() {
    let fleet = Fleet::new();
    let output = esfleet(&["status", "-o", "json"])
        .env("ESFLEET_FLEET_CONFIG", fleet.file())
        .output()
        .unwrap();
    let (code, text, _) = outcome(output);
    let listing: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (code, listing["clusters"][0]["state"].as_str()),
        (0, Some("Unreachable"))
    );
}

#[test]
fn a_closed_pipe_is_no_error() {
    for arguments in [&["crd"][..], &["member", "manifest"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = esfleet(arguments).stdout(writer).output().unwrap();
        assert_eq!(outcome(output), (0, String::new(), String::new()), "{arguments:?}");
    }
}

#[test]
fn a_broken_log_filter_is_a_usage_error() {
    let fleet = Fleet::new();
    let output = esfleet(&["status", "--fleet-config", &fleet.file()])
        .env("RUST_LOG", "esfleet=loud")
        .output()
        .unwrap();
    let (code, _, errors) = outcome(output);
    assert_eq!(code, 2);
    assert!(
        errors.starts_with("error: RUST_LOG \"esfleet=loud\" is no filter: "),
        "{errors}"
    );
}
