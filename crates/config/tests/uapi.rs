//! Tests the userspace protocol through its public interface: literal exchanges, faults and bytes of any kind.

// Clippy does not treat test helpers as tests.
#![allow(clippy::unwrap_used)]

use std::io::{self, Read};

use config::types::Key32;
use config::uapi::*;
use proptest::prelude::*;

const KEY: &str = "b85996fecc9c7f1fc6d2572a76eda11d59bcd20be8e543b15ce4bd85a8e75a33";
const ZERO: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The settings of one `set=1` request with these lines, read as they come from a socket.
fn set(lines: &str) -> Result<SetDevice, UapiError> {
    let text = format!("set=1\n{}\n\n", lines.trim_end());
    let whole = Requests::new(text.as_bytes()).next_request().unwrap();
    let pieces = Requests::new(Trickle(text.as_bytes())).next_request();
    assert_eq!(format!("{whole:?}"), format!("{:?}", pieces.unwrap()));
    match whole.unwrap()? {
        Request::Set(device) => Ok(device),
        Request::Get => panic!("a set was read as a get"),
    }
}

fn errno(lines: &str) -> i32 {
    set(lines).unwrap_err().errno
}

fn all(text: &str) -> Vec<Result<Request, UapiError>> {
    let mut requests = Requests::new(text.as_bytes());
    std::iter::from_fn(|| requests.next_request().unwrap()).collect()
}

#[test]
fn of_a_range_of_keepalives_the_shortest_counts() {
    for (value, seconds) in [("22-30", 22), ("7-7", 7), ("0-0", 0), ("0", 0)] {
        let text = format!("public_key={KEY}\npersistent_keepalive_interval={value}\n");
        let device = set(&text).unwrap();
        assert_eq!(
            device.peers[0].persistent_keepalive,
            Some(seconds),
            "{value}"
        );
    }
}

#[test]
fn every_key_of_a_set_is_read() {
    let text = format!(
        "private_key={KEY}\nlisten_port=12912\nfwmark=4294967295\nreplace_peers=true\n\
         public_key={KEY}\npreshared_key={ZERO}\nendpoint=[abcd:23::33%2]:51820\n\
         persistent_keepalive_interval=65535\nreplace_allowed_ips=true\n\
         allowed_ip=192.168.4.4/32\nallowed_ip=-10.0.0.9/8\nprotocol_version=1\n\
         public_key={ZERO}\nupdate_only=true\nremove=true\n"
    );
    let device = set(&text).unwrap();
    assert_eq!(device.private_key, Some(Key32::from_hex(KEY).unwrap()));
    assert_eq!(device.listen_port, Some(12912));
    assert_eq!(device.fwmark, Some(u32::MAX));
    assert!(device.replace_peers);
    let [first, second] = &device.peers[..] else {
        panic!("two peers were named");
    };
    assert!(first.preshared_key.as_ref().unwrap().is_zero());
    let endpoint = first.endpoint.as_ref().unwrap();
    assert_eq!(endpoint.to_string(), "[abcd:23::33%2]:51820");
    assert_eq!(first.persistent_keepalive, Some(65535));
    assert!(first.replace_allowed_ips);
    assert_eq!(
        first.allowed_ips,
        [
            AllowedIpChange::Add("192.168.4.4/32".parse().unwrap()),
            AllowedIpChange::Remove("10.0.0.0/8".parse().unwrap()),
        ]
    );
    assert!(second.remove && second.update_only && second.public_key.is_zero());
}

#[test]
fn replacing_ranges_forgets_those_named_before_it() {
    let text = format!("public_key={KEY}\nallowed_ip=10.0.0.0/8\nreplace_allowed_ips=true\n");
    let device = set(&text).unwrap();
    assert!(device.peers[0].replace_allowed_ips && device.peers[0].allowed_ips.is_empty());
}

#[test]
fn faults_have_the_numbers_that_clients_know() {
    assert_eq!(errno("nonsense"), 71);
    for line in [
        "unknown=1",
        "private_key=00",
        "listen_port=65536",
        "listen_port=-1",
        "listen_port=",
        "fwmark=0x10",
        "fwmark=4294967296",
        "replace_peers=false",
        "public_key=zz",
        "protocol_version=2",
        "endpoint=1.2.3.4:1",
        "get=1",
    ] {
        assert_eq!(errno(line), 22, "{line}");
    }
    for line in [
        "listen_port=1",
        "remove=false",
        "update_only=1",
        "preshared_key=",
        "endpoint=name.example:1",
        "endpoint=1.2.3.4",
        "persistent_keepalive_interval=65536",
        "persistent_keepalive_interval=off",
        "persistent_keepalive_interval=30-22",
        "persistent_keepalive_interval=0-22",
        "persistent_keepalive_interval=22-65536",
        "persistent_keepalive_interval=22-",
        "replace_allowed_ips=",
        "allowed_ip=10.0.0.1",
        "allowed_ip=10.0.0.1/33",
        "allowed_ip=+10.0.0.1/32",
        "allowed_ip=--10.0.0.1/32",
        "last_handshake_time_sec=1",
    ] {
        assert_eq!(errno(&format!("public_key={KEY}\n{line}")), 22, "{line}");
    }
}

#[test]
fn an_error_names_the_line_but_no_value() {
    let secret = "c0ffee".repeat(10);
    let error = set(&format!("listen_port=1\nprivate_key={secret}")).unwrap_err();
    assert_eq!(error.line, 3);
    assert!(!error.to_string().contains("c0ffee"));
}

#[test]
fn requests_follow_one_another_on_a_connection() {
    let text = "get=1\n\nset=1\nlisten_port=x\nlisten_port=2\n\nset=1\nlisten_port=3\n\n";
    let found = all(text);
    assert!(matches!(found[0], Ok(Request::Get)));
    let error = found[1].as_ref().unwrap_err();
    assert_eq!((error.errno, error.line), (22, 2));
    assert!(matches!(&found[2], Ok(Request::Set(device)) if device.listen_port == Some(3)));
    assert_eq!(found.len(), 3);
}

#[test]
fn broken_requests_are_refused_whole() {
    let cut = all("set=1\nlisten_port=3\n");
    assert_eq!(cut[0].as_ref().unwrap_err().errno, 5);
    let half = all("set=1\nlisten_port=3");
    assert_eq!(half[0].as_ref().unwrap_err().errno, 5);
    let operation = all("sudo\n\n");
    assert_eq!(operation[0].as_ref().unwrap_err().line, 1);
    let trailing = all("get=1\nx=1\n\nget=1\n\n");
    assert_eq!(trailing[0].as_ref().unwrap_err().errno, 22);
    assert!(matches!(trailing[1], Ok(Request::Get)));
    let long = format!("set=1\nfwmark={}\n\nget=1\n\n", "1".repeat(100_000));
    let found = all(&long);
    assert_eq!(found[0].as_ref().unwrap_err().line, 2);
    assert!(matches!(found[1], Ok(Request::Get)));
}

#[test]
fn ten_thousand_peers_in_one_request() {
    let mut text = String::from("set=1\nreplace_peers=true\n");
    for n in 0..10_000 {
        text += &format!(
            "public_key={n:064x}\nallowed_ip=10.{}.{}.1/32\n",
            n / 256,
            n % 256
        );
    }
    text.push('\n');
    let found = all(&text);
    assert!(matches!(&found[0], Ok(Request::Set(device)) if device.peers.len() == 10_000));
}

#[test]
fn a_get_in_full() {
    let device = DeviceState {
        #[cfg(feature = "amnezia")]
        amnezia: Default::default(),
        private_key: Some(Key32::from_hex(KEY).unwrap()),
        listen_port: 12912,
        fwmark: 51820,
    };
    let peer = PeerState {
        public_key: Key32::from_hex(KEY).unwrap(),
        preshared_key: None,
        endpoint: Some("[abcd:23::33]:51820".parse().unwrap()),
        last_handshake: (1_700_000_000, 5),
        rx_bytes: 2224,
        tx_bytes: 38333,
        persistent_keepalive: 25,
        allowed_ips: vec!["192.168.4.4/32".parse().unwrap(), "::/0".parse().unwrap()],
    };
    let mut out = Vec::new();
    write_get(&mut out, &device, [peer]).unwrap();
    let expected = format!(
        "private_key={KEY}\nlisten_port=12912\nfwmark=51820\npublic_key={KEY}\n\
         preshared_key={ZERO}\nprotocol_version=1\nendpoint=[abcd:23::33]:51820\n\
         last_handshake_time_sec=1700000000\nlast_handshake_time_nsec=5\ntx_bytes=38333\n\
         rx_bytes=2224\npersistent_keepalive_interval=25\nallowed_ip=192.168.4.4/32\n\
         allowed_ip=::/0\nerrno=0\n\n"
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn a_fault_is_answered_with_a_negative_number() {
    let mut out = Vec::new();
    write_errno(&mut out, 22).unwrap();
    assert_eq!(out, b"errno=-22\n\n");
}

/// Yields one byte per read, so that lines are split at every position.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.len().min(1).min(buffer.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut requests = Requests::new(&bytes[..]);
        while requests.next_request().unwrap().is_some() {}
    }

    #[test]
    fn no_lines_panic(lines in prop::collection::vec("(public_key|allowed_ip|endpoint|fwmark|[a-z_]{0,9})=\\PC{0,70}", 0..8)) {
        let _ = set(&lines.join("\n"));
    }
}
