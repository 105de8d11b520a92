//! What others wrote, as people may see it: on one line, without what a terminal
//! would obey, and not without end.

/// How many characters of a value people are shown.
const LONGEST: usize = 200;

/// Bytes as text: what is no text, or no line, is escaped, and what is very long
/// is cut.
pub fn shown_bytes(bytes: &[u8]) -> String {
    let mut shown = String::new();
    let mut room = LONGEST;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if room == 0 {
                return cut(shown, bytes.len());
            }
            room -= 1;
            push(&mut shown, character);
        }
        for byte in chunk.invalid() {
            if room == 0 {
                return cut(shown, bytes.len());
            }
            room -= 1;
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

/// A sentence of any length on one line. Its backslashes are its own.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => shown.push(character),
            other => push(&mut shown, other),
        }
    }
    shown
}

fn cut(mut shown: String, length: usize) -> String {
    shown.push_str(&format!("… ({length} bytes)"));
    shown
}

/// Printable characters as they are; a backslash is not one, so that what is
/// shown means one thing only.
fn push(shown: &mut String, character: char) {
    match character {
        '\'' | '"' => shown.push(character),
        other => shown.extend(other.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_values_stay_on_their_line() {
        assert_eq!(shown_bytes(b"worker-1"), "worker-1");
        assert_eq!(shown_bytes("für 'x'".as_bytes()), "für 'x'");
        assert_eq!(shown_bytes(b"a\nb\0\x1b[2J"), "a\\nb\\0\\u{1b}[2J");
        assert_eq!(shown_bytes(b"a\xffb\\"), "a\\xffb\\\\");
        assert_eq!(shown_bytes("\u{202e}x".as_bytes()), "\\u{202e}x");
        let long = shown_bytes(&vec![b'a'; 10_000_000]);
        assert!(long.len() < 250 && long.ends_with("(10000000 bytes)"), "{long}");
    }
}
