//! What an API server's refusal or silence means, in a closed set and in words.

use std::error::Error;

use kube::core::Status;

/// The kind of trouble that a request met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultClass {
    /// Nothing came back: no connection, no TLS, no name.
    Unreachable,
    /// Nothing came back in time.
    TimedOut,
    /// 401: the credentials are not, or no longer, accepted.
    Unauthorized,
    /// 403: the credentials do not allow this.
    Forbidden,
    /// 404: there is no such object, or no such kind.
    NotFound,
    /// 409: somebody else was faster, or the object exists.
    Conflict,
    /// 429 and 5xx: the server has trouble of its own.
    ServerTrouble,
    /// Any other refusal: the request is at fault.
    Refused,
    /// What came back was not understood.
    Unintelligible,
}

impl FaultClass {
    /// The class as a reason: one CamelCase word.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unreachable => "Unreachable",
            Self::TimedOut => "TimedOut",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::Conflict => "Conflict",
            Self::ServerTrouble => "ServerTrouble",
            Self::Refused => "Refused",
            Self::Unintelligible => "Unintelligible",
        }
    }

    /// Whether the API server was there and answered.
    #[must_use]
    pub fn is_answer(self) -> bool {
        match self {
            Self::Unauthorized | Self::Forbidden | Self::NotFound | Self::Conflict | Self::Refused => true,
            Self::Unreachable | Self::TimedOut | Self::ServerTrouble | Self::Unintelligible => false,
        }
    }
}

/// The kind of trouble that `error` is.
#[must_use]
pub fn classify(error: &kube::Error) -> FaultClass {
    match error {
        kube::Error::Api(status) => classify_status(status),
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => FaultClass::Unintelligible,
        _ => FaultClass::Unreachable,
    }
}

fn classify_status(status: &Status) -> FaultClass {
    match status.code {
        401 => FaultClass::Unauthorized,
        403 => FaultClass::Forbidden,
        404 => FaultClass::NotFound,
        409 => FaultClass::Conflict,
        429 | 500..=599 => FaultClass::ServerTrouble,
        _ => FaultClass::Refused,
    }
}

/// What went wrong in one line: the server's own words, or the whole chain of causes.
///
/// `kube::Error` alone prints only its top ("client error (Connect)") or everything twice.
#[must_use]
pub fn describe(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return if status.message.is_empty() {
            format!("the API server answered {} {}", status.code, status.reason)
        } else {
            status.message.trim().to_owned()
        };
    }
    let mut causes: Vec<String> = Vec::new();
    let mut next: Option<&dyn Error> = error.source().or(Some(error));
    while let Some(cause) = next {
        let text = cause.to_string();
        // Many an error repeats its source in its own text.
        match causes.last_mut() {
            Some(last) if last.ends_with(&text) => {}
            _ => causes.push(text),
        }
        next = cause.source();
    }
    causes.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status {
            code,
            message: message.to_owned(),
            reason: "Reason".to_owned(),
            ..Status::default()
        }))
    }

    #[test]
    fn an_answer_is_classed_by_its_code_and_told_in_the_servers_words() {
        for (code, class) in [
            (401, FaultClass::Unauthorized),
            (403, FaultClass::Forbidden),
            (404, FaultClass::NotFound),
            (409, FaultClass::Conflict),
            (422, FaultClass::Refused),
            (429, FaultClass::ServerTrouble),
            (503, FaultClass::ServerTrouble),
        ] {
            assert_eq!(classify(&status(code, "")), class);
        }
        assert_eq!(describe(&status(403, "apps is forbidden\n")), "apps is forbidden");
        assert_eq!(describe(&status(503, "")), "the API server answered 503 Reason");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_told_with_the_cause() {
        let config = kube::Config::new("http://127.0.0.1:1/".parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let error = client.apiserver_version().await.unwrap_err();
        assert_eq!(classify(&error), FaultClass::Unreachable);
        assert_eq!(
            describe(&error),
            "client error (Connect): tcp connect error: Connection refused (os error 111)"
        );
    }
}
