//! Text that others wrote, made harmless: for people on one line, without characters that
//! control a terminal, and of bounded length; in JSON whole, and as harmless to a terminal.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// How many characters of a value people see.
const LONGEST: usize = 200;

/// Bytes as text on one line: other bytes and control characters are escaped, and a long text
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

/// A sentence of any length on one line. Its backslashes are not escaped.
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

/// JSON on one line. Characters that control a terminal, or change the direction of text, are
/// escaped: serde_json escapes the control characters of ASCII only.
pub fn json(value: &impl Serialize) -> String {
    // Cannot fail: our types have names for keys, and are written to memory.
    let text = serde_json::to_string(value).unwrap_or_default();
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if is_control(character) {
            // These characters occur in strings only. Cannot fail: it is written to memory.
            let _ = write!(line, "\\u{:04x}", u32::from(character));
        } else {
            line.push(character);
        }
    }
    line
}

/// Bytes in an object: under their name if they are text, or else under `NAME_base64`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'static str, pub &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(name, bytes) = self;
        let mut object = to.serialize_map(Some(1))?;
        match str::from_utf8(bytes) {
            Ok(text) => object.serialize_entry(name, text)?,
            Err(_) => object.serialize_entry(&format!("{name}_base64"), &STANDARD.encode(bytes))?,
        }
        object.end()
    }
}

/// DEL, C1 controls, line and paragraph separators, and characters that change the direction of
/// text.
fn is_control(character: char) -> bool {
    matches!(
        character,
        '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

fn cut(mut shown: String, length: usize) -> String {
    shown.push_str(&format!("… ({length} bytes)"));
    shown
}

/// Printable characters as they are. A backslash is escaped, so that escapes are unambiguous.
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

    #[test]
    fn hostile_values_are_whole_and_harmless_as_json() {
        let hostile: String = ('\0'..='\u{2fff}').collect();
        let line = json(&serde_json::json!({ "value": hostile.as_str() }));
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&line).unwrap()["value"],
            hostile.as_str()
        );
        assert!(!line.chars().any(|one| one.is_control() || is_control(one)), "{line}");
        assert!(line.contains("\\u009b") && line.contains("\\u202e") && line.contains('ü'));
    }
}
