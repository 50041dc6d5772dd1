//! An app's root znode path.

use std::fmt;

use thiserror::Error;

/// The longest root path that the API accepts, in characters.
pub const MAX_LENGTH: usize = 512;

/// A path of at least one level, legal for ZooKeeper, that is not reserved.
///
/// It starts with a slash, ends without one, has no empty, `.` or `..` level, no character that
/// ZooKeeper refuses, and lies neither under `/zookeeper` (the ensemble's own) nor under `/esfleet`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RootPath(String);

/// Why a text is no root path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidRootPath {
    /// It does not start with `/`.
    #[error("must start with a slash")]
    NotAbsolute,
    /// It ends with `/`; `/` itself is such a path.
    #[error("must not end with a slash")]
    TrailingSlash,
    /// It contains `//`, `/./` or `/../`, or ends with `/.` or `/..`.
    #[error("must not contain empty, \".\" or \"..\" levels")]
    BadLevel,
    /// It contains a character that ZooKeeper refuses.
    #[error("must not contain control characters or other characters that ZooKeeper refuses")]
    BadCharacter,
    /// It is `/zookeeper` or `/esfleet`, or below.
    #[error("must not be /zookeeper or /esfleet or below them, which are reserved")]
    Reserved,
    /// It is longer than [`MAX_LENGTH`].
    #[error("must be at most {MAX_LENGTH} characters long")]
    TooLong,
}

impl RootPath {
    /// Parses a root path.
    ///
    /// # Errors
    /// [`InvalidRootPath`] with the first rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, InvalidRootPath> {
        validate_path(text)?;
        let first = text[1..].split('/').next().unwrap_or_default();
        if matches!(first, "zookeeper" | "esfleet") {
            return Err(InvalidRootPath::Reserved);
        }
        Ok(Self(text.to_owned()))
    }

    /// The path as text, starting with a slash and ending without one.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path of the znode in which the app names its leader.
    #[must_use]
    pub fn leader(&self) -> String {
        format!("{}/leader", self.0)
    }
}

impl fmt::Display for RootPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rules that hold for every path of ours below ZooKeeper's root.
pub(super) fn validate_path(text: &str) -> Result<(), InvalidRootPath> {
    let Some(levels) = text.strip_prefix('/') else {
        return Err(InvalidRootPath::NotAbsolute);
    };
    if text.ends_with('/') {
        return Err(InvalidRootPath::TrailingSlash);
    }
    if text.chars().count() > MAX_LENGTH {
        return Err(InvalidRootPath::TooLong);
    }
    if levels.split('/').any(|level| matches!(level, "" | "." | "..")) {
        return Err(InvalidRootPath::BadLevel);
    }
    if text.chars().any(is_refused_by_zookeeper) {
        return Err(InvalidRootPath::BadCharacter);
    }
    Ok(())
}

/// The ranges that ZooKeeper's `PathUtils.validatePath` refuses.
fn is_refused_by_zookeeper(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legal_path_is_kept_as_it_is() {
        for good in ["/a", "/orders/eu", "/a.b/..c", "/zookeeper2", "/esfleet-x/y", "/a b"] {
            assert_eq!(RootPath::parse(good).map(|p| p.to_string()), Ok(good.to_owned()));
        }
    }

    #[test]
    fn each_broken_rule_is_named() {
        let too_long = format!("/{}", "a".repeat(MAX_LENGTH));
        for (bad, why) in [
            ("", InvalidRootPath::NotAbsolute),
            ("a/b", InvalidRootPath::NotAbsolute),
            ("/", InvalidRootPath::TrailingSlash),
            ("/a/", InvalidRootPath::TrailingSlash),
            ("/a//b", InvalidRootPath::BadLevel),
            ("/a/./b", InvalidRootPath::BadLevel),
            ("/a/..", InvalidRootPath::BadLevel),
            ("/a\0b", InvalidRootPath::BadCharacter),
            ("/a\nb", InvalidRootPath::BadCharacter),
            ("/a\u{e000}", InvalidRootPath::BadCharacter),
            ("/zookeeper", InvalidRootPath::Reserved),
            ("/zookeeper/quota", InvalidRootPath::Reserved),
            ("/esfleet/claims", InvalidRootPath::Reserved),
            (too_long.as_str(), InvalidRootPath::TooLong),
        ] {
            assert_eq!(RootPath::parse(bad), Err(why), "{bad:?}");
        }
    }

    #[test]
    fn the_leader_is_a_child_of_the_root() {
        assert_eq!(
            RootPath::parse("/a/b").map(|p| p.leader()),
            Ok("/a/b/leader".to_owned())
        );
    }
}
