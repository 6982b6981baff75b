//! What goes over a session with the service `probe`, once it stands (LH-PROBE-2): a few bytes each
//! way, and a train of bytes that nobody keeps.

/// Bytes of a message.
pub const PROBE_MESSAGE_BYTES: usize = 9;
/// Exchanges of a session at most (LH-PROBE-3).
pub const MAX_PROBE_EXCHANGES: u32 = 100;
/// Bytes of the trains of a session at most, together (LH-PROBE-3).
pub const MAX_PROBE_BYTES: u64 = 64 << 20;

/// A message of either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeMessage {
    /// To be sent back as it is.
    Echo(u64),
    /// From the initiator: so many bytes follow. From the depot: so many have come.
    Train(u64),
}

impl ProbeMessage {
    /// As it travels.
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

    /// What travelled; none if it is none.
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
        fn lh_probe_2_what_is_sent_is_what_is_read(number: u64, bytes: [u8; PROBE_MESSAGE_BYTES]) {
            for message in [ProbeMessage::Echo(number), ProbeMessage::Train(number)] {
                prop_assert_eq!(ProbeMessage::decode(&message.encode()), Some(message));
            }
            if let Some(message) = ProbeMessage::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}
