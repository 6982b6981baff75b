//! Replies of the on-ramp.

use std::net::SocketAddr;

use crate::fields::{self, Malformed, MessageBytes};
use crate::{MAX_REASON_BYTES, MAX_STATUS_PART_BYTES};

const DIRECT: u8 = 129;
const REFUSE: u8 = 130;
const VIA: u8 = 131;
const DONE: u8 = 132;
const PEER: u8 = 133;
const LISTENING: u8 = 134;
const ACCEPTED: u8 = 135;
const STATUS: u8 = 136;
const FORGET: u8 = 137;
const DIRECT_FROM: u8 = 138;

const ADDRESS: u8 = 1;
const TICKET: u8 = 2;
const ERRNO: u8 = 3;
const REASON: u8 = 4;
const KEY: u8 = 5;
const MEASURE: u8 = 6;
const PART: u8 = 7;
const MORE: u8 = 8;
const LOCAL: u8 = 9;
const REMEMBER: u8 = 10;

/// Reply of the on-ramp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RampReply<'a> {
    /// Connect as if there were no on-ramp.
    Direct {
        /// Reason, in words.
        reason: &'a str,
        /// True if the on-ramp asks for the round-trip time.
        measure: bool,
        /// Time in milliseconds for which the same question has this answer; `None` to ask every
        /// time.
        ///
        /// The answer expires early with [`RampReply::Forget`], or when the connection that carried
        /// it ends.
        remember: Option<u64>,
    },
    /// Connect as if there were no on-ramp, but from this local address, by which the network
    /// recognises a reserved path. The answer is for one connection. If the address is in use, ask
    /// again.
    DirectFrom {
        /// Local address and port. The address is unspecified if any is right.
        source: SocketAddr,
        /// Reason, in words.
        reason: &'a str,
    },
    /// The connection is refused, or the request cannot be fulfilled.
    Refuse {
        /// Linux error number that `connect` reports.
        errno: i32,
        /// Reason, in words.
        reason: &'a str,
    },
    /// Connect to this listener on loopback.
    Via {
        /// Address of the listener, of the requested family.
        listener: SocketAddr,
        /// Ticket to pass in [`RampRequest::Begin`](crate::RampRequest::Begin).
        ticket: u64,
        /// Reason, in words.
        reason: &'a str,
    },
    /// The route is established, or has failed.
    Done {
        /// 0 if the route is established.
        errno: i32,
        /// Description of the failure; empty if the route is established.
        reason: &'a str,
    },
    /// Destination of a connection.
    Peer {
        /// Address of the destination.
        address: SocketAddr,
    },
    /// The on-ramp accepts sessions for the program.
    Listening {
        /// Address at which it accepts them.
        at: SocketAddr,
    },
    /// A session has arrived. The descriptor of a connected TCP socket comes with it
    /// (`SCM_RIGHTS`).
    Accepted {
        /// Address of the last hop, from which the session came.
        peer: SocketAddr,
        /// Key of the initiator, which has proved to have it.
        key: [u8; 32],
        /// Local address at which it arrived.
        local: Option<SocketAddr>,
    },
    /// Status of the on-ramp: a part of a JSON object.
    Status {
        /// At most [`MAX_STATUS_PART_BYTES`] bytes.
        part: &'a str,
        /// True if the next packet contains more.
        more: bool,
    },
    /// Remembered answers are no longer valid. This is not an answer: it may arrive at any time,
    /// also before an answer.
    Forget,
}

impl<'a> RampReply<'a> {
    /// Encodes the reply. A reason that is too long is truncated.
    #[must_use]
    pub fn encode(&self) -> MessageBytes {
        let failed = |kind, errno: i32, reason| {
            let mut out = MessageBytes::begin(kind);
            out.put_number(ERRNO, u64::try_from(errno).ok());
            out.put_text(REASON, Some(truncate_reason(reason)));
            out
        };
        match *self {
            Self::Direct {
                reason,
                measure,
                remember,
            } => {
                let mut out = MessageBytes::begin(DIRECT);
                out.put_text(REASON, Some(truncate_reason(reason)));
                out.put_number(MEASURE, measure.then_some(1));
                out.put_number(REMEMBER, remember);
                out
            }
            Self::DirectFrom { source, reason } => {
                let mut out = MessageBytes::begin(DIRECT_FROM);
                out.put_address(ADDRESS, source);
                out.put_text(REASON, Some(truncate_reason(reason)));
                out
            }
            Self::Refuse { errno, reason } => failed(REFUSE, errno, reason),
            Self::Done { errno, reason } => failed(DONE, errno, reason),
            Self::Via {
                listener,
                ticket,
                reason,
            } => {
                let mut out = MessageBytes::begin(VIA);
                out.put_address(ADDRESS, listener);
                out.put_number(TICKET, Some(ticket));
                out.put_text(REASON, Some(truncate_reason(reason)));
                out
            }
            Self::Peer { address } => {
                let mut out = MessageBytes::begin(PEER);
                out.put_address(ADDRESS, address);
                out
            }
            Self::Listening { at } => {
                let mut out = MessageBytes::begin(LISTENING);
                out.put_address(ADDRESS, at);
                out
            }
            Self::Accepted { peer, key, local } => {
                let mut out = MessageBytes::begin(ACCEPTED);
                out.put_address(ADDRESS, peer);
                out.put_field(KEY, &key);
                if let Some(local) = local {
                    out.put_address(LOCAL, local);
                }
                out
            }
            Self::Status { part, more } => {
                let mut out = MessageBytes::begin(STATUS);
                out.put_text(PART, Some(part));
                out.put_number(MORE, more.then_some(1));
                out
            }
            Self::Forget => MessageBytes::begin(FORGET),
        }
    }

    /// Decodes a packet.
    ///
    /// # Errors
    /// [`Malformed`], which describes the fault.
    pub fn decode(packet: &'a [u8]) -> Result<Self, Malformed> {
        let (kind, given) = fields::split_message(packet)?;
        let (mut address, mut ticket, mut errno, mut reason, mut key) =
            (None, None, None, "", None);
        let (mut measure, mut part, mut more, mut local, mut remember) =
            (false, "", false, None, None);
        for field in given {
            let (tag, value) = field?;
            match tag {
                ADDRESS => address = Some(fields::read_address(value)?),
                TICKET => ticket = Some(fields::read_number(value)?),
                ERRNO => {
                    let number = i32::try_from(fields::read_number(value)?);
                    errno = Some(number.map_err(|_| Malformed("no error has that number"))?);
                }
                REASON => reason = fields::read_text(value, MAX_REASON_BYTES)?,
                KEY => key = Some(fields::read_key(value)?),
                MEASURE => measure = fields::read_number(value)? != 0,
                PART => part = fields::read_text(value, MAX_STATUS_PART_BYTES)?,
                REMEMBER => remember = Some(fields::read_number(value)?),
                LOCAL => local = Some(fields::read_address(value)?),
                MORE => more = fields::read_number(value)? != 0,
                _ => {}
            }
        }
        let address = address.ok_or(Malformed("no address"));
        let errno = errno.ok_or(Malformed("an unknown error number"));
        Ok(match kind {
            DIRECT => Self::Direct {
                reason,
                measure,
                remember,
            },
            DIRECT_FROM => Self::DirectFrom {
                source: address.and_then(|source| match source.port() {
                    0 => Err(Malformed("no port to connect from")),
                    _ => Ok(source),
                })?,
                reason,
            },
            // 0 would report a refused connection as a success.
            REFUSE => match errno? {
                0 => return Err(Malformed("a refusal without an error")),
                errno => Self::Refuse { errno, reason },
            },
            VIA => Self::Via {
                listener: address?,
                ticket: ticket.ok_or(Malformed("no ticket"))?,
                reason,
            },
            DONE => Self::Done {
                errno: errno?,
                reason,
            },
            PEER => Self::Peer { address: address? },
            LISTENING => Self::Listening { at: address? },
            ACCEPTED => Self::Accepted {
                peer: address?,
                key: key.ok_or(Malformed("no key"))?,
                local,
            },
            STATUS => Self::Status { part, more },
            FORGET => Self::Forget,
            _ => return Err(Malformed("an unknown kind")),
        })
    }
}

/// Truncates a reason to what a reply holds, at a character boundary.
fn truncate_reason(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.get(..end).unwrap_or_default()
}
