//! Text that others wrote, made harmless: for people on one line, without characters that
//! control a terminal, and of bounded length; in JSON whole, and as harmless to a terminal.

use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use incumbent::Participant;
use serde_json::Value;

/// How many characters of a value people see.
const LONGEST: usize = 200;

/// Bytes as text on one line: other bytes and control characters are escaped, and a long text
/// is cut.
pub fn shown_bytes(bytes: &[u8]) -> String {
    let mut pieces = bytes.utf8_chunks().flat_map(|chunk| {
        let text = chunk.valid().chars().map(escaped);
        text.chain(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")))
    });
    let mut shown: String = pieces.by_ref().take(LONGEST).collect();
    if pieces.next().is_some() {
        shown += &format!("… ({} bytes)", bytes.len());
    }
    shown
}

/// The leader, as one line for people.
pub fn leader_line(election: &str, leader: Option<&Participant>) -> String {
    let election = shown_bytes(election.as_bytes());
    match leader {
        Some(leader) => format!(
            "{} leads {election} in epoch {} ({})",
            shown_bytes(&leader.value),
            leader.epoch,
            shown_bytes(&leader.key)
        ),
        None => format!("nobody leads {election}"),
    }
}

/// As one word of a shell.
pub fn word(text: &str) -> String {
    let is_plain = |one: char| one.is_alphanumeric() || "_-./:@%+=,".contains(one);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// To a tenth of a second.
pub fn in_seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

/// A sentence of any length on one line. Its backslashes are not escaped.
pub fn shown(text: &str) -> String {
    let escaped = |one: char| if one == '\\' { one.to_string() } else { escaped(one) };
    text.chars().map(escaped).collect()
}

/// JSON on one line. Characters that control a terminal, or change the direction of text, are
/// escaped: serde_json escapes the control characters of ASCII only.
pub fn json(value: &Value) -> String {
    let text = value.to_string();
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

/// A field of an object.
pub type Field = (String, Value);

pub fn field(name: &str, value: impl Into<Value>) -> Field {
    (name.to_owned(), value.into())
}

/// Bytes as a field: under their name if they are text, or else under `NAME_base64`.
pub fn bytes_field(name: &str, bytes: &[u8]) -> Field {
    match str::from_utf8(bytes) {
        Ok(text) => field(name, text),
        Err(_) => field(&format!("{name}_base64"), STANDARD.encode(bytes)),
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

/// Printable characters as they are. A backslash is escaped, so that escapes are unambiguous.
fn escaped(character: char) -> String {
    match character {
        '\'' | '"' => character.to_string(),
        other => other.escape_debug().to_string(),
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
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["value"], hostile.as_str());
        assert!(!line.chars().any(|one| one.is_control() || is_control(one)), "{line}");
        assert!(line.contains("\\u009b") && line.contains("\\u202e") && line.contains('ü'));
    }
}
