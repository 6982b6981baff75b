//! Takes samples: everything that the kernel reports about one TCP socket, in seven or eight system
//! calls and without allocating.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use longhaul_platform::{
    sockets as kernel,
    tcp::{self, SIOCINQ, SIOCOUTQ, SIOCOUTQNSD},
};

use crate::{
    Bbr, CongestionName, CongestionState, Sample, SocketBuffers, SocketQueues, TcpInfo,
    TcpInfoError,
};

/// Default sampling period: five samples in the shortest interval of an
/// [`Estimator`](crate::Estimator).
pub const SAMPLE_PERIOD: Duration = Duration::from_millis(20);

/// Reads a [`Sample`] from any TCP socket. It keeps no state of the socket, and may serve many.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sampler;

impl Sampler {
    /// Returns a sampler.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    /// Samples the socket now. `at` is the time, from any start that is the same for all samples of
    /// a socket.
    ///
    /// # Errors
    /// [`SampleError`] if it is not a TCP socket, is a listening one, or the kernel is older than
    /// 4.12.
    pub fn sample(&self, socket: impl AsFd, at: Duration) -> Result<Sample, SampleError> {
        let socket = socket.as_fd();
        let info = TcpInfo::read(socket)?;
        let queue = |call, request| {
            kernel::queue_bytes(socket, request)
                .map_err(|source| SampleError::Call { call, source })
        };
        Ok(Sample {
            at,
            info,
            queues: SocketQueues {
                unread: queue("SIOCINQ", SIOCINQ)?,
                unacknowledged: queue("SIOCOUTQ", SIOCOUTQ)?,
                unsent: queue("SIOCOUTQNSD", SIOCOUTQNSD)?,
            },
            buffers: buffers(socket)?,
            congestion: congestion(socket),
            fitted_rate: None,
        })
    }
}

/// Limits a TCP socket to sending `rate` bytes per second (`SO_MAX_PACING_RATE`); `None` lifts the
/// limit.
///
/// # Errors
/// The kernel's error if it is not a socket.
pub fn set_max_pacing_rate(socket: impl AsFd, rate: Option<u64>) -> io::Result<()> {
    // Kernels from 4.20 on take 64 bits if `unsigned long` has them.
    let rate = libc::c_ulong::try_from(rate.unwrap_or(u64::MAX)).unwrap_or(libc::c_ulong::MAX);
    kernel::set_option(
        socket.as_fd(),
        libc::SOL_SOCKET,
        tcp::SO_MAX_PACING_RATE,
        &rate.to_ne_bytes(),
    )
}

/// Makes a socket wake its reader only when `bytes` have arrived, or the stream ends
/// (`SO_RCVLOWAT`, 1 by default).
///
/// # Errors
/// The kernel's error if it is not a socket, or `bytes` is over 2 GiB.
pub fn set_receive_low_water_mark(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = i32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    kernel::set_option(
        socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_RCVLOWAT,
        &bytes.to_ne_bytes(),
    )
}

/// Lets a socket offer a window of up to `bytes` from now on. The kernel's autotuning stays on, and
/// continues from there.
///
/// A handshake of a few short messages leaves a window of about 64 KB. Autotuning enlarges it only
/// as more arrives in a round trip. With segments of 9000 bytes that can take seconds, and a
/// sender's slow start waits for it again and again. Requesting a wake-up for `bytes` at once
/// (`SO_RCVLOWAT`) makes the kernel provide a buffer of that size, up to half the ceiling of its
/// autotuning (`tcp_rmem`). `SO_RCVBUF` would end at `rmem_max` and switch autotuning off. The
/// window still opens no faster than segments arrive, and a limit allocates no memory.
///
/// # Errors
/// The kernel's error if it is not a TCP socket.
pub fn open_receive_window(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set_receive_low_water_mark(&socket, bytes)?;
    set_receive_low_water_mark(&socket, 1)
}

/// Reason why there is no sample.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// `TCP_INFO` cannot be read.
    #[error(transparent)]
    TcpInfo(#[from] TcpInfoError),
    /// Another system call failed.
    #[error("cannot read {call} of the socket: {source}")]
    Call {
        /// Name of the call or option.
        call: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The kernel reports less than is needed.
    #[error("the kernel reports {0} bytes of SO_MEMINFO, fewer than the {MEMINFO_LEAST} needed")]
    Short(usize),
}

/// Space for `SO_MEMINFO`: nine numbers today (Linux `include/uapi/linux/sock_diag.h`), of which
/// the first six are used. They include the values of `SO_SNDBUF` and `SO_RCVBUF`.
const MEMINFO_ROOM: usize = 64;
const MEMINFO_LEAST: usize = 24;
const SK_MEMINFO_RMEM_ALLOC: usize = 0;
const SK_MEMINFO_RCVBUF: usize = 1;
const SK_MEMINFO_SNDBUF: usize = 3;
const SK_MEMINFO_WMEM_QUEUED: usize = 5;

fn buffers(socket: BorrowedFd<'_>) -> Result<SocketBuffers, SampleError> {
    let mut bytes = [0; MEMINFO_ROOM];
    let length = kernel::option(socket, libc::SOL_SOCKET, tcp::SO_MEMINFO, &mut bytes).map_err(
        |source| SampleError::Call {
            call: "SO_MEMINFO",
            source,
        },
    )?;
    let buffers =
        parse_meminfo(bytes.get(..length).unwrap_or_default()).ok_or(SampleError::Short(length))?;
    let length =
        kernel::option(socket, libc::SOL_SOCKET, tcp::SO_BUF_LOCK, &mut bytes).unwrap_or_default();
    let locks = u32_at(bytes.get(..length).unwrap_or_default(), 0);
    Ok(SocketBuffers {
        send_locked: locks.map(|locks| locks & SOCK_SNDBUF_LOCK != 0),
        receive_locked: locks.map(|locks| locks & SOCK_RCVBUF_LOCK != 0),
        ..buffers
    })
}

/// Bits of `SO_BUF_LOCK` (Linux `include/uapi/linux/socket.h`).
const SOCK_SNDBUF_LOCK: u32 = 1;
const SOCK_RCVBUF_LOCK: u32 = 2;

fn parse_meminfo(bytes: &[u8]) -> Option<SocketBuffers> {
    let number = |index: usize| u32_at(bytes, index);
    Some(SocketBuffers {
        send: number(SK_MEMINFO_SNDBUF)?,
        send_used: number(SK_MEMINFO_WMEM_QUEUED)?,
        receive: number(SK_MEMINFO_RCVBUF)?,
        receive_used: number(SK_MEMINFO_RMEM_ALLOC)?,
        ..SocketBuffers::default()
    })
}

/// Returns the 32-bit number at `index`.
fn u32_at(bytes: &[u8], index: usize) -> Option<u32> {
    let at = index.checked_mul(4)?;
    Some(u32::from_ne_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

/// Returns the report of the congestion control. Without a report there is no error, because the
/// estimator can do without it.
fn congestion(socket: BorrowedFd<'_>) -> CongestionState {
    let mut bytes = [0; 64];
    let length = kernel::option(socket, libc::IPPROTO_TCP, tcp::TCP_CONGESTION, &mut bytes)
        .unwrap_or_default();
    let name = CongestionName::from_kernel(bytes.get(..length).unwrap_or_default());
    let mut congestion = CongestionState { name, bbr: None };
    if congestion.is_model_based() {
        let length = kernel::option(socket, libc::IPPROTO_TCP, tcp::TCP_CC_INFO, &mut bytes)
            .unwrap_or_default();
        congestion.bbr = parse_bbr(bytes.get(..length).unwrap_or_default());
    }
    congestion
}

/// Parses `struct tcp_bbr_info` (Linux `include/uapi/linux/inet_diag.h`); later versions of BBR
/// append to it.
fn parse_bbr(bytes: &[u8]) -> Option<Bbr> {
    let number = |index: usize| u32_at(bytes, index);
    Some(Bbr {
        bandwidth: u64::from(number(0)?) | u64::from(number(1)?) << 32,
        min_rtt: Duration::from_micros(number(2)?.into()),
        pacing_gain: number(3)?,
        window_gain: number(4)?,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream, UdpSocket},
    };

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (sender, listener.accept().unwrap().0)
    }

    #[test]
    fn a_live_connection_gives_a_whole_sample() {
        let (mut sender, mut receiver) = pair();
        sender.write_all(&[7; 10_000]).unwrap();
        receiver.read_exact(&mut [0; 1]).unwrap();
        receiver.peek(&mut [0; 1]).unwrap();
        let sampler = Sampler::new();
        let sent = sampler.sample(&sender, Duration::from_secs(5)).unwrap();
        let received = sampler.sample(&receiver, Duration::ZERO).unwrap();
        assert_eq!(sent.at, Duration::from_secs(5));
        assert!(!sent.congestion.name.as_str().is_empty());
        assert!(sent.buffers.send > 4096 && sent.buffers.receive > 1024);
        assert!(
            (1..10_000).contains(&received.queues.unread),
            "{received:?}"
        );
        assert!(received.buffers.receive_used >= received.queues.unread);
    }

    #[test]
    fn bytes_in_the_send_queue_are_sampled() {
        let (sender, receiver) = pair();
        sender.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(more) = (&sender).write(&[7; 65536]) {
            written += more;
        }
        let sample = Sampler::new().sample(&sender, Duration::ZERO).unwrap();
        assert!(
            sample.queues.unacknowledged > 0 && sample.queues.unacknowledged as usize <= written
        );
        assert!(sample.queues.unsent > 0 && sample.queues.unsent <= sample.queues.unacknowledged);
        assert!(sample.buffers.send_used >= sample.queues.unacknowledged);
        drop(receiver);
    }

    #[test]
    fn only_a_set_rate_counts_as_pacing() {
        let (sender, _receiver) = pair();
        let rate = || {
            Sampler::new()
                .sample(&sender, Duration::ZERO)
                .unwrap()
                .info
                .max_pacing_rate
        };
        assert_eq!(rate(), None);
        set_max_pacing_rate(&sender, Some(1_000_000)).unwrap();
        assert_eq!(rate(), Some(1_000_000));
        set_max_pacing_rate(&sender, None).unwrap();
        assert_eq!(rate(), None);
    }

    #[test]
    fn set_buffer_is_distinguished_from_autotuned_one() {
        let (sender, _receiver) = pair();
        let locks = || {
            let buffers = Sampler::new()
                .sample(&sender, Duration::ZERO)
                .unwrap()
                .buffers;
            buffers.send_locked.zip(buffers.receive_locked)
        };
        // Kernels before 5.14 do not report it.
        assert!([None, Some((false, false))].contains(&locks()));
        let size = 50_000u32.to_ne_bytes();
        kernel::set_option(sender.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &size).unwrap();
        assert!([None, Some((true, false))].contains(&locks()));
    }

    #[test]
    fn other_sockets_are_errors() {
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sampler = Sampler::new();
        assert!(matches!(
            sampler.sample(&datagrams, Duration::ZERO),
            Err(SampleError::TcpInfo(_))
        ));
        assert!(matches!(
            sampler.sample(&listener, Duration::ZERO),
            Err(SampleError::Call {
                call: "SIOCINQ",
                ..
            })
        ));
    }

    #[test]
    fn short_answers_give_nothing_rather_than_garbage() {
        let bytes: Vec<u8> = (1u32..=9).flat_map(u32::to_ne_bytes).collect();
        for length in 0..bytes.len() {
            let (memory, bbr) = (parse_meminfo(&bytes[..length]), parse_bbr(&bytes[..length]));
            assert_eq!(memory.is_some(), length >= MEMINFO_LEAST);
            assert_eq!(bbr.is_some(), length >= 20);
        }
        let expected = SocketBuffers {
            send: 4,
            send_used: 6,
            receive: 2,
            receive_used: 1,
            ..SocketBuffers::default()
        };
        assert_eq!(parse_meminfo(&bytes), Some(expected));
        let bbr = parse_bbr(&bytes).unwrap();
        assert_eq!((bbr.bandwidth, bbr.min_rtt.as_micros()), (1 | 2 << 32, 3));
        assert_eq!((bbr.pacing_gain, bbr.window_gain), (4, 5));
    }
}
