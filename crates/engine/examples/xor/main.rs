//! A tunnel protocol of one page that shows the boundary between a protocol and the data plane.
//!
//! The protocol protects nothing: packets are XORed with a key of eight bytes, over UDP. A data packet is
//!
//! ```text
//! 'X'  session (1 byte, the receiver's name for it)  number (8 bytes, big-endian)  payload XOR key
//! ```
//!
//! Any other datagram would belong to the protocol's handshake; this one has none, as both ends know their keys. The
//! protocol provides four things: [`Wire`] distinguishes data packets from others, [`Protocol`] makes formats from key
//! material, [`Format`] seals and opens the packets of one key, and [`Control`] receives the events that a state
//! machine needs. Control directs the engine through a [`DataPlane`]. The engine does everything else: it reads and
//! writes the interface, and handles routes by destination, packet numbers, batches, replay windows, the peers'
//! addresses and several workers.
//!
//!     cargo run -p millrace-engine --example xor
//!
//! The interfaces are simulated, so that it runs without root; with a real one (`netio::tun::Tun::create`) it is a VPN.

use std::convert::Infallible;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Sockets, Tunnel, TunnelOptions};
use netio::tun::{Tun, VNET_HDR_LEN};
use netio::udp::{Family, SocketOptions, UdpSocket};
use plane::{
    Batch, CipherName, Class, Control, DataPlane, Endpoint, Format, Formats, KeyLimits, Line,
    LineId, Moving, Notice, Packet, Payload, PeerId, Protocol, ReplayWindow, RouteChange,
    SessionKeys, SessionName, Transports as _, Wire, ZeroizeOnDrop,
};

/// The first byte of a data packet.
const MAGIC: u8 = b'X';

/// Bytes before a payload: magic, session, number.
const HEAD: usize = 10;

/// The example's protocol.
struct Xor;

impl Wire for Xor {
    const HEAD_MAX: usize = HEAD;
    const TAIL_MAX: usize = 0;
    // Keys are there from the start: nothing ever waits for a session.
    const STAGES: bool = false;
    const ECN: bool = false;
    type Window = ReplayWindow;
    type Reader = ();

    fn classify(&self, (): &(), datagram: &[u8]) -> Class {
        match datagram {
            [MAGIC, session, a, b, c, d, e, f, g, h, ..] => Class::Data {
                session: SessionName::Index((*session).into()),
                counter: u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
                header: HEAD,
                or_control: false,
            },
            _ => Class::Malformed,
        }
    }

    fn loops(&self, datagram: &[u8], _to: SocketAddr, receiver: u32, _: &Endpoint) -> bool {
        matches!(datagram, [MAGIC, session, ..] if u32::from(*session) == receiver)
    }
}

/// The material of a session: both ends' IDs for it, and the key. A protocol that protects something erases it.
struct Material {
    ours: u8,
    theirs: u8,
    pad: [u8; 8],
}

impl ZeroizeOnDrop for Material {}

impl Protocol for Xor {
    type Keys = Material;
    type Error = Infallible;

    fn formats(&self, keys: &Material) -> Result<Formats, Infallible> {
        let pad = keys.pad;
        let key = |receiver| Arc::new(Key { receiver, pad });
        Ok(Formats {
            seal: key(keys.theirs),
            open: key(keys.ours),
            cipher: CipherName {
                cipher: "XOR",
                backend: "portable",
            },
        })
    }
}

/// Seals and opens the packets of one key.
struct Key {
    /// The receiver's ID for the session.
    receiver: u8,
    pad: [u8; 8],
}

impl Key {
    fn apply(&self, bytes: &mut [u8]) {
        for (byte, pad) in bytes.iter_mut().zip(self.pad.iter().cycle()) {
            *byte ^= pad;
        }
    }
}

impl Format for Key {
    fn head(&self) -> usize {
        HEAD
    }

    fn tail(&self, _len: usize) -> usize {
        0
    }

    fn seal(&self, batch: &mut Batch<'_>) {
        for packet in batch.packets.iter() {
            let start = packet.start as usize;
            let (head, payload) = batch.memory[start - HEAD..].split_at_mut(HEAD);
            head[..2].copy_from_slice(&[MAGIC, self.receiver]);
            head[2..].copy_from_slice(&packet.counter.to_be_bytes());
            self.apply(&mut payload[..packet.len as usize]);
        }
    }

    fn open(&self, batch: &mut Batch<'_>) {
        for packet in batch.packets.iter_mut() {
            if let Some(payload) = packet.range(HEAD, 0, batch.memory.len()) {
                self.apply(&mut batch.memory[payload.clone()]);
                // A cipher that authenticates would check the tag first.
                packet.accept(&payload);
            }
        }
    }

    fn reveal(&self, _memory: &mut [u8], packet: &mut Packet) -> Payload {
        match packet.len {
            0 => Payload::Keepalive,
            _ => Payload::Inner,
        }
    }
}

/// A control that ignores all events.
struct NoControl;

impl Control for NoControl {
    fn datagram(&self, _from: Line, _bytes: &[u8]) -> bool {
        false
    }

    fn notify(&self, _peer: PeerId, _notice: Notice) {}

    fn device_gone(&self) {}
}

/// One end of a tunnel.
struct End {
    tunnel: Tunnel<Xor>,
    /// The interface's other side: what the kernel would hand over and take.
    host: UnixDatagram,
    port: u16,
}

impl End {
    /// An interface, a socket, and workers; no peer yet.
    fn start() -> Result<Self, Box<dyn Error>> {
        let (tun, host) = Tun::simulated()?;
        host.set_read_timeout(Some(Duration::from_secs(20)))?;
        let options = TunnelOptions {
            workers: 2,
            parallel: false,
            coalescing: true,
            mtu: 1400,
            gso_max_segs: 64,
            backpressure: false,
        };
        let tunnel = Tunnel::start(tun, Xor, Arc::new(NoControl), &options)?;
        let socket = SocketOptions {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            ..SocketOptions::default()
        };
        let socket = UdpSocket::bind(Family::V4, &socket)?;
        let port = socket.port();
        let (v4, v6) = (Some(socket), None);
        tunnel.open_line(LineId::FIRST, Sockets { v4, v6 })?;
        Ok(Self { tunnel, host, port })
    }

    /// Adds a peer: the other end, which owns an address in the tunnel.
    fn join(&self, other: &Self, address: Ipv4Addr, keys: Material) -> Result<(), Box<dyn Error>> {
        let (plane, peer, len) = (&self.tunnel, PeerId(1), 32);
        let limits = KeyLimits::until(Instant::now() + Duration::from_secs(3600));
        let session = keys.ours.into();
        let address = address.into();
        plane.add_peer(peer, Moving::Tell);
        let endpoint = Endpoint::new((Ipv4Addr::LOCALHOST, other.port).into());
        plane.set_line(peer, Line::udp(endpoint));
        // The receiving key comes first: the answer to the first packet may come at once.
        let keys = SessionKeys {
            session,
            remote: keys.theirs.into(),
            material: keys,
            receive: limits,
            send: limits,
            confirm: false,
        };
        plane.add_keys(peer, keys)?;
        plane.send_with(peer, session);
        plane.change_routes(&[RouteChange::Add { address, len, peer }]);
        Ok(())
    }

    /// A packet leaves through the interface.
    fn send(&self, packet: &[u8]) -> std::io::Result<()> {
        // No offload is requested: the header that precedes a packet is zero.
        self.host.send(&[&[0; VNET_HDR_LEN], packet].concat())?;
        Ok(())
    }

    /// The next packet that the tunnel hands to the kernel.
    fn receive(&self) -> std::io::Result<Vec<u8>> {
        let mut buffer = vec![0; 65_536];
        let len = self.host.recv(&mut buffer)?;
        Ok(buffer.get(VNET_HDR_LEN..len).unwrap_or_default().to_vec())
    }
}

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Two ends that know each other.
fn pair() -> Result<[End; 2], Box<dyn Error>> {
    let [a, b] = [End::start()?, End::start()?];
    let keys = |ours, theirs| Material {
        ours,
        theirs,
        pad: *b"no proof",
    };
    a.join(&b, B, keys(7, 9))?;
    b.join(&a, A, keys(9, 7))?;
    Ok([a, b])
}

/// An IPv4 packet of a protocol for experiments (RFC 3692), which the engine does not join into super-packets.
fn packet(from: Ipv4Addr, to: Ipv4Addr, text: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 20];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(20 + text.len() as u16).to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 253]);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    packet.extend(text);
    packet
}

fn main() -> Result<(), Box<dyn Error>> {
    let [a, b] = pair()?;
    a.send(&packet(A, B, b"there"))?;
    println!("b: {:?}", String::from_utf8_lossy(&b.receive()?[20..]));
    b.send(&packet(B, A, b"and back"))?;
    println!("a: {:?}", String::from_utf8_lossy(&a.receive()?[20..]));
    println!("{:?}", a.tunnel.statistics().inbound);
    Ok(())
}

#[cfg(test)]
mod tests;
