//! Datagrams at an interface of AmneziaWG or WireGuard that looks for the settings of their sender: any bytes, and a
//! peer's initiation that was damaged. The classes do not depend on what is computed ahead, and noise names no peer.
#![no_main]

use std::time::{Instant, SystemTime};

use crypto::x25519::PrivateKey;
use libfuzzer_sys::fuzz_target;
use plane::{Class, Wire};
use wireguard::amnezia::{Profile, Settings, TRIALS_MAX};
use wireguard::{Device, Output, Reader, WireGuard};

const SETTINGS: [&str; 4] = [
    "",
    "S1=30 S2=40 S3=25 S4=17 H1=100000-200000 H2=300000-400000 H3=500000-600000 H4=700000-800000",
    "S1=3 S2=4 S3=5 S4=6 H1=5-1500000000 H2=1500000001-2500000000 H3=2500000001-3000000000 \
     H4=3000000001-4294967295 RandomTrailers=on",
    "S1=30 S2=40 S3=25 S4=17 RandomTrailers=on \
     HeaderProtectionKey=4041424344454647484950515253545556575859606162636465666768697071",
];

fn device(key: u8, other: u8, settings: &str) -> Device {
    let (now, mut out) = (Instant::now(), Vec::new());
    let mut all = Settings::default();
    for word in settings.split_whitespace() {
        let (name, value) = word.split_once('=').expect("a pair");
        all.set(name, value).expect("a valid value");
    }
    let mut device = Device::new(now, SystemTime::UNIX_EPOCH, key.into());
    device.set_private_key(Some(PrivateKey::new([key; 32])), now, &mut out);
    let peer = device.add_peer(PrivateKey::new([other; 32]).public());
    let at = ([192, 0, 2, other], 1).into();
    device.set_endpoint(peer.expect("a peer"), Some(at), now, &mut out);
    device.set_profile(Profile::new(all).expect("a profile"), now, &mut out);
    device
}

/// An initiation of the peer, with bytes changed and added.
fn initiation(settings: &str, changes: &[u8]) -> Vec<u8> {
    let (mut peer, mut out) = (device(2, 1, settings), Vec::new());
    let id = peer.peer_by_public_key(&PrivateKey::new([1; 32]).public());
    peer.need_session(id.expect("a peer"), Instant::now(), &mut out);
    let mut bytes = Vec::new();
    for output in out {
        if let Output::Send { datagram, .. } = output {
            bytes = datagram.as_bytes().to_vec();
        }
    }
    for pair in changes.chunks(2) {
        match *pair {
            [at, value] if bytes.len() > usize::from(at) => bytes[usize::from(at)] ^= value,
            _ => bytes.extend_from_slice(pair),
        }
    }
    bytes
}

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, from], bytes)) = data.split_first_chunk() else {
        return;
    };
    let settings = |at: u8| SETTINGS[usize::from(at % 4)];
    let is_genuine = choice & 16 != 0;
    let datagram = match is_genuine {
        true => initiation(settings(choice >> 2), bytes),
        false => bytes.to_vec(),
    };
    let mut device = device(1, 2, settings(choice));
    let profile = Profile::new(device.settings()).expect("a profile");
    let protocol = WireGuard::new();
    protocol.set_profile(profile);
    protocol.sample(1);
    let (mut alone, mut ahead) = (Reader::default(), Reader::default());
    for reader in [&mut alone, &mut ahead] {
        protocol.prepare(reader);
    }
    protocol.look_ahead(&mut ahead, [&datagram[..], &datagram].into_iter());
    let first = protocol.classify(&ahead, &datagram);
    if let Class::Data { header, .. } = first {
        assert!(header + 16 <= datagram.len());
    }
    let [second, third] = [&ahead, &alone].map(|reader| protocol.classify(reader, &datagram));
    assert_eq!(second, third);
    // The first rejected datagram is a sample.
    assert!(first == second || (first, second) == (Class::Control, Class::Malformed));

    let (now, mut out) = (Instant::now(), Vec::new());
    let from = ([192, 0, 2, from], 1).into();
    let _ = device.receive(&datagram, from, now, false, &mut out);
    let found = device.diagnose(&datagram, from, now);
    assert!(device.trials_left(now) >= TRIALS_MAX - 1);
    if let Some(found) = found {
        assert!(is_genuine, "noise names {found:?}");
        let _ = found.mismatch.to_string();
    }
});
