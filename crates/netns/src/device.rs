//! The TUN device: its creation, addresses and routes.
#![allow(unsafe_code)] // What the TUN driver is to make is said by an ioctl that no crate wraps.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::fs::{Mode, OFlags};
use rustix::net::{SocketFlags, SocketType, socket_with};

use crate::addresses::{PROGRAM_V4, PROGRAM_V6};

/// Name of the device.
const DEVICE_NAME: &str = "longhaul";
/// Maximum length of a packet, in bytes: the maximum of a TUN device. So every UDP datagram is one
/// packet, and a connection's bytes come in few.
pub(crate) const MTU: usize = 65535;
/// Packets that the device holds until they are read. The kernel's default of 500 is less than many
/// connections may have in flight.
const QUEUE_PACKETS: u32 = 4096;
/// Interface index of loopback in each network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// Creates the device in the caller's network namespace.
pub(crate) fn create() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    // SAFETY: `ifreq` is plain data, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(DEVICE_NAME.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_TUN | libc::IFF_NO_PI).unwrap_or(0);
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is.
    let made = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(device)
}

/// Returns the index of an interface of the caller's network namespace.
pub(crate) fn interface_index(name: &str) -> io::Result<u32> {
    let any = socket_with(
        rustix::net::AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok(rustix::net::netdevice::name_to_index(&any, name)?)
}

/// Brings up loopback and the device, the latter with the program's addresses and all routes.
pub(crate) fn configure() -> io::Result<()> {
    let device = interface_index(DEVICE_NAME)?;
    let mut kernel = RtnetlinkSocket::open()?;
    kernel.request(up(LOOPBACK_INDEX, Vec::new()))?;
    let mtu = u32::try_from(MTU).unwrap_or(u32::MAX);
    kernel.request(up(
        device,
        vec![
            LinkAttribute::Mtu(mtu),
            LinkAttribute::TxQueueLen(QUEUE_PACKETS),
        ],
    ))?;
    kernel.request(address(device, PROGRAM_V4.into()))?;
    kernel.request(all_routes(device, AddressFamily::Inet))?;
    // If the kernel has no IPv6, or none in new namespaces, there is none here either.
    let _ = kernel
        .request(address(device, PROGRAM_V6.into()))
        .and_then(|()| kernel.request(all_routes(device, AddressFamily::Inet6)));
    Ok(())
}

fn up(index: u32, attributes: Vec<LinkAttribute>) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes = attributes;
    RouteNetlinkMessage::SetLink(message)
}

fn address(index: u32, address: IpAddr) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    let (family, bits) = match address {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    message.header.family = family;
    message.header.prefix_len = bits;
    // Duplicates are impossible, because no other host is on the link.
    message.header.flags = AddressHeaderFlags::Nodad;
    message.header.index = index;
    message.attributes = vec![
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
    ];
    RouteNetlinkMessage::NewAddress(message)
}

fn all_routes(index: u32, family: AddressFamily) -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Boot;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![RouteAttribute::Oif(index)];
    RouteNetlinkMessage::NewRoute(message)
}

/// A socket to the kernel (rtnetlink), and the number of the last request.
struct RtnetlinkSocket {
    socket: Socket,
    number: u32,
}

impl RtnetlinkSocket {
    fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, number: 0 })
    }

    /// Sends one request, and returns its result.
    fn request(&mut self, what: RouteNetlinkMessage) -> io::Result<()> {
        self.number += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK;
        if !matches!(what, RouteNetlinkMessage::SetLink(_)) {
            header.flags |= NLM_F_CREATE | NLM_F_EXCL;
        }
        header.sequence_number = self.number;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(what));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        match answer.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
            NetlinkPayload::Error(_) => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "unexpected answer of the kernel",
            )),
        }
    }
}
