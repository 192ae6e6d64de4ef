//! The key method 2 record of a peer that passed TLS. A record that was read must read the same after writing.
#![no_main]

use openvpn::key_method::{KeyMethod, Login};
use openvpn::role::Role;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&which, stream)) = data.split_first() else {
        return;
    };
    let sender = if which & 1 == 0 {
        Role::Client
    } else {
        Role::Server
    };
    let Ok(Some((record, used))) = KeyMethod::decode(stream, sender) else {
        return;
    };
    assert!(used <= stream.len(), "more was used than there is");
    let Ok(written) = record.encode(sender) else {
        return;
    };
    match KeyMethod::decode(&written, sender) {
        Ok(Some((again, used))) => {
            assert_eq!(used, written.len(), "the written record's length differs");
            assert_eq!(again.options, record.options);
            if record.login != Login::TooLong {
                assert_eq!(again.login, record.login);
            }
        }
        other => panic!("the written record is refused: {other:?}"),
    }
});
