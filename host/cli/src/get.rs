//! `incumbent get`: the bare value of a key.

use incumbent::{Store, admin};
use serde_json::{Map, Value};

use super::args::{Common, Consistency, Form, Get};
use super::event::put_bytes;
use super::exit::{End, Status};
use super::input::key_bytes;
use super::output::print;
use super::session::store;
use super::text::json;

pub async fn get(common: &Common, get: &Get) -> Result<Status, End> {
    let key = key_bytes(&get.key)?;
    let store = store(common).await?;
    let within = common.command_timeout;
    let entry = match get.consistency {
        Consistency::Linearizable => admin::get(&store, key, within).await,
        Consistency::Serializable => store.peek(key, within).await,
    };
    let Some(entry) = entry? else {
        return Err(End::quiet(Status::NotFound));
    };
    print(match common.output {
        Form::People => entry.value,
        Form::Json => {
            let mut object = Map::new();
            put_bytes(&mut object, "key", &entry.key);
            put_bytes(&mut object, "value", &entry.value);
            object.insert("created".into(), entry.created.into());
            object.insert("modified".into(), entry.modified.into());
            object.insert("lease".into(), format!("{:x}", entry.lease).into());
            json(&Value::Object(object)).into_bytes()
        }
    })
}
