//! Attributes of entries on the wire, and special files (LH-COPY-66, LH-COPY-67).

use super::encode::put_bytes;
use super::field_reader::FieldReader;
use super::*;
use crate::attributes::{
    AttributeClass, ExtendedAttribute, MAX_EXTENDED_ATTRIBUTES, MAX_NAME_BYTES, Owner,
    SPECIAL_BITS, SpecialKind,
};

/// Flags that name the fields of attributes.
const SPECIAL_BITS_FLAG: u8 = 1;
const USER_FLAG: u8 = 2;
const GROUP_FLAG: u8 = 4;
const ACLS_FLAG: u8 = 8;
const XATTRS_FLAG: u8 = 16;
/// Number of an owner that is known by name alone.
const NO_ID: u32 = u32::MAX;

impl Attributes {
    /// Appends the attributes as one field.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let fields = [
            (self.special_bits.is_some(), SPECIAL_BITS_FLAG),
            (self.user.is_some(), USER_FLAG),
            (self.group.is_some(), GROUP_FLAG),
            (self.acls.is_some(), ACLS_FLAG),
            (self.xattrs.is_some(), XATTRS_FLAG),
        ];
        let present = fields.into_iter().filter(|(is_present, _)| *is_present);
        body.push(present.fold(0, |flags, (_, flag)| flags | flag));
        if let Some(bits) = self.special_bits {
            body.extend_from_slice(&(bits as u16).to_le_bytes());
        }
        for owner in [&self.user, &self.group].into_iter().flatten() {
            body.extend_from_slice(&owner.id.unwrap_or(NO_ID).to_le_bytes());
            body.push(u8::from(owner.is_required));
            put_bytes(&mut body, &owner.name);
        }
        for list in [&self.acls, &self.xattrs].into_iter().flatten() {
            body.extend_from_slice(&(list.len() as u16).to_le_bytes());
            for one in list {
                put_bytes(&mut body, &one.name);
                put_bytes(&mut body, &one.value);
            }
        }
        put_bytes(out, &body);
    }
}

impl SpecialFile {
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        out.extend_from_slice(&self.device.0.to_le_bytes());
        out.extend_from_slice(&self.device.1.to_le_bytes());
    }
}

impl FieldReader {
    /// Decodes attributes, which fill their field exactly.
    pub(super) fn attributes(&mut self) -> Result<Attributes, WireError> {
        let mut fields = FieldReader(self.bytes()?);
        let flags = fields.u8()?;
        if flags & !(SPECIAL_BITS_FLAG | USER_FLAG | GROUP_FLAG | ACLS_FLAG | XATTRS_FLAG) != 0 {
            return Err(WireError::Value("attribute"));
        }
        let has = |flag: u8| flags & flag != 0;
        let mut attributes = Attributes::default();
        if has(SPECIAL_BITS_FLAG) {
            let bits = u32::from(fields.u16()?);
            if bits & !SPECIAL_BITS != 0 {
                return Err(WireError::Value("mode"));
            }
            attributes.special_bits = Some(bits);
        }
        if has(USER_FLAG) {
            attributes.user = Some(fields.owner()?);
        }
        if has(GROUP_FLAG) {
            attributes.group = Some(fields.owner()?);
        }
        if has(ACLS_FLAG) {
            attributes.acls = Some(fields.extended_attributes(AttributeClass::Acl)?);
        }
        if has(XATTRS_FLAG) {
            attributes.xattrs = Some(fields.extended_attributes(AttributeClass::Other)?);
        }
        match fields.0.has_remaining() {
            true => Err(WireError::Long),
            false => Ok(attributes),
        }
    }

    fn owner(&mut self) -> Result<Owner, WireError> {
        let id = self.u32()?;
        let owner = Owner {
            id: (id != NO_ID).then_some(id),
            is_required: self.flag()?,
            name: self.name()?,
        };
        match owner.id.is_none() && owner.name.is_empty() {
            true => Err(WireError::Value("owner")),
            false => Ok(owner),
        }
    }

    fn name(&mut self) -> Result<Vec<u8>, WireError> {
        let name = self.bytes()?;
        if name.len() > MAX_NAME_BYTES {
            return Err(WireError::Bound);
        }
        match name.contains(&0) {
            true => Err(WireError::Value("name")),
            false => Ok(name.to_vec()),
        }
    }

    /// Decodes extended attributes of one class, in strictly ascending order of their names.
    fn extended_attributes(
        &mut self,
        class: AttributeClass,
    ) -> Result<Vec<ExtendedAttribute>, WireError> {
        let count = usize::from(self.u16()?);
        if count > MAX_EXTENDED_ATTRIBUTES {
            return Err(WireError::Bound);
        }
        // The list grows as items are read, so a count alone allocates nothing.
        let mut list: Vec<ExtendedAttribute> = Vec::new();
        for _ in 0..count {
            let name = self.name()?;
            let ascends = list.last().is_none_or(|before| before.name < name);
            if AttributeClass::of_name(&name) != Some(class) || !ascends {
                return Err(WireError::Value("name of an extended attribute"));
            }
            let value = self.bytes()?.to_vec();
            list.push(ExtendedAttribute { name, value });
        }
        Ok(list)
    }

    pub(super) fn special(&mut self) -> Result<SpecialFile, WireError> {
        let special = SpecialFile {
            kind: self.code(SpecialKind::from_repr, "kind of a special file")?,
            device: (self.u32()?, self.u32()?),
        };
        match special.is_device() || special.device == (0, 0) {
            true => Ok(special),
            false => Err(WireError::Value("device number")),
        }
    }
}
