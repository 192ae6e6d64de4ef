//! Settings of AmneziaWG from a file, and datagrams from the Internet at an interface that has them.
#![no_main]

use std::time::{Instant, SystemTime};

use crypto::x25519::PrivateKey;
use libfuzzer_sys::fuzz_target;
use plane::{Class, Wire};
use wireguard::amnezia::{KEYS, Profile, Settings};
use wireguard::{Device, Reader, WireGuard};

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let datagram = parts.next().unwrap_or_default();
    let mut settings = Settings::default();
    for line in text.lines() {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let before = settings.clone();
        if settings.set(name, value).is_err() {
            assert_eq!(settings, before);
        }
    }
    let mut again = Settings::default();
    for name in KEYS {
        if let Some(value) = settings.show(name) {
            again.set(name, &value).expect("a value that is shown");
        }
    }
    assert_eq!(again, settings);
    let _ = settings.hints(Some(1420));
    let Ok(profile) = Profile::new(settings) else {
        return;
    };
    let now = Instant::now();
    let mut out = Vec::new();
    let mut device = Device::new(now, SystemTime::UNIX_EPOCH, 7);
    device.set_private_key(Some(PrivateKey::new([7; 32])), now, &mut out);
    device.set_profile(profile.clone(), now, &mut out);
    let from = ([192, 0, 2, 1], 7).into();
    let received = device.receive(datagram, from, now, false, &mut out);
    assert!(received.is_err() && out.is_empty());

    let protocol = WireGuard::new();
    protocol.set_profile(profile);
    let mut reader = Reader::default();
    protocol.prepare(&mut reader);
    if let Class::Data { header, .. } = protocol.classify(&reader, datagram) {
        assert!(header + 16 <= datagram.len());
    }
});
