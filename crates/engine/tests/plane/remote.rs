//! A peer's socket, and a socket that transmits nothing.

use crate::world::BOUND;
use netio::poll::Poller;
use netio::simulated::Call;
use netio::udp::{
    Ecn, Endpoint, Family, RecvScratch, SendScratch, SocketOptions, TRAIN_ROOM, Train, UdpSocket,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Datagrams collected by a socket that accepts everything at once and sends nothing.
#[derive(Clone, Default)]
pub(crate) struct Sent(Arc<Mutex<Vec<Vec<u8>>>>);

impl Sent {
    pub(crate) fn attach(&self, socket: &UdpSocket) {
        let this = self.clone();
        socket.faults.set(move |call| {
            let Call::Send { memory, trains } = call else {
                return None;
            };
            let mut sent = this.0.lock().unwrap();
            for train in trains {
                let bytes = &memory[train.start as usize..(train.start + train.len) as usize];
                sent.extend(bytes.chunks(train.segment as usize).map(<[u8]>::to_vec));
            }
            Some(Ok(trains.len()))
        });
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Removes and returns the datagrams collected since the last call.
    pub(crate) fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A peer's socket.
pub(crate) struct Remote {
    socket: UdpSocket,
    addr: SocketAddr,
    poller: Poller,
    send: SendScratch,
    receive: RecvScratch,
    memory: Vec<u8>,
}

pub(crate) fn socket(address: IpAddr) -> UdpSocket {
    let options = SocketOptions {
        address: Some(address),
        buffer: Some(4 << 20),
        gso: true,
        gro: true,
        mmsg: true,
        ecn: true,
        ..SocketOptions::default()
    };
    let family = if address.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    };
    UdpSocket::bind(family, &options).unwrap()
}

impl Remote {
    pub(crate) fn new() -> Self {
        let socket = socket(Ipv4Addr::LOCALHOST.into());
        let poller = Poller::new().unwrap();
        poller.add(&socket, 0).unwrap();
        Self {
            addr: (Ipv4Addr::LOCALHOST, socket.port()).into(),
            socket,
            poller,
            send: SendScratch::new(),
            receive: RecvScratch::new(),
            memory: vec![0; TRAIN_ROOM],
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sends datagrams with an ECN mark, each separately.
    pub(crate) fn send_marked(&mut self, to: SocketAddr, datagrams: &[Vec<u8>], ecn: Ecn) {
        for datagram in datagrams {
            let len = datagram.len() as u32;
            let train = Train {
                start: 0,
                len,
                segment: len.max(1),
                endpoint: Endpoint::new(to),
                ecn,
            };
            self.send.begin_batch();
            let report = self.socket.send_trains(&mut self.send, datagram, &[train]);
            assert_eq!(report.sent, 1);
        }
    }

    /// Sends a datagram that may be lost in transit or fail to be sent.
    pub(crate) fn send_or_lose(&mut self, to: SocketAddr, datagram: &[u8]) {
        let len = datagram.len() as u32;
        let train = Train {
            start: 0,
            len,
            segment: len,
            endpoint: Endpoint::new(to),
            ecn: Ecn::NotEct,
        };
        self.socket.send_trains(&mut self.send, datagram, &[train]);
    }

    pub(crate) fn send(&mut self, to: SocketAddr, datagrams: &[Vec<u8>]) {
        self.send_marked(to, datagrams, Ecn::NotEct);
    }

    /// Returns the datagrams that have arrived, with their ECN marks.
    pub(crate) fn arrived(&mut self) -> Vec<(Vec<u8>, Ecn)> {
        let mut datagrams = Vec::new();
        loop {
            let mut trains = Vec::new();
            let memory = &mut self.memory;
            let got = self
                .socket
                .recv_trains(&mut self.receive, memory, 2048, 1, |train| {
                    trains.push(train);
                });
            if got.is_err() {
                return datagrams;
            }
            for train in trains {
                let bytes = &memory[train.start as usize..(train.start + train.len) as usize];
                for datagram in bytes.chunks(train.segment as usize) {
                    datagrams.push((datagram.to_vec(), train.ecn));
                }
            }
        }
    }

    /// Waits for the next `count` datagrams.
    pub(crate) fn receive(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut datagrams = Vec::new();
        let begun = Instant::now();
        while datagrams.len() < count {
            assert!(begun.elapsed() < BOUND, "{} of {count}", datagrams.len());
            let _ = self.poller.wait(Some(Duration::from_millis(100)));
            datagrams.extend(self.arrived().into_iter().map(|d| d.0));
        }
        assert_eq!(datagrams.len(), count, "more than was expected");
        datagrams
    }
}
