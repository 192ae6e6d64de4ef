//! Answers a client of NAT-PMP and PCP with datagrams of any content, over an hour of its clock. Requests keep their
//! form, and PCP is never asked for port 0.

#![no_main]

use std::time::{Duration, Instant};

use config::forward::Protocol;
use libfuzzer_sys::fuzz_target;
use steer::forward::pmp::Client;

fuzz_target!(|data: &[u8]| {
    let Some((&first, mut rest)) = data.split_first() else {
        return;
    };
    let begin = Instant::now();
    let mut now = begin;
    let port = (first & 1 == 1).then_some(5000);
    let both = [Protocol::Udp, Protocol::Tcp];
    let mut client = Client::new(port, &both, [10, 2, 0, 2].into(), *b"abcdefghijkl", now);
    while let Some((&length, after)) = rest.split_first()
        && now < begin + Duration::from_secs(3600)
    {
        let (datagram, after) = after.split_at(after.len().min(length.into()));
        rest = after;
        for request in client.tick(now) {
            match request.len() {
                12 => assert_eq!(request[0], 0),
                60 => assert!(request[0] == 2 && request[40..42] != [0, 0]),
                length => panic!("{length} bytes"),
            }
        }
        client.heard(datagram, now);
        for (_, state) in client.states() {
            let _ = format!("{state:?}");
        }
        let due = client.due().expect("a client always has a next step");
        now = due.max(now);
    }
});
