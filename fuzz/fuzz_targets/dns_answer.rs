//! Reads a name server's answer.
#![no_main]

use host::names::message::{ADDRESSES_MAX, Kind, answer, question};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    for kind in [Kind::A, Kind::Aaaa] {
        let asked = question(0, "vpn.example.com", kind).expect("a name");
        // Reads the bytes as they are, and behind a header that makes them an answer to the question.
        let mut whole = asked.clone();
        whole[2] = 0x81;
        if let Some((count, rest)) = data.split_first() {
            whole[7] = *count;
            whole.extend(rest);
        }
        for message in [data, &whole] {
            if let Some(found) = answer(message, &asked, kind) {
                assert!(found.addresses.len() <= ADDRESSES_MAX);
                assert!(
                    found
                        .addresses
                        .iter()
                        .all(|it| it.is_ipv4() == (kind == Kind::A))
                );
            }
        }
    }
});
