//! A sentence for people, and the error behind it.

use std::error::Error;

/// A sentence for people about an error, which is its source.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub(crate) struct Explained {
    sentence: String,
    source: Box<dyn Error + Send + Sync>,
}

impl Explained {
    pub(crate) fn new(
        sentence: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { sentence: sentence.into(), source: source.into() }
    }
}
