//! Objects of a store, and reading their content.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{BoxStream, StreamExt};
use longhaul_transfer::{Failure, FailureKind};
use object_store::path::Path as Key;
use object_store::{Attribute, Attributes, GetOptions, GetResult, ObjectMeta};

use crate::store::Store;

/// Metadata in which the modification time of a file is kept, as rclone has it: seconds since 1970,
/// with a fraction.
const MTIME: &str = "mtime";

/// State of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change at the store, in seconds since 1970.
    pub changed: i64,
    /// Modification time of the file, if the object has it: seconds since 1970 and nanoseconds.
    pub mtime: Option<(i64, u32)>,
    pub e_tag: Option<String>,
}

impl Object {
    /// Returns the modification time that a copy of the object gets.
    pub(crate) fn modified(&self) -> (i64, u32) {
        self.mtime.unwrap_or((self.changed, 0))
    }

    /// Returns true if both describe the same content. Times count only without ETags.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.size == other.size
            && match (&self.e_tag, &other.e_tag) {
                (Some(one), Some(other)) => strong(one) == strong(other),
                _ => self.changed == other.changed,
            }
    }

    /// Adds what the response to a request for the object says of its file.
    pub(crate) fn with_attributes(self, attributes: &Attributes) -> Self {
        let mtime = attributes.get(&Attribute::Metadata(MTIME.into()));
        Self {
            mtime: mtime.and_then(|text| parse_mtime(text.as_ref())),
            ..self
        }
    }
}

impl From<&ObjectMeta> for Object {
    fn from(meta: &ObjectMeta) -> Self {
        Self {
            size: meta.size,
            changed: meta.last_modified.timestamp(),
            mtime: None,
            e_tag: meta.e_tag.clone(),
        }
    }
}

/// Returns attributes that keep a modification time.
pub(crate) fn attributes((seconds, nanos): (i64, u32)) -> Attributes {
    let text = format!("{seconds}.{nanos:09}");
    [(Attribute::Metadata(MTIME.into()), text)]
        .into_iter()
        .collect()
}

fn parse_mtime(text: &str) -> Option<(i64, u32)> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let nanos = match fraction.len() {
        0 => 0,
        1..=9 => format!("{fraction:0<9}").parse().ok()?,
        _ => fraction.get(..9)?.parse().ok()?,
    };
    Some((seconds.parse().ok()?, nanos))
}

/// Returns an ETag without the mark of a weak one.
fn strong(e_tag: &str) -> &str {
    e_tag.strip_prefix("W/").unwrap_or(e_tag)
}

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
        // The comparison of weak ETags never succeeds at a server.
        let e_tag = self.object.e_tag.clone();
        let e_tag = e_tag.filter(|e_tag| !e_tag.starts_with("W/"));
        let options = GetOptions::new().with_if_match(e_tag);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn object(size: u64, changed: i64, e_tag: Option<&str>) -> Object {
        Object {
            size,
            changed,
            mtime: None,
            e_tag: e_tag.map(str::to_owned),
        }
    }

    #[test]
    fn mtime_survives_and_is_read_from_rclone() {
        for mtime in [(1_700_000_000, 123_456_789), (0, 0), (5, 1), (-7, 0)] {
            let kept = object(1, 2, None).with_attributes(&attributes(mtime));
            assert_eq!(kept.modified(), mtime);
        }
        assert_eq!(
            parse_mtime("1700000000.5"),
            Some((1_700_000_000, 500_000_000))
        );
        assert_eq!(parse_mtime("1700000000"), Some((1_700_000_000, 0)));
        assert_eq!(parse_mtime("12.1234567891"), Some((12, 123_456_789)));
        for bad in ["", "x", "1.x", "1.-1", "."] {
            assert_eq!(parse_mtime(bad), None, "{bad}");
        }
        assert_eq!(object(1, 2, None).modified(), (2, 0));
    }

    #[test]
    fn e_tags_tell_content_apart() {
        let one = object(1, 2, Some("\"a\""));
        assert!(one.is_same(&object(1, 3, Some("W/\"a\""))));
        assert!(!one.is_same(&object(1, 2, Some("\"b\""))));
        assert!(!one.is_same(&object(2, 2, Some("\"a\""))));
        assert!(one.is_same(&object(1, 2, None)));
        assert!(!object(1, 2, None).is_same(&object(1, 3, None)));
    }
}
