//! Whether esfleet may do what it does: asked of the API server, verb by verb.

use futures::stream::{self, StreamExt};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use super::Finding;
use super::member::REQUEST_LIMIT;
use crate::kubernetes::fault::describe;
use crate::kubernetes::permissions::Permission;
use crate::support::deadline::within;

/// How many questions are in flight at once.
const SIDE_BY_SIDE: usize = 8;

/// One finding when all is granted, else one for each permission that lacks a verb.
///
/// `namespace` is where it is asked for; none: in all. `manifest` is the command that grants it.
pub(super) async fn check(
    subject: &str,
    client: &Client,
    namespace: Option<&str>,
    permissions: &[Permission],
    manifest: &str,
) -> Vec<Finding> {
    let place = match namespace {
        Some(namespace) => format!("in namespace {namespace}"),
        None => "in the whole cluster".to_owned(),
    };
    let mut findings = Vec::new();
    for permission in permissions {
        let verdicts: Vec<Result<Option<&str>, String>> = stream::iter(permission.verbs.iter().copied())
            .map(|verb| is_missing(client, namespace, permission, verb))
            .buffered(SIDE_BY_SIDE)
            .collect()
            .await;
        let missing: Result<Vec<Option<&str>>, String> = verdicts.into_iter().collect();
        match missing {
            Ok(missing) => {
                let missing: Vec<&str> = missing.into_iter().flatten().collect();
                if !missing.is_empty() {
                    let what = format!(
                        "may not {} {} {place}; apply {manifest}",
                        missing.join(", "),
                        permission.named()
                    );
                    findings.push(Finding::fail(subject, what));
                }
            }
            Err(why) => {
                let what = format!("cannot ask for its permissions {place}: {why}");
                return vec![Finding::fail(subject, what)];
            }
        }
    }
    if findings.is_empty() {
        let what = match permissions {
            [one] => format!("may {} {} {place}", one.verbs.join(", "), one.named()),
            all => format!("may do all that is needed with {} kinds {place}", all.len()),
        };
        findings.push(Finding::ok(subject, what));
    }
    findings
}

/// The verb, if it is not granted.
async fn is_missing<'v>(
    client: &Client,
    namespace: Option<&str>,
    permission: &Permission,
    verb: &'v str,
) -> Result<Option<&'v str>, String> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(permission.group.to_owned()),
                resource: Some(permission.resource.to_owned()),
                subresource: permission.subresource.map(str::to_owned),
                name: permission.object.map(str::to_owned),
                namespace: namespace.map(str::to_owned),
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let params = PostParams::default();
    let answer = within(REQUEST_LIMIT, "the access review", api.create(&params, &review))
        .await
        .map_err(|late| late.to_string())?
        .map_err(|error| describe(&error))?;
    let allowed = answer.status.is_some_and(|status| status.allowed);
    Ok((!allowed).then_some(verb))
}
