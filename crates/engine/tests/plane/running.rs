//! Data planes with threads.

use crate::packets::{joined, with_header};
use crate::remote::{Sent, socket};
use crate::toy::{Key, Toy};
use crate::world::{Around, BOUND, Recorder, install, options, unlimited};
use engine::{Peer, Sockets, Tunnel, TunnelOptions};
use netio::tun::Tun;
use plane::{LineId, Transports as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

/// A data plane with running workers, and the far side of its interface.
pub(crate) struct Running {
    pub(crate) tunnel: Arc<Tunnel<Toy<false>>>,
    pub(crate) host: UnixDatagram,
    pub(crate) around: Around,
}

impl Running {
    pub(crate) fn new(options: &TunnelOptions) -> Self {
        let (tun, host) = Tun::simulated().unwrap();
        host.set_write_timeout(Some(BOUND)).unwrap();
        let control = Arc::new(Recorder::default());
        let tunnel = Tunnel::start(tun, Toy, control.clone(), options).unwrap();
        let around = Around::without_socket(&tunnel, control);
        Self {
            tunnel: Arc::new(tunnel),
            host,
            around,
        }
    }

    pub(crate) fn peer(&mut self, key: &Arc<Key>, at: SocketAddr) -> Arc<Peer> {
        let number = key.receiver as u8;
        let peer = self.around.peer(&self.tunnel, number, Some(at));
        install(&self.tunnel, &peer, key.receiver, key, unlimited());
        peer
    }

    /// Collects everything that the data plane sends.
    pub(crate) fn collect(&mut self) -> Sent {
        let (socket, sent) = (socket(Ipv4Addr::LOCALHOST.into()), Sent::default());
        sent.attach(&socket);
        self.around.here.set_port(socket.port());
        self.tunnel
            .open_line(
                LineId::FIRST,
                Sockets {
                    v4: Some(socket),
                    v6: None,
                },
            )
            .unwrap();
        sent
    }
}

pub(crate) fn four() -> TunnelOptions {
    TunnelOptions {
        workers: 4,
        parallel: true,
        coalescing: true,
        ..options()
    }
}

/// The address of datagrams that are collected instead of sent.
pub(crate) fn nowhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 9).into()
}

/// A read that fills a slot: 63 packets, which carry `number`.
pub(crate) fn slot_full(number: u32) -> Vec<u8> {
    let data = number.to_be_bytes().repeat(63_000 / 4);
    with_header(&joined(false, false, (9, 1), 1000, &data))
}
