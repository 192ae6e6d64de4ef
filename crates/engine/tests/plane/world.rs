//! Data planes and their surroundings.

use crate::remote::{Remote, socket};
use crate::toy::{Key, Pair, Toy};
use engine::fuzzing::Plane;
use engine::{Peer, Routes, Sockets, Tunnel, TunnelOptions};
use netio::simulated::Call;
use netio::tun::{Tun, VnetHdr};
use netio::udp::{Ecn, Endpoint, Family};
use plane::{
    Control, DataPlane as _, KeyLimits, Line, LineId, Moving, Notice, PeerId, SessionKeys,
    StreamId, Transport, Transports as _,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Upper bound for every wait; only a failing test waits this long.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// Waits until the condition `holds` returns true.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < BOUND, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// A message to control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Datagram(SocketAddr, Option<StreamId>, Vec<u8>),
    Message(PeerId, Vec<u8>),
    Notice(PeerId, Notice),
    StreamClosed(StreamId),
    Gone,
}

/// A control stub that records the messages it gets.
#[derive(Default)]
pub(crate) struct Recorder {
    events: Mutex<Vec<Event>>,
    /// Whether control refuses datagrams.
    pub(crate) busy: AtomicBool,
}

impl Recorder {
    fn note(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    /// Removes and returns the messages since the last call.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    /// Removes and returns the notices since the last call, except those that only report traffic.
    pub(crate) fn notices(&self) -> Vec<(PeerId, Notice)> {
        let notice = |event| match event {
            Event::Notice(_, Notice::Active) => None,
            Event::Notice(peer, notice) => Some((peer, notice)),
            _ => None,
        };
        self.take().into_iter().filter_map(notice).collect()
    }
}

impl Control for Recorder {
    fn datagram(&self, from: Line, bytes: &[u8]) -> bool {
        let stream = match from.transport {
            Transport::Tcp(stream) => Some(stream),
            Transport::Udp | Transport::Gre => None,
        };
        self.note(Event::Datagram(from.endpoint.addr, stream, bytes.to_vec()));
        !self.busy.load(Ordering::Relaxed)
    }
    fn message(&self, peer: PeerId, bytes: &[u8]) {
        self.note(Event::Message(peer, bytes.to_vec()));
    }
    fn notify(&self, peer: PeerId, notice: Notice) {
        self.note(Event::Notice(peer, notice));
    }
    fn stream_closed(&self, stream: StreamId) {
        self.note(Event::StreamClosed(stream));
    }
    fn device_gone(&self) {
        self.note(Event::Gone);
    }
}

/// Returns the error number with which a write to the interface fails, if it fails.
type Refusal = Box<dyn FnMut(&VnetHdr) -> Option<i32> + Send>;

/// Called before the interface is read.
type OnRead = Box<dyn FnMut() + Send>;

/// Packets written to an interface that accepts everything at once.
#[derive(Clone, Default)]
pub(crate) struct Written {
    writes: Arc<Mutex<Vec<Vec<u8>>>>,
    refusal: Arc<Mutex<Option<Refusal>>>,
    on_read: Arc<Mutex<Option<OnRead>>>,
}

impl Written {
    fn attach(&self, tun: &Tun) {
        let (this, headers) = (self.clone(), tun.vnet_hdr());
        tun.faults.set(move |call| {
            let Call::Write { parts } = call else {
                if let Some(on_read) = &mut *this.on_read.lock().unwrap() {
                    on_read();
                }
                return None;
            };
            let bytes = parts.iter().flat_map(|part| part.iter().copied());
            let bytes: Vec<u8> = bytes.collect();
            let hdr = if headers {
                VnetHdr::parse(&bytes).unwrap()
            } else {
                VnetHdr::NONE
            };
            if let Some(refusal) = &mut *this.refusal.lock().unwrap()
                && let Some(errno) = refusal(&hdr)
            {
                return Some(Err(std::io::Error::from_raw_os_error(errno)));
            }
            let len = bytes.len();
            this.writes.lock().unwrap().push(bytes);
            Some(Ok(len))
        });
    }

    /// Makes writes fail with the error that `refusal` returns.
    pub(crate) fn refuse(&self, refusal: impl FnMut(&VnetHdr) -> Option<i32> + Send + 'static) {
        *self.refusal.lock().unwrap() = Some(Box::new(refusal));
    }

    /// Calls `on_read` before each read.
    pub(crate) fn on_read(&self, on_read: impl FnMut() + Send + 'static) {
        *self.on_read.lock().unwrap() = Some(Box::new(on_read));
    }

    /// Removes and returns the writes since the last call, headers included.
    pub(crate) fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.writes.lock().unwrap())
    }

    /// Removes and returns the packets written since the last call, none of which may be a super-packet.
    pub(crate) fn packets(&self) -> Vec<Vec<u8>> {
        let whole = |write: Vec<u8>| {
            assert_eq!(VnetHdr::parse(&write), Some(VnetHdr::NONE));
            write[VnetHdr::NONE.emit().len()..].to_vec()
        };
        self.take().into_iter().map(whole).collect()
    }
}

/// Limits that no test reaches.
pub(crate) fn unlimited() -> KeyLimits {
    KeyLimits {
        expires: Instant::now() + Duration::from_secs(3600),
        messages_max: u64::MAX / 2,
        refresh_at: None,
        refresh_messages: u64::MAX,
    }
}

pub(crate) fn options() -> TunnelOptions {
    TunnelOptions {
        workers: 1,
        parallel: false,
        coalescing: true,
        mtu: 1420,
        gso_max_segs: 64,
        backpressure: false,
    }
}

/// The surroundings that all data planes share.
pub(crate) struct Around {
    pub(crate) control: Arc<Recorder>,
    pub(crate) routes: Routes<Arc<Peer>>,
    /// The address of the data plane's socket.
    pub(crate) here: SocketAddr,
    pub(crate) written: Written,
}

impl Around {
    /// A socket for the data plane, with its writes collected.
    pub(crate) fn new<const S: bool>(tunnel: &Tunnel<Toy<S>>, control: Arc<Recorder>) -> Self {
        let around = Self::without_socket(tunnel, control);
        around.socket(tunnel)
    }

    pub(crate) fn without_socket<const S: bool>(
        tunnel: &Tunnel<Toy<S>>,
        control: Arc<Recorder>,
    ) -> Self {
        let written = Written::default();
        written.attach(tunnel.tun());
        Self {
            control,
            routes: Routes::default(),
            here: (Ipv4Addr::LOCALHOST, 0).into(),
            written,
        }
    }

    fn socket<const S: bool>(mut self, tunnel: &Tunnel<Toy<S>>) -> Self {
        let socket = socket(Ipv4Addr::LOCALHOST.into());
        self.here.set_port(socket.port());
        tunnel
            .open_line(
                LineId::FIRST,
                Sockets {
                    v4: Some(socket),
                    v6: None,
                },
            )
            .unwrap();
        self
    }

    /// Adds a peer with both addresses of host `number`.
    pub(crate) fn peer<const S: bool>(
        &mut self,
        tunnel: &Tunnel<Toy<S>>,
        number: u8,
        at: Option<SocketAddr>,
    ) -> Arc<Peer> {
        let id = PeerId(number.into());
        assert!(tunnel.add_peer(id, Moving::Tell));
        let peer = tunnel.find(id).unwrap();
        if let Some(at) = at {
            peer.set_endpoint(Endpoint::new(at));
        }
        self.routes.insert(
            Ipv4Addr::new(10, 0, 0, number).into(),
            32,
            Arc::clone(&peer),
        );
        let v6: [u8; 16] = crate::packets::address(true, number).try_into().unwrap();
        self.routes.insert(v6.into(), 128, Arc::clone(&peer));
        tunnel.set_routes(self.routes.clone());
        peer
    }
}

/// A session that both ends know as `index`, with the same key and limits for both directions.
pub(crate) fn session(index: u32, key: &Arc<Key>, limits: KeyLimits) -> SessionKeys<Pair> {
    SessionKeys {
        session: index,
        remote: index,
        material: Pair(key.clone(), key.clone()),
        receive: limits,
        send: limits,
        confirm: false,
    }
}

/// Installs a key for both directions, which both ends know as `index`.
pub(crate) fn install<const S: bool>(
    tunnel: &Tunnel<Toy<S>>,
    peer: &Arc<Peer>,
    index: u32,
    key: &Arc<Key>,
    limits: KeyLimits,
) {
    let keys = session(index, key, limits);
    tunnel.add_keys(peer.id(), keys).unwrap();
    tunnel.send_with(peer.id(), index);
}

/// A data plane that the test steps by hand, with peer 1 and its key.
pub(crate) struct World<const S: bool = false> {
    pub(crate) plane: Plane<Toy<S>>,
    pub(crate) around: Around,
    pub(crate) peer: Arc<Peer>,
    pub(crate) remote: Remote,
    pub(crate) key: Arc<Key>,
}

impl<const S: bool> World<S> {
    pub(crate) fn new() -> Self {
        Self::with(Tun::simulated().unwrap(), &options(), Key::new(1, 1))
    }

    pub(crate) fn with_key(key: Key) -> Self {
        Self::with(Tun::simulated().unwrap(), &options(), key)
    }

    pub(crate) fn with(device: (Tun, UnixDatagram), options: &TunnelOptions, key: Key) -> Self {
        let control = Arc::new(Recorder::default());
        let plane = Plane::over(device, Toy, control.clone(), options).unwrap();
        let mut around = Around::new(&plane.tunnel, control);
        let remote = Remote::new();
        let peer = around.peer(&plane.tunnel, 1, Some(remote.addr()));
        let key = key.shared();
        install(&plane.tunnel, &peer, key.receiver, &key, unlimited());
        Self {
            plane,
            around,
            peer,
            remote,
            key,
        }
    }

    /// Adds another peer, whose key has the peer's number as index.
    pub(crate) fn another(&mut self, number: u8) -> (Arc<Peer>, Remote, Arc<Key>) {
        let remote = Remote::new();
        let peer = self
            .around
            .peer(&self.plane.tunnel, number, Some(remote.addr()));
        let key = Key::new(number, number.into()).shared();
        install(&self.plane.tunnel, &peer, number.into(), &key, unlimited());
        (peer, remote, key)
    }

    /// Sends these packets, headers included, from the host and lets the data plane process them.
    pub(crate) fn host_sends(&mut self, reads: &[Vec<u8>]) {
        for read in reads {
            // The queue between host and data plane is short.
            if self.plane.host.send(read).is_err() {
                self.plane.interface();
                self.plane.host.send(read).unwrap();
            }
        }
        self.plane.interface();
    }

    /// Sends these datagrams from the peer and lets the data plane process them.
    pub(crate) fn peer_sends(&mut self, datagrams: &[Vec<u8>]) {
        self.peer_sends_marked(datagrams, Ecn::NotEct);
    }

    pub(crate) fn peer_sends_marked(&mut self, datagrams: &[Vec<u8>], ecn: Ecn) {
        self.remote.send_marked(self.around.here, datagrams, ecn);
        self.take_datagrams(datagrams.len());
    }

    /// Lets the data plane process `count` datagrams that were sent before.
    pub(crate) fn take_datagrams(&mut self, count: usize) {
        // A message sent after them arrives last: when control gets it, the data plane has processed all others.
        let mut last = Remote::new();
        last.send(self.around.here, &[vec![crate::toy::CONTROL, 0xed]]);
        let plane = &mut self.plane;
        let control = &self.around.control;
        until(&format!("{count} datagrams"), || {
            plane.datagrams(Family::V4);
            control.drop_last(last.addr())
        });
    }

    /// Returns the number and payload of the next datagrams to the peer.
    pub(crate) fn peer_receives(&mut self, count: usize) -> Vec<(u64, Vec<u8>)> {
        let key = &self.key;
        let datagrams = self.remote.receive(count);
        datagrams
            .iter()
            .map(|datagram| key.opened(datagram).unwrap())
            .collect()
    }

    /// Dropped packets by reason; reasons that did not occur are left out.
    pub(crate) fn drops(&self) -> Vec<(&'static str, u64)> {
        let drops = self.plane.tunnel.drops().iter();
        drops.filter(|(_, count)| *count > 0).collect()
    }
}

impl Recorder {
    /// Forgets the datagrams that control got from this address; returns whether there were any.
    fn drop_last(&self, from: SocketAddr) -> bool {
        let mut events = self.events.lock().unwrap();
        let before = events.len();
        events.retain(|event| !matches!(event, Event::Datagram(addr, ..) if *addr == from));
        events.len() < before
    }
}
