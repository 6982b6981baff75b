//! Options of OPEN and STATUS with which a session continues over another connection
//! (LH-RESUME-1 to LH-RESUME-5).

use std::time::Duration;

use bytes::BufMut;

use crate::{
    SessionId,
    tlv::{FieldReader, FieldResult},
};

/// Size of a proof, in bytes.
const PROOF_BYTES: usize = 32;

/// Offer of an initiator to make the session resumable, and the acceptor's consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeOffer {
    /// Maximum time without a connection, in whole milliseconds on the wire; at least 1 ms.
    pub within: Duration,
}

/// Request of an initiator to continue a session over the connection of this OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeRequest {
    /// Identifier of the session to continue: that of its first OPEN.
    pub session: SessionId,
    /// Number of this connection; at least 1, and higher than that of any before.
    pub epoch: u32,
    /// Position up to which the initiator has received.
    pub received: u64,
    /// Proof that the initiator belongs to the session.
    pub proof: [u8; PROOF_BYTES],
}

/// Answer of the acceptor that continues a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeAnswer {
    /// Position up to which the acceptor has received.
    pub received: u64,
    /// Proof that the acceptor belongs to the session.
    pub proof: [u8; PROOF_BYTES],
}

impl ResumeOffer {
    /// Returns an error if the offer cannot be encoded.
    pub(crate) fn check(&self) -> FieldResult<()> {
        match u32::try_from(self.within.as_millis()) {
            Ok(1..) => Ok(()),
            _ => Err("a time that is not 1 ms to 49 days"),
        }
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_u32(u32::try_from(self.within.as_millis()).unwrap_or(u32::MAX));
    }

    pub(crate) fn decode(value: &mut FieldReader<'_>) -> FieldResult<Self> {
        let offer = Self {
            within: Duration::from_millis(value.u32()?.into()),
        };
        offer.check()?;
        Ok(offer)
    }
}

impl ResumeRequest {
    pub(crate) const fn check(&self) -> FieldResult<()> {
        match self.epoch {
            0 => Err("a connection with number 0"),
            _ => Ok(()),
        }
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_slice(self.session.as_bytes());
        out.put_u32(self.epoch);
        out.put_u64(self.received);
        out.put_slice(&self.proof);
    }

    pub(crate) fn decode(value: &mut FieldReader<'_>) -> FieldResult<Self> {
        let request = Self {
            session: SessionId::from_bytes(value.array()?),
            epoch: value.u32()?,
            received: value.u64()?,
            proof: value.array()?,
        };
        request.check()?;
        Ok(request)
    }
}

impl ResumeAnswer {
    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_u64(self.received);
        out.put_slice(&self.proof);
    }

    pub(crate) fn decode(value: &mut FieldReader<'_>) -> FieldResult<Self> {
        Ok(Self {
            received: value.u64()?,
            proof: value.array()?,
        })
    }
}
