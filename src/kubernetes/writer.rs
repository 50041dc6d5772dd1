//! Writes to a member: only under a term, with a deadline on both sides and preconditions.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions, Request};
use kube::core::Status;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;

use super::projection::ObjectKey;
use crate::api::{EventSourcedApp, FIELD_MANAGER};
use crate::leadership::{Term, WriteError as TermError};

/// The deadline of one request, body included.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(10);

/// What became of a request that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The term ended before or during the write; whether it arrived is not known.
    #[error("the term ended")]
    TermEnded,
    /// No answer in time; whether it arrived is not known.
    #[error("no answer in time")]
    Deadline(Duration),
    /// A precondition does not hold (409): somebody was faster.
    #[error("somebody was faster: {0}")]
    Stale(String),
    /// There is no such object (404).
    #[error("not found: {0}")]
    NotFound(String),
    /// The namespace is being deleted, so that nothing can be created in it.
    #[error("the namespace is being deleted")]
    NamespaceTerminating,
    /// esfleet has no permission (401, 403).
    #[error("{0}")]
    Forbidden(String),
    /// The API server refuses the object as it is (400, 422).
    #[error("{0}")]
    Rejected(String),
    /// Anything else: unreachable, throttled, an internal error.
    #[error("{0}")]
    Failed(String),
}

impl RequestError {
    /// Whether it only says that the world moved on: trying again with fresh eyes is all that is to be done, and
    /// nobody needs to be told.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::TermEnded | Self::Stale(_) | Self::NamespaceTerminating => true,
            Self::Deadline(_) | Self::NotFound(_) | Self::Forbidden(_) | Self::Rejected(_) | Self::Failed(_) => false,
        }
    }
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => of_status(&status),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<TermError<kube::Error>> for RequestError {
    fn from(error: TermError<kube::Error>) -> Self {
        match error {
            TermError::TermEnded => Self::TermEnded,
            TermError::Deadline(limit) => Self::Deadline(limit),
            TermError::Failed(error) => error.into(),
        }
    }
}

fn of_status(status: &Status) -> RequestError {
    let causes = status
        .details
        .as_ref()
        .map(|details| details.causes.as_slice())
        .unwrap_or_default();
    let message = status.message.clone();
    match status.code {
        409 => RequestError::Stale(message),
        404 => RequestError::NotFound(message),
        403 if causes.iter().any(|cause| cause.reason == "NamespaceTerminating") => RequestError::NamespaceTerminating,
        401 | 403 => RequestError::Forbidden(message),
        400 | 422 => RequestError::Rejected(message),
        _ => RequestError::Failed(message),
    }
}

/// The hand that writes to one member in one term.
#[derive(Clone)]
pub struct Writer {
    term: Arc<Term>,
    client: Client,
}

impl Writer {
    /// A writer for `client`'s cluster that stops with `term`.
    #[must_use]
    pub fn new(term: Arc<Term>, client: Client) -> Self {
        Self { term, client }
    }

    /// Reads one object as the API server has it now; none if there is none. It ends with the term, so that a
    /// member that does not answer holds up no step-down.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn read<K: Resource<DynamicType = ()>>(&self, key: &ObjectKey) -> Result<Option<Value>, RequestError> {
        let request = request::<K>(key).get(&key.name, &GetParams::default()).map_err(build)?;
        match self
            .term
            .write(REQUEST_DEADLINE, self.client.request(request))
            .await
            .map_err(RequestError::from)
        {
            Ok(object) => Ok(Some(object)),
            Err(RequestError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Server-side apply of a whole object by esfleet's field manager. `metadata.uid` and
    /// `metadata.resourceVersion` in it are preconditions; a resource version of `"1"` creates the
    /// object and is [`RequestError::Stale`] where one exists.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn apply<K: Resource<DynamicType = ()>>(
        &self,
        key: &ObjectKey,
        object: &Value,
    ) -> Result<Value, RequestError> {
        let request = request::<K>(key)
            .patch(&key.name, &apply_params(), &Patch::Apply(object))
            .map_err(build)?;
        self.send(request).await
    }

    /// Merges a patch, as RFC 7386 has it; `metadata.uid` and `metadata.resourceVersion` in it are preconditions.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn merge<K: Resource<DynamicType = ()>>(
        &self,
        key: &ObjectKey,
        patch: &Value,
    ) -> Result<Value, RequestError> {
        let request = request::<K>(key)
            .patch(&key.name, &patch_params(), &Patch::Merge(patch))
            .map_err(build)?;
        self.send(request).await
    }

    /// Merges a patch under Kubernetes' own rules for lists; preconditions as in [`Self::merge`].
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn strategic_merge<K: Resource<DynamicType = ()>>(
        &self,
        key: &ObjectKey,
        patch: &Value,
    ) -> Result<Value, RequestError> {
        let request = request::<K>(key)
            .patch(&key.name, &patch_params(), &Patch::Strategic(patch))
            .map_err(build)?;
        self.send(request).await
    }

    /// Replaces an app's whole status, so that nothing that anybody else left in it stays; the
    /// object's new resource version.
    ///
    /// # Errors
    /// [`RequestError`]; `Stale` where the object is not the one of this UID at this resource version.
    pub async fn replace_status(
        &self,
        key: &ObjectKey,
        uid: &str,
        version: &str,
        status: &impl serde::Serialize,
    ) -> Result<String, RequestError> {
        let object = json!({
            "apiVersion": EventSourcedApp::api_version(&()),
            "kind": EventSourcedApp::kind(&()),
            "metadata": { "name": key.name, "namespace": key.namespace, "uid": uid, "resourceVersion": version },
            "status": status,
        });
        let data = serde_json::to_vec(&object).map_err(|error| RequestError::Failed(error.to_string()))?;
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let request = request::<EventSourcedApp>(key)
            .replace_subresource("status", &key.name, &params, data)
            .map_err(build)?;
        let answer: Value = self.send(request).await?;
        Ok(answer["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Deletes exactly the object that was observed; one that is gone already is no error.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn delete<K: Resource<DynamicType = ()>>(
        &self,
        key: &ObjectKey,
        uid: &str,
        version: &str,
    ) -> Result<(), RequestError> {
        let preconditions = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
        };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            ..DeleteParams::background()
        };
        let request = request::<K>(key).delete(&key.name, &params).map_err(build)?;
        match self.send::<Value>(request).await {
            Ok(_) | Err(RequestError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates an object by POST; used for Events, whose names are never reused.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn create<K>(&self, namespace: &str, object: &K) -> Result<(), RequestError>
    where
        K: Resource<DynamicType = ()> + serde::Serialize,
    {
        let data = serde_json::to_vec(object).map_err(|error| RequestError::Failed(error.to_string()))?;
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let request = Request::new(K::url_path(&(), Some(namespace)))
            .create(&params, data)
            .map_err(build)?;
        self.send::<Value>(request).await.map(drop)
    }

    async fn send<T: DeserializeOwned>(&self, request: http::Request<Vec<u8>>) -> Result<T, RequestError> {
        let limit = REQUEST_DEADLINE.min(self.term.remaining());
        let request = with_server_timeout(request, limit)?;
        Ok(self.term.write(limit, self.client.request(request)).await?)
    }
}

fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn apply_params() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER).force()
}

fn request<K: Resource<DynamicType = ()>>(key: &ObjectKey) -> Request {
    Request::new(K::url_path(&(), Some(&key.namespace)))
}

fn build(error: kube::core::request::Error) -> RequestError {
    RequestError::Failed(error.to_string())
}

/// Asks the API server to give up when we do, so that nothing of ours is carried out later than that.
fn with_server_timeout(
    mut request: http::Request<Vec<u8>>,
    limit: Duration,
) -> Result<http::Request<Vec<u8>>, RequestError> {
    let seconds = limit.as_secs().max(1);
    let uri = request.uri();
    let separator = if uri.query().is_some() { '&' } else { '?' };
    let bounded = format!("{uri}{separator}timeout={seconds}s");
    *request.uri_mut() = bounded
        .parse()
        .map_err(|error: http::uri::InvalidUri| RequestError::Failed(error.to_string()))?;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_tells_the_server_its_deadline() {
        let request = |uri: &str| http::Request::builder().uri(uri).body(Vec::new()).unwrap();
        for (uri, limit, bounded) in [
            ("/apis/x", Duration::from_millis(9_900), "/apis/x?timeout=9s"),
            (
                "/apis/x?fieldManager=esfleet&force=true",
                Duration::from_millis(10),
                "/apis/x?fieldManager=esfleet&force=true&timeout=1s",
            ),
        ] {
            let request = with_server_timeout(request(uri), limit).map(|r| r.uri().to_string());
            assert_eq!(request, Ok(bounded.to_owned()));
        }
    }

    #[test]
    fn each_answer_of_the_api_server_has_its_class() {
        let status = |code, causes: &[&str]| {
            let causes: Vec<Value> = causes.iter().map(|reason| json!({ "reason": reason })).collect();
            let status = json!({ "code": code, "message": "m", "details": { "causes": causes } });
            serde_json::from_value::<Status>(status).unwrap()
        };
        for (status, class) in [
            (status(409, &[]), RequestError::Stale("m".to_owned())),
            (status(404, &[]), RequestError::NotFound("m".to_owned())),
            (
                status(403, &["NamespaceTerminating"]),
                RequestError::NamespaceTerminating,
            ),
            (status(403, &[]), RequestError::Forbidden("m".to_owned())),
            (status(401, &[]), RequestError::Forbidden("m".to_owned())),
            (status(422, &[]), RequestError::Rejected("m".to_owned())),
            (status(429, &[]), RequestError::Failed("m".to_owned())),
            (status(500, &[]), RequestError::Failed("m".to_owned())),
        ] {
            assert_eq!(RequestError::from(kube::Error::Api(Box::new(status))), class);
        }
    }
}
