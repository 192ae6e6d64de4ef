//! Replies as servers push them, and as they must not.

use super::*;
use crate::push::option::{DnsServer, DnsTransport, Place};
use proptest::prelude::*;

fn parse(text: &str) -> PushReply {
    PushReply::parse(text.split(','), &PullFilter::default()).unwrap()
}

/// OpenVPN 2.6.14 pushes this.
#[test]
fn reads_what_stock_pushes() {
    let reply = parse(
        "route 10.99.0.0 255.255.0.0,dhcp-option DNS 10.77.0.1,route-gateway 10.77.0.1,topology subnet,ping 10,\
         ping-restart 60,ifconfig 10.77.0.2 255.255.255.0,peer-id 0,cipher AES-256-GCM,\
         protocol-flags cc-exit tls-ekm dyn-tls-crypt,tun-mtu 1500",
    );
    assert!(reply.refused.is_empty(), "{:?}", reply.refused);
    let mask = Ipv4Addr::new(255, 255, 255, 0);
    let ifconfig = reply.ifconfig.unwrap();
    assert_eq!(
        (ifconfig.local, ifconfig.second),
        (Ipv4Addr::new(10, 77, 0, 2), mask)
    );
    assert_eq!(reply.topology, Some(Topology::Subnet));
    assert_eq!(reply.route_gateway, Some(Ipv4Addr::new(10, 77, 0, 1)));
    let [route] = &reply.routes[..] else {
        panic!("one route")
    };
    let network = Place::Address(Ipv4Addr::new(10, 99, 0, 0).into());
    assert_eq!((&route.network, route.bits), (&network, 16));
    assert_eq!(reply.dns.servers.len(), 1);
    assert_eq!(reply.ping, Some(Duration::from_secs(10)));
    assert_eq!(reply.ping_restart, Some(Duration::from_secs(60)));
    assert_eq!((reply.peer_id, reply.tun_mtu), (Some(0), Some(1500)));
    assert_eq!(reply.cipher.as_deref(), Some("AES-256-GCM"));
    assert!(reply.cc_exit && reply.tls_ekm && reply.dyn_tls_crypt && !reply.aead_epoch);
}

#[test]
fn reads_what_providers_push() {
    let reply = parse(
        "redirect-gateway def1,dhcp-option DNS 103.86.96.100,dhcp-option DNS 103.86.99.100,sndbuf 524288,\
         rcvbuf 524288,explicit-exit-notify,comp-lzo no,route-gateway 10.8.1.1,topology subnet,ping 60,\
         ping-restart 180,ifconfig 10.8.1.2 255.255.255.0,peer-id 17,cipher AES-256-GCM",
    );
    assert!(reply.refused.is_empty(), "{:?}", reply.refused);
    assert!(reply.redirect_gateway.unwrap().def1);
    assert_eq!((reply.sndbuf, reply.rcvbuf), (Some(524_288), Some(524_288)));
    assert_eq!(reply.explicit_exit_notify, Some(1));
    let no = Some("no".to_owned());
    assert_eq!(reply.compression, Some(Compression::CompLzo(no)));
}

#[test]
fn reads_ipv6_and_dns() {
    let reply = parse(
        "ifconfig-ipv6 fd00::2/64 fd00::1,route-ipv6 2000::/3,route-ipv6 fd01::/48 fd00::9 5,block-ipv6,\
         route vpn_gateway,route 10.0.0.0 255.0.0.0 net_gateway 7,dns search-domains a.example b.example,\
         dns server 1 address 10.0.0.1 [fd00::1]:5353,dns server 1 transport DoT,dns server -5 address 10.0.0.2,\
         dhcp-option DOMAIN corp.example",
    );
    assert!(reply.refused.is_empty(), "{:?}", reply.refused);
    let ifconfig = reply.ifconfig_ipv6.unwrap();
    assert_eq!(ifconfig.bits, 64);
    assert_eq!(ifconfig.remote, Some("fd00::1".parse().unwrap()));
    assert_eq!(reply.routes_ipv6[1].metric, Some(5));
    assert_eq!(reply.routes[0].network, Place::VpnGateway);
    assert_eq!(reply.routes[1].gateway, Some(Place::NetGateway));
    assert!(reply.block_ipv6);
    let servers = &reply.dns.options.servers;
    assert!(servers.iter().map(|(of, _)| *of).eq([-5, 1]));
    let expected = DnsServer {
        addresses: vec![
            "10.0.0.1:0".parse().unwrap(),
            "[fd00::1]:5353".parse().unwrap(),
        ],
        transport: DnsTransport::Tls,
        ..DnsServer::default()
    };
    assert_eq!(servers[1].1, expected);
    assert_eq!(reply.dns.search, ["a.example", "b.example"]);
}

#[test]
fn a_server_may_not_set_everything() {
    for option in [
        "up /bin/sh",
        "script-security 2",
        "plugin x.so",
        "setenv PATH /tmp",
        "remote evil.example",
        "management 0.0.0.0 1",
        "writepid /etc/passwd",
        "log /etc/passwd",
        "config x",
        "ca x",
        "auth-user-pass x",
        "secret",
        "tls-verify x",
        "iproute x",
        "daemon",
        "dev tun9",
    ] {
        let reply = parse(option);
        assert_eq!(reply.refused[0].1, Refusal::NotPullable, "{option}");
    }
}

#[test]
fn numbers_and_words_have_bounds() {
    for option in [
        "dhcp-option DOMAIN -x",
        "dhcp-option DOMAIN-SEARCH --interface=eth0",
        "dns search-domains a.example -x",
        "dns server 0 resolve-domains -x",
        "tun-mtu 575",
        "tun-mtu 65536",
        "tun-mtu -1",
        "tun-mtu 68 ",
        "ping 86401",
        "ping +5",
        "ping",
        "peer-id 16777216",
        "ifconfig 10.0.0.1",
        "ifconfig 10.0.0.1 x",
        "ifconfig-ipv6 fd00::1/129",
        "route 10.0.0.0 255.0.255.0",
        "route evil.example",
        "route 10.0.0.0 255.0.0.0 1.1.1.1 5 6",
        "topology star",
        "dhcp-option DOMAIN a;reboot",
        "dhcp-option DNS",
        "setenv-safe A=B c",
        "redirect-gateway everything",
        "auth-token-user %%%",
        "sndbuf 100000001",
        "echo \"open",
    ] {
        let reply = parse(option);
        assert_eq!(reply.refused.len(), 1, "{option}");
    }
    let many = "route 10.0.0.0,".repeat(MAX_OPTIONS + 1);
    let whole = PushReply::parse(many.split(','), &PullFilter::default());
    assert_eq!(whole, Err(PushError::TooLarge));
}

#[test]
fn a_protocol_that_is_not_known_ends_the_connection() {
    for option in [
        "protocol-flags cc-exit quantum",
        "key-derivation other",
        "key-derivation",
    ] {
        let reply = PushReply::parse([option], &PullFilter::default());
        assert!(matches!(reply, Err(PushError::Protocol(_))), "{option}");
    }
}

#[test]
fn filters_are_obeyed() {
    let filter = PullFilter {
        rules: vec![
            (FilterAction::Ignore, "dhcp-option".to_owned()),
            (FilterAction::Reject, "redirect-gateway".to_owned()),
        ],
        no_routes: true,
    };
    let options = [
        "dhcp-option DNS 1.1.1.1",
        "route 10.0.0.0",
        "route-gateway 10.0.0.1",
    ];
    let reply = PushReply::parse(options, &filter).unwrap();
    assert!(reply.dns.is_empty() && reply.routes.is_empty());
    assert!(reply.route_gateway.is_some());
    assert_eq!(reply.refused[0].1, Refusal::Filtered);
    assert_eq!(reply.refused[1].1, Refusal::NoPull);
    let reply = PushReply::parse(["redirect-gateway def1"], &filter);
    assert!(matches!(reply, Err(PushError::Rejected(_))));
}

#[test]
fn tokens_are_not_logged() {
    assert_eq!(loggable("auth-token SESS_ID_AT_x"), "auth-token [...]");
    let reply = PushReply::parse(["auth-token a b"], &PullFilter::default()).unwrap();
    assert_eq!(reply.refused[0].0, "auth-token [...]");
    let reply = parse("auth-token secret");
    assert!(!format!("{reply:?}").contains("secret"));
    for written in [
        "\"auth-token\" secret x",
        "'auth-token' secret x",
        "auth\\-token secret x",
        "\"auth-token\" \"secret",
        "\"auth-token-userx\" secret",
    ] {
        let reply = parse(written);
        assert_eq!(reply.refused.len(), 1, "{written}");
        let told = format!("{reply:?}");
        assert!(!told.contains("secret"), "{written}: {told}");
    }
}

/// Writes one word in many ways of equal meaning; `way` chooses the spelling of each character.
fn written(word: &str, way: &[u8]) -> String {
    let mut out = String::new();
    for (at, letter) in word.chars().enumerate() {
        match way.get(at % way.len().max(1)).map_or(0, |it| it % 4) {
            0 => out.push(letter),
            1 => out.extend(['"', letter, '"']),
            2 => out.extend(['\'', letter, '\'']),
            _ => out.extend(['\\', letter]),
        }
    }
    out
}

#[test]
fn parts_are_put_together_within_bounds() {
    let mut assembler = Assembler::default();
    assert_eq!(assembler.add("ping 1,push-continuation 2"), Ok(None));
    let whole = assembler.add("ping-restart 2,push-continuation 1").unwrap();
    assert_eq!(
        whole.as_deref().map(|it| &**it),
        Some("ping 1,ping-restart 2")
    );
    let part = format!("{}push-continuation 2", "route 10.0.0.0,".repeat(60));
    let outcome = (0..1000).map(|_| assembler.add(&part)).find(Result::is_err);
    assert_eq!(outcome, Some(Err(PushError::TooLarge)));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[ -~]{0,300}") {
        let _ = PushReply::parse(text.split(','), &PullFilter::default());
        let mut assembler = Assembler::default();
        let _ = assembler.add(&text);
    }

    /// Filters and `route-nopull` judge an option by its meaning, however a server spells it.
    #[test]
    fn no_way_of_writing_passes_a_filter(
        option in prop::sample::select(vec![
            "echo x",
            "parameter x",
            "route 10.0.0.0 255.0.0.0",
            "route 10.77.0.0 255.255.0.0",
            "route-ipv6 fd00::/8",
            "redirect-gateway def1",
            "redirect-private",
            "dhcp-option DNS 192.0.2.1",
            "dns search-domains a.example",
            "block-ipv6",
            "ping 10",
            "auth-token x",
        ]),
        way in prop::collection::vec(any::<u8>(), 1..20),
        blanks in "[ \t]{1,3}",
        no_routes: bool,
    ) {
        let filter = PullFilter {
            rules: vec![
                (FilterAction::Accept, "route 10.77.".to_owned()),
                (FilterAction::Ignore, "route ".to_owned()),
                (FilterAction::Ignore, "echo".to_owned()),
                (FilterAction::Ignore, "dhcp-option DNS".to_owned()),
                (FilterAction::Reject, "redirect-gateway".to_owned()),
                (FilterAction::Ignore, "auth-token".to_owned()),
            ],
            no_routes,
        };
        let words: Vec<String> = option.split(' ').map(|it| written(it, &way)).collect();
        let strange = words.join(&blanks);
        let plain = PushReply::parse([option], &filter);
        prop_assert_eq!(PushReply::parse([&*strange], &filter), plain, "{}", strange);
    }
}
