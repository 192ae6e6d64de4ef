//! Two data planes, turned by hand, and the connection between them.

use super::super::plane::{ClientWire, ServerWire};
use super::*;
use crypto::openvpn::DataCipher;
use engine::fuzzing::{Plane, connection};
use engine::{Control, Notice, TunnelOptions};
use openvpn::keys::KeyMaterial;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

struct Deaf;

impl Control for Deaf {
    fn datagram(&self, _: Endpoint, _: Option<u64>, _: &[u8]) -> bool {
        true
    }
    fn notify(&self, _: u32, _: Notice) {}
    fn device_gone(&self) {}
}

/// One end: its data plane, its peer, and the connection's other end.
struct Host<W: Wire> {
    plane: Plane<W>,
    conduit: Conduit,
    wire: UnixStream,
}

impl<W: Wire> Host<W> {
    fn new(cipher: DataCipher, format: Layout, server: bool) -> Self {
        let options = TunnelOptions {
            workers: 1,
            parallel: false,
            mtu: 1500,
            gso_max_segs: 64,
            backpressure: !server,
        };
        let plane = Plane::new(Arc::new(Deaf), &options).unwrap();
        let (stream, wire) = connection(1, ([192, 0, 2, 1], 1194).into()).unwrap();
        let way = Way::Stream(Arc::clone(&stream));
        let mut conduit = Conduit::new(&plane.tunnel, 0, way, Moving::Stay, false);
        let material = |byte| KeyMaterial {
            cipher: [byte; 64],
            hmac: [byte; 64],
        };
        let (send, receive) = if server { (1, 2) } else { (2, 1) };
        let keys = DataKeys {
            key_id: 1,
            cipher,
            auth: openvpn::digest::Digest::Sha256,
            format,
            send: material(send),
            receive: material(receive),
        };
        conduit.install(&plane.tunnel, &keys).unwrap();
        conduit.seal_with(&plane.tunnel, 1);
        plane.tunnel.add_stream(&stream).unwrap();
        Self {
            plane,
            conduit,
            wire,
        }
    }

    /// Sends pings, and returns their records.
    fn pings(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        for _ in 0..count {
            self.conduit.ping(&self.plane.tunnel);
            self.plane.interface();
            let mut bytes = vec![0; 4096];
            let len = self.wire.read(&mut bytes).unwrap();
            records.push(bytes[..len].to_vec());
        }
        records
    }

    fn hear(&mut self, record: &[u8]) {
        self.wire.write_all(record).unwrap();
        self.plane.stream(1);
    }
}

#[test]
fn what_keys_were_used_for_is_told() {
    for (cipher, format, epoch) in [
        (DataCipher::Aes256Gcm, Layout::V2 { peer_id: 0 }, 0),
        (DataCipher::Aes256Gcm, Layout::Epoch { peer_id: 0 }, 1),
        (DataCipher::Aes128Cbc, Layout::V1, 0),
    ] {
        let mut client = Host::<ClientWire>::new(cipher, format, false);
        let mut server = Host::<ServerWire>::new(cipher, format, true);
        let records = client.pings(5);
        for (at, record) in records.iter().enumerate() {
            let mut record = record.clone();
            if at == 2 {
                *record.last_mut().unwrap() ^= 1;
            }
            server.hear(&record);
        }
        let usage = server.conduit.usage(&server.plane.tunnel, 1, 0);
        assert_eq!(
            (usage.failed, usage.opened),
            (1, 5),
            "{cipher:?} {format:?}"
        );
        let usage = client.conduit.usage(&client.plane.tunnel, 1, 0);
        assert_eq!(
            (usage.sealed, usage.epoch),
            (5, epoch),
            "{cipher:?} {format:?}"
        );
    }
}
