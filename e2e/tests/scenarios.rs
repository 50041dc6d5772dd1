//! The scenarios: esfleet on real clusters. `cargo test -p esfleet-e2e --test scenarios -- FILTER`; `--list` names them.

mod scenarios {
    pub mod app_lifecycle;
    pub mod app_ownership;
    pub mod app_place;
    pub mod app_status;
    pub mod app_takeover;
    pub mod bad_input;
    pub mod fleet;
    pub mod fleet_access;
    pub mod fleet_place;
    pub mod leadership;
    pub mod listing;
    #[path = "../support/objects_fleet.rs"]
    mod objects_fleet;
    pub mod readme;
    pub mod scale;
    pub mod world;
    pub mod zookeeper;
}

use std::process::ExitCode;
use std::time::Duration;

use esfleet_e2e::{run, scenario};
use scenarios::{
    app_lifecycle, app_ownership, app_status, app_takeover, bad_input, fleet, fleet_access, leadership, listing,
    readme, scale, world, zookeeper,
};

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
        scenario!(app_lifecycle::an_app_is_made_scaled_and_rolled),
        scenario!(app_lifecycle::an_autoscaler_scales_an_app_and_nothing_is_reverted),
        scenario!(app_lifecycle::the_death_of_an_apps_leader_is_in_its_status_within_a_second),
        scenario!(app_lifecycle::a_deleted_app_leaves_its_znodes_to_the_next_of_its_name),
        scenario!(app_ownership::what_is_edited_or_deleted_behind_our_back_comes_back),
        scenario!(app_ownership::what_others_own_is_left_alone),
        scenario!(app_ownership::a_foreign_object_is_a_conflict_and_untouched),
        scenario!(app_ownership::two_budgets_never_select_the_same_pods),
        scenario!(app_takeover::objects_of_the_go_operator_are_taken_over_without_a_restart),
        scenario!(app_takeover::a_field_that_cannot_be_changed_is_named_and_not_tried),
        scenario!(app_status::whatever_the_leader_znode_holds_is_told_within_a_second),
        scenario!(app_status::a_leader_that_may_not_be_read_is_told_as_such),
        scenario!(app_status::an_ensemble_that_is_not_there_stops_nothing_else),
        scenario!(app_status::a_paused_app_is_observed_and_not_changed),
        scenario!(app_status::apps_that_do_not_parse_are_reported_and_skipped).on_our_own(),
        scenario!(fleet::members_that_are_down_at_the_start_hold_up_nobody).within(Duration::from_secs(240)),
        scenario!(fleet::a_member_that_is_lost_comes_back_and_the_other_goes_on).within(Duration::from_secs(240)),
        scenario!(fleet::equally_named_apps_of_two_members_are_both_served),
        scenario!(fleet::a_restart_writes_nothing_but_the_lease).on_our_own(),
        scenario!(fleet::namespaces_and_pauses_are_respected).on_our_own(),
        scenario!(fleet::one_cluster_under_two_names_is_engaged_once),
        scenario!(fleet_access::what_a_member_lacks_is_said_and_its_coming_seen)
            .on_our_own()
            .within(Duration::from_secs(240)),
        scenario!(fleet_access::esfleet_in_a_pod_serves_the_cluster_that_it_runs_in).on_our_own(),
        scenario!(leadership::a_follower_writes_nothing_until_the_leader_is_ended).on_our_own(),
        scenario!(leadership::a_killed_leader_is_replaced_within_the_lease_and_a_retry),
        scenario!(leadership::a_frozen_leader_writes_nothing_when_it_goes_on).on_our_own(),
        scenario!(listing::the_listing_shows_selects_checks_and_watches),
        scenario!(listing::logs_are_lines_without_secrets),
        scenario!(listing::check_says_what_is_well_and_what_to_do),
        scenario!(bad_input::a_faulty_fleet_config_ends_the_start),
        scenario!(bad_input::faults_of_members_and_apps_are_told_where_they_belong),
        scenario!(bad_input::a_missing_lease_namespace_is_said_and_its_coming_seen),
        scenario!(bad_input::a_second_replica_of_one_identity_is_an_ordinary_contender),
    ])
}
