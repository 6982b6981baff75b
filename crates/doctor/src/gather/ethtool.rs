//! Rate, duplex and offloads of a device: `SIOCETHTOOL`, whose queries need no privilege.
#![allow(unsafe_code)] // no kept library asks these questions without an asynchronous runtime

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket};

use crate::fact::Fact;
use crate::facts::NetworkDevice;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const GET_SETTINGS: u32 = 0x01;
const GET_TSO: u32 = 0x1e;
const GET_GSO: u32 = 0x23;
const GET_GRO: u32 = 0x2b;

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// `struct ethtool_cmd`: 44 bytes, of which three fields matter here.
#[repr(C)]
struct EthtoolSettings {
    command: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    duplex: u8,
    others: [u8; 13],
    speed_high: u16,
    more: [u8; 2],
    last: [u32; 3],
}
const _: () = assert!(
    size_of::<EthtoolSettings>() == 44 && std::mem::offset_of!(EthtoolSettings, speed_high) == 28
);

/// Fills in the properties that `ethtool` reports for the device.
pub(super) fn fill_in(link: &mut NetworkDevice) {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None);
    let socket = match socket {
        Ok(socket) => socket,
        Err(errno) => {
            let why = || Fact::unknown(io::Error::from(errno));
            (link.tso, link.gso, link.gro) = (why(), why(), why());
            return;
        }
    };
    let flag = |command| -> Fact<bool> {
        let mut value = EthtoolValue { command, data: 0 };
        ask(&socket, link.name.as_str(), &mut value)
            .map(|()| value.data != 0)
            .into()
    };
    let (tso, gso, gro) = (flag(GET_TSO), flag(GET_GSO), flag(GET_GRO));
    let (speed, duplex) = rate(&socket, link);
    (
        link.tso,
        link.gso,
        link.gro,
        link.speed_mbps,
        link.full_duplex,
    ) = (tso, gso, gro, speed, duplex);
}

fn rate(socket: &OwnedFd, link: &NetworkDevice) -> (Fact<u64>, Fact<bool>) {
    if let Some(kind) = &link.kind {
        // A tun device reports 10 Mbit/s whatever it carries.
        let why = format!("a {kind} device has no rate of its own");
        return (Fact::unknown(&why), Fact::unknown(&why));
    }
    let mut settings = EthtoolSettings {
        command: GET_SETTINGS,
        supported: 0,
        advertising: 0,
        speed: 0,
        duplex: 0,
        others: [0; 13],
        speed_high: 0,
        more: [0; 2],
        last: [0; 3],
    };
    match ask(socket, link.name.as_str(), &mut settings) {
        Ok(()) => read_settings(settings.speed, settings.speed_high, settings.duplex),
        Err(error) => (Fact::unknown(&error), Fact::unknown(&error)),
    }
}

/// Parses the settings. Speed comes in two halves, all ones or zero if unknown; duplex is 0 for
/// half, 1 for full, and otherwise unknown.
fn read_settings(low: u16, high: u16, duplex: u8) -> (Fact<u64>, Fact<bool>) {
    const WHY: &str = "the device does not say";
    let speed = match (u32::from(high) << 16) | u32::from(low) {
        0 | 0xffff | 0xffff_ffff => Fact::unknown(WHY),
        speed => Fact::Known(speed.into()),
    };
    let duplex = match duplex {
        0 | 1 if speed.known().is_some() => Fact::Known(duplex == 1),
        _ => Fact::unknown(WHY),
    };
    (speed, duplex)
}

/// Structures that the kernel writes an answer into: plain numbers throughout, for which any bytes
/// are valid.
trait EthtoolQuery {}
impl EthtoolQuery for EthtoolValue {}
impl EthtoolQuery for EthtoolSettings {}

fn ask<T: EthtoolQuery>(socket: &OwnedFd, device: &str, question: &mut T) -> io::Result<()> {
    let mut name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    // One byte is left for the terminating zero.
    let room = name.iter_mut().take(libc::IFNAMSIZ - 1);
    if device.len() >= libc::IFNAMSIZ {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "too long a name for a device",
        ));
    }
    for (place, byte) in room.zip(device.bytes()) {
        *place = byte as libc::c_char;
    }
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_data: std::ptr::from_mut(question).cast(),
        },
    };
    // SAFETY: `request` is a complete `struct ifreq` with a zero-ended name. Its data points to
    // `question`, which is exclusively borrowed through the call. The layout of `question` is the
    // one that the command in its first field asks for, as `EthtoolQuery` is implemented for those
    // two types only. The kernel writes no more than that.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_offloads_and_a_missing_device_has_none() {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let mut value = EthtoolValue {
            command: GET_TSO,
            data: 9,
        };
        ask(&socket, "lo", &mut value).unwrap();
        assert!(value.data <= 1);
        assert!(ask(&socket, "no-such-device", &mut value).is_err());
        assert!(ask(&socket, "a-name-that-is-too-long", &mut value).is_err());
    }

    #[test]
    fn speed_comes_in_halves() {
        assert_eq!(
            read_settings(34_464, 1, 1),
            (Fact::Known(100_000), Fact::Known(true))
        );
        assert_eq!(
            read_settings(100, 0, 0),
            (Fact::Known(100), Fact::Known(false))
        );
        assert!(read_settings(0xffff, 0xffff, 0xff).0.known().is_none());
        assert!(read_settings(0, 0, 1).1.known().is_none());
    }
}
