//! Two data planes, stepped by hand, and the connection between them.

use super::*;
use crypto::Cipher;
use crypto::Digest;
use engine::TunnelOptions;
use engine::fuzzing::{Plane as Turned, connection};
use openvpn::data::inband::PING;
use openvpn::data::wire::Layout;
use openvpn::keys::KeyMaterial;
use plane::{Control, Endpoint, Notice, StreamId};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

const PEER: PeerId = PeerId(0);
const STREAM: StreamId = StreamId(1);
const KEY_ID: u8 = 1;

struct Deaf;

impl Control for Deaf {
    fn datagram(&self, _: Line, _: &[u8]) -> bool {
        true
    }
    fn notify(&self, _: PeerId, _: Notice) {}
    fn device_gone(&self) {}
}

/// One host: its data plane, and the far end of its connection.
struct Host {
    plane: Turned<Packets>,
    channel: Channel,
    wire: UnixStream,
}

impl Host {
    fn new(cipher: Cipher, layout: Layout, server: bool) -> Self {
        let options = TunnelOptions {
            workers: 1,
            parallel: false,
            coalescing: true,
            mtu: 1500,
            gso_max_segs: 64,
            backpressure: !server,
        };
        let packets = if server {
            Packets::Server
        } else {
            Packets::Client { recursive: false }
        };
        let plane = Turned::new(packets, Arc::new(Deaf), &options).unwrap();
        let address = SocketAddr::from(([192, 0, 2, 1], 1194));
        let (stream, wire) = connection(STREAM, address).unwrap();
        plane.tunnel.add_stream(&stream).unwrap();
        let line = Line::tcp(Endpoint::new(address), STREAM);
        add_peer(&plane.tunnel, PEER, line, Moving::Stay);
        let material = |byte| KeyMaterial {
            cipher: [byte; 64],
            hmac: [byte; 64],
        };
        let (send, receive) = if server { (1, 2) } else { (2, 1) };
        let keys = DataKeys {
            key_id: KEY_ID,
            cipher,
            auth: Digest::Sha256,
            layout,
            send: material(send),
            receive: material(receive),
        };
        let mut channel = Channel::new(true);
        let (peer, now) = ((PEER, address), Now::read());
        for output in [
            Output::InstallKeys(Box::new(keys)),
            Output::UseForSending { key_id: KEY_ID },
        ] {
            let done = channel.carry_out(output, &plane.tunnel, peer, false, now);
            done.unwrap();
        }
        Self {
            plane,
            channel,
            wire,
        }
    }

    /// Sends pings, and returns their records.
    fn pings(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        for _ in 0..count {
            DataPlane::inject(&self.plane.tunnel, PEER, &PING);
            self.plane.interface();
            let mut bytes = vec![0; 4096];
            let len = self.wire.read(&mut bytes).unwrap();
            records.push(bytes[..len].to_vec());
        }
        records
    }

    fn hear(&mut self, record: &[u8]) {
        self.wire.write_all(record).unwrap();
        self.plane.stream(STREAM);
    }

    fn usage(&mut self) -> KeyUsage {
        let usage = self.channel.usage(&self.plane.tunnel, PEER, KEY_ID);
        usage.unwrap()
    }
}

#[test]
fn what_keys_were_used_for_is_told() {
    for (cipher, layout, epoch) in [
        (Cipher::Aes256Gcm, Layout::V2 { peer_id: 0 }, 0),
        (Cipher::Aes256Gcm, Layout::Epoch { peer_id: 0 }, 1),
        // Packets without a peer-id belong to the connection.
        (Cipher::Aes128Cbc, Layout::V1, 0),
    ] {
        let mut client = Host::new(cipher, layout, false);
        let mut server = Host::new(cipher, layout, true);
        let records = client.pings(5);
        for (at, record) in records.iter().enumerate() {
            let mut record = record.clone();
            if at == 2 {
                *record.last_mut().unwrap() ^= 1;
            }
            server.hear(&record);
        }
        let usage = server.usage();
        let seen = (usage.failed, usage.opened);
        assert_eq!(seen, (1, 5), "{cipher:?} {layout:?}");
        let usage = client.usage();
        let seen = (usage.sealed, usage.epoch);
        assert_eq!(seen, (5, epoch), "{cipher:?} {layout:?}");
    }
}
