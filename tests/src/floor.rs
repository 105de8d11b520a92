//! The least that a handover on etcd takes: one delete, one watch event and one linearizable
//! read, with etcd-client alone.

use std::time::{Duration, Instant};

use etcd_client::{Client, Error, EventType, WatchOptions, WatchStream};

use crate::etcd::Etcd;

const KEY: &str = "floor";

/// A connection that deletes a key, and one that waits for that.
pub struct Floor {
    writer: Client,
    waiter: Client,
    watch: WatchStream,
}

impl Floor {
    /// Connects to this etcd.
    ///
    /// # Errors
    ///
    /// If etcd does not answer.
    pub async fn connect(etcd: &Etcd) -> Result<Self, Error> {
        let address = [etcd.address().to_string()];
        let writer = Client::connect(&address, None).await?;
        let mut waiter = Client::connect(&address, None).await?;
        let watch = waiter.watch(KEY, Some(WatchOptions::new())).await?;
        Ok(Self { writer, waiter, watch })
    }

    /// Writes the key, and opens the watch that waits for its end.
    ///
    /// # Errors
    ///
    /// If etcd does not answer.
    pub async fn prepare(&mut self) -> Result<(), Error> {
        self.writer.put(KEY, "", None).await?;
        self.watch = self.waiter.watch(KEY, Some(WatchOptions::new())).await?;
        Ok(())
    }

    /// From the delete until the other connection has seen it, and until it has read.
    ///
    /// # Errors
    ///
    /// If etcd does not answer.
    ///
    /// # Panics
    ///
    /// If the task that deletes panics.
    pub async fn hand_over(&mut self) -> Result<[Duration; 2], Error> {
        let began = Instant::now();
        let mut writer = self.writer.clone();
        let deleted = tokio::spawn(async move { writer.delete(KEY, None).await });
        'watch: while let Some(response) = self.watch.message().await? {
            for event in response.events() {
                if event.event_type() == EventType::Delete {
                    break 'watch;
                }
            }
        }
        let seen = began.elapsed();
        self.waiter.get(KEY, None).await?;
        let read = began.elapsed() - seen;
        deleted.await.expect("it does not panic")?;
        Ok([seen, read])
    }
}
