//! Reads bytes from ubus' daemon, as a client that calls methods.
#![no_main]

use openwrt::ubus::{Client, Message, kind};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut client = Client::new();
    let hello = Message::new(kind::HELLO, 0, 1);
    client.receive(&hello.to_bytes()).expect("a greeting");
    client.call("network.interface", "notify_proto", Vec::new());
    // The bytes come as they are, and as the content of answers.
    let mut other = Client::new();
    let _ = other.receive(data);
    for kind in [kind::DATA, kind::STATUS, kind::DATA, kind::STATUS] {
        for number in 1..3 {
            let body = data.to_vec();
            let message = Message {
                kind,
                number,
                peer: 0,
                body,
            };
            let _ = client.receive(&message.to_bytes());
        }
    }
    while client.event().is_some() {}
});
