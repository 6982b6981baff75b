//! Options of HELLO and ACCEPT: additions to the fields of a version, typed like those of OPEN.
//!
//! An unknown option is ignored, unless it is marked critical. In that case the reader cannot do
//! what is requested, and refuses. Capabilities can therefore be added without a new version: a
//! client offers one, a server accepts it in ACCEPT, and neither uses it before the other has
//! confirmed it.

use super::encode::put_option;
use super::field_reader::FieldReader;
use super::*;
use crate::preservation::Preservation;

/// HELLO option without a value: unfinished files are kept, and resumed by the next copy
/// (LH-COPY-34).
pub(super) const RESUME: u16 = 1;
/// ACCEPT option: a [`CopyInstance`] that identifies the copy of the stream (LH-COPY-38).
pub(super) const INSTANCE: u16 = 2;
/// HELLO and ACCEPT option without a value: the data of blocks may travel in plaintext
/// (LH-COPY-43).
pub(super) const CLEAR: u16 = 5;
/// HELLO option: the files of a pull must be offered before they are sent. Its byte is the method
/// of comparison (LH-COPY-39).
pub(super) const OFFER: u16 = 3;
/// ACCEPT option without a value: some of the files of a push may exist (LH-COPY-39).
pub(super) const PRESENT: u16 = 4;
/// HELLO and ACCEPT option without a value (LH-COPY-45). In HELLO, the client understands HARD_LINK
/// in a pull, or wants to send it in a push. In ACCEPT, it may send it.
pub(super) const HARD_LINKS: u16 = 6;
/// HELLO option without a value: the copy has one stream at a time (LH-COPY-48).
pub(super) const SINGLE: u16 = 7;
/// Critical HELLO option: the copy takes one part of its sources. Its value is the number of the
/// part, from 1, and the number of parts (LH-COPY-49).
pub(super) const PART: u16 = CRITICAL | 8;
/// HELLO option of a push without a value: the copy takes the whole, after the parts (LH-COPY-51).
pub(super) const REST: u16 = 9;
/// Option of ACCEPT to a push, and of the HELLO of a push that replaces a lost copy: the
/// [`Placement`] of the sources (LH-COPY-53).
pub(super) const PLACEMENT: u16 = 10;
/// HELLO option of a pull without a value: the client understands NOT_KEPT (LH-COPY-54).
pub(super) const NOT_KEPT: u16 = 11;
/// HELLO option of a pull: the filter, in JSON. Critical if it leaves out anything by itself
/// (LH-COPY-55).
pub(super) const FILTER: u16 = 12;
/// Critical HELLO option of a push: flags of an [`ExistingPolicy`] (LH-COPY-56).
pub(super) const EXISTING: u16 = CRITICAL | 13;
/// HELLO and ACCEPT option without a value (LH-COPY-57). In HELLO, the client wants the server to
/// sign the result of the copy. In ACCEPT, the server will send RECEIPT.
pub(super) const RECEIPT: u16 = 15;
/// HELLO and ACCEPT option: the data of blocks may travel compressed (LH-COPY-60). In HELLO, its
/// byte is the method that the client requests. In ACCEPT, it has no value.
pub(super) const COMPRESSION: u16 = 20;
/// HELLO and ACCEPT option without a value: other frames than blocks may travel compressed, too, in
/// PACK (LH-COPY-75).
pub(super) const PACKS: u16 = 24;
/// HELLO and ACCEPT option without a value: blocks may be put together from existing files
/// (LH-COPY-62).
pub(super) const DELTA: u16 = 21;
/// Critical HELLO option without a value: existing files are overwritten in place (LH-COPY-73).
pub(super) const IN_PLACE: u16 = CRITICAL | 23;
/// HELLO and ACCEPT option: flags of a [`Preservation`] (LH-COPY-65). In HELLO it is critical if
/// the server of a pull would otherwise send other entries.
pub(super) const KEEP: u16 = 16;
/// HELLO option: a [`BearerToken`](crate::bearer::BearerToken) of the client (LH-COPY-71).
pub(super) const TOKEN: u16 = 22;
/// ACCEPT option: the [`MemberId`](crate::stripe::MemberId) of the member of a striped server that
/// has the copy (LH-COPY-76).
pub(super) const MEMBER: u16 = 25;
/// HELLO and ACCEPT option of a push without a value: the size of a file may be told at its end
/// (LH-COPY-79).
pub(super) const LATE_SIZES: u16 = 26;
/// Flag in an option's kind: a receiver that does not know the option must refuse (LH-COPY-8).
pub(super) const CRITICAL: u16 = 0x8000;
/// Mask of the option's number in its kind.
const NUMBER: u16 = 0x7fff;
/// Maximum number of bytes of all options of ACCEPT (LH-COPY-7).
pub(crate) const MAX_OPTION_BYTES: usize = 4096;
/// Maximum number of bytes of all options of HELLO, which may have a filter and a token
/// (LH-COPY-7).
pub(crate) const MAX_HELLO_OPTION_BYTES: usize = 76 * 1024;

/// Decodes the options at the end of a frame. `take` receives the kind (number and flag) and the
/// value of each. If it knows the kind, it reads the whole value and returns true. Otherwise it
/// leaves the value and returns false. All options together have at most `max_bytes` bytes.
pub(super) fn decode_options(
    fields: &mut FieldReader,
    max_bytes: usize,
    mut take: impl FnMut(u16, &mut FieldReader) -> Result<bool, WireError>,
) -> Result<(), WireError> {
    if fields.0.len() > max_bytes {
        return Err(WireError::Bound);
    }
    let mut above = 0;
    while fields.0.has_remaining() {
        let kind = fields.u16()?;
        let mut value = FieldReader(fields.bytes()?);
        // LH-COPY-7: numbers ascend, and 0 is invalid.
        let number = kind & NUMBER;
        if number <= above {
            return Err(WireError::Value("order of options"));
        }
        above = number;
        match take(kind, &mut value)? {
            true if value.0.has_remaining() => return Err(WireError::Long),
            true => {}
            false if kind & CRITICAL != 0 => return Err(WireError::UnknownOption(number)),
            false => {}
        }
    }
    Ok(())
}

/// Appends the option [`KEEP`], unless nothing is selected.
pub(super) fn put_keep(out: &mut Vec<u8>, keep: Preservation, is_critical: bool) {
    if !keep.is_empty() {
        let kind = if is_critical { KEEP | CRITICAL } else { KEEP };
        put_option(out, kind, &keep.flags().to_le_bytes());
    }
}

/// Decodes the value of [`KEEP`].
pub(super) fn decode_keep(value: &mut FieldReader) -> Result<Preservation, WireError> {
    Preservation::from_flags(value.u16()?).ok_or(WireError::Value("selection of what is kept"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
        out.extend_from_slice(&kind.to_le_bytes());
        encode::put_bytes(out, value);
    }

    /// Decodes options as a release does that knows 1 (critical, two bytes) and 3 (any value).
    fn read(bytes: &[u8]) -> Result<(Option<u16>, Option<Vec<u8>>), WireError> {
        let (mut first, mut third) = (None, None);
        let mut fields = FieldReader(Bytes::copy_from_slice(bytes));
        decode_options(&mut fields, MAX_OPTION_BYTES, |kind, value| {
            match kind {
                0x8001 => first = Some(value.u16()?),
                3 => third = Some(std::mem::take(&mut value.0).to_vec()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok((first, third))
    }

    #[test]
    fn lh_copy_8_unknown_options_are_ignored_unless_critical() {
        let mut bytes = Vec::new();
        put(&mut bytes, 0x8001, &[7, 0]);
        put(&mut bytes, 2, b"what this release knows nothing of");
        put(&mut bytes, 3, b"x");
        put(&mut bytes, 9, b"");
        assert_eq!(read(&bytes), Ok((Some(7), Some(b"x".to_vec()))));
        put(&mut bytes, 0x8000 | 10, b"");
        assert_eq!(read(&bytes), Err(WireError::UnknownOption(10)));
    }

    #[test]
    fn lh_copy_7_options_ascend_and_fill_the_frame() {
        let two = |first: u16, second: u16| {
            let mut bytes = Vec::new();
            put(&mut bytes, first, b"");
            put(&mut bytes, second, b"");
            read(&bytes)
        };
        assert_eq!(two(5, 6), Ok((None, None)));
        for (first, second) in [(5, 5), (6, 5), (5, 0x8005), (0, 5)] {
            assert_eq!(
                two(first, second),
                Err(WireError::Value("order of options"))
            );
        }
        let mut bytes = Vec::new();
        put(&mut bytes, 0x8001, &[7, 0, 0]);
        assert_eq!(
            read(&bytes),
            Err(WireError::Long),
            "a known value is read whole"
        );
        assert_eq!(read(&bytes[..3]), Err(WireError::Short));
        let mut long = Vec::new();
        put(&mut long, 5, &[0; MAX_OPTION_BYTES]);
        assert_eq!(read(&long), Err(WireError::Bound));
    }

    proptest! {
        #[test]
        fn any_bytes_are_options_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = read(&bytes);
        }
    }
}
