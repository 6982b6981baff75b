//! Type-length-value options, used by both messages, and the bounds-checked reader beneath.

use bytes::{BufMut, BytesMut};

/// Flag of an option that a receiver must know, or else refuse the message (LH-OPEN-7).
pub(crate) const CRITICAL: u16 = 0x8000;
/// Flag of an option that depots may change; the signature does not cover it (LH-SIGN-1).
pub(crate) const MUTABLE: u16 = 0x4000;
/// Mask of the option number within a kind.
pub(crate) const NUMBER: u16 = 0x3fff;

/// A value read from a message, or a description of its fault.
pub(crate) type Field<T> = Result<T, &'static str>;

/// Reads fields from the front of a slice and never past its end.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Field<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("a value cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Field<[u8; N]> {
        self.bytes(N)?.try_into().map_err(|_| "a value cut short")
    }

    pub(crate) fn u8(&mut self) -> Field<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Field<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Field<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Field<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Checks that the value has been read completely (LH-OPEN-8).
    pub(crate) fn end(&self) -> Field<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err("bytes after its value")
        }
    }

    /// Reads the next option, if any: LH-OPEN-5 (they fill the message exactly) and LH-OPEN-6
    /// (their numbers ascend).
    pub(crate) fn option(
        &mut self,
        previous: &mut Option<u16>,
    ) -> Field<Option<(u16, Reader<'a>)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let kind = self.u16()?;
        let length = self.u16()?;
        let value = self.bytes(length.into())?;
        if previous.is_some_and(|number| kind & NUMBER <= number) {
            return Err("options out of order or repeated");
        }
        *previous = Some(kind & NUMBER);
        Ok(Some((kind, Reader(value))))
    }
}

/// Appends one option. The caller bounds the message, and so the value, far below 64 KiB.
pub(crate) fn put(out: &mut BytesMut, kind: u16, value: impl FnOnce(&mut BytesMut)) {
    out.put_u16(kind);
    let at = out.len();
    out.put_u16(0);
    value(out);
    let length = u16::try_from(out.len() - at - 2).unwrap_or(u16::MAX);
    if let Some(field) = out.get_mut(at..at + 2) {
        field.copy_from_slice(&length.to_be_bytes());
    }
}
