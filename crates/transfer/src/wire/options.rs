//! Options of HELLO and ACCEPT: what a release may say beyond the fields of its version, typed as
//! those of OPEN are.
//!
//! An option that is not known is passed over, unless it is marked critical: then whoever reads it
//! can't do what it is asked to and says so. So a capability is added without a new version: a
//! client offers it, a server takes it up in ACCEPT, and neither uses it before the other has said
//! that it knows it.

use super::decode::Fields;
use super::*;

/// Of HELLO, without a value: what is not finished is kept, and gone on with by the next copy
/// (LH-COPY-34).
pub(super) const RESUME: u16 = 1;
/// Of ACCEPT: which copy the stream has come to, a [`CopyInstance`] (LH-COPY-38).
pub(super) const INSTANCE: u16 = 2;
/// Of HELLO and of ACCEPT, without a value: the data of blocks may travel in the clear
/// (LH-COPY-43).
pub(super) const CLEAR: u16 = 5;
/// Of HELLO: the files of a pull are to be offered before they are sent; how they are compared, as
/// a byte (LH-COPY-39).
pub(super) const OFFER: u16 = 3;
/// Of ACCEPT, without a value: there may be some of what a push brings (LH-COPY-39).
pub(super) const PRESENT: u16 = 4;
/// Of HELLO, without a value: HARD_LINK is understood in a pull, or is to be said in a push; of
/// ACCEPT: it may be said (LH-COPY-45).
pub(super) const HARD_LINKS: u16 = 6;
/// Of HELLO, without a value: the copy has one stream at a time (LH-COPY-48).
pub(super) const SINGLE: u16 = 7;
/// Of HELLO, critical: the copy is of one part of its sources; which, from 1, and of how many
/// (LH-COPY-49).
pub(super) const PART: u16 = CRITICAL | 8;
/// Of the HELLO of a push, without a value: the copy is of the whole, behind parts (LH-COPY-51).
pub(super) const REST: u16 = 9;
/// Of ACCEPT to a push, and of the HELLO of a push that takes the place of a lost copy: where the
/// sources go, a [`Placement`] (LH-COPY-53).
pub(super) const PLACEMENT: u16 = 10;
/// Option of the HELLO of a pull, without a value: NOT_KEPT is understood (LH-COPY-54).
pub(super) const NOT_KEPT: u16 = 11;
/// Set in an option's kind when a receiver that does not know it must refuse (LH-COPY-8).
const CRITICAL: u16 = 0x8000;
/// The part of a kind that is the option's number.
const NUMBER: u16 = 0x7fff;
/// Most bytes of all options of one frame (LH-COPY-7).
pub(crate) const MAX_OPTION_BYTES: usize = 4096;

/// Takes the options at the end of a frame off its fields. `take` is given the kind (number and
/// flag) and value of each; it reads the value whole and gives true if it knows the kind, and
/// leaves it and gives false if not.
pub(super) fn decode_options(
    fields: &mut Fields,
    mut take: impl FnMut(u16, &mut Fields) -> Result<bool, WireError>,
) -> Result<(), WireError> {
    if fields.0.len() > MAX_OPTION_BYTES {
        return Err(WireError::Bound);
    }
    let mut above = 0;
    while fields.0.has_remaining() {
        let kind = fields.u16()?;
        let mut value = Fields(fields.bytes()?);
        // LH-COPY-7: numbers ascend, and 0 is none.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
        out.extend_from_slice(&kind.to_le_bytes());
        encode::put_bytes(out, value);
    }

    /// What a release that knows 1 (critical, two bytes) and 3 (any value) makes of options.
    fn read(bytes: &[u8]) -> Result<(Option<u16>, Option<Vec<u8>>), WireError> {
        let (mut first, mut third) = (None, None);
        let mut fields = Fields(Bytes::copy_from_slice(bytes));
        decode_options(&mut fields, |kind, value| {
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
    fn lh_copy_8_unknown_options_are_passed_over_unless_critical() {
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
