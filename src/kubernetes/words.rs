//! Errors of the client in words for people.

use std::error::Error;

/// What went wrong, without the client's own wrapping: the API server's message, or the innermost causes of a
/// connection that failed.
#[must_use]
pub fn describe(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return if status.message.is_empty() { format!("{} {}", status.code, status.reason) } else { status.message.clone() };
    }
    let mut words: Vec<String> = Vec::new();
    let mut cause: Option<&dyn Error> = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // a wrapper repeats what it wraps
        words.retain(|outer| !outer.contains(&text));
        if !words.iter().any(|outer| text.contains(outer.as_str())) {
            words.push(text);
        }
        cause = error.source();
    }
    if words.is_empty() { error.to_string() } else { words.join(": ") }
}
