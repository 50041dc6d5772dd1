//! The scenarios: esfleet on real clusters. `cargo test -p esfleet-e2e --test scenarios -- FILTER`; `--list` names them.

mod scenarios {
    pub mod readme;
    pub mod world;
}

use std::process::ExitCode;

use esfleet_e2e::{run, scenario};
use scenarios::{readme, world};

fn main() -> ExitCode {
    run(vec![
        scenario!(world::pods_run_and_zookeeper_answers),
        scenario!(world::a_light_cluster_survives_the_death_of_its_api_server).on_our_own(),
        scenario!(readme::five_minutes_lead_to_a_first_app).exclusive(),
    ])
}
