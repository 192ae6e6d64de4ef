//! Key files of every kind. An accepted file must survive being written and read again.
#![no_main]

use openvpn::keyfile::StaticKey;
use openvpn::keyfile::v2::{ClientKey, ServerKey};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(key) = StaticKey::parse(text) {
        let again = StaticKey::parse(&key.to_text()).map(|again| *again.as_bytes());
        assert_eq!(again.as_ref(), Ok(key.as_bytes()));
    }
    if let Ok(key) = ServerKey::parse(text) {
        let written = key.to_text();
        let again = ServerKey::parse(&written).map(|again| again.to_text());
        assert_eq!(again, Ok(written));
    }
    if let Ok(key) = ClientKey::parse(text) {
        let written = key.to_text();
        let again = ClientKey::parse(&written).map(|again| again.to_text());
        assert_eq!(again, Ok(written));
    }
});
