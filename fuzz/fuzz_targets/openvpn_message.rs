//! Messages of the control channel. A message that was read can be written, and reads the same again.
#![no_main]

use openvpn::message::{Message, split};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    for part in split(data) {
        let Ok(message) = Message::parse(part) else {
            continue;
        };
        let bytes = message.emit();
        let Some((0, text)) = bytes.split_last() else {
            panic!("a message ends with NUL");
        };
        assert_eq!(Message::parse(text).as_ref(), Ok(&message));
        if let Message::AuthFailed(failed) = &message {
            let _ = openvpn::session::DynamicChallenge::parse(&failed.reason);
        }
    }
});
