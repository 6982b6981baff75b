//! What the on-ramp answers.

use std::net::SocketAddr;

use crate::MAX_REASON;
use crate::fields::{self, Malformed, MessageBytes};

const DIRECT: u8 = 129;
const REFUSE: u8 = 130;
const VIA: u8 = 131;
const DONE: u8 = 132;
const PEER: u8 = 133;
const LISTENING: u8 = 134;
const ACCEPTED: u8 = 135;

const ADDRESS: u8 = 1;
const TICKET: u8 = 2;
const ERRNO: u8 = 3;
const REASON: u8 = 4;
const KEY: u8 = 5;

/// What the on-ramp answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Connect as if there were no on-ramp.
    Direct {
        /// Why, in words.
        reason: &'a str,
    },
    /// There is to be no connection, or what was asked for can't be done.
    Refuse {
        /// As `connect` reports it: a number of Linux.
        errno: i32,
        /// Why, in words.
        reason: &'a str,
    },
    /// Connect to this listener on loopback.
    Via {
        /// Of the family that was asked for.
        listener: SocketAddr,
        /// To be given in [`Request::Begin`](crate::Request::Begin).
        ticket: u64,
        /// Why, in words.
        reason: &'a str,
    },
    /// The route stands, or has failed.
    Done {
        /// 0 if it stands.
        errno: i32,
        /// What failed, in words; empty if it stands.
        reason: &'a str,
    },
    /// Where a connection leads.
    Peer {
        /// The destination.
        address: SocketAddr,
    },
    /// Sessions are taken.
    Listening {
        /// Where.
        at: SocketAddr,
    },
    /// A session has come. With it comes the descriptor (`SCM_RIGHTS`) of a connected TCP socket.
    Accepted {
        /// Where it came from: the last hop's address.
        peer: SocketAddr,
        /// The key of the initiator, who has proved to have it.
        key: [u8; 32],
    },
}

impl<'a> Reply<'a> {
    /// Its bytes. A reason that is too long is cut.
    #[must_use]
    pub fn encode(&self) -> MessageBytes {
        let failed = |kind, errno: i32, reason| {
            let mut out = MessageBytes::begin(kind);
            out.number(ERRNO, u64::try_from(errno).ok());
            out.text(REASON, Some(cut(reason)));
            out
        };
        match *self {
            Self::Direct { reason } => {
                let mut out = MessageBytes::begin(DIRECT);
                out.text(REASON, Some(cut(reason)));
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
                out.address(ADDRESS, listener);
                out.number(TICKET, Some(ticket));
                out.text(REASON, Some(cut(reason)));
                out
            }
            Self::Peer { address } => {
                let mut out = MessageBytes::begin(PEER);
                out.address(ADDRESS, address);
                out
            }
            Self::Listening { at } => {
                let mut out = MessageBytes::begin(LISTENING);
                out.address(ADDRESS, at);
                out
            }
            Self::Accepted { peer, key } => {
                let mut out = MessageBytes::begin(ACCEPTED);
                out.address(ADDRESS, peer);
                out.field(KEY, &key);
                out
            }
        }
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// [`Malformed`], which says what is wrong with it.
    pub fn decode(packet: &'a [u8]) -> Result<Self, Malformed> {
        let (kind, given) = fields::open(packet)?;
        let (mut address, mut ticket, mut errno, mut reason, mut key) = (None, None, None, "", None);
        for field in given {
            let (tag, value) = field?;
            match tag {
                ADDRESS => address = Some(fields::address(value)?),
                TICKET => ticket = Some(fields::number(value)?),
                ERRNO => {
                    let number = i32::try_from(fields::number(value)?);
                    errno = Some(number.map_err(|_| Malformed("no error has that number"))?);
                }
                REASON => reason = fields::text(value, MAX_REASON)?,
                KEY => key = Some(fields::key(value)?),
                _ => {}
            }
        }
        let address = address.ok_or(Malformed("no address"));
        let errno = errno.ok_or(Malformed("no error's number"));
        Ok(match kind {
            DIRECT => Self::Direct { reason },
            // 0 would say that what is refused has succeeded.
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
            },
            _ => return Err(Malformed("an unknown kind")),
        })
    }
}

/// As much of a reason as a reply holds, in whole characters.
fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.get(..end).unwrap_or_default()
}
