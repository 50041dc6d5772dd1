//! The API servers' audit logs: every write, refused ones included, and every action on a pod, by whom and to what.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// One line of an audit log, as far as tests look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// `create`, `update`, `patch`, `delete`, …
    pub verb: String,
    /// `admin`, `system:serviceaccount:NAMESPACE:NAME`, …
    pub user: String,
    /// The id of the token that was used (`JTI=…`); every esfleet replica has a token of its own.
    pub credential: Option<String>,
    /// The program.
    pub user_agent: String,
    /// The resource, with its subresource after a slash: `eventsourcedapps/status`.
    pub resource: String,
    /// The namespace; empty for what belongs to the cluster.
    pub namespace: String,
    /// The object; empty where only the refused body would tell.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
}

/// The audit log of one cluster.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
}

/// A place in an audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

impl AuditLog {
    pub(crate) fn at(path: PathBuf) -> AuditLog {
        AuditLog { path }
    }

    /// The file, one JSON object a line.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The present end of the log. It is written before a request is answered, so that whatever has been answered is before it.
    pub fn mark(&self) -> Result<Mark> {
        let metadata = std::fs::metadata(&self.path);
        Ok(Mark(
            metadata
                .with_context(|| format!("no audit log {}", self.path.display()))?
                .len(),
        ))
    }

    /// What was written since `mark`, in order.
    pub fn since(&self, mark: Mark) -> Result<Vec<AuditEvent>> {
        let mut file = File::open(&self.path).with_context(|| format!("no audit log {}", self.path.display()))?;
        file.seek(SeekFrom::Start(mark.0))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]); // the last line may be half written
        whole.lines().map(parse).collect()
    }
}

fn parse(line: &str) -> Result<AuditEvent> {
    let event: Value = serde_json::from_str(line).with_context(|| format!("no audit event: {line}"))?;
    let text = |pointer: &str| {
        event
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let subresource = text("/objectRef/subresource");
    let resource = text("/objectRef/resource");
    let credential = event.pointer("/user/extra/authentication.kubernetes.io~1credential-id/0");
    Ok(AuditEvent {
        verb: text("/verb"),
        user: text("/user/username"),
        credential: credential.and_then(Value::as_str).map(str::to_owned),
        user_agent: text("/userAgent"),
        resource: if subresource.is_empty() {
            resource
        } else {
            format!("{resource}/{subresource}")
        },
        namespace: text("/objectRef/namespace"),
        name: text("/objectRef/name"),
        code: event
            .pointer("/responseStatus/code")
            .and_then(Value::as_u64)
            .unwrap_or_default() as u16,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_line_says_who_did_what_to_what() {
        let line = r#"{"verb":"patch","user":{"username":"system:serviceaccount:esfleet:esfleet","extra":{"authentication.kubernetes.io/credential-id":["JTI=1"]}},
            "userAgent":"esfleet/0.1","objectRef":{"resource":"eventsourcedapps","namespace":"shop","name":"orders","subresource":"status"},"responseStatus":{"code":200}}"#;
        let expected = AuditEvent {
            verb: "patch".to_owned(),
            user: "system:serviceaccount:esfleet:esfleet".to_owned(),
            credential: Some("JTI=1".to_owned()),
            user_agent: "esfleet/0.1".to_owned(),
            resource: "eventsourcedapps/status".to_owned(),
            namespace: "shop".to_owned(),
            name: "orders".to_owned(),
            code: 200,
        };
        assert_eq!(parse(line).unwrap(), expected);
    }
}
