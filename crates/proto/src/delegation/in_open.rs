//! Delegations in an OPEN (LH-DELEGATION-3). They are an option that only the named depots read, so
//! the codec keeps it like an unknown one, and every other reader passes it on unread.

use super::{Delegation, InvalidDelegation, MAX_DELEGATION_BYTES};
use crate::tlv::{FieldReader, FieldResult, NUMBER};
use crate::{Open, PublicKey, UnknownOption};

/// Number of the option, which is neither critical nor mutable.
const DELEGATIONS: u16 = 34;
/// Maximum number of delegations in an OPEN.
pub const MAX_OPEN_DELEGATIONS: usize = 4;

impl Open {
    /// Replaces the delegations. The OPEN's signature covers them, so this must precede it.
    ///
    /// # Errors
    /// [`InvalidDelegation`]: one breaks a rule, or there are too many.
    pub fn set_delegations(&mut self, given: &[Delegation]) -> Result<(), InvalidDelegation> {
        if given.len() > MAX_OPEN_DELEGATIONS {
            return Err(InvalidDelegation("more than 4 in a request"));
        }
        let mut value = Vec::new();
        for delegation in given {
            let bytes = delegation.to_bytes()?;
            // `to_bytes` bounds the length.
            let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
            value.extend_from_slice(&length.to_be_bytes());
            value.extend_from_slice(&bytes);
        }
        self.unknown
            .retain(|option| option.kind & NUMBER != DELEGATIONS);
        if !given.is_empty() {
            let at = self
                .unknown
                .partition_point(|option| option.kind & NUMBER < DELEGATIONS);
            let kind = DELEGATIONS;
            self.unknown.insert(at, UnknownOption { kind, value });
        }
        Ok(())
    }

    /// Returns the principal's delegation to `delegate`, if there is one.
    ///
    /// # Errors
    /// [`InvalidDelegation`]: the option is malformed. The rest of the OPEN is unaffected.
    pub fn delegation_to(
        &self,
        delegate: &PublicKey,
    ) -> Result<Option<Delegation>, InvalidDelegation> {
        let mut options = self.unknown.iter();
        let Some(option) = options.find(|option| option.kind == DELEGATIONS) else {
            return Ok(None);
        };
        let given = take_all(&mut FieldReader(&option.value)).map_err(InvalidDelegation)?;
        let is_for = |one: &Delegation| {
            // Only the principal of a session can have its delegations used for it.
            one.delegate == *delegate && one.principal == self.principal
        };
        Ok(given.into_iter().find(is_for))
    }
}

fn take_all(value: &mut FieldReader<'_>) -> FieldResult<Vec<Delegation>> {
    let mut given = Vec::new();
    while !value.0.is_empty() {
        if given.len() == MAX_OPEN_DELEGATIONS {
            return Err("more than 4 in a request");
        }
        let length = usize::from(value.u16()?);
        if length > MAX_DELEGATION_BYTES {
            return Err("one that is too long");
        }
        let mut one = FieldReader(value.bytes(length)?);
        given.push(Delegation::take(&mut one)?);
        one.expect_end()?;
    }
    Ok(given)
}
