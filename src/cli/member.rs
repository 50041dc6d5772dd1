//! `esfleet member manifest`: all that a member, or the hub, needs.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::flags::dns_label;
use super::{CommandError, Outcome, output};
use crate::api::crd::crd_yaml;
use crate::kubernetes::permissions::{hub_objects, member_objects};
use crate::support::yaml;

#[derive(Debug, Args)]
pub(super) struct MemberArguments {
    #[command(subcommand)]
    command: MemberCommand,
}

#[derive(Debug, Subcommand)]
enum MemberCommand {
    /// Print all that a member needs, for `kubectl apply -f -`: definition, namespace, ServiceAccount, least permissions
    Manifest(ManifestArguments),
}

#[derive(Debug, Args)]
struct ManifestArguments {
    /// Only these namespaces may hold apps; permissions end there. They must exist [default: all]
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', value_parser = dns_label, conflicts_with = "hub")]
    namespaces: Vec<String>,

    /// Print what the hub needs instead: the permission on the Lease
    #[arg(long)]
    hub: bool,

    /// The namespace of the ServiceAccount, and on the hub of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "esfleet", value_parser = dns_label)]
    namespace: String,
}

pub(super) fn execute(arguments: &MemberArguments) -> Result<Outcome, CommandError> {
    let MemberCommand::Manifest(arguments) = &arguments.command;
    output::print(&manifest(arguments)?)?;
    Ok(Outcome::Good)
}

fn manifest(arguments: &ManifestArguments) -> Result<String, CommandError> {
    if arguments.hub {
        return documents(&hub_objects(&arguments.namespace));
    }
    let objects = documents(&member_objects(&arguments.namespace, &arguments.namespaces))?;
    Ok(format!("{}---\n{objects}", crd_yaml()))
}

fn documents(objects: &[Value]) -> Result<String, CommandError> {
    let documents: Result<Vec<String>, _> = objects.iter().map(yaml::to_string).collect();
    let documents = documents.map_err(|error| CommandError::Failed(format!("cannot write the manifest: {error}")))?;
    Ok(documents.join("---\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(hub: bool, namespaces: &[&str]) -> Vec<String> {
        let arguments = ManifestArguments {
            namespaces: namespaces.iter().map(|&namespace| namespace.to_owned()).collect(),
            hub,
            namespace: "esfleet".to_owned(),
        };
        manifest(&arguments)
            .unwrap()
            .split("\n---\n")
            .map(|document| {
                let object: Value = yaml::from_str(document).unwrap();
                format!(
                    "{} {}",
                    object["kind"].as_str().unwrap(),
                    object["metadata"]["name"].as_str().unwrap()
                )
            })
            .collect()
    }

    #[test]
    fn a_members_manifest_is_definition_account_and_permissions_in_applicable_order() {
        assert_eq!(
            kinds(false, &[]),
            [
                "CustomResourceDefinition eventsourcedapps.es.your.domain",
                "Namespace esfleet",
                "ServiceAccount esfleet",
                "ClusterRole esfleet",
                "ClusterRoleBinding esfleet",
            ]
        );
    }

    #[test]
    fn the_hubs_manifest_is_account_and_permission_on_the_lease() {
        assert_eq!(
            kinds(true, &[]),
            [
                "Namespace esfleet",
                "ServiceAccount esfleet",
                "Role esfleet-lease",
                "RoleBinding esfleet-lease"
            ]
        );
    }
}
