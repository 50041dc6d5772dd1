//! Parses nothing and decides nothing: see `esfleet::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    esfleet::cli::main(std::env::args_os())
}
