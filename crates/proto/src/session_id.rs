//! The identifier of a session: 128 random bits, the same in every log along the route.

use std::fmt;

/// 128 random bits that name one session. Displayed as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId([u8; 16]);

impl SessionId {
    /// Generates an identifier with the system's random generator.
    ///
    /// # Errors
    /// [`KeyError::NoRandomness`](crate::KeyError::NoRandomness) when the generator fails.
    pub fn random() -> Result<Self, crate::KeyError> {
        let mut bytes = [0; 16];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| crate::KeyError::NoRandomness)?;
        Ok(Self(bytes))
    }

    /// Returns the identifier with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes as on the wire.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}
