//! Datagrams from the Internet, at a device that has one peer.
//!
//! The input is a script of steps, each an operation and its arguments. A real peer makes the messages that
//! a fuzzer cannot guess, and the script damages them. The script may also correct the first MAC, so that
//! the damage gets past it and into the handshake.
#![no_main]

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use crypto::blake2s;
use crypto::x25519::PrivateKey;
use plane::PeerId;
use wireguard::{Activity, DATA_MIN_LEN, DataHeader, Device, Output};

/// Steps of one input, at most: each may cost a few scalar multiplications.
const STEPS: usize = 12;

/// Bytes of an initiation and of a response, which end in two MACs of 16 bytes.
const INITIATION: usize = 148;
const RESPONSE: usize = 92;

struct Host {
    device: Device,
    peer: PeerId,
    address: SocketAddr,
    public: [u8; 32],
    /// The last handshake message that the host sent.
    sent: Vec<u8>,
}

impl Host {
    fn new(now: Instant, own: &PrivateKey, other: &PrivateKey, address: SocketAddr) -> Self {
        let mut out = Vec::new();
        let mut device = Device::new(now, SystemTime::UNIX_EPOCH, u64::from(address.port()));
        device.set_private_key(Some(own.clone()), now, &mut out);
        let peer = device.add_peer(other.public()).expect("the first peer");
        Self {
            device,
            peer,
            address,
            public: *own.public().as_bytes(),
            sent: Vec::new(),
        }
    }

    fn heed(&mut self, out: &mut Vec<Output>) {
        for output in out.drain(..) {
            if let Output::Send { datagram, .. } = output {
                self.sent = datagram.as_bytes().to_vec();
                assert!(self.sent.len() <= INITIATION);
            }
        }
    }

    fn receive(&mut self, datagram: &[u8], from: SocketAddr, now: Instant, under_load: bool) {
        let mut out = Vec::new();
        let result = self
            .device
            .receive(datagram, from, now, under_load, &mut out);
        if result.is_err() {
            // A refused message may cost one cookie and nothing else.
            assert!(out.len() <= 1, "{result:?} and yet {out:?}");
        }
        self.heed(&mut out);
    }
}

/// Corrects the first MAC of the message for this receiver.
fn mend(message: &mut [u8], receiver: &[u8; 32]) {
    if message.len() == INITIATION || message.len() == RESPONSE {
        let key = blake2s::hash(&[b"mac1----", receiver]);
        let at = message.len() - 32;
        let mac = blake2s::mac(&key, &[&message[..at]]);
        message[at..at + 16].copy_from_slice(&mac);
    }
}

struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

fn play(script: &mut Script<'_>) -> Option<()> {
    let mut now = Instant::now();
    let keys = [1, 2].map(|byte| PrivateKey::new([byte; 32]));
    let addresses = [
        SocketAddr::from(([192, 0, 2, 1], 1)),
        SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 2)),
    ];
    let mut hosts = [
        Host::new(now, &keys[0], &keys[1], addresses[0]),
        Host::new(now, &keys[1], &keys[0], addresses[1]),
    ];
    for _ in 0..STEPS {
        let operation = script.byte()?;
        let me = usize::from(operation & 1);
        let other = 1 - me;
        let under_load = operation & 2 != 0;
        match operation >> 2 & 7 {
            // Raw bytes.
            0 => {
                let len = script.byte()?;
                let datagram = script.bytes(usize::from(len));
                match DataHeader::parse(datagram) {
                    Some(header) => assert_eq!(header.emit(), datagram[..16]),
                    None => assert!(datagram.len() < DATA_MIN_LEN || datagram[..4] != [4, 0, 0, 0]),
                }
                hosts[me].receive(datagram, addresses[other], now, under_load);
            }
            // The other host's message, whole or damaged.
            1..=3 => {
                let mut message = hosts[other].sent.clone();
                let patches = operation >> 5;
                for _ in 0..patches {
                    let (at, value) = (script.byte()?, script.byte()?);
                    if let Some(byte) = message.get_mut(usize::from(at)) {
                        *byte ^= value;
                    }
                }
                if operation >> 2 & 7 >= 2 {
                    mend(&mut message, &hosts[me].public);
                }
                if operation >> 2 & 7 == 3 {
                    message.truncate(usize::from(script.byte()?));
                }
                hosts[me].receive(&message, addresses[other], now, under_load);
            }
            // Traffic needs a session.
            4 => {
                let host = &mut hosts[me];
                let mut out = Vec::new();
                let endpoint = Some(addresses[other]);
                host.device.set_endpoint(host.peer, endpoint, now, &mut out);
                host.device.need_session(host.peer, now, &mut out);
                host.heed(&mut out);
            }
            // Time passes.
            5 => {
                now += Duration::from_millis(u64::from(script.byte()?) * 1000 + 1);
                for host in &mut hosts {
                    let mut out = Vec::new();
                    host.device.expired(now, |_| Activity::default(), &mut out);
                    host.heed(&mut out);
                    assert!(host.device.next_deadline().is_none_or(|at| at > now));
                }
            }
            // Replays the message.
            6 => {
                let message = hosts[other].sent.clone();
                let from = hosts[other].address;
                hosts[me].receive(&message, from, now, under_load);
                hosts[me].receive(&message, from, now, under_load);
            }
            // Keepalives switched on and off.
            _ => {
                let seconds = script.byte()?;
                let host = &mut hosts[me];
                let mut out = Vec::new();
                host.device
                    .set_persistent_keepalive(host.peer, seconds.into(), now, &mut out);
                host.heed(&mut out);
            }
        }
    }
    Some(())
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = play(&mut Script(data));
});
