//! Fields of messages: written into a buffer of fixed size, and read from a packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{MAX_MESSAGE_BYTES, VERSION};

/// Error for a packet that is not a message: its sender uses another protocol, or is hostile.
/// Another program, or another release, listens at `LONGHAUL_ONRAMP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a message of the on-ramp's protocol: {0}")]
pub struct Malformed(pub &'static str);

/// Buffer for an encoded message, on the stack.
#[derive(Clone)]
pub struct MessageBytes {
    bytes: [u8; MAX_MESSAGE_BYTES],
    length: usize,
    /// True if a field did not fit.
    overflowed: bool,
}

impl MessageBytes {
    pub(crate) fn begin(kind: u8) -> Self {
        let mut message = Self {
            bytes: [0; MAX_MESSAGE_BYTES],
            length: 0,
            overflowed: false,
        };
        message.put(&[VERSION, kind]);
        message
    }

    fn put(&mut self, value: &[u8]) {
        let end = self.length + value.len();
        match self.bytes.get_mut(self.length..end) {
            Some(room) => {
                room.copy_from_slice(value);
                self.length = end;
            }
            None => self.overflowed = true,
        }
    }

    pub(crate) fn put_field(&mut self, tag: u8, value: &[u8]) {
        let Ok(length) = u16::try_from(value.len()) else {
            self.overflowed = true;
            return;
        };
        self.put(&[tag]);
        self.put(&length.to_be_bytes());
        self.put(value);
    }

    pub(crate) fn put_text(&mut self, tag: u8, value: Option<&str>) {
        if let Some(value) = value {
            self.put_field(tag, value.as_bytes());
        }
    }

    pub(crate) fn put_number(&mut self, tag: u8, value: Option<u64>) {
        if let Some(value) = value {
            self.put_field(tag, &value.to_be_bytes());
        }
    }

    pub(crate) fn put_ip(&mut self, tag: u8, value: Option<IpAddr>) {
        match value {
            Some(IpAddr::V4(ip)) => self.put_field(tag, &ip.octets()),
            Some(IpAddr::V6(ip)) => self.put_field(tag, &ip.octets()),
            None => {}
        }
    }

    /// Appends an address and its port, without the zone of an IPv6 address.
    pub(crate) fn put_address(&mut self, tag: u8, value: SocketAddr) {
        let port = value.port().to_be_bytes();
        match value.ip() {
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                let [high, low] = port;
                self.put_field(tag, &[a, b, c, d, high, low]);
            }
            IpAddr::V6(ip) => {
                let mut bytes = [0; 18];
                let (address, end) = bytes.split_at_mut(16);
                address.copy_from_slice(&ip.octets());
                end.copy_from_slice(&port);
                self.put_field(tag, &bytes);
            }
        }
    }

    /// Returns the bytes to send.
    ///
    /// # Errors
    /// [`Malformed`] if the message is longer than [`MAX_MESSAGE_BYTES`].
    pub fn finish(&self) -> Result<&[u8], Malformed> {
        match self.bytes.get(..self.length) {
            Some(bytes) if !self.overflowed => Ok(bytes),
            _ => Err(Malformed("it is too long")),
        }
    }
}

/// Splits a packet into the message's kind and its fields.
pub(crate) fn split_message(packet: &[u8]) -> Result<(u8, MessageFields<'_>), Malformed> {
    match packet {
        [VERSION, kind, fields @ ..] if packet.len() <= MAX_MESSAGE_BYTES => {
            Ok((*kind, MessageFields(fields)))
        }
        [VERSION, _, ..] => Err(Malformed("it is too long")),
        [_, _, ..] => Err(Malformed("another version")),
        _ => Err(Malformed("it is too short")),
    }
}

/// Fields that have not been read yet.
pub(crate) struct MessageFields<'a>(&'a [u8]);

impl<'a> Iterator for MessageFields<'a> {
    type Item = Result<(u8, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let [tag, high, low, rest @ ..] = self.0 else {
            let left = !self.0.is_empty();
            self.0 = &[];
            return left.then_some(Err(Malformed("a field is cut short")));
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        match rest.split_at_checked(length) {
            Some((value, left)) => {
                self.0 = left;
                Some(Ok((*tag, value)))
            }
            None => {
                self.0 = &[];
                Some(Err(Malformed("a field is cut short")))
            }
        }
    }
}

pub(crate) fn read_text(value: &[u8], longest: usize) -> Result<&str, Malformed> {
    match std::str::from_utf8(value) {
        Ok(text) if text.len() <= longest => Ok(text),
        Ok(_) => Err(Malformed("a text is too long")),
        Err(_) => Err(Malformed("a text is not UTF-8")),
    }
}

fn read_array<const N: usize>(value: &[u8]) -> Result<[u8; N], Malformed> {
    value
        .try_into()
        .map_err(|_| Malformed("a field has the wrong length"))
}

pub(crate) fn read_number(value: &[u8]) -> Result<u64, Malformed> {
    read_array(value).map(u64::from_be_bytes)
}

pub(crate) fn read_key(value: &[u8]) -> Result<[u8; 32], Malformed> {
    read_array(value)
}

pub(crate) fn read_ip(value: &[u8]) -> Result<IpAddr, Malformed> {
    match value.len() {
        4 => read_array::<4>(value).map(|octets| Ipv4Addr::from(octets).into()),
        16 => read_array::<16>(value).map(|octets| Ipv6Addr::from(octets).into()),
        _ => Err(Malformed("an address has the wrong length")),
    }
}

pub(crate) fn read_address(value: &[u8]) -> Result<SocketAddr, Malformed> {
    let Some((address, port)) = value.split_last_chunk::<2>() else {
        return Err(Malformed("an address has the wrong length"));
    };
    Ok(SocketAddr::new(
        read_ip(address)?,
        u16::from_be_bytes(*port),
    ))
}
