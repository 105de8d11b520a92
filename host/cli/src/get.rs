//! `incumbent get`: prints the bare value of a key.

use incumbent::{KeyValue, Store, admin};
use serde_json::Value;

use super::args::{Common, Consistency, Form, Get};
use super::exit::{End, Status};
use super::output::print;
use super::parse::key_bytes;
use super::session::store;
use super::text::{bytes_field, field, json};

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
        Form::Json => json(&Value::from_iter([
            bytes_field("key", &entry.key),
            bytes_field("value", &entry.value),
            field("created", i64::from(entry.created)),
            field("modified", i64::from(entry.modified)),
            field("lease", entry.lease.to_string()),
        ]))
        .into_bytes(),
    })
}
