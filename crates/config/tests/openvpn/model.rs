//! Values in the model, and which value wins when a directive occurs several times.

use std::path::Path;
use std::time::Duration;

use config::openvpn::{
    Cipher, Family, HttpAuth, KeyDirection, MssFix, PingTimeout, Prompted, Proxy, ResolvRetry,
    SharedWrap, TlsVersion, Transport,
};
use config::report::Verdict;

use super::{CLIENT, SERVER, built, with};

#[test]
fn server_expands_as_in_stock() {
    let net30 = built(SERVER, "keepalive 10 60");
    let server = net30.server().unwrap();
    assert_eq!(
        server.push,
        [
            "route 10.8.0.1",
            "topology net30",
            "ping 10",
            "ping-restart 60"
        ]
    );
    let pool = server.pool.unwrap();
    assert_eq!(
        (pool.start.octets()[3], pool.end.octets()[3], pool.netmask),
        (4, 251, None)
    );
    assert_eq!(net30.network.ifconfig.unwrap().second.octets()[3], 2);
    assert_eq!(net30.network.routes.len(), 1);
    assert_eq!(net30.connections[0].protocol.transport, Transport::Udp);
    assert!(net30.connections[0].local.bind);

    let p2p = built(
        SERVER,
        "topology p2p\nclient-to-client\nproto tcp\ntcp-nodelay",
    );
    let push = [
        "route 10.8.0.0 255.255.255.0",
        "topology p2p",
        "socket-flags TCP_NODELAY",
    ];
    assert_eq!(p2p.server().unwrap().push, push);
    assert_eq!(p2p.connections[0].protocol.transport, Transport::TcpServer);

    let small = SERVER.replace("255.255.255.0", "255.255.255.248");
    let pool = built(&small, "").server().unwrap().pool.unwrap();
    assert_eq!((pool.start.octets()[3], pool.end.octets()[3]), (4, 7));

    let own = "topology subnet\nserver 10.8.0.0 255.255.255.0 nopool\n\
        ifconfig-pool 10.8.0.100 10.8.0.110";
    let own = built(SERVER, own);
    assert_eq!(own.server().unwrap().pool.unwrap().start.octets()[3], 100);

    let by_hand = "dev tun\nmode server\ntls-server\nifconfig 10.1.0.1 255.255.0.0\n\
        topology subnet\nca a\ncert b\nkey c\n";
    assert!(built(by_hand, "").server().unwrap().push.is_empty());
}

#[test]
fn servers_listen_where_each_local_says() {
    let lines = "local 192.0.2.1 1197 tcp\nlocal ::1 1198 udp6\nlocal *\nport 1200";
    let all = built(SERVER, lines).connections;
    let seen: Vec<_> = all
        .iter()
        .map(|it| (it.local.host.as_deref(), it.local.port, it.protocol))
        .collect();
    let is = |transport, family| config::openvpn::Protocol { transport, family };
    assert_eq!(
        seen,
        [
            (
                Some("192.0.2.1"),
                1197,
                is(Transport::TcpServer, Family::Any)
            ),
            (Some("::1"), 1198, is(Transport::Udp, Family::V6)),
            (None, 1200, is(Transport::Udp, Family::Any)),
        ]
    );
}

#[test]
fn connections_take_what_stands_before_them() {
    let text = "proto tcp\nconnect-timeout 7\n<connection>\nremote a.example.net 443\n\
        http-proxy proxy.example.net 3128\n</connection>\n<connection>\nremote b.example.net\n\
        proto udp\nfragment 1200\nlport 5000\n</connection>\nconnect-timeout 9";
    let model = built(&CLIENT.replace("remote vpn.example.net\n", ""), text);
    let [first, second] = &model.connections[..] else {
        panic!("{} connections", model.connections.len());
    };
    assert_eq!(first.protocol.transport, Transport::TcpClient);
    assert!(matches!(&first.proxy, Some(Proxy::Http(http)) if http.auth == HttpAuth::None));
    assert_eq!(first.connect_timeout, 7);
    assert_eq!(second.protocol.transport, Transport::Udp);
    assert_eq!(second.remote.as_ref().unwrap().port, 1194);
    assert!(second.mtu.fragment.is_some() && second.proxy.is_none());
    assert!(second.local.bind && second.local.port == 5000);
    assert!(!first.local.bind);
}

#[test]
fn a_key_of_a_block_stands_for_those_outside() {
    let text = "tls-auth ta.key 1\n<connection>\nremote a\ntls-crypt tc.key\n</connection>\n\
        <connection>\nremote b\n</connection>";
    let model = built(&CLIENT.replace("remote vpn.example.net\n", ""), text);
    assert!(matches!(
        model.connections[0].wrap.shared,
        SharedWrap::TlsCrypt { .. }
    ));
    assert!(matches!(
        model.connections[1].wrap.shared,
        SharedWrap::TlsAuth {
            direction: KeyDirection::Inverse,
            ..
        }
    ));
}

#[test]
fn values_reach_the_model() {
    let model = built(
        CLIENT,
        "port 1195\nresolv-retry 30\nconnect-retry 5 60\nkeepalive 10 60\ntun-mtu 1400 1500\n\
         mssfix 1300 mtu\nmark 0x2a\nroute 10.0.0.0 255.0.0.0 net_gateway 7\nroute-ipv6 fd00::/8\n\
         redirect-gateway def1 bypass-dhcp\nredirect-private ipv6\ndhcp-option DNS 10.0.0.53\n\
         dhcp-option DOMAIN example.net\ndns server 0 address 10.0.0.54 [fd00::53]:853\n\
         dns server 0 transport DoT\ndns search-domains a.example b.example\n\
         pull-filter ignore \"route-ipv6\"\nsetenv-safe COLOUR red\nscript-security 2\n\
         up \"/etc/up 'a b'\"\ninactive 600 1000\nreneg-sec 900 600\nreneg-bytes 64000000\n\
         proto tcp\nsocks-proxy 127.0.0.1 1081 stdin\nreplay-window 256\nverb 11\nstatus s.txt\n\
         verify-hash 01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f:10:11:12:13:14\n\
         remote-cert-ku a0 88\ntls-version-min 9.9 or-highest\ncd /etc/vpn\ncd keys",
    );
    let connection = &model.connections[0];
    assert_eq!(connection.remote.as_ref().unwrap().port, 1195);
    assert_eq!((connection.retry, connection.retry_max), (5, 60));
    assert!(matches!(
        &connection.proxy,
        Some(Proxy::Socks {
            port: 1081,
            credentials: Some(Prompted::Ask),
            ..
        })
    ));
    assert_eq!(
        (connection.mtu.tun, connection.mtu.occ),
        (Some(1400), Some(1500))
    );
    assert_eq!(connection.mtu.mssfix, Some(MssFix::Mtu(1300)));
    assert_eq!(
        model.client().unwrap().resolv_retry,
        ResolvRetry::Seconds(30)
    );
    assert_eq!(model.timers.ping_timeout, PingTimeout::Restart(60));
    assert_eq!(model.timers.inactive, Some((600, 1000)));
    assert_eq!(
        model.timers.keys.renegotiation.least,
        Some(Duration::from_secs(600))
    );
    assert_eq!(model.sockets.mark, Some(42));
    assert_eq!(
        (model.network.routes[0].bits, model.network.routes[0].metric),
        (8, Some(7))
    );
    let redirect = model.network.redirect.unwrap();
    assert!(redirect.gateway && redirect.def1 && redirect.ipv4 && redirect.ipv6);
    assert_eq!(model.network.dns.servers[0].1.addresses[1].port(), 853);
    assert_eq!(model.network.dhcp.lines.len(), 2);
    assert_eq!(model.scripts.environment[0].0, "OPENVPN_COLOUR");
    assert_eq!(model.scripts.up.as_ref().unwrap().words, ["/etc/up", "a b"]);
    assert_eq!(model.tls.version_min, TlsVersion::V1_3);
    assert_eq!(
        model.path(Path::new("ca.crt")),
        Path::new("/etc/vpn/keys/ca.crt")
    );
    assert_eq!(model.path(Path::new("/ca.crt")), Path::new("/ca.crt"));
}

/// TLS suites that no longer exist are replaced by stronger ones, and the report names servers that support them.
#[test]
fn suites_that_are_gone_are_replaced() {
    let lines = "tls-cipher TLS-DHE-RSA-WITH-AES-256-CBC-SHA:DHE-RSA-AES256-SHA";
    for more in ["", "\ntls-version-max 1.2", "\ntls-version-min 1.2"] {
        let import = with(CLIENT, &format!("{lines}{more}"));
        let report = format!("{:?}", import.report);
        assert!(
            report.contains("Millrace offers ECDHE with AES-GCM"),
            "{report}"
        );
        let tls = built(CLIENT, &format!("{lines}{more}")).tls;
        assert_eq!(tls.ciphers.map(|names| names.len()), Some(2), "{more}");
    }
}

#[test]
fn suites_that_are_not_spoken_are_told_by_each_of_their_names() {
    for (line, told) in [
        ("tls-cipher AES256-SHA", true),
        ("tls-cipher AES128-SHA:AES256-SHA", true),
        ("tls-cipher foo", true),
        ("tls-cipher HIGH:!aNULL", false),
        ("tls-cipher ecdhe+aesgcm", false),
        ("tls-ciphersuites TLS_AES_128_CCM_SHA256", true),
        ("tls-ciphersuites foo:TLS_AES_256_GCM_SHA384", false),
    ] {
        let report = format!("{:?}", with(CLIENT, line).report);
        assert_eq!(
            report.contains("suites is supported"),
            told,
            "{line}: {report}"
        );
    }
}

#[test]
fn lists_of_suites_that_hold_a_good_one() {
    for list in [
        "TLS-ECDHE-RSA-WITH-AES-256-GCM-SHA384:TLS-DHE-RSA-WITH-AES-256-CBC-SHA",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "DEFAULT:@SECLEVEL=0",
    ] {
        assert!(
            built(CLIENT, &format!("tls-cipher {list}"))
                .tls
                .ciphers
                .is_some()
        );
    }
}

#[test]
fn insecure_ciphers_need_the_switch() {
    let lines = "cipher BF-CBC\ndata-ciphers AES-256-GCM:BF-CBC";
    let model = built(CLIENT, lines);
    assert_eq!(model.data.ciphers, [Cipher::Aes256Gcm]);
    assert_eq!(
        (model.data.fallback, model.data.cipher),
        (None, Some(Cipher::BlowfishCbc))
    );
    let import = with(CLIENT, lines);
    assert!(
        import
            .report
            .with(Verdict::Ignored)
            .any(|entry| entry.key == "cipher")
    );
    let model = built(CLIENT, &format!("{lines}\nallow-insecure-ciphers"));
    assert_eq!(model.data.ciphers, [Cipher::Aes256Gcm, Cipher::BlowfishCbc]);
    assert_eq!(model.data.fallback, Some(Cipher::BlowfishCbc));
    let model = built(CLIENT, "data-ciphers ?CAMELLIA-256-CBC:DEFAULT:AES-128-CBC");
    assert_eq!(model.data.ciphers.len(), 4);
    let model = built(CLIENT, "data-ciphers id-aes256-GCM:AES-256-GCM:aes-128-cbc");
    assert_eq!(model.data.ciphers, [Cipher::Aes256Gcm, Cipher::Aes128Cbc]);
    let model = built(CLIENT, "cipher AES-256-CBC\ncompat-mode 2.4.0");
    assert!(model.data.ciphers.contains(&Cipher::Aes256Cbc));
}

#[test]
fn the_last_of_several_holds_and_the_report_says_so() {
    let import = with(CLIENT, "verb 3\nverb 4");
    let verb: Vec<_> = import
        .report
        .entries
        .iter()
        .filter(|e| e.key == "verb")
        .collect();
    assert_eq!(
        (verb[0].verdict, verb[1].verdict),
        (Verdict::Ignored, Verdict::Honoured)
    );
    assert!(verb[0].reason.contains("a.ovpn:8"));
    assert_eq!(import.into_model().unwrap().0.service.verb, 4);
}

#[test]
fn a_server_over_tcp_among_others_may_be_called_through_socks() {
    let lines = "remote other.example 443 tcp\nsocks-proxy 127.0.0.1 1080";
    let model = built(CLIENT, lines);
    assert_eq!(model.connections.len(), 2);
    let forced = built(CLIENT, &format!("{lines}\nproto-force tcp"));
    assert_eq!(forced.connections.len(), 1);
}

#[test]
fn what_is_sent_may_be_held_back_and_what_comes_put_into_order() {
    let model = built(CLIENT, "shaper 12500\nsetenv opt reorder");
    assert_eq!(model.sockets.shaper, Some(12_500));
    assert!(model.data.reorder);
    let model = built(CLIENT, "");
    assert_eq!(model.sockets.shaper, None);
    assert!(!model.data.reorder);
}
