//! A minimal protocol, and a data plane with two lines and a peer.

use engine::{Sockets, Tunnel, TunnelOptions};
use netio::tun::{Tun, VNET_HDR_LEN};
use netio::udp::{Family, SocketOptions};
use plane::{
    Batch, CipherName, Class, Control, DataPlane, Endpoint, Format, Formats, KeyLimits, Line,
    LineId, Notice, Packet, Payload, PeerId, Protocol, ReplayWindow, RouteChange, SessionKeys,
    SessionName, Transports as _, Wire, ZeroizeOnDrop,
};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Header length: session number and packet number. The inner packet follows in clear.
const HEADER: usize = 3;

/// The minimal protocol.
pub(crate) struct Toy;

/// The peer's index for the session.
pub(crate) struct Name(u8);

impl ZeroizeOnDrop for Name {}

impl Wire for Toy {
    const HEAD_MAX: usize = HEADER;
    const TAIL_MAX: usize = 0;
    const STAGES: bool = false;
    const ECN: bool = false;
    type Window = ReplayWindow;
    type Reader = ();

    fn classify(&self, (): &(), datagram: &[u8]) -> Class {
        match datagram {
            [session, high, low, ..] => Class::Data {
                session: SessionName::Index((*session).into()),
                counter: u16::from_be_bytes([*high, *low]).into(),
                header: HEADER,
                or_control: false,
            },
            _ => Class::Control,
        }
    }

    fn loops(&self, _: &[u8], _: SocketAddr, _: u32, _: &Endpoint) -> bool {
        false
    }
}

impl Format for Name {
    fn head(&self) -> usize {
        HEADER
    }
    fn tail(&self, _: usize) -> usize {
        0
    }
    fn seal(&self, batch: &mut Batch<'_>) {
        for packet in batch.packets.iter() {
            let at = packet.start as usize;
            let [high, low] = (packet.counter as u16).to_be_bytes();
            batch.memory[at - HEADER..at].copy_from_slice(&[self.0, high, low]);
        }
    }
    fn open(&self, batch: &mut Batch<'_>) {
        for packet in batch.packets.iter_mut() {
            packet.authentic = true;
        }
    }
    fn reveal(&self, _: &mut [u8], _: &mut Packet) -> Payload {
        Payload::Inner
    }
}

impl Protocol for Toy {
    type Keys = Name;
    type Error = Infallible;

    fn formats(&self, keys: &Name) -> Result<Formats, Infallible> {
        Ok(Formats {
            seal: Arc::new(Name(keys.0)),
            open: Arc::new(Name(0)),
            cipher: CipherName {
                cipher: "none",
                backend: "toy",
            },
        })
    }
}

#[derive(Default)]
pub(crate) struct Notices(pub(crate) Mutex<Vec<(PeerId, Notice)>>);

impl Control for Notices {
    fn datagram(&self, _: Line, _: &[u8]) -> bool {
        true
    }
    fn notify(&self, peer: PeerId, notice: Notice) {
        self.0.lock().unwrap().push((peer, notice));
    }
    fn device_gone(&self) {}
}

pub(crate) const PEER: PeerId = PeerId(7);
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A data plane with two lines, the far side of its interface, and a peer with one address on either line.
pub(crate) struct Site {
    pub(crate) plane: Tunnel<Toy>,
    pub(crate) host: UnixDatagram,
    pub(crate) peer: UdpSocket,
    pub(crate) notices: Arc<Notices>,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with_workers(2)
    }

    pub(crate) fn with_workers(workers: usize) -> Self {
        let (tun, host) = Tun::simulated().unwrap();
        host.set_read_timeout(Some(PATIENCE)).unwrap();
        let options = TunnelOptions {
            workers,
            parallel: true,
            coalescing: true,
            mtu: 1500,
            gso_max_segs: 64,
            backpressure: false,
        };
        let notices = Arc::new(Notices::default());
        let control: Arc<Notices> = Arc::clone(&notices);
        let plane = Tunnel::start(tun, Toy, control, &options).unwrap();
        for line in [0, 1] {
            let options = SocketOptions {
                address: Some(Ipv4Addr::LOCALHOST.into()),
                ..SocketOptions::default()
            };
            let socket = netio::udp::UdpSocket::bind(Family::V4, &options).unwrap();
            let sockets = Sockets {
                v4: Some(socket),
                v6: None,
            };
            plane.open_line(LineId(line), sockets).unwrap();
        }
        Self {
            plane,
            host,
            peer: socket(),
            notices,
        }
    }

    /// Returns the peer's line with this number.
    pub(crate) fn line(&self, line: u8) -> Line {
        Line {
            id: LineId(line),
            ..Line::udp(Endpoint::new(self.peer.local_addr().unwrap()))
        }
    }

    pub(crate) fn port(&self, line: u8) -> u16 {
        self.plane.port(LineId(line)).unwrap()
    }

    pub(crate) fn keys(&self, session: u32, remote: u8, confirm: bool) {
        let keys = session_keys(session, remote, confirm);
        assert_eq!(self.plane.add_keys(PEER, keys).unwrap().backend, "toy");
    }

    /// Sends a packet to the peer from the host behind this interface.
    pub(crate) fn outward(&self, mark: u8) {
        self.host_sends(&packet(1, 2, mark));
    }

    /// Sends any packet from the host.
    pub(crate) fn host_sends(&self, packet: &[u8]) {
        let packet = [&[0; VNET_HDR_LEN], packet].concat();
        self.host.send(&packet).unwrap();
    }

    /// Returns the peer's next datagram: source port, session, packet number and the packet's mark.
    pub(crate) fn peer_receives(&self) -> (u16, u8, u16, u8) {
        receive(&self.peer)
    }

    /// Sends a packet from the peer to a line.
    pub(crate) fn peer_sends(&self, line: u8, session: u8, number: u16, mark: u8) {
        self.sends_from(&self.peer, line, session, (number, &packet(2, 1, mark)));
    }

    /// Sends a numbered packet from this socket to a line.
    pub(crate) fn sends_from(
        &self,
        from: &UdpSocket,
        line: u8,
        session: u8,
        (number, packet): (u16, &[u8]),
    ) {
        let number = number.to_be_bytes();
        let datagram = [&[session, number[0], number[1]], packet].concat();
        let to = (Ipv4Addr::LOCALHOST, self.port(line));
        from.send_to(&datagram, to).unwrap();
    }

    /// Returns the mark of the next packet that the interface delivers.
    pub(crate) fn written(&self) -> u8 {
        let mut packet = [0; 2000];
        let len = self.host.recv(&mut packet).unwrap();
        packet[len - 1]
    }

    pub(crate) fn drops(&self, reason: &str) -> u64 {
        let drops = self.plane.statistics().drops;
        drops.iter().find(|(name, _)| *name == reason).unwrap().1
    }

    pub(crate) fn until(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < end, "{what}");
            std::thread::yield_now();
        }
    }
}

/// Returns the next datagram at one of the peer's sockets; see [`Site::peer_receives`].
pub(crate) fn receive(socket: &UdpSocket) -> (u16, u8, u16, u8) {
    let mut datagram = [0; 2000];
    let (len, from) = socket.recv_from(&mut datagram).unwrap();
    let number = u16::from_be_bytes([datagram[1], datagram[2]]);
    (from.port(), datagram[0], number, datagram[len - 1])
}

/// Opens a socket for the peer.
pub(crate) fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

pub(crate) fn session_keys(session: u32, remote: u8, confirm: bool) -> SessionKeys<Name> {
    let limits = KeyLimits::until(Instant::now() + Duration::from_secs(3600));
    SessionKeys {
        session,
        remote: remote.into(),
        material: Name(remote),
        receive: limits,
        send: limits,
        confirm,
    }
}

pub(crate) fn packet(from: u8, to: u8, mark: u8) -> Vec<u8> {
    let mut packet = vec![0; 29];
    packet[0] = 0x45;
    packet[3] = 29;
    packet[9] = 99;
    packet[12..20].copy_from_slice(&[10, 0, 0, from, 10, 0, 0, to]);
    packet[28] = mark;
    packet
}

pub(crate) fn route() -> RouteChange {
    RouteChange::Add {
        address: [10, 0, 0, 2].into(),
        len: 32,
        peer: PEER,
    }
}
