//! Reading one state of an object.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{BoxStream, StreamExt};
use longhaul_transfer::{Failure, FailureKind};
use object_store::path::Path as Key;
use object_store::{GetOptions, GetResult};

use crate::object::Object;
use crate::reason::Reason;
use crate::store::Store;

/// Reader of one state of an object.
#[derive(Clone)]
pub(crate) struct ObjectReader {
    pub store: Arc<Store>,
    pub key: Key,
    pub object: Object,
}

/// Content of an object that arrives.
pub(crate) struct Body {
    /// The object as the response describes it.
    pub object: Object,
    /// True if the server gives the whole object instead of the range.
    pub is_whole: bool,
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    store: Arc<Store>,
}

impl ObjectReader {
    /// Requests a range, or the whole object if `range` is `None` or the server knows no ranges.
    ///
    /// # Errors
    /// [`FailureKind::Changed`] if the object is not the same any more.
    pub(crate) async fn get(&self, range: Option<Range<u64>>) -> Result<Body, Failure> {
        let options = GetOptions::new().with_if_match(self.strong_e_tag().cloned());
        let ranged = options.clone().with_range(range.clone());
        let mut is_whole = range.is_none();
        let got = self.store.get(&self.key, ranged).await;
        let got = match got {
            Err(error) if !is_whole && is_unsupported(&error) => {
                is_whole = true;
                self.store.get(&self.key, options).await
            }
            got => got,
        };
        let got: GetResult = got.map_err(|error| self.store.vanished(&error))?;
        let object = Object::from(&got.meta).with_attributes(&got.attributes);
        if !self.object.is_same(&object) {
            return Err(Failure::new(FailureKind::Changed));
        }
        Ok(Body {
            object,
            is_whole,
            stream: got.into_stream(),
            store: self.store.clone(),
        })
    }

    /// Returns true if the store itself refuses to give ranges of another state.
    pub(crate) fn is_pinned(&self) -> bool {
        self.strong_e_tag().is_some()
    }

    /// Returns the ETag for a condition. The comparison of weak ones never succeeds at a server.
    fn strong_e_tag(&self) -> Option<&String> {
        let e_tag = self.object.e_tag.as_ref();
        e_tag.filter(|e_tag| !e_tag.starts_with("W/"))
    }

    /// Describes the object again, with its modification time.
    ///
    /// # Errors
    /// [`FailureKind::Changed`] if it is not the same any more, [`FailureKind::Vanished`].
    pub(crate) async fn look(&self) -> Result<Object, Failure> {
        match self.store.head(&self.key).await {
            Ok(now) if self.object.is_same(&now) => Ok(now),
            Ok(_) => Err(Failure::new(FailureKind::Changed)),
            Err(Reason::NotFound) => Err(Failure::new(FailureKind::Vanished)),
            Err(other) => Err(self.store.failure(other)),
        }
    }

    /// Replaces the description from a listing, which has no modification time.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub(crate) async fn refresh(&mut self) -> Result<(), Failure> {
        self.object = self.look().await?;
        Ok(())
    }

    /// Reads the bytes of a range.
    pub(crate) async fn read(&self, range: Range<u64>) -> Result<Bytes, Failure> {
        let len = usize::try_from(range.end.saturating_sub(range.start));
        let len = len.map_err(|_| Failure::new(FailureKind::Limit))?;
        if len == 0 {
            // HTTP has no empty ranges.
            return Ok(Bytes::new());
        }
        let mut body = self.get(Some(range.clone())).await?;
        let mut skipped = match body.is_whole {
            true => range.start,
            false => 0,
        };
        let mut data = BytesMut::with_capacity(len);
        while data.len() < len
            && let Some(mut chunk) = body.next().await?
        {
            let skip = skipped.min(chunk.len() as u64);
            skipped -= skip;
            let mut chunk = chunk.split_off(usize::try_from(skip).unwrap_or_default());
            chunk.truncate(len - data.len());
            data.extend_from_slice(&chunk);
        }
        match data.len() == len {
            true => Ok(data.freeze()),
            false => Err(Failure::new(FailureKind::Changed)),
        }
    }
}

impl Body {
    /// Returns the next bytes, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        match self.stream.next().await {
            Some(Ok(chunk)) => Ok(Some(chunk)),
            Some(Err(error)) => Err(self.store.vanished(&error)),
            None => Ok(None),
        }
    }
}

fn is_unsupported(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotSupported { .. })
}
