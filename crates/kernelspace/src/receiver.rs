//! Receives control packets from the sockets.

use netio::udp::{ReceivedTrain, RecvScratch, TRAIN_ROOM, UdpSocket};
use openvpn::data::wire::OpenVpn as Packets;
use plane::{AtomicU64, Class, Control, Endpoint, Line, LineId, Transport, Wire};
use std::sync::atomic::Ordering;

/// Maximum number of datagrams received in one call, and their longest. Control packets are shorter, and the sockets
/// get no others.
const AT_ONCE: usize = 16;
const LONGEST: usize = 4096;

/// Calls for one event. Further packets raise an event again, so that strangers cannot keep other descriptors
/// waiting.
const CALLS: usize = 4;

/// Counts of packets that did not reach control.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    /// Data packets that no key opens, and packets that are neither data nor control.
    pub(crate) unknown: AtomicU64,
    /// Packets that control refused.
    pub(crate) refused: AtomicU64,
}

/// The buffers for received datagrams.
pub(crate) struct Receiver {
    scratch: RecvScratch,
    memory: Vec<u8>,
    trains: Vec<ReceivedTrain>,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            scratch: RecvScratch::new(),
            memory: vec![0; TRAIN_ROOM],
            trains: Vec::with_capacity(AT_ONCE),
        }
    }

    /// Passes the packets of a socket, at most [`CALLS`] calls' worth.
    pub(crate) fn receive(&mut self, socket: &UdpSocket, control: &dyn Control, dropped: &Dropped) {
        for _ in 0..CALLS {
            self.trains.clear();
            let got = socket.recv_trains(
                &mut self.scratch,
                &mut self.memory,
                LONGEST,
                AT_ONCE,
                |train| self.trains.push(train),
            );
            // An error that ICMP left on the socket, or no packet.
            let Ok(got) = got else {
                return;
            };
            for train in &self.trains {
                let (start, end) = (train.start as usize, (train.start + train.len) as usize);
                give(train, &self.memory[start..end], control, dropped);
            }
            if got.drained {
                return;
            }
        }
    }
}

fn give(train: &ReceivedTrain, bytes: &[u8], control: &dyn Control, dropped: &Dropped) {
    // A data packet comes here only if it arrived before the kernel had the socket.
    if Packets::Server.classify(&(), bytes) != Class::Control {
        dropped.unknown.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let from = Line {
        id: LineId::FIRST,
        endpoint: Endpoint {
            addr: train.from,
            source: train.local,
        },
        transport: Transport::Udp,
    };
    if !control.datagram(from, bytes) {
        dropped.refused.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netio::udp::{Family, SocketOptions};
    use plane::{Notice, PeerId};
    use std::net::UdpSocket as Stranger;

    /// The first byte of a client's first packet.
    const HELLO: u8 = 7 << 3;

    /// A stranger that sends another datagram for each that control gets, up to a number.
    struct Flood {
        stranger: Stranger,
        got: AtomicU64,
        most: u64,
    }

    impl Control for Flood {
        fn datagram(&self, _: Line, _: &[u8]) -> bool {
            let got = self.got.fetch_add(1, Ordering::Relaxed);
            if got < self.most {
                self.stranger.send(&[HELLO; 20]).unwrap();
            }
            got.is_multiple_of(2)
        }

        fn notify(&self, _: PeerId, _: Notice) {}

        fn device_gone(&self) {}
    }

    fn socket() -> (UdpSocket, Stranger) {
        let options = SocketOptions {
            address: Some([127, 0, 0, 1].into()),
            mmsg: true,
            gro: false,
            ..SocketOptions::default()
        };
        let socket = UdpSocket::bind(Family::V4, &options).unwrap();
        let stranger = Stranger::bind("127.0.0.1:0").unwrap();
        stranger.connect(("127.0.0.1", socket.port())).unwrap();
        (socket, stranger)
    }

    #[test]
    fn a_flood_does_not_hold_the_receiver() {
        let (socket, stranger) = socket();
        for _ in 0..AT_ONCE {
            stranger.send(&[HELLO; 20]).unwrap();
        }
        let flood = Flood {
            stranger,
            got: AtomicU64::new(0),
            most: 10_000,
        };
        let (mut receiver, dropped) = (Receiver::new(), Dropped::default());
        receiver.receive(&socket, &flood, &dropped);
        let once = flood.got.load(Ordering::Relaxed);
        assert_eq!(once, (CALLS * AT_ONCE) as u64);
        assert_eq!(dropped.refused.load(Ordering::Relaxed), once / 2);
        // The rest comes with the next event.
        receiver.receive(&socket, &flood, &dropped);
        assert_eq!(flood.got.load(Ordering::Relaxed), 2 * once);
    }

    #[test]
    fn what_is_no_control_packet_is_counted() {
        let (socket, stranger) = socket();
        // A data packet, one that is too short, and one that has no opcode.
        for bytes in [&[9 << 3, 0, 0, 1, 5, 5, 5, 5][..], &[9 << 3], &[0; 30]] {
            stranger.send(bytes).unwrap();
        }
        stranger.send(&[HELLO; 20]).unwrap();
        let control = Flood {
            stranger,
            got: AtomicU64::new(0),
            most: 0,
        };
        let (mut receiver, dropped) = (Receiver::new(), Dropped::default());
        receiver.receive(&socket, &control, &dropped);
        assert_eq!(control.got.load(Ordering::Relaxed), 1);
        assert_eq!(dropped.unknown.load(Ordering::Relaxed), 3);
        assert_eq!(dropped.refused.load(Ordering::Relaxed), 0);
    }
}
