//! Requests of a program to the on-ramp.

use std::net::{IpAddr, SocketAddr};

use crate::fields::{self, Malformed, MessageBytes};
use crate::{MAX_FILL_BYTES, MAX_NAME_BYTES, MAX_PURPOSE_BYTES, MAX_ROUTE_BYTES};

const ASK: u8 = 1;
const BEGIN: u8 = 2;
const PEER: u8 = 3;
const LISTEN: u8 = 4;
const MEASURED: u8 = 5;
const STATUS: u8 = 6;
const REMEMBERED: u8 = 7;

const ADDRESS: u8 = 1;
const NAME: u8 = 2;
const PORT: u8 = 3;
const ROUTE: u8 = 4;
const PURPOSE: u8 = 5;
const SIZE: u8 = 6;
const RATE: u8 = 7;
const DURATION: u8 = 8;
const FLAGS: u8 = 9;
const TICKET: u8 = 10;
const FILL: u8 = 11;
const LOCAL: u8 = 12;
const ROUND_TRIP: u8 = 13;
const KEY: u8 = 14;
const CONNECTIONS: u8 = 15;

/// The program's socket is an IPv6 socket.
const FLAG_V6: u64 = 1;
/// The connection is refused if there is no route.
const FLAG_ROUTE_REQUIRED: u64 = 2;
/// The destination speaks the session protocol itself.
const FLAG_ACCEPTOR: u64 = 4;
/// The program can remember an answer, and handles `Forget`.
const FLAG_REMEMBERS: u64 = 8;
/// The program can connect from a given address and port.
const FLAG_BINDS: u64 = 16;

/// Stated use of a connection, as far as the program knows it. It is passed to the depots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionWish<'a> {
    /// Purpose, for the logs and policies of depots; at most [`MAX_PURPOSE_BYTES`] bytes.
    pub purpose: Option<&'a str>,
    /// Number of bytes that will be sent.
    pub size: Option<u64>,
    /// Desired rate, in bit/s.
    pub rate: Option<u64>,
    /// Expected duration, in seconds.
    pub duration: Option<u64>,
}

/// A question for the route to a destination.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteQuery<'a> {
    /// Address of the destination, if it has been resolved.
    pub address: Option<IpAddr>,
    /// Name that resolved to it, if there was one.
    pub name: Option<&'a str>,
    /// TCP port of the destination.
    pub port: u16,
    /// Route to take, in its text form; it overrides the on-ramp's rules.
    pub route: Option<&'a str>,
    /// Stated use of the connection.
    pub wish: ConnectionWish<'a>,
    /// True if the program's socket is an IPv6 socket, which needs a listener of that family.
    pub v6: bool,
    /// True if the connection must fail when there is no route.
    pub route_required: bool,
    /// True if the destination speaks the session protocol itself (a program that listens through
    /// an on-ramp), not plain TCP.
    pub acceptor: bool,
    /// Key that the destination must prove. With a key, the destination must speak the session
    /// protocol.
    pub key: Option<[u8; 32]>,
    /// True if the program can remember an answer, and reads
    /// [`RampReply::Forget`](crate::RampReply::Forget) on this connection.
    pub remembers: bool,
    /// True if the program can handle [`RampReply::DirectFrom`](crate::RampReply::DirectFrom). Its
    /// socket is not bound yet.
    pub binds: bool,
}

/// Request of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RampRequest<'a> {
    /// Asks for the route to a destination. Answered at once.
    Ask(RouteQuery<'a>),
    /// Reports that the program's socket is connected to the listener named in the reply. Answered
    /// once the route is established or has failed.
    Begin {
        /// Ticket from the reply.
        ticket: u64,
        /// Local address of the program's socket.
        local: SocketAddr,
        /// Number of fill bytes before the program's own data, to be discarded once the route is
        /// established. At most [`MAX_FILL_BYTES`].
        fill: u32,
    },
    /// Asks for the destination of the connection whose socket has this address. Used by programs
    /// that received the descriptor from another one.
    Peer {
        /// Local address of the program's socket.
        local: SocketAddr,
    },
    /// Accepts sessions for this program at a local address. With port 0, the on-ramp chooses the
    /// port.
    Listen {
        /// Address to listen on.
        at: SocketAddr,
    },
    /// Reports the round-trip time of a direct connection. Not answered.
    Measured {
        /// Address of the destination.
        address: IpAddr,
        /// Round-trip time in microseconds, at least 1.
        round_trip: u64,
    },
    /// Asks for the status of the on-ramp.
    Status,
    /// Reports direct connections made with remembered answers since the last report. Not answered.
    Remembered {
        /// Number of connections.
        connections: u64,
    },
}

impl<'a> RampRequest<'a> {
    /// Encodes the request.
    #[must_use]
    pub fn encode(&self) -> MessageBytes {
        match self {
            Self::Ask(ask) => {
                let mut out = MessageBytes::begin(ASK);
                out.put_ip(ADDRESS, ask.address);
                out.put_text(NAME, ask.name);
                out.put_number(PORT, Some(ask.port.into()));
                out.put_text(ROUTE, ask.route);
                out.put_text(PURPOSE, ask.wish.purpose);
                out.put_number(SIZE, ask.wish.size);
                out.put_number(RATE, ask.wish.rate);
                out.put_number(DURATION, ask.wish.duration);
                let flag = |set: bool, flag| if set { flag } else { 0 };
                let flags = flag(ask.v6, FLAG_V6)
                    | flag(ask.route_required, FLAG_ROUTE_REQUIRED)
                    | flag(ask.acceptor, FLAG_ACCEPTOR)
                    | flag(ask.remembers, FLAG_REMEMBERS)
                    | flag(ask.binds, FLAG_BINDS);
                out.put_number(FLAGS, (flags != 0).then_some(flags));
                if let Some(key) = &ask.key {
                    out.put_field(KEY, key);
                }
                out
            }
            Self::Begin {
                ticket,
                local,
                fill,
            } => {
                let mut out = MessageBytes::begin(BEGIN);
                out.put_number(TICKET, Some(*ticket));
                out.put_address(LOCAL, *local);
                out.put_number(FILL, (*fill != 0).then_some((*fill).into()));
                out
            }
            Self::Peer { local } => {
                let mut out = MessageBytes::begin(PEER);
                out.put_address(LOCAL, *local);
                out
            }
            Self::Listen { at } => {
                let mut out = MessageBytes::begin(LISTEN);
                out.put_address(LOCAL, *at);
                out
            }
            Self::Measured {
                address,
                round_trip,
            } => {
                let mut out = MessageBytes::begin(MEASURED);
                out.put_ip(ADDRESS, Some(*address));
                out.put_number(ROUND_TRIP, Some(*round_trip));
                out
            }
            Self::Status => MessageBytes::begin(STATUS),
            Self::Remembered { connections } => {
                let mut out = MessageBytes::begin(REMEMBERED);
                out.put_number(CONNECTIONS, Some(*connections));
                out
            }
        }
    }

    /// Decodes a packet.
    ///
    /// # Errors
    /// [`Malformed`], which describes the fault.
    pub fn decode(packet: &'a [u8]) -> Result<Self, Malformed> {
        let (kind, given) = fields::split_message(packet)?;
        let mut ask = RouteQuery::default();
        let (mut ticket, mut local, mut fill, mut port) = (None, None, 0, None);
        let (mut round_trip, mut connections) = (None, None);
        for field in given {
            let (tag, value) = field?;
            match tag {
                ADDRESS => ask.address = Some(fields::read_ip(value)?),
                NAME => ask.name = Some(fields::read_text(value, MAX_NAME_BYTES)?),
                PORT => {
                    let number = u16::try_from(fields::read_number(value)?);
                    port = Some(number.map_err(|_| Malformed("no port has that number"))?);
                }
                ROUTE => ask.route = Some(fields::read_text(value, MAX_ROUTE_BYTES)?),
                PURPOSE => ask.wish.purpose = Some(fields::read_text(value, MAX_PURPOSE_BYTES)?),
                SIZE => ask.wish.size = Some(fields::read_number(value)?),
                RATE => ask.wish.rate = Some(fields::read_number(value)?),
                DURATION => ask.wish.duration = Some(fields::read_number(value)?),
                FLAGS => {
                    let flags = fields::read_number(value)?;
                    ask.v6 = flags & FLAG_V6 != 0;
                    ask.route_required = flags & FLAG_ROUTE_REQUIRED != 0;
                    ask.acceptor = flags & FLAG_ACCEPTOR != 0;
                    ask.remembers = flags & FLAG_REMEMBERS != 0;
                    ask.binds = flags & FLAG_BINDS != 0;
                }
                KEY => ask.key = Some(fields::read_key(value)?),
                CONNECTIONS => connections = Some(fields::read_number(value)?),
                TICKET => ticket = Some(fields::read_number(value)?),
                FILL => {
                    let bytes = u32::try_from(fields::read_number(value)?).ok();
                    fill = bytes
                        .filter(|bytes| *bytes <= MAX_FILL_BYTES)
                        .ok_or(Malformed("too many bytes before the payload"))?;
                }
                LOCAL => local = Some(fields::read_address(value)?),
                ROUND_TRIP => {
                    round_trip = Some(fields::read_number(value)?).filter(|time| *time > 0)
                }
                _ => {}
            }
        }
        let local = local.ok_or(Malformed("no address of a socket"));
        Ok(match kind {
            ASK => {
                ask.port = port
                    .filter(|port| *port != 0)
                    .ok_or(Malformed("no port to connect to"))?;
                if ask.address.is_none() && ask.name.is_none() {
                    return Err(Malformed("no destination"));
                }
                Self::Ask(ask)
            }
            BEGIN => Self::Begin {
                ticket: ticket.ok_or(Malformed("no ticket"))?,
                local: local?,
                fill,
            },
            PEER => Self::Peer { local: local? },
            LISTEN => Self::Listen { at: local? },
            MEASURED => Self::Measured {
                address: ask.address.ok_or(Malformed("no destination"))?,
                round_trip: round_trip.ok_or(Malformed("no round trip"))?,
            },
            STATUS => Self::Status,
            REMEMBERED => Self::Remembered {
                connections: connections.ok_or(Malformed("no number of connections"))?,
            },
            _ => return Err(Malformed("an unknown kind")),
        })
    }
}
