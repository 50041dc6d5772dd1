//! What an app's leader znode says. Pure.

use jiff::Timestamp;

use crate::app::ensemble::LeaderView;

/// The longest leader that is shown, in characters.
const LONGEST: usize = 253;

/// Reads a leader znode: UTF-8 text, one trailing newline aside, of 1 to 253 printable characters.
///
/// `created` is the znode's creation time in milliseconds since 1970, by the ensemble's clock. Anything else than
/// a name becomes [`LeaderView::Unreadable`] with a sentence that names `path` and never quotes the bytes.
#[must_use]
pub fn read(path: &str, bytes: &[u8], created: i64) -> LeaderView {
    match name(bytes) {
        Ok(name) => LeaderView::Named {
            name: name.to_owned(),
            since: Timestamp::from_millisecond(created).unwrap_or(Timestamp::UNIX_EPOCH),
        },
        Err(reason) => LeaderView::Unreadable(format!("{path} {reason}")),
    }
}

fn name(bytes: &[u8]) -> Result<&str, String> {
    let text =
        std::str::from_utf8(bytes).map_err(|_| format!("holds {} bytes that are not UTF-8 text", bytes.len()))?;
    let name = text
        .strip_suffix('\n')
        .map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
    if name.is_empty() {
        return Err("is empty".to_owned());
    }
    if name.trim().is_empty() {
        return Err("holds nothing but spaces".to_owned());
    }
    let length = name.chars().count();
    if length > LONGEST {
        return Err(format!(
            "holds {length} characters, which is more than the {LONGEST} of a name"
        ));
    }
    if !is_printable(name) {
        return Err("holds characters that cannot be printed".to_owned());
    }
    Ok(name)
}

/// Whether no character is a control, a format (such as a change of direction), private, unassigned, a space other
/// than the plain one, or a combining mark that has nothing to stand on.
fn is_printable(text: &str) -> bool {
    let unquoted = text.replace(['"', '\'', '\\'], "_");
    unquoted.escape_debug().eq(unquoted.chars())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/orders/leader";

    #[test]
    fn a_printable_name_is_the_leader_since_the_creation_of_the_znode() {
        let longest = "ä".repeat(LONGEST);
        for (bytes, name) in [
            ("orders-0", "orders-0"),
            ("orders-0\n", "orders-0"),
            ("orders-0\r\n", "orders-0"),
            ("pod \"a\\b'c\"", "pod \"a\\b'c\""),
            ("größer-1", "größer-1"),
            ("e\u{301}", "e\u{301}"),
            ("名前", "名前"),
            (longest.as_str(), longest.as_str()),
        ] {
            assert_eq!(
                read(PATH, bytes.as_bytes(), 1_700_000_000_123),
                LeaderView::Named {
                    name: name.to_owned(),
                    since: Timestamp::from_millisecond(1_700_000_000_123).unwrap(),
                },
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn what_is_no_name_is_unreadable_with_a_reason_and_without_the_bytes() {
        let too_long = "a".repeat(LONGEST + 1);
        let unprintable = "/orders/leader holds characters that cannot be printed";
        for (bytes, reason) in [
            (b"".as_slice(), "/orders/leader is empty"),
            (b"\n", "/orders/leader is empty"),
            (b"  ", "/orders/leader holds nothing but spaces"),
            (
                b"\xac\xed\x00\x05",
                "/orders/leader holds 4 bytes that are not UTF-8 text",
            ),
            (
                too_long.as_bytes(),
                "/orders/leader holds 254 characters, which is more than the 253 of a name",
            ),
            (b"orders-0\n\n", unprintable),
            (b"\x1b[31mred", unprintable),
            (b"a\x00b", unprintable),
            (b"a\tb", unprintable),
            ("a\u{202e}b".as_bytes(), unprintable),
            ("a\u{200b}b".as_bytes(), unprintable),
            ("a\u{a0}b".as_bytes(), unprintable),
            ("a\u{e000}b".as_bytes(), unprintable),
            ("a\u{2028}b".as_bytes(), unprintable),
            ("\u{301}a".as_bytes(), unprintable),
        ] {
            assert_eq!(
                read(PATH, bytes, 0),
                LeaderView::Unreadable(reason.to_owned()),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn a_creation_time_out_of_range_does_not_hide_the_name() {
        assert_eq!(
            read(PATH, b"orders-0", i64::MAX),
            LeaderView::Named {
                name: "orders-0".to_owned(),
                since: Timestamp::UNIX_EPOCH,
            }
        );
    }
}
