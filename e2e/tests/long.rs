//! What takes longer than a test run should: `make test-long`. Each scenario adds its figures to the file that
//! `ESFLEET_LONG_REPORT` names, if it is set.

mod long {
    pub mod figures;
    pub mod handovers;
    #[path = "../support/objects_fleet.rs"]
    #[allow(dead_code, reason = "shared with the smaller scenario, which uses all of it")]
    pub mod objects_fleet;
    pub mod thousands;
}

use std::process::ExitCode;
use std::time::Duration;

use esfleet_e2e::{run, scenario};
use long::{handovers, thousands};

fn main() -> ExitCode {
    run(vec![
        scenario!(thousands::two_thousand_apps_are_served_left_alone_and_followed_through_restarts)
            .on_our_own()
            .exclusive()
            .within(Duration::from_secs(1800)),
        scenario!(handovers::fifty_hand_overs_leave_short_gaps)
            .on_our_own()
            .exclusive()
            .within(Duration::from_secs(1800)),
    ])
}
