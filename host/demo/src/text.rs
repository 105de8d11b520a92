//! What others wrote, as a terminal may show it.

/// On one line, and with what a terminal would obey escaped.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '\'' | '"' => shown.push(character),
            other => shown.extend(other.escape_debug()),
        }
    }
    shown
}

/// The same, and not without end.
pub fn shortened(text: impl ToString) -> String {
    shown(&text.to_string()).chars().take(500).collect()
}
