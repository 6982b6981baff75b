//! A TUN device as a link's end. With virtio headers and offloads on, TCP passes super-packets of
//! up to 64 KB, some 45 segments per read. This makes the engine fast.
#![allow(unsafe_code)] // The TUN driver is configured by ioctls that no crate wraps.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, readv, writev};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::LinkError;
use super::port_read::PortRead;
use super::virtio::{VIRTIO_HEADER, VirtioHeader};

/// Packets (super-packets count as one) that the device holds until the engine reads them. The
/// kernel's default of 500 overflows when a sender's burst meets a short stall.
const DEVICE_QUEUE: i32 = 10_000;

/// An open TUN device; it is removed when this is dropped.
#[derive(Debug)]
pub struct TunPort {
    device: OwnedFd,
    name: String,
    /// `/proc/net/dev` of the node's namespace: an open file keeps showing the namespace in which
    /// it was opened.
    statistics: Option<File>,
    drops_at_start: u64,
}

/// Creates the TUN device `name` in the calling thread's network namespace, with virtio headers,
/// all offloads that the kernel accepts, and a larger queue. The caller sets its address and brings
/// it up.
///
/// # Errors
/// [`LinkError::Device`] if `/dev/net/tun` cannot be opened, or the kernel refuses the device.
pub fn create(name: &str) -> Result<TunPort, LinkError> {
    let failed = |what| {
        move |source| LinkError::Device {
            device: name.to_owned(),
            what,
            source,
        }
    };
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
        .map_err(io::Error::from)
        .map_err(failed("open /dev/net/tun"))?;

    let mut request = interface_request(name).map_err(failed("name"))?;
    let wanted = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = i16::try_from(wanted).unwrap_or(0);
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is.
    let set = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    succeeded(set).map_err(failed("create the TUN device"))?;
    set_offloads(&device).map_err(failed("turn segmentation offload on"))?;
    // A short queue costs drops under bursts, which the counters show; it is not a reason to fail.
    let _ = set_queue_length(name);

    let mut port = TunPort {
        device,
        name: name.to_owned(),
        // The calling thread may have changed only its own namespace, so not `self`.
        statistics: File::open("/proc/thread-self/net/dev").ok(),
        drops_at_start: 0,
    };
    port.drops_at_start = port.device_drops();
    Ok(port)
}

/// UDP segmentation came with Linux 6.2; without it UDP arrives in single packets.
fn set_offloads(device: &OwnedFd) -> io::Result<()> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let set = |offloads: libc::c_uint| {
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        let result = unsafe {
            libc::ioctl(
                device.as_raw_fd(),
                libc::TUNSETOFFLOAD as _,
                libc::c_ulong::from(offloads),
            )
        };
        succeeded(result)
    };
    set(tcp | udp).or_else(|_| set(tcp))
}

fn set_queue_length(name: &str) -> io::Result<()> {
    let any = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_metric = DEVICE_QUEUE; // `ifr_qlen` is another name of it
    // SAFETY: SIOCSIFTXQLEN reads one `ifreq`, which `request` is.
    succeeded(unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFTXQLEN as _, &raw mut request) })
}

fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    if name.is_empty()
        || name.len() > room
        || name.bytes().any(|b| b == 0 || b == b'/' || b == b'%')
    {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "an interface name has 1 to 15 characters",
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}

fn succeeded(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

impl TunPort {
    /// Returns the device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<PortRead, Errno> {
        let mut prefix = [0; VIRTIO_HEADER];
        let room = into.len();
        let read = readv(
            &self.device,
            &mut [IoSliceMut::new(&mut prefix), IoSliceMut::new(into)],
        );
        match read {
            Ok(all) if all > VIRTIO_HEADER && all - VIRTIO_HEADER <= room => {
                let virtio = VirtioHeader::from_bytes(&prefix);
                Ok(PortRead::Packet {
                    virtio,
                    len: all - VIRTIO_HEADER,
                })
            }
            // never of a device, but of what stands in for one and is closed
            Ok(0) => Err(Errno::BADFD),
            Ok(_) => Ok(PortRead::Noise),
            Err(Errno::AGAIN) => Ok(PortRead::Empty),
            // The driver could not describe this one packet in a virtio header; it is lost.
            Err(Errno::INVAL | Errno::INTR) => Ok(PortRead::Noise),
            Err(e) => Err(e),
        }
    }

    pub(super) fn send(
        &mut self,
        virtio: VirtioHeader,
        headers: &[u8],
        body: &[u8],
    ) -> Result<(), Errno> {
        let prefix = virtio.to_bytes();
        writev(
            &self.device,
            &[
                IoSlice::new(&prefix),
                IoSlice::new(headers),
                IoSlice::new(body),
            ],
        )?;
        Ok(())
    }

    pub(super) fn device_drops(&mut self) -> u64 {
        let mut text = String::new();
        let Some(file) = &mut self.statistics else {
            return 0;
        };
        if file.rewind().is_err() || file.read_to_string(&mut text).is_err() {
            return 0;
        }
        transmit_drops(&text, &self.name)
            .unwrap_or(0)
            .saturating_sub(self.drops_at_start)
    }
}

/// Returns the 12th number after the interface's name in `/proc/net/dev`: packets to be sent that
/// were dropped.
fn transmit_drops(table: &str, name: &str) -> Option<u64> {
    let line = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().nth(11)?.parse().ok()
}

impl AsFd for TunPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_drops_of_the_named_device_only() {
        let table = "Inter-|   Receive                                                |  \
            Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets \
            errs drop fifo colls\n \
               a1: 1 2 3 4 5 6 7 8 9 10 11 112 13 14 15 16\n\
                a: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(transmit_drops(table, "a"), Some(12));
        assert_eq!(transmit_drops(table, "a1"), Some(112));
        assert_eq!(transmit_drops(table, "b"), None);
        assert_eq!(transmit_drops("a: 1 2", "a"), None);
    }

    impl TunPort {
        /// Returns a port over any descriptor that keeps packets apart.
        pub fn over(device: OwnedFd) -> Self {
            Self {
                device,
                name: "test".to_owned(),
                statistics: None,
                drops_at_start: 0,
            }
        }
    }

    #[test]
    #[ignore = "needs root, /dev/net/tun and `ip`; makes a network namespace of its own"]
    fn device_drops_are_counted() {
        // SAFETY: only the network namespace of this test's thread changes.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.unwrap();
        let mut port = create("wan").unwrap();
        for arguments in ["addr add 10.0.0.1 peer 10.0.0.2 dev wan", "link set wan up"] {
            let status = std::process::Command::new("ip")
                .args(arguments.split(' '))
                .status()
                .unwrap();
            assert!(status.success());
        }
        let socket = std::net::UdpSocket::bind("10.0.0.1:0").unwrap();
        let sent = DEVICE_QUEUE as u64 + 500;
        for _ in 0..sent {
            socket.send_to(b"?", "10.0.0.2:9").unwrap();
        }
        // The kernel may have sent a few of its own, too.
        assert!(
            (500..520).contains(&port.device_drops()),
            "{}",
            port.device_drops()
        );
    }

    #[test]
    fn refuses_names_the_kernel_would_cut_or_expand() {
        for name in ["", "sixteen-letters-", "a/b", "tun%d", "a\0"] {
            assert!(interface_request(name).is_err(), "{name:?}");
        }
        assert!(interface_request("fifteen-letters").is_ok());
    }
}
