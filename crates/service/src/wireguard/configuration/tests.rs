//! Requests with AmneziaWG's settings, of which some do not fit.

use super::*;
use crate::wireguard::fixture::FakeHost;
use ::wireguard::WireGuard;
use config::uapi::{Request, Requests, write_get};
use plane::Now;
use plane::fake::FakeDataPlane;
use proptest::prelude::*;
use std::sync::Arc;

/// Lines of which each is right by itself.
fn lines() -> impl Strategy<Value = Vec<String>> {
    let line = prop_oneof![
        (1..5_u8, 0..40_u32).prop_map(|(at, value)| format!("s{at}={value}")),
        (1..5_u8, 1..9_u32, 0..4_u32)
            .prop_map(|(at, from, more)| format!("h{at}={from}-{}", from + more)),
        (0..300_u32).prop_map(|value| format!("jmin={value}")),
        (0..2000_u32).prop_map(|value| format!("jmax={value}")),
        (0..9_u32).prop_map(|value| format!("jc={value}")),
        Just(format!("header_protection_key={}", "41".repeat(32))),
        Just("i1=<r 16><t>".to_owned()),
        Just("random_trailers=1".to_owned()),
        Just("fwmark=7".to_owned()),
        Just("listen_port=77".to_owned()),
        Just(format!("private_key={}", "42".repeat(32))),
        Just("replace_peers=true".to_owned()),
    ];
    prop::collection::vec(line, 1..8)
}

proptest! {
    #[test]
    fn a_refused_request_changes_nothing(requests in prop::collection::vec(lines(), 1..6)) {
        let plane = Arc::new(FakeDataPlane::new(WireGuard::new(), "wg0", 1420));
        let mut host = FakeHost::new(plane.clone());
        let mut machine = Machine::new(Now::read(), 1);
        let state = |machine: &Machine| {
            let (device, peers) = machine.state(&*plane);
            let mut text = Vec::new();
            write_get(&mut text, &device, peers).unwrap();
            String::from_utf8(text).unwrap()
        };
        for lines in requests {
            let peer = format!("public_key={}", "43".repeat(32));
            let text = format!("set=1\n{}\n{peer}\n\n", lines.join("\n"));
            let request = Requests::new(text.as_bytes()).next_request();
            let Ok(Some(Ok(Request::Set(set)))) = request else {
                panic!("{text}: {request:?}");
            };
            let before = state(&machine);
            let mut cx = Cx::new(Now::read(), &*plane, &mut host);
            if machine.configure(&set, &mut cx).is_err() {
                prop_assert_eq!(state(&machine), before);
            }
        }
    }
}
