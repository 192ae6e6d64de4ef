//! A data plane whose only worker is the caller, so that a fuzzer or a test decides what happens when.

use crate::fill::{InboundFill, OutboundFill};
use crate::shared::TunnelOptions;
use crate::stream::Stream;
use crate::tunnel::Tunnel;
use netio::poll::Poller;
use netio::tun::Tun;
use netio::udp::Family;
use plane::{Control, LineId, StreamId, Wire};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Arc;
use std::time::Duration;

/// A data plane without threads. [`Plane::interface`], [`Plane::datagrams`] and [`Plane::stream`] do the work of its
/// workers.
pub struct Plane<W: Wire> {
    /// The tunnel that control calls.
    pub tunnel: Tunnel<W>,
    /// The interface's other side: delivers packets that the tunnel wrote, and takes packets for it to read, each
    /// behind a `virtio_net_hdr`.
    pub host: UnixDatagram,
    outbound: OutboundFill<W>,
    inbound: InboundFill<W>,
}

impl<W: Wire> Plane<W> {
    /// Creates a data plane and its interface. `options` must be those of one worker.
    ///
    /// # Errors
    /// Descriptor limits.
    pub fn new(wire: W, control: Arc<dyn Control>, options: &TunnelOptions) -> io::Result<Self> {
        Self::over(Tun::simulated()?, wire, control, options)
    }

    /// Creates a plane over the caller's interface and its other side.
    ///
    /// # Errors
    /// Descriptor limits.
    pub fn over(
        (tun, host): (Tun, UnixDatagram),
        wire: W,
        control: Arc<dyn Control>,
        options: &TunnelOptions,
    ) -> io::Result<Self> {
        host.set_nonblocking(true)?;
        let tunnel = Tunnel::without_workers(tun, wire, control, 1, options)?;
        Ok(Self {
            outbound: OutboundFill::new(Arc::clone(tunnel.shared())),
            inbound: InboundFill::new(Arc::clone(tunnel.shared())),
            tunnel,
            host,
        })
    }

    /// Handles packets waiting at the interface and payloads injected by control, as far as streams have room.
    pub fn interface(&mut self) {
        let workers = self.tunnel.all_workers();
        workers.pump_tun(&mut self.outbound);
        // The next wait reports packets that a short read left on purpose.
        while self.outbound.took_one() && waits(self.tunnel.tun()) {
            workers.pump_tun(&mut self.outbound);
        }
    }

    /// Receives datagrams waiting at the first line's socket of a family, if there is one.
    pub fn datagrams(&mut self, family: Family) {
        if let Some(socket) = self.tunnel.sockets().of(family) {
            let workers = self.tunnel.all_workers();
            workers.pump_socket(&mut self.inbound, LineId::FIRST, socket);
            while self.inbound.took_one() && waits(socket) {
                workers.pump_socket(&mut self.inbound, LineId::FIRST, socket);
            }
        }
    }

    /// Reads a stream, and writes its waiting bytes.
    pub fn stream(&mut self, id: StreamId) {
        self.tunnel.all_workers().pump_stream(id, &mut self.inbound);
    }

    /// Whether the interface is left unread until a stream has room.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.tunnel.shared().congested()
    }
}

/// Whether a poller would report a descriptor as readable.
fn waits(descriptor: impl AsFd) -> bool {
    let Ok(poller) = Poller::new() else {
        return false;
    };
    let ready = poller.add(descriptor, 0);
    let ready = ready.and_then(|()| poller.wait(Some(Duration::ZERO)));
    ready.is_ok_and(|ready| !ready.is_empty())
}

/// A connection to a peer at `addr`, and its other end.
///
/// # Errors
/// Descriptor limits.
pub fn connection(id: StreamId, addr: SocketAddr) -> io::Result<(Arc<Stream>, UnixStream)> {
    let (stream, theirs) = Stream::simulated(id, addr)?;
    Ok((Arc::new(stream), theirs))
}
