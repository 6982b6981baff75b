//! Objects of a store, and the metadata that they keep.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use object_store::{Attribute, Attributes, ObjectMeta};

/// Metadata in which the modification time of a file is kept, as rclone has it: seconds since 1970,
/// with a fraction.
const MTIME: &str = "mtime";

/// Permissions of files and directories from stores, which keep none.
pub(crate) const FILE_MODE: u32 = 0o644;
pub(crate) const DIRECTORY_MODE: u32 = 0o755;

/// Time of objects without one, as the library has it.
const UNDATED: i64 = 0;
/// Modification time of copies of such objects, which no earlier copy has.
static COPY_TIME: LazyLock<(i64, u32)> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    (now.as_secs().cast_signed(), now.subsec_nanos())
});

/// State of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change at the store, in seconds since 1970. [`UNDATED`] if the server does
    /// not tell.
    pub changed: i64,
    /// Modification time of the file, if the object has it: seconds since 1970 and nanoseconds.
    pub mtime: Option<(i64, u32)>,
    pub e_tag: Option<String>,
}

impl Object {
    /// Returns the modification time that a copy of the object gets.
    pub(crate) fn modified(&self) -> (i64, u32) {
        let changed = match self.changed {
            UNDATED => *COPY_TIME,
            changed => (changed, 0),
        };
        self.mtime.unwrap_or(changed)
    }

    /// Returns true if another state of the same size can be told from this one.
    pub(crate) fn has_version(&self) -> bool {
        self.e_tag.is_some() || self.changed != UNDATED
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
            e_tag: meta.e_tag.as_deref().map(quoted),
        }
    }
}

/// Returns an ETag as responses have it. Listings of Azure leave out the quotation marks.
fn quoted(e_tag: &str) -> String {
    match e_tag.ends_with('"') {
        true => e_tag.to_owned(),
        false => format!("\"{e_tag}\""),
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
    fn undated_objects_are_like_no_earlier_copy() {
        let undated = object(1, UNDATED, None);
        assert!(undated.modified().0 > 1_700_000_000);
        assert!(!undated.has_version());
        assert!(object(1, 2, None).has_version());
        assert!(object(1, UNDATED, Some("\"a\"")).has_version());
    }

    #[test]
    fn e_tags_tell_content_apart() {
        let one = object(1, 2, Some("\"a\""));
        assert!(one.is_same(&object(1, 3, Some("W/\"a\""))));
        assert!(!one.is_same(&object(1, 2, Some("\"b\""))));
        assert!(!one.is_same(&object(2, 2, Some("\"a\""))));
        assert!(one.is_same(&object(1, 2, None)));
        assert!(!object(1, 2, None).is_same(&object(1, 3, None)));
        assert_eq!(quoted("0x8D"), quoted("\"0x8D\""));
        assert_eq!(quoted("W/\"a\""), "W/\"a\"");
    }
}
