//! Saving loses nothing, and no file makes the reader panic.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use config::home::{HomeServer, Masquerading};
use config::lines::{Line, LineMode, Lines};
use config::permissions::Permissions;
use config::pool::{Choose, Pool, Server};
use config::postquantum::{Policy, PostQuantum};
use config::tunnel::*;
use config::types::{AllowedIp, Endpoint, Host, InterfaceAddr, Key32, family_bits};
use config::wgquick::*;
use proptest::prelude::*;

use super::{import, tunnel};

fn key() -> impl Strategy<Value = Key32> {
    any::<[u8; 32]>()
        .prop_filter("zero is not a key", |bytes| *bytes != [0; 32])
        .prop_map(Key32::new)
}

fn address() -> impl Strategy<Value = InterfaceAddr> {
    (any::<IpAddr>(), 0u8..=128).prop_map(|(addr, prefix)| InterfaceAddr {
        addr,
        prefix: prefix.min(family_bits(addr)),
    })
}

fn host() -> impl Strategy<Value = Host> {
    prop_oneof![
        any::<IpAddr>().prop_map(Host::Ip),
        (any::<std::net::Ipv6Addr>(), "[a-z][a-z0-9]{0,14}")
            .prop_map(|(addr, zone)| Host::Scoped(addr, zone)),
        "[a-z][a-z0-9-]{0,20}(\\.[a-z]{1,9}){0,3}".prop_map(Host::Name),
    ]
}

fn unique<T: PartialEq + std::fmt::Debug>(
    element: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(element, 0..4).prop_map(|mut all| {
        let mut kept: Vec<T> = Vec::new();
        for one in all.drain(..) {
            if !kept.contains(&one) {
                kept.push(one);
            }
        }
        kept
    })
}

fn commands() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[!-\"$-~]([ -\"$-~]{0,30}[!-\"$-~])?", 0..3)
}

prop_compose! {
    fn scripts()(
        pre_up in commands(), post_up in commands(),
        pre_down in commands(), post_down in commands(),
    ) -> Scripts {
        Scripts { pre_up, post_up, pre_down, post_down }
    }
}

fn table() -> impl Strategy<Value = Table> {
    prop_oneof![
        Just(Table::Auto),
        Just(Table::Off),
        (1u32..).prop_map(Table::Id)
    ]
}

prop_compose! {
    fn any_interface()(
        private_key in key(),
        listen_port in any::<Option<u16>>(),
        fwmark in any::<Option<u32>>(),
        addresses in unique(address()),
        dns in unique(any::<IpAddr>()),
        dns_search in unique("~?[a-z][a-z0-9-]{0,20}(\\.[a-z]{1,9}){0,3}"),
        mtu in prop::option::of(68u32..=65535),
        table in table(),
        save_config in any::<bool>(),
        scripts in scripts(),
    ) -> Interface {
        Interface {
            #[cfg(feature = "amnezia")]
            amnezia: Default::default(),
            private_key: Some(private_key), listen_port, fwmark, addresses, dns, dns_search,
            mtu, table, save_config, scripts,
        }
    }
}

prop_compose! {
    fn any_peer()(
        name in prop::option::of("[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"),
        public_key in key(),
        preshared_key in prop::option::of(key()),
        ranges in unique(address()),
        endpoint in prop::option::of((host(), 1u16..)),
        persistent_keepalive in any::<Option<u16>>(),
        policy in prop::sample::select(Policy::ALL.to_vec()),
        target in prop::option::of(any::<SocketAddr>()),
    ) -> Peer {
        let mut allowed_ips: Vec<AllowedIp> = Vec::new();
        for range in ranges {
            let range = AllowedIp::new(range.addr, range.prefix).unwrap();
            if !allowed_ips.contains(&range) {
                allowed_ips.push(range);
            }
        }
        let endpoint = endpoint.map(|(host, port)| Endpoint { host, port });
        let name = name.map(String::into_boxed_str);
        // A file has neither scope nor flow, and none of the addresses that mean "any".
        let target = target.map(|it| SocketAddr::new(it.ip(), it.port()));
        let target = target.filter(|it| !it.ip().is_unspecified() && it.port() != 0);
        let post_quantum = Some(PostQuantum { policy, target });
        let post_quantum = post_quantum.filter(|it| *it != PostQuantum::default()).map(Box::new);
        Peer { name, public_key, preshared_key, allowed_ips, endpoint, persistent_keepalive, replaces: None, post_quantum }
    }
}

prop_compose! {
    fn any_home()(
        endpoint in prop::option::of((host(), 1u16..)),
        lan in prop::collection::vec(address(), 0..4),
        dns in prop::collection::vec(any::<IpAddr>(), 0..4),
        masquerade in prop::sample::select(Masquerading::ALL.to_vec()),
        keepalive in any::<Option<u16>>(),
    ) -> HomeServer {
        let lan = lan.iter().map(|it| AllowedIp::new(it.addr, it.prefix).unwrap());
        let endpoint = endpoint.map(|(host, port)| Endpoint { host, port });
        HomeServer { endpoint, lan: lan.collect(), dns, masquerade, keepalive }
    }
}

prop_compose! {
    fn any_pool()(
        wanted in prop::collection::vec("server[0-9*]{0,3}\\*", 0..2),
        choose in prop::sample::select(Choose::ALL.to_vec()),
        servers in prop::collection::vec((host(), 1u16.., prop::option::of(key())), 1..4),
    ) -> Pool {
        let servers = servers.into_iter().enumerate();
        let servers = servers.map(|(at, (host, port, public_key))| Server {
            name: format!("server{at}"),
            endpoint: Endpoint { host, port },
            public_key,
        });
        Pool { wanted, choose, servers: servers.collect() }
    }
}

prop_compose! {
    fn any_tunnel()(
        mut interface in any_interface(),
        mut peers in prop::collection::vec(any_peer(), 0..4),
        home in prop::option::of(any_home()),
        pool in any_pool(),
    ) -> Tunnel {
        let mut owned: Vec<AllowedIp> = Vec::new();
        for peer in peers.iter_mut().rev() {
            peer.allowed_ips.retain(|range| !owned.contains(range));
            owned.extend(&peer.allowed_ips);
        }
        let called = peers.iter().filter(|it| it.endpoint.is_some()).count();
        // A pool is for one peer, whose servers fit `Use`.
        let fits = pool.servers.iter().any(|it| pool.uses(&it.name));
        let pool = Some(pool).filter(|_| peers.len() == 1 && called == 1 && fits);
        interface.save_config &= pool.is_none();
        Tunnel {
            interface,
            peers,
            lines: lines(called == 1 && pool.is_none()),
            home,
            pool,
        }
    }
}

/// Returns two lines, one of them with every setting; `relay` adds a relay, which requires exactly one peer.
fn lines(relay: bool) -> Lines {
    let fibre = Line {
        name: "fibre".to_owned(),
        interface: Some("eth1".to_owned()),
        rate: Some(50_000_000),
        ..Line::default()
    };
    let lte = Line {
        name: "lte".to_owned(),
        interface: Some("wwan0".to_owned()),
        source: Some("192.0.2.7".parse().unwrap()),
        mark: Some(0x20),
        priority: 20,
        metered: true,
        rate: Some(5_000),
        cap: Some(20_000_000_000),
        cap_day: 14,
        relay: relay.then(|| "relay.example.com:5".parse().unwrap()),
        relay_key: relay.then(|| Key32::new([7; 32])),
    };
    Lines {
        mode: LineMode::Single,
        shape: true,
        lines: vec![fibre, lte],
        ..Lines::default()
    }
}

proptest! {
    #[test]
    fn saving_loses_nothing(any in any_tunnel()) {
        let text = any.to_conf();
        let options = Permissions::NONE.with_forwarding(true);
        let import = parse(&text, "wg0.conf", options);
        prop_assert!(import.is_usable(), "{:?}", import.report);
        prop_assert_eq!(tunnel(import), any);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        let _ = parse_bytes(&bytes, Path::new("x"), Permissions::NONE);
    }

    #[test]
    fn no_lines_panic(
        lines in prop::collection::vec(
            "(\\[Interface\\]|\\[Peer\\]|(Address|DNS|MTU|Table|AllowedIPs|Endpoint|FwMark|PostUp) ?= ?\\PC{0,40})",
            0..12,
        )
    ) {
        let _ = import(&lines.join("\n")).into_tunnel();
    }
}
