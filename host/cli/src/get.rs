//! `incumbent get`: prints the bare value of a key.

use incumbent::{KeyValue, Store, admin};
use serde::Serialize;

use super::args::{Common, Consistency, Form, Get};
use super::exit::{End, Status};
use super::output::print;
use super::parse::key_bytes;
use super::session::store;
use super::text::{Bytes, json};

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    key: Bytes<'a>,
    #[serde(flatten)]
    value: Bytes<'a>,
    created: i64,
    modified: i64,
    lease: String,
}

pub async fn get(common: &Common, get: &Get) -> Result<Status, End> {
    let key = key_bytes(&get.key)?;
    let store = store(common).await?;
    let within = common.command_timeout;
    let entry = match get.consistency {
        Consistency::Linearizable => admin::get(&store, key, within).await,
        Consistency::Serializable => {
            store.peek(key, within).await.map(|entry| entry.map(KeyValue::from))
        }
    };
    let Some(entry) = entry? else {
        return Err(End::quiet(Status::NotFound));
    };
    print(match common.output {
        Form::People => entry.value,
        Form::Json => json(&Answer {
            key: Bytes("key", &entry.key),
            value: Bytes("value", &entry.value),
            created: entry.created.into(),
            modified: entry.modified.into(),
            lease: entry.lease.to_string(),
        })
        .into_bytes(),
    })
}
