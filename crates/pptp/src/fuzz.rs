//! Entry points that feed untrusted bytes to the crate, for fuzz targets. They must not panic, nor use more memory than
//! the bytes that they get. Each is a whole target:
//!
//! ```text
//! libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pptp::fuzz::control(bytes));
//! ```
//!
//! | function | what it reads |
//! |---|---|
//! | [`control`] | the stream of a control connection, by client and server |
//! | [`gre`] | packets of GRE, one after the other |
//! | [`ppp`] | frames of PPP, by each layer |
//! | [`mppe`] | encrypted packets |
//! | [`login`] | packets of PAP, CHAP and MS-CHAPv2 |
//! | [`session`] | packets of GRE for a client and a server whose call is up |

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::control::{Answer, Connection, Event, Message, Role, Settings, Stream};
use crate::gre::Tunnel;
use crate::lines::{Addresses, ProbeKey, Prober};
use crate::mppe::{Decryptor, KeyLength, MasterKey};
use crate::mschap::{Failure, Password, Response, Success};
use crate::ppp::{
    Ccp, ChapPacket, Ipcp, IpcpSettings, Layer, Lcp, LcpSettings, MppeBits, Negotiation, Options,
    Packet, PapPacket, Timing, parse_frame,
};
use crate::session::{Client, ClientSettings, Entropy, Server, ServerSettings};

/// Reads the stream of a control connection. A message that was read must be written unchanged, except fields that
/// nobody reads.
pub fn control(bytes: &[u8]) {
    let mut stream = Stream::new();
    let mut input = bytes;
    while let Some(found) = stream.next(&mut input) {
        match found {
            Ok(message) => {
                let mut written = Vec::new();
                message.write(&mut written);
                assert_eq!(
                    Message::parse(&written),
                    Ok(message),
                    "a message is what it was"
                );
            }
            Err(error) if error.in_step() => {}
            Err(_) => break,
        }
    }
    let now = Instant::now();
    for role in [Role::Client, Role::Server] {
        let mut connection = Connection::new(role, Settings::default(), now);
        for part in bytes.chunks(100) {
            connection.receive(part, now);
            while let Some(event) = connection.poll_event() {
                if let Event::CallRequested { peer_call_id } = event {
                    let call_id = peer_call_id;
                    // The call may be refused, and that is fine.
                    connection.answer_call(call_id, Answer::Accept { call_id });
                }
                if let Event::Established(_) = event {
                    // A server's attempt fails, and that is fine.
                    connection.open_call(1, now);
                }
            }
            let waiting = connection.transmit().len();
            assert!(waiting < 1 << 17, "what waits is bounded");
        }
        connection.expire(now + Duration::from_secs(3600));
    }
}

/// Reads GRE packets, each behind its length in one byte, also as probes of several lines.
pub fn gre(bytes: &[u8]) {
    let now = Instant::now();
    let mut tunnel = Tunnel::new(1, 2, 64);
    let key = |byte| ProbeKey::new(Zeroizing::new([byte; 32]));
    let mut prober = Prober::new(key(1), 1, 2);
    let mut addresses = Addresses::new(key(1), key(2), 1, 2);
    for packet in pieces(bytes) {
        assert!(prober.answered(packet, now).is_none(), "nothing was asked");
        let probed = addresses.probed(Ipv4Addr::LOCALHOST.into(), packet, now);
        assert!(probed.is_ok_and(|it| it.accepted) <= (addresses.all(now).count() == 1));
        if let Some(received) = tunnel.receive(packet, now) {
            assert!(
                packet.get(received.payload).is_some(),
                "a payload lies in its packet"
            );
        }
        let _ = tunnel.expire(now + Duration::from_secs(1));
    }
}

/// Reads PPP frames, each behind its length in one byte.
pub fn ppp(bytes: &[u8]) {
    let bits = MppeBits::KEY_128.and(MppeBits::STATELESS);
    let lcp = LcpSettings {
        mru: 1400,
        require: Vec::new(),
        accept: vec![crate::ppp::Auth::MsChapV2],
        seed: 1,
    };
    layer(Lcp::new(lcp), bytes);
    layer(Ccp::new(bits, true), bytes);
    layer(Ipcp::new(IpcpSettings::default()), bytes);
    for frame in pieces(bytes) {
        let Some((_, start)) = parse_frame(frame) else {
            continue;
        };
        if let Some(packet) = Packet::parse(&frame[start..]) {
            let _ = Options::parse(packet.data).map(Iterator::count);
        }
    }
}

fn layer<L: Layer>(layer: L, bytes: &[u8]) {
    let now = Instant::now();
    let mut layer = Negotiation::new(layer, Timing::default());
    let mut out = Vec::new();
    layer.open(now, &mut out);
    for packet in pieces(bytes) {
        out.clear();
        let _ = layer.receive(packet, now, &mut out);
        assert!(out.len() <= 8, "what one packet brings about is bounded");
    }
    layer.expire(now + Duration::from_secs(60), &mut out);
}

/// Decrypts encrypted packets, each behind its length in one byte.
pub fn mppe(bytes: &[u8]) {
    for stateless in [true, false] {
        let key = MasterKey::new(&[1; 16], &[2; 24]).start_key(true, KeyLength::Bits128);
        let mut decryptor = Decryptor::new(key, stateless);
        let mut number = 1 << 32;
        for packet in pieces(bytes) {
            number += packet.first().map_or(1, |&first| 1 + u64::from(first));
            let mut packet = packet.to_vec();
            let _ = decryptor.open(number, number & 7 == 0, &mut packet);
        }
    }
}

/// Reads a packet of PAP, CHAP or MS-CHAPv2.
pub fn login(bytes: &[u8]) {
    if let Some(packet) = ChapPacket::parse(bytes) {
        let written = packet.to_vec();
        assert_eq!(
            ChapPacket::parse(&written),
            Some(packet),
            "a packet is what it was"
        );
    }
    if let Some(packet) = PapPacket::parse(bytes) {
        let written = packet.to_vec();
        assert_eq!(
            PapPacket::parse(&written),
            Some(packet),
            "a packet is what it was"
        );
    }
    let _ = (
        Response::parse(bytes),
        Success::parse(bytes),
        Failure::parse(bytes),
    );
}

/// Reads GRE packets, each behind its length in one byte, at a client and a server whose call has just come up.
pub fn session(bytes: &[u8]) {
    let now = Instant::now();
    let entropy = || Entropy::new(|bytes| bytes.fill(7));
    let address = Ipv4Addr::LOCALHOST;
    let mut server = ServerSettings::new(address, vec![address]);
    let mut client = ClientSettings::new("user".into(), Password::new("word".into()));
    for common in [&mut server.common, &mut client.common] {
        common.allow_insecure = true;
        common.link.lines = true;
    }
    let accounts = vec![("user".to_owned(), Password::new("word".into()))];
    let (Ok(mut server), Ok(mut client)) = (
        Server::new(server, Box::new(accounts), entropy()),
        Client::new(client, entropy(), now),
    ) else {
        return;
    };
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    let id = server.accept(address.into(), now, &mut to_client);
    for _ in 0..4 {
        let said = client.transmit().to_vec();
        client.transmitted(said.len());
        server.receive_control(id, &said, now, &mut to_client);
        let said = server.transmit(id).to_vec();
        server.transmitted(id, said.len());
        client.receive_control(&said, now, &mut to_server);
    }
    for packet in pieces(bytes) {
        let mut packet = packet.to_vec();
        to_client.clear();
        to_server.clear();
        let probed = server.probed(address.into(), &packet, now, &mut to_client);
        assert!(probed.is_none() && client.answered(&packet, now).is_none());
        // Both ends chose the same call ID, because they have the same random bytes.
        let inner = server.receive_gre(address, &mut packet, now, &mut to_client);
        assert!(inner.is_none(), "there was no login");
        let inner = client.receive_gre(&mut packet, now, &mut to_server);
        assert!(inner.is_none(), "there was no login");
        assert!(
            to_client.len() + to_server.len() < 64,
            "what one packet brings about is bounded"
        );
    }
    let later = now + Duration::from_secs(600);
    server.expire(later, &mut to_client);
    client.expire(later, &mut to_server);
}

/// Cuts bytes into pieces, each behind its length in one byte.
fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let (&len, rest) = bytes.split_first()?;
        let (piece, rest) = rest.split_at(usize::from(len).min(rest.len()));
        bytes = rest;
        Some(piece)
    })
}
