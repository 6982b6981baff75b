//! Packet sockets as ends of links, for users who may not open `/dev/net/tun`. A veth pair connects
//! the socket's interface to the node, on whose end ARP is off.
#![allow(unsafe_code)] // PACKET_VNET_HDR and its like are socket options that no crate wraps.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, readv, writev};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};

use super::LinkError;
use super::port_read::PortRead;
use super::virtio::{VIRTIO_HEADER, VirtioHeader};

const ETHERNET_HEADER: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Requested receive buffer. An unprivileged user gets at most `net.core.rmem_max`.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;

/// Hardware address.
pub type Mac = [u8; 6];

/// Open packet socket.
#[derive(Debug)]
pub struct PacketPort {
    socket: OwnedFd,
    /// The node's hardware address, the destination of every frame.
    peer: Mac,
    /// Packets dropped because the receive buffer was full.
    drops: u64,
}

/// Opens a packet socket on the interface `name` of the calling thread's network namespace. This is
/// the emulator's end of a veth pair. The node's end must have the hardware address `peer`, and ARP
/// turned off (`ip link set ... arp off`).
///
/// # Errors
/// [`LinkError::Device`] if packet sockets are not permitted, there is no such interface, or the
/// kernel refuses to bind the socket or to set a required option.
pub fn open(name: &str, peer: Mac) -> Result<PacketPort, LinkError> {
    let failed = |what| {
        move |source| LinkError::Device {
            device: name.to_owned(),
            what,
            source,
        }
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Protocol 0 receives nothing until the socket is bound to the one interface.
    let socket = socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        flags,
        None::<Protocol>,
    )
    .map_err(io::Error::from)
    .map_err(failed("open a packet socket"))?;
    let index = rustix::net::netdevice::name_to_index(&socket, name)
        .map_err(io::Error::from)
        .map_err(failed("find the interface"))?;

    set_option(&socket, libc::PACKET_VNET_HDR, &1_i32).map_err(failed("turn virtio headers on"))?;
    set_option(&socket, libc::PACKET_IGNORE_OUTGOING, &1_i32)
        .map_err(failed("ignore own packets"))?;
    // Bypassing the queueing discipline saves time, and a large buffer avoids drops. Neither is
    // required.
    let _ = set_option(&socket, libc::PACKET_QDISC_BYPASS, &1_i32);
    let _ = set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES)
        .or_else(|_| set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES));
    bind(&socket, index).map_err(failed("bind to the interface"))?;
    Ok(PacketPort {
        socket,
        peer,
        drops: 0,
    })
}

fn set_option<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of_val(value)` bytes from `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of_val(value) as libc::socklen_t,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is plain data, for which all zeroes is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index.cast_signed();
    // SAFETY: the kernel reads one `sockaddr_ll`.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

impl PacketPort {
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<PortRead, Errno> {
        const PREFIX: usize = VIRTIO_HEADER + ETHERNET_HEADER;
        let mut prefix = [0; PREFIX];
        let room = into.len();
        let read = readv(
            &self.socket,
            &mut [IoSliceMut::new(&mut prefix), IoSliceMut::new(into)],
        );
        let all = match read {
            Ok(all) => all,
            Err(Errno::AGAIN) => return Ok(PortRead::Empty),
            // INVAL: one packet that a virtio header cannot describe. NETDOWN: reported once each
            // time the device goes down.
            Err(Errno::INVAL | Errno::INTR | Errno::NETDOWN) => return Ok(PortRead::Noise),
            Err(e) => return Err(e),
        };
        let (virtio, frame) = prefix.split_at(VIRTIO_HEADER);
        let is_ip = [ETHERTYPE_IPV4.as_slice(), &ETHERTYPE_IPV6].contains(&&frame[12..14]);
        let Ok(virtio) = virtio.try_into() else {
            return Ok(PortRead::Noise);
        };
        if !is_ip || all <= PREFIX || all - PREFIX > room {
            return Ok(PortRead::Noise);
        }
        let virtio =
            VirtioHeader::from_bytes(virtio).shifted_without_header(ETHERNET_HEADER as u16);
        Ok(PortRead::Packet {
            virtio,
            len: all - PREFIX,
        })
    }

    pub(super) fn send(
        &mut self,
        virtio: VirtioHeader,
        headers: &[u8],
        body: &[u8],
    ) -> Result<(), Errno> {
        let mut prefix = [0; VIRTIO_HEADER + ETHERNET_HEADER];
        prefix[..VIRTIO_HEADER].copy_from_slice(
            &virtio
                .shifted_after_header(ETHERNET_HEADER as u16)
                .to_bytes(),
        );
        let frame = &mut prefix[VIRTIO_HEADER..];
        frame[..6].copy_from_slice(&self.peer);
        // Source address: nobody answers to it, so any locally administered one will do.
        frame[6] = 0x02;
        let first = headers.first().or(body.first()).copied().unwrap_or(0);
        frame[12..].copy_from_slice(if first >> 4 == 6 {
            &ETHERTYPE_IPV6
        } else {
            &ETHERTYPE_IPV4
        });
        writev(
            &self.socket,
            &[
                IoSlice::new(&prefix),
                IoSlice::new(headers),
                IoSlice::new(body),
            ],
        )?;
        Ok(())
    }

    pub(super) fn device_drops(&mut self) -> u64 {
        // SAFETY: `tpacket_stats` is plain data, for which all zeroes is a value.
        let mut statistics: libc::tpacket_stats = unsafe { std::mem::zeroed() };
        let mut len = size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `statistics`.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut len,
            )
        };
        if result == 0 {
            self.drops += u64::from(statistics.tp_drops); // reading resets the kernel's own count
        }
        self.drops
    }
}

impl AsFd for PacketPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
