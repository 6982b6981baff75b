//! ACCEPT: the server's answer to HELLO.

use super::encode::put_option;
use super::field_reader::FieldReader;
use super::options::{
    CLEAR, COMPRESSION, DELTA, HARD_LINKS, INSTANCE, KEEP, LATE_SIZES, MAX_OPTION_BYTES, MEMBER,
    PACKS, PLACEMENT, PRESENT, RECEIPT, decode_keep, decode_options, put_keep,
};
use super::{CopyInstance, Placement, VERSION, WireError};
use crate::preservation::Preservation;
use crate::stripe::MemberId;

/// A server's acceptance of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Acceptance {
    /// Maximum number of streams in this copy (LH-COPY-9).
    pub max_streams: u16,
    /// `None` from a server that does not report it.
    pub instance: Option<CopyInstance>,
    /// If true, the data of blocks may travel in plaintext (LH-COPY-43).
    pub clear: bool,
    /// If true, the destination of a push is not empty and may hold some of its files
    /// (LH-COPY-39).
    pub present: bool,
    /// If true, the server understands HARD_LINK (LH-COPY-45).
    pub hard_links: bool,
    /// Placement of the sources of a push. `None` from a server that does not report it
    /// (LH-COPY-53).
    pub placement: Option<Placement>,
    /// If true, the server will sign the result of the copy (LH-COPY-57).
    pub receipt: bool,
    /// If true, the data of blocks may travel compressed (LH-COPY-60).
    pub compression: bool,
    /// If true, other frames than blocks may travel compressed, too (LH-COPY-75).
    pub packs: bool,
    /// If true, blocks may be put together from existing files (LH-COPY-62).
    pub delta: bool,
    /// Selection of HELLO, from a server that understands it (LH-COPY-65).
    pub keep: Preservation,
    /// Member that has the copy, if other members relay its streams (LH-COPY-76).
    pub member: Option<MemberId>,
    /// If true, the size of a file may be told at its end (LH-COPY-79).
    pub late_sizes: bool,
}

impl Acceptance {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.max_streams.to_le_bytes());
        if let Some(instance) = self.instance {
            put_option(out, INSTANCE, &instance);
        }
        for (option, is_set) in [
            (PRESENT, self.present),
            (CLEAR, self.clear),
            (HARD_LINKS, self.hard_links),
        ] {
            if is_set {
                put_option(out, option, &[]);
            }
        }
        if let Some(placement) = self.placement {
            put_option(out, PLACEMENT, &[placement as u8]);
        }
        if self.receipt {
            put_option(out, RECEIPT, &[]);
        }
        put_keep(out, self.keep, false);
        if self.compression {
            put_option(out, COMPRESSION, &[]);
        }
        if self.delta {
            put_option(out, DELTA, &[]);
        }
        if self.packs {
            put_option(out, PACKS, &[]);
        }
        if let Some(MemberId(member)) = self.member {
            put_option(out, MEMBER, &member);
        }
        if self.late_sizes {
            put_option(out, LATE_SIZES, &[]);
        }
    }

    pub(super) fn decode(fields: &mut FieldReader) -> Result<Self, WireError> {
        let version = fields.u16()?;
        let mut accepted = Self {
            max_streams: fields.u16()?,
            ..Self::default()
        };
        // LH-COPY-6: the version of this release was among those offered.
        if version != VERSION {
            return Err(WireError::Version(version, version));
        }
        decode_options(fields, MAX_OPTION_BYTES, |kind, value| {
            match kind {
                INSTANCE => accepted.instance = Some(value.array()?),
                PRESENT => accepted.present = true,
                CLEAR => accepted.clear = true,
                HARD_LINKS => accepted.hard_links = true,
                PLACEMENT => {
                    accepted.placement = Some(value.code(Placement::from_repr, "placement")?);
                }
                RECEIPT => accepted.receipt = true,
                COMPRESSION => accepted.compression = true,
                DELTA => accepted.delta = true,
                PACKS => accepted.packs = true,
                KEEP => accepted.keep = decode_keep(value)?,
                LATE_SIZES => accepted.late_sizes = true,
                MEMBER => accepted.member = Some(MemberId(value.array()?)),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(accepted)
    }
}
