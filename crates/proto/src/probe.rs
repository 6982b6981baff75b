//! Messages of the service `probe` in an established session (LH-PROBE-2): short exchanges in both
//! directions, and a train of bytes that the receiver discards.

/// Size of a message, in bytes.
pub const PROBE_MESSAGE_BYTES: usize = 9;
/// Maximum number of exchanges in a session (LH-PROBE-3).
pub const MAX_PROBE_EXCHANGES: u32 = 100;
/// Maximum total size of a session's trains, in bytes (LH-PROBE-3).
pub const MAX_PROBE_BYTES: u64 = 64 << 20;

/// A message of either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeMessage {
    /// A value to be echoed unchanged.
    Echo(u64),
    /// Size of a train: from the initiator, the number of bytes that follow; from the depot, the
    /// number received.
    Train(u64),
}

impl ProbeMessage {
    /// Encodes the message as on the wire.
    #[must_use]
    pub fn encode(self) -> [u8; PROBE_MESSAGE_BYTES] {
        let (kind, number) = match self {
            Self::Echo(number) => (1, number),
            Self::Train(number) => (2, number),
        };
        let mut bytes = [0; PROBE_MESSAGE_BYTES];
        let (first, rest) = bytes.split_at_mut(1);
        first.fill(kind);
        rest.copy_from_slice(&number.to_be_bytes());
        bytes
    }

    /// Decodes a message. Returns `None` if the bytes are not one.
    #[must_use]
    pub fn decode(bytes: &[u8; PROBE_MESSAGE_BYTES]) -> Option<Self> {
        let (kind, number) = bytes.split_first()?;
        let number = u64::from_be_bytes(number.try_into().ok()?);
        match kind {
            1 => Some(Self::Echo(number)),
            2 => Some(Self::Train(number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lh_probe_2_messages_decode_to_themselves(number: u64, bytes: [u8; PROBE_MESSAGE_BYTES]) {
            for message in [ProbeMessage::Echo(number), ProbeMessage::Train(number)] {
                prop_assert_eq!(ProbeMessage::decode(&message.encode()), Some(message));
            }
            if let Some(message) = ProbeMessage::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}
