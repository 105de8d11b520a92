//! Values of the elector's types as JSON, and back, as `tests/transcripts/README.md` says.
//!
//! The lists at the end name all fields and cases. The compiler finds one that is missing, and the
//! transcripts find one that is out of order.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::BuildHasher;

use serde_json::Value;

use super::action::{HostAction, KnownElection, NamedTerm};
use crate::types::*;

/// How many bytes the values of one line may have, whose stand-ins are short.
const LINE_VALUES: usize = 16 << 20;
/// How many bytes a stand-in stands for at least, so that short values differ as well.
const SHORTEST: usize = 8;
/// What the keys of wishes begin with.
const WISHES: &[u8] = b"incumbent-wishes/";

/// Writes JSON.
pub(super) struct Writer<'a> {
    pub(super) text: String,
    /// If given, stand-ins are written for values.
    hide: Option<&'a RandomState>,
    /// The values of the present record may be wishes.
    may_be_wishes: bool,
}

/// Reads JSON.
pub(super) struct Reader {
    /// How many bytes of values this line may still stand for.
    left: usize,
}

/// What can be written as JSON, and read.
pub(super) trait Json: Sized {
    fn write(&self, to: &mut Writer<'_>);
    fn read(from: &mut Reader, json: &Value) -> Result<Self, String>;
}

impl<'a> Writer<'a> {
    pub(super) fn new(hide: Option<&'a RandomState>) -> Self {
        Self { text: String::new(), hide, may_be_wishes: false }
    }

    /// The next item of a list, or field of an object.
    fn next(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with(['{', '[']) {
            self.text.push(',');
        }
    }

    pub(super) fn open(&mut self) {
        self.text.push('{');
    }

    pub(super) fn close(&mut self) {
        self.text.push('}');
    }

    pub(super) fn name(&mut self, field: &str) {
        self.next();
        // Writing to a string never fails, here and below.
        let _ = write!(self.text, "\"{}\":", field.replace('_', "-"));
    }

    pub(super) fn field(&mut self, name: &str, value: &impl Json) {
        self.name(name);
        value.write(self);
    }

    fn tag(&mut self, case: &str) {
        self.open();
        self.name("tag");
        self.case(case);
    }

    fn case(&mut self, case: &str) {
        self.text.push('"');
        self.text.extend(kebab(case));
        self.text.push('"');
    }

    fn value(&mut self, value: &[u8]) {
        match self.hide {
            // The elector makes and reads wishes: without their values, no replay says the same.
            Some(_) if self.may_be_wishes && is_of_a_wish(value) => self.hex(value),
            Some(key) if !value.is_empty() => {
                let length = value.len().max(SHORTEST);
                let _ = write!(self.text, "\"~{:016x}:{length}\"", key.hash_one(value));
            }
            Some(_) | None => self.hex(value),
        }
    }

    fn hex(&mut self, bytes: &[u8]) {
        self.text.push('"');
        for byte in bytes {
            let digit = |digit| char::from_digit(u32::from(digit), 16).unwrap_or_default();
            self.text.extend([digit(byte >> 4), digit(byte & 15)]);
        }
        self.text.push('"');
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self { left: LINE_VALUES }
    }
}

impl Reader {
    pub(super) fn field<T: Json>(&mut self, json: &Value, name: &str) -> Result<T, String> {
        let name = name.replace('_', "-");
        let field = json.get(&name).ok_or_else(|| format!("there is no `{name}`"))?;
        T::read(self, field).map_err(|error| format!("{name}: {error}"))
    }

    /// The bytes of a value, or those that its stand-in stands for.
    fn value(&mut self, json: &Value) -> Result<Vec<u8>, String> {
        let Some(stand_in) = json.as_str().and_then(|text| text.strip_prefix('~')) else {
            return Json::read(self, json);
        };
        let parsed = stand_in.split_once(':').and_then(|(hash, length)| {
            Some((u64::from_str_radix(hash, 16).ok()?, length.parse::<usize>().ok()?))
        });
        let (hash, length) = parsed.ok_or("this is no stand-in of a value")?;
        self.left = self.left.checked_sub(length).ok_or("its values are too large")?;
        Ok(hash.to_be_bytes().into_iter().cycle().take(length).collect())
    }
}

/// Whether a value says no more than a wish does: numbers, and perhaps `now`.
fn is_of_a_wish(value: &[u8]) -> bool {
    let is_word = |word: &str| word == "now" || word.parse::<i64>().is_ok();
    str::from_utf8(value).is_ok_and(|text| text.split(' ').all(is_word))
}

/// As WIT writes a name: `KeepAlive` is `keep-alive`.
fn kebab(case: &str) -> impl Iterator<Item = char> {
    case.char_indices().flat_map(|(index, letter)| {
        let dash = (letter.is_uppercase() && index > 0).then_some('-');
        dash.into_iter().chain([letter.to_ascii_lowercase()])
    })
}

fn is(json: &Value, case: &str) -> bool {
    json.as_str().is_some_and(|text| kebab(case).eq(text.chars()))
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        /// JavaScript would read it as a float, and lose digits.
        impl Json for $number {
            fn write(&self, to: &mut Writer<'_>) {
                let _ = write!(to.text, "\"{self}\"");
            }

            fn read(_: &mut Reader, json: &Value) -> Result<Self, String> {
                let number = json.as_str().and_then(|digits| digits.parse().ok());
                number.ok_or_else(|| "this is no number in quotes".into())
            }
        }
    )*};
}

numbers!(u64, i64);

macro_rules! small_numbers {
    ($($number:ty)*) => {$(
        impl Json for $number {
            fn write(&self, to: &mut Writer<'_>) {
                let _ = write!(to.text, "{self}");
            }

            fn read(_: &mut Reader, json: &Value) -> Result<Self, String> {
                let number = json.as_i64().and_then(|number| number.try_into().ok());
                number.ok_or_else(|| "this is no small number".into())
            }
        }
    )*};
}

small_numbers! { u32 i32 }

impl Json for bool {
    fn write(&self, to: &mut Writer<'_>) {
        let _ = write!(to.text, "{self}");
    }

    fn read(_: &mut Reader, json: &Value) -> Result<Self, String> {
        json.as_bool().ok_or_else(|| "this is neither true nor false".into())
    }
}

impl Json for String {
    fn write(&self, to: &mut Writer<'_>) {
        to.text += &Value::from(self.as_str()).to_string();
    }

    fn read(_: &mut Reader, json: &Value) -> Result<Self, String> {
        json.as_str().map(Into::into).ok_or_else(|| "this is no text".into())
    }
}

impl Json for Vec<u8> {
    fn write(&self, to: &mut Writer<'_>) {
        to.hex(self);
    }

    fn read(_: &mut Reader, json: &Value) -> Result<Self, String> {
        let pairs = json.as_str().into_iter().flat_map(|text| text.as_bytes().chunks(2));
        let bytes = pairs.map(|pair| match pair {
            [high, low] => {
                let digit = |digit: &u8| char::from(*digit).to_digit(16);
                u8::try_from(digit(high)? << 4 | digit(low)?).ok()
            }
            _ => None,
        });
        let bytes = bytes.collect::<Option<_>>().filter(|_| json.is_string());
        bytes.ok_or_else(|| "these are no bytes in hex".into())
    }
}

impl<T: Json> Json for Vec<T> {
    fn write(&self, to: &mut Writer<'_>) {
        to.text.push('[');
        for item in self {
            to.next();
            item.write(to);
        }
        to.text.push(']');
    }

    fn read(from: &mut Reader, json: &Value) -> Result<Self, String> {
        let items = json.as_array().ok_or("this is no list")?;
        items.iter().map(|item| T::read(from, item)).collect()
    }
}

impl<T: Json> Json for Option<T> {
    fn write(&self, to: &mut Writer<'_>) {
        match self {
            Some(value) => value.write(to),
            None => to.text += "null",
        }
    }

    fn read(from: &mut Reader, json: &Value) -> Result<Self, String> {
        if json.is_null() { Ok(None) } else { T::read(from, json).map(Some) }
    }
}

impl Json for (u64, u64) {
    fn write(&self, to: &mut Writer<'_>) {
        vec![self.0, self.1].write(to);
    }

    fn read(from: &mut Reader, json: &Value) -> Result<Self, String> {
        match Vec::read(from, json)?.as_slice() {
            [one, other] => Ok((*one, *other)),
            _ => Err("these are not two".into()),
        }
    }
}

impl<T: Json, E: Json> Json for Result<T, E> {
    fn write(&self, to: &mut Writer<'_>) {
        match self {
            Ok(value) => {
                to.tag("ok");
                to.field("val", value);
            }
            Err(value) => {
                to.tag("err");
                to.field("val", value);
            }
        }
        to.close();
    }

    fn read(from: &mut Reader, json: &Value) -> Result<Self, String> {
        match json.get("tag").and_then(Value::as_str) {
            Some("ok") => from.field(json, "val").map(Ok),
            Some("err") => from.field(json, "val").map(Err),
            _ => Err("this is neither ok nor err".into()),
        }
    }
}

/// Fields and payloads that are named `value` are values, and have stand-ins. The field before them tells
/// whether they are wishes.
macro_rules! piece {
    (write $to:ident value $it:expr) => {
        $to.value($it)
    };
    (write $to:ident key $it:expr) => {{
        $to.may_be_wishes = $it.starts_with(WISHES);
        $it.write($to);
    }};
    (write $to:ident guard $it:expr) => {{
        $it.write($to);
        $to.may_be_wishes = $it.key.starts_with(WISHES);
    }};
    (write $to:ident $name:ident $it:expr) => {
        $it.write($to)
    };
    (read $from:ident value $json:expr) => {
        $from.value($json)
    };
    (read $from:ident $name:ident $json:expr) => {
        Json::read($from, $json)
    };
}

macro_rules! records {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        impl Json for $name {
            fn write(&self, to: &mut Writer<'_>) {
                let Self { $($field),* } = self;
                let outer = to.may_be_wishes;
                to.open();
                $(
                    to.name(stringify!($field));
                    piece!(write to $field $field);
                )*
                to.close();
                to.may_be_wishes = outer;
            }

            fn read(from: &mut Reader, json: &Value) -> Result<Self, String> {
                $(
                    let name = stringify!($field).replace('_', "-");
                    let $field = json.get(&name).ok_or_else(|| format!("there is no `{name}`"))?;
                    let $field = piece!(read from $field $field)
                        .map_err(|error| format!("{name}: {error}"))?;
                )*
                Ok(Self { $($field),* })
            }
        }
    )*};
}

macro_rules! variants {
    ($($name:ident { $($case:ident $(($payload:ident))?),* $(,)? })*) => {$(
        impl Json for $name {
            fn write(&self, to: &mut Writer<'_>) {
                match self {$(
                    Self::$case $(($payload))? => {
                        to.tag(stringify!($case));
                        $(
                            to.name("val");
                            piece!(write to $payload $payload);
                        )?
                    }
                )*}
                to.close();
            }

            fn read(from: &mut Reader, json: &Value) -> Result<Self, String> {
                let (tag, val) = (json.get("tag").unwrap_or(&Value::Null), json.get("val"));
                $(
                    if is(tag, stringify!($case)) {
                        $(
                            let $payload = val.ok_or_else(|| format!("{tag} has no `val`"))?;
                            let $payload = piece!(read from $payload $payload)
                                .map_err(|error| format!("{tag}: {error}"))?;
                        )?
                        return Ok(Self::$case $(($payload))?);
                    }
                )*
                Err(concat!("this is no ", stringify!($name)).into())
            }
        }
    )*};
}

macro_rules! enums {
    ($($name:ident { $($case:ident),* })*) => {$(
        impl Json for $name {
            fn write(&self, to: &mut Writer<'_>) {
                match self {
                    $(Self::$case => to.case(stringify!($case)),)*
                }
            }

            fn read(_: &mut Reader, json: &Value) -> Result<Self, String> {
                $(
                    if is(json, stringify!($case)) {
                        return Ok(Self::$case);
                    }
                )*
                Err(concat!("this is no ", stringify!($name)).into())
            }
        }
    )*};
}

enums! {
    Contest { Queue, Race }
    Order { OldestFirst, NewestFirst, ByKey }
}

records! {
    Config { lease_ttl, safety_margin, request_timeout, seed }
    Candidacy { election, name, contest, value, rejoin, priority, preempt_after }
    Observation { election, name, contest }
    Term { election, epoch }
    Limit { at_most, is_fair, at_once }
    Proclamation { election, ticket, value }
    GuardedWrite { term, ticket, expect, mutations }
    Expectation { key, modified }
    Reply { id, outcome }
    Watched { id, change }
    Deletion { key, at }
    Entry { key, value, lease, created, modified }
    Claimed { entry, at }
    Snapshot { at, found }
    Step { commands, deadline }
    Call { id, give_up, operation }
    Grant { lease, ttl }
    Claim { key, value, lease }
    Selection { key, prefix, from, created_before, order, limit, keys_only }
    Guarded { guard, expect, mutations }
    Guard { key, epoch, lease }
    Put { key, value }
    Watch { id, key, prefix, since }
    Joined { election, key, created }
    Leadership { term, key, lease, valid_until }
    Extension { lease, valid_until }
    Demotion { term, reason }
    Sighting { election, leader }
    Listing { election, candidates }
    Written { ticket, outcome }
    Withdrawal { election, cause }
    Trouble { election, failure }
    NamedTerm { name, epoch }
    KnownElection { election, name, key }
}

variants! {
    ConfigError { MarginExceedsTtl, Other(it) }
    Event {
        Wake, Campaign(it), Observe(it), Inspect(it), Proclaim(it), Write(it), Resign(it),
        Leave(it), Yielded(it), Limit(it), Close, Reply(it), Watched(it),
    }
    Change { Started(it), Put(it), Deleted(it), Ended(it) }
    Response {
        Granted(it), Exists, Renewed(it), Expired, Revoked, Claimed(it), Taken(it), Snapshot(it),
        Applied(it), Stale, Conflict,
    }
    Failure { Timeout, Unavailable, Compacted(it), Denied(it), Invalid(it), Other(it) }
    Command { Call(it), Watch(it), Unwatch(it), Notify(it) }
    Operation { Grant(it), KeepAlive(it), Revoke(it), Claim(it), Read(it), Guarded(it) }
    Mutation { Put(it), Proclaim(value), Delete(it) }
    Notice {
        Joined(it), Elected(it), Extended(it), Endangered(it), HandOver(it), Demoted(it), Leader(it),
        Listed(it), Written(it), Withdrawn(it), Trouble(it), Closed,
    }
    Reason { Resigned, Expired, LeaseLost, Deposed, Fenced, Other(it) }
    WriteOutcome { Applied(it), Stale, Conflict, Unknown, Failed(it) }
    HostAction {
        Clock(it), Broke(it), Yielded(it), GaveBack(it), Expired(it), Gap(it), Elections(it), Closed,
    }
}
