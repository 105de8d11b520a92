//! The words of a transcript: quoted bytes, spans of time, and leases by name.

use super::Config;

/// The leases of one transcript, by the order in which they were first asked for.
#[derive(Debug, Default)]
pub struct Leases(Vec<i64>);

impl Leases {
    /// Gives a lease its name, if it has none yet.
    pub fn note(&mut self, lease: i64) {
        if !self.0.contains(&lease) {
            self.0.push(lease);
        }
    }

    /// Writes names for leases.
    pub fn name(&self, mut text: String) -> String {
        for (index, lease) in self.0.iter().enumerate() {
            text = text.replace(&hex(*lease), &format!("L{}", index + 1));
        }
        text
    }

    /// Writes leases for names.
    pub fn resolve(&self, mut text: String) -> String {
        for (index, lease) in self.0.iter().enumerate().rev() {
            text = text.replace(&format!("L{}", index + 1), &hex(*lease));
        }
        text
    }
}

/// A lease as Go's `%x` writes it.
pub fn hex(lease: i64) -> String {
    let sign = if lease < 0 { "-" } else { "" };
    format!("{sign}{:x}", lease.unsigned_abs())
}

/// Bytes, quoted.
pub fn quote(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

/// Nanoseconds, as seconds.
pub fn seconds(nanoseconds: u64) -> String {
    let text = format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// `3.5s` or `100ms`, in nanoseconds.
pub fn duration(text: &str) -> Result<u64, String> {
    let trouble = || format!("`{text}` is no time: write `3.5s` or `100ms`");
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 6),
        None => (text.strip_suffix('s').ok_or_else(trouble)?, 9),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{part:0<unit$}");
    if part.len() > unit {
        return Err(trouble());
    }
    digits.parse().map_err(|_| trouble())
}

/// The settings of an elector.
pub fn config(text: &str) -> Result<Config, String> {
    let mut config = Config::default();
    for setting in text.split_whitespace() {
        match setting.split_once('=') {
            Some(("ttl", value)) => config.ttl = duration(value)?,
            Some(("margin", value)) => config.margin = duration(value)?,
            Some(("timeout", value)) => config.timeout = duration(value)?,
            Some(("seed", value)) => {
                let trouble = || format!("`{value}` is no seed: write two numbers, `1,2`");
                let (a, b) = value.split_once(',').ok_or_else(trouble)?;
                config.seed =
                    (a.parse().map_err(|_| trouble())?, b.parse().map_err(|_| trouble())?);
            }
            _ => return Err(format!("`{setting}` is no setting")),
        }
    }
    Ok(config)
}

/// The words of one line, one after the other.
#[derive(Debug)]
pub struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    /// The words of this line.
    pub fn of(line: &'a str) -> Words<'a> {
        Words(line.trim())
    }

    /// Whether there are no more.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes this text, if it comes next.
    pub fn eat(&mut self, text: &str) -> bool {
        match self.0.strip_prefix(text) {
            Some(rest) => {
                self.0 = rest.trim_start();
                true
            }
            None => false,
        }
    }

    /// Takes this text.
    pub fn want(&mut self, text: &str) -> Result<(), String> {
        if self.eat(text) {
            Ok(())
        } else {
            Err(format!("`{text}` is missing before `{}`", self.0))
        }
    }

    /// A word, up to a space or a delimiter.
    pub fn word(&mut self) -> Result<&'a str, String> {
        let end =
            self.0.find(|c: char| c.is_whitespace() || "[]=@".contains(c)).unwrap_or(self.0.len());
        if end == 0 {
            return Err(format!("a word is missing before `{}`", self.0));
        }
        let (word, rest) = self.0.split_at(end);
        self.0 = rest.trim_start();
        Ok(word)
    }

    /// A number.
    pub fn number<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        let word = self.word()?;
        word.parse().map_err(|_| format!("`{word}` is no number"))
    }

    /// A span of time.
    pub fn duration(&mut self) -> Result<u64, String> {
        duration(self.word()?)
    }

    /// A lease, or `-` for none.
    pub fn lease(&mut self) -> Result<i64, String> {
        let word = self.word()?;
        let (sign, digits) = match word.strip_prefix('-') {
            Some("") => return Ok(0),
            Some(digits) => (-1, digits),
            None => (1, word),
        };
        i64::from_str_radix(digits, 16)
            .map(|lease| sign * lease)
            .map_err(|_| format!("`{word}` is no lease"))
    }

    /// Quoted bytes.
    pub fn bytes(&mut self) -> Result<Vec<u8>, String> {
        let body = self.0.strip_prefix('"').ok_or_else(|| format!("`\"` before `{}`", self.0))?;
        let mut bytes = Vec::new();
        let mut rest = body.bytes().enumerate();
        let hex = |rest: &mut dyn Iterator<Item = (usize, u8)>| {
            rest.next().and_then(|(_, digit)| (digit as char).to_digit(16)).ok_or("`\\x` wants hex")
        };
        loop {
            match rest.next() {
                None => return Err("the closing `\"` is missing".into()),
                Some((end, b'"')) => {
                    self.0 = body[end + 1..].trim_start();
                    return Ok(bytes);
                }
                Some((_, b'\\')) => bytes.push(match rest.next().map(|(_, byte)| byte) {
                    Some(b'n') => b'\n',
                    Some(b'r') => b'\r',
                    Some(b't') => b'\t',
                    Some(b'0') => 0,
                    Some(b'x') => (hex(&mut rest)? * 16 + hex(&mut rest)?) as u8,
                    Some(byte) => byte,
                    None => return Err("the closing `\"` is missing".into()),
                }),
                Some((_, byte)) => bytes.push(byte),
            }
        }
    }

    /// Quoted text.
    pub fn string(&mut self) -> Result<String, String> {
        String::from_utf8(self.bytes()?).map_err(|_| "the text is not UTF-8".into())
    }
}
