//! Text that others wrote, made harmless for terminals.

/// The text with every character that could steer a terminal or mislead its reader written as an escape.
///
/// Control characters (ANSI sequences start with one), line separators, bidirectional overrides and
/// invisible format characters become `\u{…}`; everything else stays as it is.
#[must_use]
pub fn harmless(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) {
            safe.extend(c.escape_unicode());
        } else {
            safe.push(c);
        }
    }
    safe
}

fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_written_as_an_escape() {
        for (raw, safe) in [
            ("orders-0", "orders-0"),
            ("größe 値 🎉", "größe 値 🎉"),
            ("\u{1b}[31mred\u{7}", "\\u{1b}[31mred\\u{7}"),
            ("a\nb\tc\r", "a\\u{a}b\\u{9}c\\u{d}"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("a\u{202e}b\u{2066}c", "a\\u{202e}b\\u{2066}c"),
            ("zero\u{200b}width", "zero\\u{200b}width"),
        ] {
            assert_eq!(harmless(raw), safe);
        }
    }
}
