//! The scenarios: esfleet on real clusters. `cargo test -p esfleet-e2e --test scenarios -- FILTER`; `--list` names them.

mod scenarios {
    pub mod readme;
    #[path = "../support/objects_fleet.rs"]
    mod objects_fleet;
    pub mod scale;
    pub mod world;
    pub mod zookeeper;
}

use std::process::ExitCode;
use std::time::Duration;

use esfleet_e2e::{run, scenario};
use scenarios::{readme, scale, world, zookeeper};

fn main() -> ExitCode {
    run(vec![
        scenario!(world::pods_run_and_zookeeper_answers),
        scenario!(world::a_light_cluster_survives_the_death_of_its_api_server).on_our_own(),
        scenario!(readme::five_minutes_lead_to_a_first_app).exclusive(),
        scenario!(zookeeper::an_ensemble_that_comes_late_goes_for_a_moment_or_is_wiped).on_our_own(),
        scenario!(zookeeper::a_leader_older_than_the_session_timeout_is_cleared_and_comes_back).on_our_own(),
        scenario!(zookeeper::spellings_share_a_session_that_outlives_a_server_and_ends_with_the_last_app).on_our_own(),
        scenario!(zookeeper::each_reason_not_to_know_a_leader_is_told_and_stops_nothing_else),
        scenario!(zookeeper::each_change_of_a_leader_is_in_the_status_within_a_second).exclusive(),
        scenario!(scale::four_hundred_apps_share_a_session_cost_five_writes_each_and_are_left_alone)
            .on_our_own()
            .exclusive()
            .within(Duration::from_secs(240)),
    ])
}
