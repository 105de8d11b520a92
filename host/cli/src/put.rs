//! `incumbent put`: a write that the store refuses once its epoch is over.

use std::os::unix::ffi::OsStrExt;

use incumbent::{Failure, WriteError};
use serde_json::json;

use super::args::{Common, Form, Put};
use super::exit::{End, Status, bad_input};
use super::output::print;
use super::parse::key_bytes;
use super::session::{admin, store};

pub async fn put(common: &Common, put: &Put) -> Result<Status, End> {
    let key = key_bytes(&put.key)?;
    let epoch = put.fence.fence_epoch()?;
    let store = store(common).await?;
    let admin = admin(common, &store, &put.fence.election);
    let revision = match admin.fenced_put(epoch, key, put.value.as_bytes()).await {
        Ok(revision) => revision,
        Err(WriteError::Stale) => {
            let election = &put.fence.election;
            let sentence = format!("epoch {epoch} does not lead {election}: nothing was written");
            return Err(End::new(Status::Fenced, sentence));
        }
        Err(WriteError::Failed(Failure::Invalid(text))) => {
            return Err(bad_input(format!("KEY {:?}: {text}", put.key)));
        }
        Err(error) => return Err(error.into()),
    };
    print(match common.output {
        Form::People => format!("written at revision {revision}"),
        Form::Json => json!({ "revision": i64::from(revision) }).to_string(),
    })
}
