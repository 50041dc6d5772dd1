//! The committed CRD is what the types say.

use esfleet::api::crd::crd_yaml;

#[test]
fn the_committed_definition_is_the_generated_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/crds/eventsourcedapps.es.your.domain.yaml");
    if std::env::var_os("ESFLEET_WRITE_GENERATED").is_some() {
        std::fs::write(path, crd_yaml()).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(
        committed == crd_yaml(),
        "{path} is not what `esfleet crd` prints; write it anew with \
         `ESFLEET_WRITE_GENERATED=1 cargo test --test crd_drift`"
    );
}
