//! Profiles of ten kinds of providers and routers, with a stock server that pushes what they push.
//!
//! The profiles lie in the config crate's tests, with test keys. The test changes only what it must: the server's
//! address, the source of name and password, and prompts that no server answers.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;

use lab::acceptance::openvpn::{millrace, ready};
use lab::acceptance::world::World;
use lab::acceptance::{PATIENCE, pings, tcp_both_ways};
use lab::openvpn::{ConfigFile, OpenVpn, RunningOpenVpn, StockOpenVpn};
use lab::{Link, LinkOptions};
use nix::sys::signal::Signal;

/// The directory of the profiles.
const PROFILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/tests/openvpn");

/// The servers of one provider.
struct Provider {
    profile: &'static str,
    /// Lines of the server's file.
    server: &'static str,
    /// Pushed options besides those that every server pushes.
    push: &'static [&'static str],
    /// Whether all traffic uses the tunnel.
    everything: bool,
}

/// Sorted by profile name.
const PROVIDERS: [Provider; 14] = [
    Provider {
        profile: "airvpn",
        server: "data-ciphers CHACHA20-POLY1305:AES-256-GCM\ncomp-lzo no\nserver-ipv6 fd7d::/64",
        push: &[
            "comp-lzo no",
            "redirect-gateway ipv6 def1 bypass-dhcp",
            "dhcp-option DNS 10.8.0.1",
            "dhcp-option DNS6 fd7d::1",
            "tun-ipv6",
        ],
        everything: true,
    },
    Provider {
        profile: "expressvpn",
        server: "data-ciphers AES-256-CBC:AES-256-GCM\ncomp-lzo no\nfragment 1300\nmssfix 1200",
        push: &[
            "redirect-gateway def1",
            "dhcp-option DNS 10.8.0.1",
            "comp-lzo no",
            "ping 10",
            "ping-restart 60",
        ],
        everything: true,
    },
    Provider {
        profile: "installer",
        server: "data-ciphers AES-128-GCM\nserver-ipv6 fd7d::/64",
        push: &[
            "dhcp-option DNS 9.9.9.9",
            "redirect-gateway def1 bypass-dhcp",
            "tun-ipv6",
            "route-ipv6 2000::/3",
            "redirect-gateway ipv6",
        ],
        everything: true,
    },
    Provider {
        profile: "ipvanish",
        server: "data-ciphers AES-256-CBC:AES-256-GCM\ncomp-lzo no",
        push: &[
            "redirect-gateway def1",
            "dhcp-option DNS 198.18.0.1",
            "dhcp-option DNS 198.18.0.2",
            "rcvbuf 262144",
            "comp-lzo no",
            "ping 20",
            "ping-restart 40",
        ],
        everything: true,
    },
    Provider {
        profile: "merlin",
        server: "data-ciphers AES-128-GCM:AES-256-GCM\ncompress stub-v2",
        push: &[
            "route 192.168.50.0 255.255.255.0 vpn_gateway 500",
            "dhcp-option DNS 192.168.50.1",
            "compress stub-v2",
        ],
        everything: false,
    },
    Provider {
        profile: "nordvpn",
        server: "data-ciphers AES-256-GCM\ncomp-lzo no",
        push: &[
            "redirect-gateway def1",
            "dhcp-option DNS 103.86.96.100",
            "dhcp-option DNS 103.86.99.100",
            "sndbuf 524288",
            "rcvbuf 524288",
            "explicit-exit-notify",
            "comp-lzo no",
            "ping 60",
            "ping-restart 180",
        ],
        everything: true,
    },
    Provider {
        profile: "opnsense",
        server: "data-ciphers AES-256-GCM:CHACHA20-POLY1305\ncompress stub-v2",
        push: &[
            "route 192.168.50.0 255.255.255.0",
            "dhcp-option DOMAIN example.com",
            "dhcp-option DNS 192.168.50.1",
            "dhcp-option NTP 192.168.50.1",
            "register-dns",
            "block-outside-dns",
        ],
        everything: false,
    },
    Provider {
        profile: "pfsense",
        server: "data-ciphers AES-256-GCM:AES-128-GCM\nserver-ipv6 fd7d::/64",
        push: &[
            "route 192.168.50.0 255.255.255.0",
            "route-ipv6 fd50::/64",
            "dhcp-option DOMAIN example.com",
            "dhcp-option DNS 192.168.50.1",
            "block-outside-dns",
            "register-dns",
        ],
        everything: false,
    },
    Provider {
        profile: "pia",
        server: "data-ciphers AES-128-GCM\ncompress",
        push: &[
            "redirect-gateway def1",
            "block-ipv6",
            "dhcp-option DNS 10.0.0.243",
            "compress",
            "ping 10",
            "ping-restart 60",
            "auth-token c2VjcmV0LXRva2Vu",
        ],
        everything: true,
    },
    Provider {
        profile: "protonvpn",
        server: "data-ciphers AES-256-GCM",
        push: &[
            "redirect-gateway def1",
            "dhcp-option DNS 10.8.0.1",
            "block-outside-dns",
            "sndbuf 524288",
            "rcvbuf 524288",
            "explicit-exit-notify",
            "ping 10",
            "ping-restart 60",
            "socket-flags TCP_NODELAY",
        ],
        everything: true,
    },
    Provider {
        profile: "surfshark",
        server: "data-ciphers AES-256-GCM",
        push: &[
            "redirect-gateway def1",
            "dhcp-option DNS 162.252.172.57",
            "dhcp-option DNS 149.154.159.92",
            "block-outside-dns",
            "sndbuf 524288",
            "rcvbuf 524288",
            "explicit-exit-notify",
            "ping 60",
            "ping-restart 180",
        ],
        everything: true,
    },
    Provider {
        profile: "synology",
        server: "data-ciphers AES-256-CBC",
        push: &[
            "route 192.168.50.0 255.255.255.0",
            "route 10.8.0.0 255.255.255.0",
            "ping 10",
            "ping-restart 60",
        ],
        everything: true,
    },
    Provider {
        profile: "torguard",
        server: "data-ciphers AES-128-GCM\ncompress",
        push: &[
            "redirect-gateway def1",
            "dhcp-option DNS 1.1.1.1",
            "dhcp-option DNS 1.0.0.1",
            "ping 5",
            "ping-restart 30",
            "sndbuf 393216",
            "rcvbuf 393216",
            "socket-flags TCP_NODELAY",
        ],
        everything: true,
    },
    Provider {
        profile: "windscribe",
        server: "data-ciphers AES-256-GCM",
        push: &[
            "redirect-gateway def1 bypass-dhcp",
            "dhcp-option DNS 10.255.255.1",
            "block-outside-dns",
            "explicit-exit-notify 1",
            "ping 10",
            "ping-restart 60",
        ],
        everything: true,
    },
];

fn key(name: &str) -> Vec<u8> {
    fs::read(format!("{PROFILES}/keys/{name}")).unwrap()
}

impl Provider {
    fn text(&self) -> String {
        fs::read_to_string(format!("{PROFILES}/{}.ovpn", self.profile)).unwrap()
    }

    /// The first argument of a directive in the profile.
    fn value(&self, name: &str) -> Option<String> {
        let text = self.text();
        let mut lines = text.lines().map(str::split_whitespace);
        let mut found = lines.find_map(|mut words| (words.next() == Some(name)).then_some(words));
        found.as_mut()?.next().map(str::to_owned)
    }

    fn server_file(&self, outer: &str) -> ConfigFile {
        let text = self.text();
        let mut file = ConfigFile::new();
        file.line("proto udp4")
            .line("port 1194")
            .words("local", [outer]);
        file.line("dev tun0").line("verb 3").line("dh none");
        file.line("server 10.8.0.0 255.255.255.0");
        // Old profiles always have the topology that their provider's servers push.
        let topology = if ["expressvpn", "synology"].contains(&self.profile) {
            "topology net30"
        } else {
            "topology subnet"
        };
        file.line(topology);
        for name in [
            "ca.crt",
            "server.crt",
            "server.key",
            "tls-auth.key",
            "tls-crypt.key",
        ] {
            file.file(name, key(name));
        }
        file.file("tls-crypt-v2-server.key", key("tls-crypt-v2-server.key"));
        file.line("ca ca.crt")
            .line("cert server.crt")
            .line("key server.key");
        if text.contains("<tls-auth>") {
            file.line("tls-auth tls-auth.key 0");
        } else if text.contains("<tls-crypt>") {
            file.line("tls-crypt tls-crypt.key");
        } else if text.contains("<tls-crypt-v2>") {
            file.line("tls-crypt-v2 tls-crypt-v2-server.key");
        }
        if let Some(digest) = self.value("auth") {
            file.words("auth", [digest]);
        }
        if !text.contains("<cert>") {
            file.line("verify-client-cert none");
        }
        if text.contains("auth-user-pass") {
            let check = "#!/bin/sh\n[ \"$(cat \"$1\")\" = \"$(printf 'user\\nsecret')\" ]\n";
            file.file("check", check).line("script-security 2");
            file.words("auth-user-pass-verify", ["/bin/sh check", "via-file"]);
            file.line("username-as-common-name");
        }
        file.verbatim(self.server);
        for option in self.push {
            file.words("push", [option]);
        }
        file
    }

    /// The profile, with replacements for parts that no test can provide. `stock` leaves out directives that the stock
    /// program supports only on Windows or no longer.
    fn client_file(&self, outer: &str, stock: bool) -> ConfigFile {
        let mut file = ConfigFile::new();
        let mut remotes = 0;
        for line in self.text().lines() {
            match line.split_whitespace().next() {
                Some("remote") => {
                    // If there are several remotes, all but the first are dead.
                    let port = if remotes == 0 { 1194 } else { 5060 + remotes };
                    remotes += 1;
                    file.words("remote", [outer.to_owned(), port.to_string()]);
                }
                Some("server-poll-timeout") => drop(file.line("server-poll-timeout 2")),
                Some("auth-user-pass") => drop(file.line("auth-user-pass login")),
                Some("dev") => drop(file.line("dev tun0")),
                // No server answers the challenge, and the scripts do not exist.
                Some("static-challenge" | "up" | "down") => {}
                Some("route-method" | "keysize") if stock => {}
                Some("script-security") if stock => drop(file.line("script-security 2")),
                _ => drop(file.verbatim(line)),
            }
        }
        file.file("login", "user\nsecret\n");
        file.file("keys/ca.crt", key("ca.crt"));
        file.line("connect-retry 1 2");
        file
    }
}

fn connects(provider: &Provider, program: &dyn OpenVpn, stock: bool) {
    let world = World::new();
    let before = world.state();
    let outer = world.outside.b4().to_string();
    // The office network behind routers' tunnels.
    let office = LinkOptions::numbered(50);
    Link::new(&world.server, "office", &world.router, "nowhere", &office).unwrap();
    let _server: RunningOpenVpn<'_> = StockOpenVpn
        .start(&world.server, &provider.server_file(&outer))
        .unwrap();
    let file = provider.client_file(&outer, stock);
    let client = program.start(&world.client, &file).unwrap();
    pings(&world.client, "10.8.0.1", 5);
    if provider.server.contains("server-ipv6") {
        pings(&world.client, "fd7d::1", 5);
    }
    let way = if provider.everything { "tun0" } else { "eth0" };
    assert_eq!(world.way_to("198.51.100.9"), way);
    assert_eq!(world.way_to(&outer), "eth0");
    if provider
        .push
        .iter()
        .any(|option| option.starts_with("route 192.168.50.0"))
    {
        assert_eq!(world.way_to("192.168.50.1"), "tun0");
        pings(&world.client, "192.168.50.1", 3);
    }
    tcp_both_ways(&world.client, &world.server, "10.8.0.1", 1_000_000);
    client.process.signal(Signal::SIGTERM).unwrap();
    // Some clients announce their exit five times, a second apart.
    let exit = client.process.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
    assert_eq!(world.state(), before);
}

#[test]
fn profiles_connect_to_what_their_providers_push() {
    if !ready() {
        return;
    }
    let stock = std::env::var_os("MILLRACE_TEST_STOCK").is_some();
    let mut failed = Vec::new();
    let only = std::env::var("MILLRACE_TEST_PROFILE").ok();
    let wanted = |one: &&Provider| only.as_ref().is_none_or(|name| name == one.profile);
    for provider in PROVIDERS.iter().filter(wanted) {
        let run = || {
            if stock {
                connects(provider, &StockOpenVpn, true);
            } else {
                connects(provider, &millrace(), false);
            }
        };
        if std::panic::catch_unwind(run).is_err() {
            failed.push(provider.profile);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
