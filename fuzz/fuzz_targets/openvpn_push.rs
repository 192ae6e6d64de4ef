//! A push reply: parts, options, filters. Whatever a server pushes, accepted values are within their bounds.
#![no_main]

use std::time::Duration;

use openvpn::push::{Assembler, FilterAction, PullFilter, PushReply};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut assembler = Assembler::default();
    for part in text.lines() {
        let Ok(Some(whole)) = assembler.add(part) else {
            continue;
        };
        let filter = PullFilter {
            // Two names of one option.
            rules: ["echo", "parameter"]
                .map(|name| (FilterAction::Ignore, name.to_owned()))
                .to_vec(),
            no_routes: part.len().is_multiple_of(2),
        };
        let Ok(reply) = PushReply::parse(whole.split(','), &filter) else {
            continue;
        };
        assert!(reply.tun_mtu.is_none_or(|it| (576..=65_535).contains(&it)));
        assert!(reply.peer_id.is_none_or(|it| it < 1 << 24));
        let day = Duration::from_secs(24 * 3600);
        for timer in [reply.ping, reply.ping_restart, reply.ping_exit] {
            assert!(timer.is_none_or(|it| it <= day));
        }
        assert!(reply.routes.iter().all(|it| it.bits <= 32));
        assert!(reply.echo.is_empty());
        assert!(!filter.no_routes || (reply.routes.is_empty() && reply.dns.is_empty()));
    }
});
