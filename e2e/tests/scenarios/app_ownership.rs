//! Whose an object is, and whose a field: what esfleet brings back, what it leaves alone, what it takes over.

use anyhow::{Context as _, Result, ensure};
use esfleet_e2e::TestContext;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::app_place::{Object, PODS, Place, SOON, condition, same, substance};

/// One thing that somebody does to one of our objects.
enum Edit {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Delete,
    Orphan,
}

async fn do_it<K: Object>(place: &Place<'_>, name: &str, edit: Edit) -> Result<()> {
    let api = place.api::<K>().await?;
    let params = PatchParams {
        field_manager: Some("kubectl-edit".to_owned()),
        ..PatchParams::default()
    };
    match edit {
        Edit::Json(patch) => {
            let patch = Patch::<K>::Json(serde_json::from_value(patch)?);
            api.patch(name, &params, &patch).await.map(drop)?;
        }
        Edit::Merge(patch) => api.patch(name, &params, &Patch::Merge(patch)).await.map(drop)?,
        Edit::Strategic(patch) => api.patch(name, &params, &Patch::Strategic(patch)).await.map(drop)?,
        Edit::Delete => api.delete(name, &DeleteParams::background()).await.map(drop)?,
        Edit::Orphan => api.delete(name, &DeleteParams::orphan()).await.map(drop)?,
    }
    Ok(())
}

/// Does it, and waits until the object is again what it was.
async fn comes_back<K: Object>(place: &Place<'_>, name: &str, what: &str, edit: Edit) -> Result<()> {
    let before = place.get::<K>(name).await?;
    let changes = match edit {
        Edit::Delete | Edit::Orphan => "uid",
        Edit::Json(_) | Edit::Merge(_) | Edit::Strategic(_) => "resourceVersion",
    };
    do_it::<K>(place, name, edit).await.with_context(|| what.to_owned())?;
    let is_new = |after: &Value| after["metadata"][changes] != before["metadata"][changes];
    place
        .becomes::<K>(SOON, name, &format!("as before, after {what}"), |after| {
            ensure!(is_new(after), "it was not changed at all");
            same("it", &substance(after), &substance(&before))
        })
        .await
        .map(drop)
}

fn stateful_set_edits() -> Vec<(&'static str, Edit)> {
    let container = |change: Value| {
        let mut container = json!({"name": "es-app"});
        container
            .as_object_mut()
            .into_iter()
            .for_each(|it| it.extend(change.as_object().cloned().unwrap_or_default()));
        Edit::Strategic(json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
    };
    let at = "/spec/template/spec/containers/0";
    vec![
        ("another image", container(json!({"image": "localhost/pause:1"}))),
        (
            "another number of replicas",
            Edit::Merge(json!({"spec": {"replicas": 5}})),
        ),
        (
            "a label taken away",
            Edit::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}})),
        ),
        (
            "a label changed",
            Edit::Merge(json!({"metadata": {"labels": {"app": "other"}}})),
        ),
        (
            "a pod label changed",
            Edit::Merge(json!({"spec": {"template": {"metadata": {"labels": {"app.kubernetes.io/name": "x"}}}}})),
        ),
        (
            "a variable taken away",
            Edit::Json(json!([{"op": "remove", "path": format!("{at}/env/0")}])),
        ),
        (
            "a variable's value changed",
            container(json!({"env": [{"name": "ZK_ROOT_PATH", "value": "/elsewhere"}]})),
        ),
        (
            "a value made a reference",
            container(json!({"env": [{"name": "ZK_ROOT_PATH", "value": null,
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]})),
        ),
        (
            "a reference made a value",
            container(json!({"env": [{"name": "POD_NAME", "value": "x", "valueFrom": null}]})),
        ),
        (
            "all variables taken away",
            Edit::Json(json!([{"op": "remove", "path": format!("{at}/env")}])),
        ),
        (
            "another port",
            Edit::Json(json!([{"op": "replace", "path": format!("{at}/ports/0/containerPort"), "value": 9090}])),
        ),
        (
            "another name of the port",
            Edit::Json(json!([{"op": "replace", "path": format!("{at}/ports/0/name"), "value": "web"}])),
        ),
        (
            "the probe taken away",
            Edit::Json(json!([{"op": "remove", "path": format!("{at}/readinessProbe")}])),
        ),
    ]
}

fn service_edits() -> Vec<(&'static str, Edit)> {
    vec![
        (
            "another port",
            Edit::Json(json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 9090}])),
        ),
        (
            "another target port",
            Edit::Json(json!([{"op": "replace", "path": "/spec/ports/0/targetPort", "value": 1}])),
        ),
        (
            "another name of the port",
            Edit::Json(json!([{"op": "replace", "path": "/spec/ports/0/name", "value": "web"}])),
        ),
        (
            "another selector",
            Edit::Merge(json!({"spec": {"selector": {"app": "other"}}})),
        ),
        (
            "no addresses before pods are ready",
            Edit::Merge(json!({"spec": {"publishNotReadyAddresses": false}})),
        ),
        (
            "all labels taken away",
            Edit::Merge(json!({"metadata": {"labels": null}})),
        ),
        ("its deletion", Edit::Delete),
    ]
}

fn budget_edits() -> Vec<(&'static str, Edit)> {
    vec![
        (
            "minAvailable instead",
            Edit::Merge(json!({"spec": {"maxUnavailable": null, "minAvailable": 2}})),
        ),
        (
            "another maxUnavailable",
            Edit::Merge(json!({"spec": {"maxUnavailable": 0}})),
        ),
        (
            "another policy",
            Edit::Merge(json!({"spec": {"unhealthyPodEvictionPolicy": "IfHealthyBudget"}})),
        ),
        (
            "another selector",
            Edit::Merge(json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}})),
        ),
        ("its deletion", Edit::Delete),
    ]
}

/// Whatever of ours somebody changes, takes away or deletes is brought back as it was, without a word to the user.
pub async fn what_is_edited_or_deleted_behind_our_back_comes_back(context: &TestContext) -> Result<()> {
    let (place, esfleet) = Place::with_esfleet(context, "beta").await?;
    let app = context.apply_app("beta", &place.app_without_nodes("orders", 2)).await?;
    place.made("orders").await?;
    place
        .condition("orders", "WorkloadReady", "False", "ReplicasPending")
        .await?;
    for (what, edit) in service_edits() {
        comes_back::<Service>(&place, "orders", what, edit).await?;
    }
    for (what, edit) in budget_edits() {
        comes_back::<PodDisruptionBudget>(&place, "orders", what, edit).await?;
    }
    for (what, edit) in stateful_set_edits() {
        comes_back::<StatefulSet>(&place, "orders", what, edit).await?;
    }
    let pods = place.has_pods("orders", 2).await?;
    comes_back::<StatefulSet>(&place, "orders", "its deletion, pods left", Edit::Orphan).await?;
    place
        .becomes::<StatefulSet>(PODS, "orders", "counts the pods that were left", |set| {
            ensure!(set["status"]["replicas"] == 2, "{}", set["status"]);
            Ok(())
        })
        .await?;
    ensure!(
        place.pods("orders").await? == pods,
        "the pods are others: {:?}",
        place.pods("orders").await?
    );

    let mark = place.cluster()?.audit()?.mark()?;
    place.looked_at(&esfleet, "orders", 3).await?;
    let writes = place.object_writes(&esfleet, mark)?;
    ensure!(
        writes.is_empty(),
        "after all that nothing is left to do, but {writes:?}"
    );
    let warnings: Vec<_> = place
        .told(&app)
        .await?
        .into_iter()
        .filter(|(kind, ..)| kind == "Warning")
        .collect();
    ensure!(warnings.is_empty(), "{warnings:?}");
    Ok(())
}

/// An annotation, a label, a sidecar, a toleration and a variable of others stay, also when we change the template.
pub async fn what_others_own_is_left_alone(context: &TestContext) -> Result<()> {
    let (place, esfleet) = Place::with_esfleet(context, "beta").await?;
    let mut wanted = place.app_without_nodes("orders", 2);
    context.apply_app("beta", &wanted).await?;
    place.made("orders").await?;
    place
        .condition("orders", "WorkloadReady", "False", "ReplicasPending")
        .await?;
    let mark = place.cluster()?.audit()?.mark()?;

    let sets = place.api::<StatefulSet>().await?;
    let mesh = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "orders", "labels": {"team": "blue"}, "annotations": {"example.com/owner": "blue"}},
        "spec": {"template": {
            "metadata": {"annotations": {"example.com/mesh": "on"}},
            "spec": {
                "containers": [
                    {"name": "proxy", "image": "localhost/pause:1"},
                    {"name": "es-app", "env": [{"name": "MESH", "value": "on"}]},
                ],
                "tolerations": [{"key": "spot", "operator": "Exists"}],
            },
        }},
    });
    sets.patch("orders", &PatchParams::apply("mesh"), &Patch::Apply(&mesh))
        .await?;
    let note = json!({"metadata": {"labels": {"team": "blue"}, "annotations": {"example.com/owner": "blue"}}});
    place.merge::<Service>("orders", note.clone()).await?;
    place.merge::<PodDisruptionBudget>("orders", note).await?;
    let before = place.objects("orders").await?.map(|object| substance(&object));
    place.looked_at(&esfleet, "orders", 3).await?;
    let writes = place.object_writes(&esfleet, mark)?;
    ensure!(writes.is_empty(), "nothing of ours was changed, but {writes:?}");

    wanted.spec.image = context.world().sample_image(2);
    context.apply_app("beta", &wanted).await?;
    let image = wanted.spec.image.clone();
    let containers = |set: &Value| {
        set["spec"]["template"]["spec"]["containers"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    place
        .becomes::<StatefulSet>(SOON, "orders", "has the new image", |set| {
            let ours = containers(set)
                .into_iter()
                .find(|container| container["name"] == "es-app");
            ensure!(
                ours.context("our container")?["image"] == image.as_str(),
                "{}",
                set["spec"]
            );
            Ok(())
        })
        .await?;
    let [service, mut set, budget] = place.objects("orders").await?;
    for container in set["spec"]["template"]["spec"]["containers"]
        .as_array_mut()
        .context("containers")?
    {
        if container["name"] == "es-app" {
            container["image"] = json!(context.world().sample_image(1));
        }
    }
    let mut expected = before;
    expected[1]["annotations"]["example.com/touched"] = set["metadata"]["annotations"]["example.com/touched"].clone();
    for (found, wanted) in [service, set, budget].iter().map(substance).zip(&expected) {
        same("an object but for the image", &found, wanted)?;
    }
    Ok(())
}

/// Objects of others that bear the app's name are a conflict that is told once, and stay as they are until they go.
pub async fn a_foreign_object_is_a_conflict_and_untouched(context: &TestContext) -> Result<()> {
    let (place, esfleet) = Place::with_esfleet(context, "alpha").await?;
    let service: Service = serde_json::from_value(json!({"metadata": {"name": "orders"},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]}}))?;
    place.api().await?.create(&PostParams::default(), &service).await?;
    let set: StatefulSet = serde_json::from_value(json!({"metadata": {"name": "bills", "labels": {"app": "bills"}},
        "spec": {"replicas": 0, "serviceName": "bills", "selector": {"matchLabels": {"app": "bills"}},
            "template": {"metadata": {"labels": {"app": "bills"}},
                "spec": {"containers": [{"name": "es-app", "image": "localhost/pause:1"}]}}}}))?;
    place.api().await?.create(&PostParams::default(), &set).await?;
    place
        .becomes::<StatefulSet>(SOON, "bills", "is known to its controller", |set| {
            ensure!(set["status"]["observedGeneration"] == 1, "{}", set["status"]);
            Ok(())
        })
        .await?;
    let theirs = [
        place.get::<Service>("orders").await?,
        place.get::<StatefulSet>("bills").await?,
    ];

    for name in ["orders", "bills"] {
        context.apply_app("alpha", &place.app_without_nodes(name, 2)).await?;
    }
    for (name, kind) in [("orders", "Service"), ("bills", "StatefulSet")] {
        let app = place.condition(name, "WorkloadReady", "False", "Conflict").await?;
        let message = condition(&app, "Ready").context("Ready")?.2;
        let expected = format!(
            "{kind} {name} does not belong to this app and is left alone; remove what is in the way, or give the app another name"
        );
        ensure!(message == expected, "{message}");
        for replicas in [3, 2] {
            context
                .apply_app("alpha", &place.app_without_nodes(name, replicas))
                .await?;
            place.condition(name, "WorkloadReady", "False", "Conflict").await?;
        }
        let told = place.told(&app).await?;
        ensure!(
            told == [("Warning".to_owned(), "Conflict".to_owned(), expected)],
            "{told:?}"
        );
    }
    let now = [
        place.get::<Service>("orders").await?,
        place.get::<StatefulSet>("bills").await?,
    ];
    for (now, then) in now.iter().zip(&theirs) {
        same("the foreign object", now, then)?;
    }

    place
        .api::<Service>()
        .await?
        .delete("orders", &DeleteParams::default())
        .await?;
    place
        .api::<StatefulSet>()
        .await?
        .delete("bills", &DeleteParams::default())
        .await?;
    for name in ["orders", "bills"] {
        let app = place
            .condition(name, "WorkloadReady", "False", "ReplicasPending")
            .await?;
        for object in place.made(name).await? {
            ensure!(
                object["metadata"]["ownerReferences"][0]["uid"]
                    == app.metadata.uid.clone().unwrap_or_default().as_str(),
                "{object}"
            );
        }
    }
    drop(esfleet);
    Ok(())
}

/// Where another budget selects the pods, ours goes, as two of them break every eviction; it returns with the other's end.
pub async fn two_budgets_never_select_the_same_pods(context: &TestContext) -> Result<()> {
    let (place, _esfleet) = Place::with_esfleet(context, "beta").await?;
    context.apply_app("beta", &place.app_without_nodes("orders", 2)).await?;
    context.apply_app("beta", &place.app_without_nodes("bills", 2)).await?;
    place.made("orders").await?;
    place.made("bills").await?;
    let budgets = place.api::<PodDisruptionBudget>().await?;
    let theirs: PodDisruptionBudget = serde_json::from_value(json!({"metadata": {"name": "theirs"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "orders"}}}}))?;
    budgets.create(&PostParams::default(), &theirs).await?;
    place.is_there::<PodDisruptionBudget>("orders", false).await?;
    place
        .merge::<PodDisruptionBudget>(
            "theirs",
            json!({"spec": {"selector": {"matchLabels": {"app": "bills"}}}}),
        )
        .await?;
    place.is_there::<PodDisruptionBudget>("orders", true).await?;
    place.is_there::<PodDisruptionBudget>("bills", false).await?;
    budgets.delete("theirs", &DeleteParams::default()).await?;
    place.is_there::<PodDisruptionBudget>("bills", true).await
}
