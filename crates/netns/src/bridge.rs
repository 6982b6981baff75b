//! The bridge: reads the device, and assigns packets to connections and flows.
//!
//! One thread does all of it. Its memory is bounded: connections, flows of UDP, their buffers, and
//! names all have limits.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, oneshot};
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::device::MTU;
use crate::end::Wire;
use crate::names::NamesByAddress;
use crate::packet::{AddressPair, Packet};
use crate::ramp::ConnectionWishes;
use crate::resolvers::Resolvers;
use crate::start::ProgramNetwork;
use crate::tcp::Connections;
use crate::udp::UdpFlows;

/// Time for connections that the program left open when it ended, as for an on-ramp that stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of packets read before the connections have their turn.
const MAX_PACKETS_PER_BATCH: usize = 32;

/// The running bridge.
#[derive(Debug)]
pub struct Bridge {
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Bridge {
    /// Starts a thread that carries what the program sends.
    ///
    /// # Errors
    /// No thread or descriptor is available.
    pub fn start(network: ProgramNetwork, wishes: ConnectionWishes) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = std::sync::mpsc::channel();
        let body = move || {
            let carried = async move {
                match BridgeState::new(network, wishes) {
                    Ok(inside) => {
                        let _ = ready.send(Ok(()));
                        inside.carry(stopped).await;
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            };
            runtime.block_on(LocalSet::new().run_until(carried));
        };
        let thread = std::thread::Builder::new()
            .name("bridge".to_owned())
            .spawn(body)?;
        started
            .recv()
            .map_err(|_| io::Error::other("its thread has ended"))??;
        Ok(Self { thread, stop })
    }

    /// Waits, after the program has ended, until what it sent has reached its destinations, for at
    /// most a minute.
    pub fn finish(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// Registers the device with the runtime.
#[allow(unsafe_code)] // the runtime's one way to do so
fn registered(device: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays open, and the same, until the `AsyncFd` is dropped.
    Ok(unsafe { AsyncFd::register(device) }?)
}

/// The device, for writing.
pub(crate) struct DeviceOutput {
    device: Rc<AsyncFd<OwnedFd>>,
    room: Vec<u8>,
}

impl Wire for DeviceOutput {
    fn send(&mut self, packet: &[u8]) {
        // A packet that the device does not take is lost, as on any network; TCP retransmits it.
        let _ = rustix::io::write(&*self.device, packet);
    }

    fn room(&mut self) -> &mut Vec<u8> {
        &mut self.room
    }
}

/// State of the bridge.
pub(crate) struct BridgeState {
    device: Rc<AsyncFd<OwnedFd>>,
    output: RefCell<DeviceOutput>,
    _resolv_conf: tempfile::NamedTempFile,
    pub(crate) wishes: ConnectionWishes,
    pub(crate) resolvers: Resolvers,
    pub(crate) names: RefCell<NamesByAddress>,
    pub(crate) connections: Connections,
    pub(crate) flows: UdpFlows,
    began: Instant,
    /// Number of established connections.
    standing: Cell<usize>,
    none_stands: Notify,
}

impl BridgeState {
    fn new(network: ProgramNetwork, wishes: ConnectionWishes) -> io::Result<Rc<Self>> {
        let device = Rc::new(registered(network.device)?);
        let output = DeviceOutput {
            device: Rc::clone(&device),
            room: Vec::with_capacity(MTU),
        };
        Ok(Rc::new(Self {
            device,
            output: RefCell::new(output),
            _resolv_conf: network.resolv_conf,
            wishes,
            resolvers: network.resolvers,
            names: RefCell::default(),
            connections: Connections::default(),
            flows: UdpFlows::default(),
            began: Instant::now(),
            standing: Cell::new(0),
            none_stands: Notify::new(),
        }))
    }

    async fn carry(self: Rc<Self>, stopped: oneshot::Receiver<()>) {
        tokio::select! {
            () = self.receive() => {}
            () = self.stop(stopped) => {}
        }
    }

    /// Reads packets until the device is gone.
    async fn receive(self: &Rc<Self>) {
        let mut packet = vec![0; MTU];
        while let Ok(mut ready) = self.device.readable().await {
            match self.receive_some(&mut packet) {
                Ok(true) => {}
                Ok(false) => ready.clear_ready(),
                Err(_) => return,
            }
            drop(ready);
            tokio::task::yield_now().await;
        }
    }

    /// Reads some packets. Returns false if there are no more for now.
    fn receive_some(self: &Rc<Self>, packet: &mut [u8]) -> io::Result<bool> {
        for _ in 0..MAX_PACKETS_PER_BATCH {
            match rustix::io::read(&*self.device, &mut *packet) {
                Ok(length) => self.packet(packet.get(..length).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn packet(self: &Rc<Self>, bytes: &[u8]) {
        match Packet::read(bytes) {
            Packet::Tcp(pair, segment) => self.segment(pair, segment, bytes),
            Packet::Udp(pair, payload) => self.datagram(pair, payload, bytes),
            Packet::Other => {}
        }
    }

    /// Drains, after the program has ended, the packets in the device and the open connections.
    async fn stop(self: &Rc<Self>, stopped: oneshot::Receiver<()>) {
        let _ = stopped.await;
        let mut packet = vec![0; MTU];
        while matches!(self.receive_some(&mut packet), Ok(true)) {}
        let ended = async {
            while self.standing.get() > 0 {
                self.none_stands.notified().await;
            }
        };
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, ended).await;
    }

    /// Returns the current time in the form that connections use.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Converts such a time.
    pub(crate) fn instant_at(&self, time: Duration) -> Instant {
        self.began + time
    }

    /// Calls `body` with the device for sending.
    pub(crate) fn with_output<T>(&self, body: impl FnOnce(&mut DeviceOutput) -> T) -> T {
        body(&mut self.output.borrow_mut())
    }

    /// Sends a packet that was built here, if it could be built.
    pub(crate) fn send(&self, packet: Option<Vec<u8>>) {
        if let Some(packet) = packet {
            self.with_output(|output| output.send(&packet));
        }
    }

    /// Counts an established connection until the returned value is dropped.
    pub(crate) fn count_established(self: &Rc<Self>) -> EstablishedGuard {
        self.standing.set(self.standing.get() + 1);
        EstablishedGuard(Rc::clone(self))
    }

    /// Returns the number of established connections.
    pub(crate) const fn established_count(&self) -> usize {
        self.standing.get()
    }

    /// Returns the name that last resolved to a destination.
    pub(crate) fn name(&self, pair: &AddressPair) -> Option<String> {
        self.names
            .borrow()
            .name_of(pair.far.ip())
            .map(str::to_owned)
    }
}

/// An established connection in the count.
pub(crate) struct EstablishedGuard(Rc<BridgeState>);

impl Drop for EstablishedGuard {
    fn drop(&mut self) {
        let left = self.0.standing.get().saturating_sub(1);
        self.0.standing.set(left);
        if left == 0 {
            self.0.none_stands.notify_one();
        }
    }
}
