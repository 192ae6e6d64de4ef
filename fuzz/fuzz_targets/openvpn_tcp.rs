//! A client and a server of OpenVPN over TCP, each with its shipped data plane. An attacker between them
//! cuts, damages, repeats and forges what they send; each end may also be an attacker, with valid keys.
//!
//! The input is a script of steps, each an operation and its arguments.
#![no_main]

#[path = "openvpn_tcp/ends.rs"]
mod ends;
#[path = "openvpn_tcp/packets.rs"]
mod packets;

use std::time::Duration;

use crypto::Digest;
use netio::tun::{GsoKind, VnetHdr};
use openvpn::data::format::Framing;
use openvpn::negotiate::Cipher;
use openvpn::session::{DataKeys, KeyMaterial, Layout};

use ends::{End, PEER, World};
use packets::Flow;

/// Maximum number of steps in one input.
const STEPS: usize = 48;

/// Maximum number of bytes that one input may make up and carry.
const WORK: usize = 2 << 20;

/// The number of keys that no negotiation has agreed on. Negotiated ones begin with 0.
const OWN_KEY: u8 = 7;

const CIPHERS: [Cipher; 5] = [
    Cipher::Aes128Gcm,
    Cipher::Aes256Gcm,
    Cipher::ChaCha20Poly1305,
    Cipher::Aes128Cbc,
    Cipher::Aes256Cbc,
];

const FRAMINGS: [Framing; 4] = [Framing::None, Framing::Lzo, Framing::Swap, Framing::V2];

struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn word(&mut self) -> Option<usize> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*bytes).into())
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

fn keys(how: u8, server: bool) -> DataKeys {
    let cipher = CIPHERS[usize::from(how) % CIPHERS.len()];
    let layout = match how / 5 % 3 {
        0 => Layout::V2 { peer_id: 0 },
        1 => Layout::V1,
        _ if cipher.is_aead() => Layout::Epoch { peer_id: 0 },
        _ => Layout::V1,
    };
    let material = |byte| KeyMaterial {
        cipher: [byte; 64],
        hmac: [!byte; 64],
    };
    let (send, receive) = if server { (1, 2) } else { (2, 1) };
    DataKeys {
        key_id: OWN_KEY,
        cipher,
        auth: Digest::Sha256,
        layout,
        send: material(send),
        receive: material(receive),
    }
}

fn own_keys(end: &End, keys: DataKeys) {
    end.install(Box::new(keys));
    end.send_with(OWN_KEY);
}

/// An attacker on the wire changes what an end has sent.
fn tamper(script: &mut Script<'_>, from: &mut End) -> Option<()> {
    let how = script.byte()?;
    match how % 4 {
        // Adds a record of arbitrary bytes.
        0 => {
            let bytes = script.bytes(usize::from(how));
            from.sent.extend((bytes.len() as u16).to_be_bytes());
            from.sent.extend(bytes);
        }
        // Adds arbitrary bytes.
        1 => from.sent.extend(script.bytes(usize::from(how))),
        // Changes a byte.
        2 => {
            let (at, value) = (script.word()?, script.byte()?);
            let len = from.sent.len().max(1);
            if let Some(byte) = from.sent.get_mut(at % len) {
                *byte ^= value;
            }
        }
        // Removes or repeats bytes.
        _ => {
            let (at, len) = (script.word()?, script.word()?);
            let at = at.min(from.sent.len());
            let end = (at + len).min(from.sent.len());
            if how & 4 == 0 {
                from.sent.drain(at..end);
            } else {
                let again: Vec<u8> = from.sent.range(at..end).copied().collect();
                from.sent.extend(again);
            }
        }
    }
    Some(())
}

/// Sends packets from hosts behind an end through the tunnel. Returns the number of bytes.
fn traffic(script: &mut Script<'_>, end: &mut End) -> Option<usize> {
    let (how, flow) = (script.byte()?, script.byte()?);
    let mut work = 0;
    match how % 4 {
        // Packets of one flow, all alike.
        0 | 1 => {
            let len = if how & 4 == 0 {
                usize::from(script.byte()?)
            } else {
                script.word()? % 1500
            };
            let count = (usize::from(script.byte()?) << (how >> 4 & 5)) + 1;
            let mut flow = Flow::new(flow);
            for _ in 0..count.min(WORK / (len + 40)) {
                let packet = flow.packet(len);
                work += packet.len();
                end.give(&VnetHdr::NONE, &packet);
            }
        }
        // A super-packet, with an arbitrary header.
        2 => {
            let packet = Flow::new(flow).packet(script.word()?);
            let hdr = VnetHdr {
                needs_csum: true,
                gso: [GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::Udp][usize::from(how >> 2) % 3],
                gso_ecn: how & 0x80 != 0,
                hdr_len: 0,
                // The kernel makes no packets longer than the interface's MTU.
                gso_size: (script.word()? % 1400) as u16,
                csum_start: script.byte()?.into(),
                csum_offset: script.byte()?.into(),
            };
            work = 2 * packet.len();
            end.give(&hdr, &packet);
        }
        // Bytes that are not a packet, in place of one, sealed by a misbehaving end.
        _ => {
            let payload = script.bytes(usize::from(flow) * 8);
            if payload.is_empty() {
                return Some(0);
            }
            let again = usize::from(how >> 2);
            for _ in 0..=again {
                end.calls().inject(PEER, payload);
                work += payload.len();
            }
        }
    }
    end.outward();
    Some(work)
}

/// Delivers at once as many of an end's sent bytes as the script says.
fn carry(script: &mut Script<'_>, world: &mut World, from_server: bool) -> Option<()> {
    let len = script.word()? * 4;
    if from_server {
        let len = len.min(world.server.sent.len());
        let bytes: Vec<u8> = world.server.sent.drain(..len).collect();
        world.client.hear(&bytes);
    } else {
        let len = len.min(world.client.sent.len());
        let bytes: Vec<u8> = world.client.sent.drain(..len).collect();
        world.server.hear(&bytes);
    }
    world.control();
    Some(())
}

/// Plays the script. Returns whether all steps were honest.
fn play(script: &mut Script<'_>, world: &mut World, how: u8) -> Option<bool> {
    let (mut honest, mut work) = (true, 0);
    for _ in 0..STEPS {
        let Some(operation) = script.byte() else {
            break;
        };
        let from_server = operation & 1 != 0;
        match operation >> 1 & 7 {
            0 => carry(script, world, from_server)?,
            1 => world.settle(),
            2 | 3 => {
                work += if from_server {
                    traffic(script, &mut world.server)?
                } else {
                    traffic(script, &mut world.client)?
                };
            }
            4 => {
                honest = false;
                if from_server {
                    tamper(script, &mut world.server)?;
                } else {
                    tamper(script, &mut world.client)?;
                }
            }
            5 => world.wait(Duration::from_millis(script.word()? as u64 * 100)),
            // Keys change: packets in transit are lost.
            6 => {
                honest = false;
                if from_server {
                    world.server.remove_keys(operation >> 4 & 7);
                } else {
                    own_keys(&world.client, keys(how, false));
                }
            }
            _ => {
                let most = [1500, 1280, 9000, 65_535][usize::from(operation >> 4 & 3)];
                if from_server {
                    world.server.calls().set_mtu(most);
                } else {
                    world.client.calls().set_mtu(most);
                }
                // The other end may refuse a payload that this one sends.
                honest = false;
            }
        }
        if work > WORK {
            break;
        }
    }
    Some(honest)
}

/// Checks for events that do not occur between ends that keep to the rules.
fn check(end: &End) {
    let drops = end.plane.tunnel.drops();
    assert!(!end.stream.is_closed(), "a connection was ended");
    for (counter, what) in [
        (&drops.not_ours, "not ours"),
        (&drops.not_authentic, "not authentic"),
        (&drops.replayed, "replayed"),
        (&drops.truncated, "truncated"),
    ] {
        assert_eq!(counter.value(), 0, "{what}");
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&[how, framing], script)) = data.split_first_chunk() else {
        return;
    };
    let mut world = World::new(FRAMINGS[usize::from(framing) % FRAMINGS.len()]);
    // Starts from an established session, or from the first message.
    if framing & 0x80 != 0 {
        world.settle();
        assert!(world.is_up(), "the ends do not come together");
    } else {
        own_keys(&world.client, keys(how, false));
        own_keys(&world.server, keys(how, true));
    }
    if play(&mut Script(script), &mut world, how) == Some(true) {
        world.settle();
        check(&world.client);
        check(&world.server);
    }
});
