//! Runs the blocks of docs/first-ten-minutes.md word by word: from a provider's file to one LAN device that leaves
//! through its tunnel or not at all, and back.
//!
//! Stand-ins replace missing programs. `apt` and `apk` do nothing; a script runs the shipped units' commands for
//! systemd. Another runs the shipped init scripts in busybox' shell for `service`, rc.common and procd. `uci` has a
//! stand-in; a test double plays netifd and ubus. fw4 has no rules that would block packets. The test replaces the
//! login and the leak test's wait, during which the test plays the device.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use lab::acceptance::dns::{NameServer, query};
use lab::acceptance::netifd::Netifd;
use lab::acceptance::quick::make_executable;
use lab::acceptance::{Directory, PATIENCE, PROGRAM, ip, until, usable};
use lab::openvpn::{KeyKind, Pki, StaticKey};
use lab::{Host, Link, LinkOptions, Process, Router, tools};

const PAGE: &str = include_str!("../../../docs/first-ten-minutes.md");

/// Servers on the Internet, one for each family.
const FAR: [&str; 2] = ["203.0.113.9", "2001:db8:f::9"];

/// The uplink's name server, and the provider's behind the tunnel.
const ISP: &str = "198.51.100.1";
const INNER: [&str; 2] = ["10.8.0.1", "fd08::1"];

/// The router's addresses on the LAN.
const ROUTER: [&str; 2] = ["192.168.1.1", "fd00:1::1"];

/// Returns the code blocks of a section of the page, as a reader would copy them.
fn blocks(heading: &str) -> Vec<String> {
    let (_, rest) = PAGE.split_once(heading).unwrap();
    let part = rest.split("\n## ").next().unwrap();
    let mut blocks = vec![String::new()];
    for line in part.lines() {
        let block = blocks.last_mut().unwrap();
        match line.strip_prefix("    ") {
            Some(line) => *block += &format!("{line}\n"),
            None if line.is_empty() && !block.is_empty() => block.push('\n'),
            None if block.is_empty() => {}
            None => blocks.push(String::new()),
        }
    }
    blocks.retain(|it| !it.trim().is_empty());
    blocks
}

/// ```text
/// television 192.168.1.50 --+
///                            br-lan router wan 198.51.100.2 -- 198.51.100.1 server, 203.0.113.9, 10.8.0.1 in tunnel
/// pc         192.168.1.51 --+
/// ```
struct World {
    television: Host,
    pc: Host,
    router: Router,
    server: Host,
    isp: NameServer,
    inner: Vec<NameServer>,
    directory: Directory,
    path: String,
    shell: Vec<PathBuf>,
    _far: Process,
    _dnsmasq: Process,
}

impl World {
    /// `tools` are stand-ins; `nothing` lists commands that do nothing.
    fn new(shell: Vec<PathBuf>, nothing: &[&str]) -> Self {
        let directory = Directory::new();
        let router = Router::of(Host::private("router").unwrap()).unwrap();
        let server = Host::private("server").unwrap();
        let (television, pc) = (Host::new("television").unwrap(), Host::new("pc").unwrap());
        plug(&television, &pc, &router, &server);
        let here = directory.path();
        own_etc(&router, here);
        let far = provider(&server, &directory);
        let isp = NameServer::start(&server, ip(ISP));
        isp.set("nl1.vpn.example", &[ip(ISP)]);
        let inner = INNER.map(|it| {
            usable(&server, it);
            NameServer::start(&server, ip(it))
        });
        let dnsmasq = directory.file(
            "dnsmasq.conf",
            &format!(
                "no-resolv\nno-hosts\nserver={ISP}\nuser=root\ngroup=root\nkeep-in-foreground\npid-file\n"
            ),
        );
        let file = format!("--conf-file={}", dnsmasq.display());
        let command = router.command(tools::find("dnsmasq").unwrap());
        let dnsmasq = command.arg(file).spawn().unwrap();
        fs::create_dir(here.join("bin")).unwrap();
        std::os::unix::fs::symlink(PROGRAM, here.join("bin/millrace")).unwrap();
        for name in nothing {
            make_executable(&directory.file(&format!("bin/{name}"), "#!/bin/sh\n"));
        }
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/first-ten-minutes");
        for entry in fs::read_dir(data).unwrap() {
            let name = entry.unwrap();
            std::os::unix::fs::symlink(name.path(), here.join("bin").join(name.file_name()))
                .unwrap();
        }
        let path = format!("{}/bin:{}", here.display(), std::env::var("PATH").unwrap());
        let world = Self {
            television,
            pc,
            router,
            server,
            isp,
            inner: inner.into_iter().collect(),
            directory,
            path,
            shell,
            _far: far,
            _dnsmasq: dnsmasq,
        };
        until("the LAN's route to the Internet", || {
            world.sends(&world.pc, FAR[0], 7001);
            world.came("eth0", 7001)
        });
        world
    }

    /// Runs a command as a reader types it, in the directory of the provider's file.
    fn run(&self, script: &str) -> String {
        let exit = self.command(script).exit().unwrap();
        assert!(exit.status.success(), "{script}\n{exit:?}");
        exit.stdout + &exit.stderr
    }

    fn command(&self, script: &str) -> lab::HostCommand<'_> {
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        let here = self.directory.path();
        let script = script
            .replace("\nNAME\n", "\nuser123\n")
            .replace("\nPASSWORD\n", "\ns3cret\n");
        let script = format!("cd {}\n{script}", here.display());
        self.router
            .command(&self.shell[0])
            .args(&self.shell[1..])
            .args(["-euc", &script])
            .env("PATH", &self.path)
            .env("RUN", "/run")
            .env(
                "UNITS",
                packaging.join("debian/millrace/lib/systemd/system"),
            )
            .env("INIT", packaging.join("openwrt/millrace/etc/init.d"))
    }

    /// Sends a datagram from a device to a port on the Internet; it may be lost.
    fn sends(&self, host: &Host, to: &str, port: u16) {
        let any = if ip(to).is_ipv4() { "0.0.0.0" } else { "::" };
        let send = || -> io::Result<usize> {
            UdpSocket::bind((any, 0))?.send_to(&[1], SocketAddr::new(ip(to), port))
        };
        // The kernel reports an earlier "unreachable" with the next send.
        let _ = host.run(send).unwrap();
    }

    /// Whether a datagram to the port reached the server through that device.
    fn came(&self, device: &str, port: u16) -> bool {
        let words = ["list", "set", "inet", "seen", "asked"];
        let text = self.server.output("nft", words).unwrap();
        text.contains(&format!("\"{device}\" . {port}"))
    }

    /// Checks that all traffic of the television uses the tunnel, in both families, and the PC's traffic uses the
    /// uplink.
    fn is_led(&self, port: u16) {
        for (to, port) in FAR.into_iter().zip(port..) {
            until("a packet through the tunnel", || {
                self.sends(&self.television, to, port);
                self.came("ovpn0", port)
            });
            assert!(!self.came("eth0", port), "in clear, to {to}");
        }
        self.is_free(&self.pc, port + 2);
        // The provider's servers resolve the television's names, whichever server it asks.
        let (line, inner) = (self.isp.asked(), self.asked());
        for (place, server) in ROUTER.iter().chain(&FAR).enumerate() {
            let name = format!("t{port}-{place}.example");
            until("an answer", || self.asks(&self.television, server, &name));
        }
        assert_eq!(self.isp.asked(), line, "names were asked of the line");
        let now = self.asked();
        assert!(
            inner.iter().zip(&now).all(|(a, b)| b >= &(a + 2)),
            "{now:?}"
        );
        until("the other's names", || {
            self.asks(&self.pc, ROUTER[0], &format!("p{port}.example"))
        });
        assert!(self.isp.asked() > line);
        assert_eq!(self.asked(), now);
    }

    /// Checks that no traffic of the television arrives, while the PC's does.
    fn is_held(&self, port: u16) {
        for (to, port) in FAR.into_iter().zip(port..) {
            for _ in 0..50 {
                self.sends(&self.television, to, port);
            }
        }
        let line = self.isp.asked();
        for server in ROUTER.iter().chain(&FAR) {
            let name = format!("held{port}.example");
            assert!(!self.asks(&self.television, server, &name));
        }
        // When this later datagram has arrived, the earlier ones would have, too.
        self.is_free(&self.pc, port + 2);
        for port in [port, port + 1] {
            assert!(!self.came("eth0", port), "in clear, port {port}");
        }
        assert_eq!(self.isp.asked(), line, "names were asked of the line");
    }

    fn is_free(&self, host: &Host, port: u16) {
        for (to, port) in FAR.into_iter().zip(port..) {
            until("a packet by the line", || {
                self.sends(host, to, port);
                self.came("eth0", port)
            });
            assert!(!self.came("ovpn0", port), "by the tunnel, to {to}");
        }
    }

    /// Whether a server answers a device.
    fn asks(&self, host: &Host, server: &str, name: &str) -> bool {
        query(host, ip(server), name, false).is_some()
    }

    /// How often each of the provider's name servers was asked.
    fn asked(&self) -> Vec<usize> {
        self.inner.iter().map(NameServer::asked).collect()
    }

    /// The router's rules, routes, packet filter tables and devices, as text to compare.
    fn state(&self) -> String {
        let script = "ip -4 rule; ip -6 rule; ip -4 route show table all; nft list tables; ip -o link | cut -d: -f2\n\
                      cd /etc; find . -path './millrace*' -type f";
        self.run(script)
    }

    /// Runs the page's leak test, with the television sending packets.
    fn leak_test(&self, block: &str) {
        assert!(block.contains("--from-lan 60"), "{block}");
        let block = block.trim_end();
        let mut test = self.command(&format!("exec {block}")).spawn().unwrap();
        let last = |line: &str| line.contains("  ping 2001");
        test.wait_for_line("what to type", PATIENCE, last).unwrap();
        let said = test.stdout() + &test.stderr();
        for line in said.lines() {
            match line.trim().split_once(' ') {
                Some(("nslookup", name)) => {
                    self.asks(&self.television, ROUTER[0], name);
                }
                Some(("ping", to)) => self.sends(&self.television, to, 7999),
                _ => {}
            }
        }
        let exit = test.wait_at_most(PATIENCE * 2).unwrap();
        assert!(exit.stdout.ends_with("no leak\n"), "{exit:?}");
        assert_eq!(
            exit.stdout
                .matches("left through the tunnel mr-away")
                .count(),
            3
        );
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let script = "for it in /run/*.pid; do [ ! -e $it ] || kill -9 $(cat $it); done";
        let _ = self.router.output("sh", ["-c", script]);
    }
}

fn plug(television: &Host, pc: &Host, router: &Router, server: &Host) {
    let batch = |host: &Host, lines: &str| {
        let command = host.command("ip").args(["-batch", "-"]);
        command.output_with_input(&format!("{lines}\n")).unwrap();
    };
    batch(router, "link add br-lan type bridge");
    let link = LinkOptions::bare();
    for (host, port, number) in [(television, "lan1", 50), (pc, "lan2", 51)] {
        Link::new(host, "eth0", router, port, &link).unwrap();
        batch(router, &format!("link set {port} master br-lan"));
        let mac = format!("02:00:5e:10:00:{:02}", number - 49);
        batch(
            host,
            &format!(
                "link set eth0 address {mac}\naddress add 192.168.1.{number}/24 dev eth0\n\
                 address add fd00:1::{number}/64 dev eth0 nodad"
            ),
        );
    }
    Link::new(router, "wan", server, "eth0", &link).unwrap();
    batch(
        router,
        "link set br-lan up\naddress add 192.168.1.1/24 dev br-lan\naddress add fd00:1::1/64 dev br-lan nodad\n\
         address add 198.51.100.2/24 dev wan\naddress add 2001:db8:3::2/64 dev wan nodad",
    );
    batch(
        server,
        "address add 198.51.100.1/24 dev eth0\naddress add 2001:db8:3::1/64 dev eth0 nodad\n\
         address add 203.0.113.9/32 dev lo\naddress add 2001:db8:f::9/128 dev lo nodad",
    );
    for host in [television, pc] {
        for way in ROUTER {
            host.add_default_route(ip(way)).unwrap();
        }
    }
    for way in [ISP, "2001:db8:3::1"] {
        router.add_default_route(ip(way)).unwrap();
    }
    router.masquerade("wan").unwrap();
    let seen = "table inet seen {\nset asked { type ifname . inet_service; size 4096; flags dynamic; }\n\
        chain first { type filter hook prerouting priority -400;\n\
        meta l4proto { tcp, udp } th dport 7001-7999 update @asked { iifname . th dport }\n}\n}\n";
    server.nft(seen).unwrap();
}

/// Mounts a private /etc in the router, with UCI's directory in the test's directory.
fn own_etc(router: &Router, here: &Path) {
    fs::create_dir(here.join("config")).unwrap();
    let script = format!(
        "mkdir /run/etc; cp -a /etc/. /run/etc; rm -rf /run/etc/millrace /run/etc/config /run/etc/resolv.conf\n\
         mkdir -p /run/etc/config /run/etc/dnsmasq.d; echo 'nameserver 127.0.0.1' > /run/etc/resolv.conf\n\
         mount --bind /run/etc /etc; mount --bind {}/config /etc/config",
        here.display()
    );
    router.output("sh", ["-euc", &script]).unwrap();
}

/// Starts a provider: a stock server, and the file that it gives its users.
fn provider(server: &Host, directory: &Directory) -> Process {
    let pki = Pki::new(KeyKind::Ecdsa).unwrap();
    let wrap = StaticKey::generate().unwrap();
    let own = pki.server();
    let shared = format!(
        "<ca>\n{}\n</ca>\n<tls-crypt>\n{}\n</tls-crypt>\n",
        pki.ca(),
        wrap.text()
    );
    let verify = "#!/bin/sh\n[ \"$(cat \"$1\")\" = 'user123\ns3cret' ]\n";
    let verify = directory.file("verify", verify);
    make_executable(&verify);
    let config = format!(
        "dev ovpn0\ndev-type tun\nport 1194\nproto udp\ntopology subnet\nserver 10.8.0.0 255.255.255.0\n\
         server-ipv6 fd08::/64\ndh none\nverify-client-cert none\nusername-as-common-name\nscript-security 2\n\
         auth-user-pass-verify {} via-file\ndata-ciphers AES-256-GCM\nkeepalive 10 60\n\
         push \"redirect-gateway def1 ipv6 bypass-dhcp\"\npush \"dhcp-option DNS {}\"\n\
         push \"dhcp-option DNS6 {}\"\npush \"block-outside-dns\"\n\
         <cert>\n{}\n</cert>\n<key>\n{}\n</key>\n{shared}",
        verify.display(),
        INNER[0],
        INNER[1],
        own.certificate,
        own.key
    );
    let config = directory.file("server.conf", &config);
    let profile = format!(
        "client\ndev tun\nproto udp\nremote nl1.vpn.example 1194\nresolv-retry infinite\nremote-random\nnobind\n\
         persist-key\npersist-tun\ncipher AES-256-GCM\nauth SHA512\nverb 3\nreneg-sec 0\nremote-cert-tls server\n\
         auth-user-pass\ntun-mtu 1500\nmssfix 1450\nping 15\nping-restart 0\nping-timer-rem\nfast-io\n\
         setenv CLIENT_CERT 0\nblock-outside-dns\npull\n{shared}"
    );
    directory.file("nl1.ovpn", &profile);
    let command = server.command(tools::find("openvpn").unwrap());
    let mut process = command.arg("--config").arg(config).spawn().unwrap();
    let done = |line: &str| line.ends_with("Initialization Sequence Completed");
    process
        .wait_for_line("the provider", PATIENCE, done)
        .unwrap();
    process
}

fn ready(more: &[&str]) -> bool {
    let mut found = ["nft", "dnsmasq", "openvpn"].iter().chain(more);
    lab::acceptance::ready() && found.all(|it| lab::require(tools::find(it)).is_some())
}

#[test]
fn on_debian() {
    if !ready(&[]) {
        return;
    }
    let world = World::new(vec!["sh".into()], &["apt"]);
    let before = world.state();
    let all = blocks("\n## Debian and its like\n");
    let [install, tunnel, device, leak, without, undone] = &all[..] else {
        panic!("{all:#?}");
    };
    world.run(install);
    let said = world.run(tunnel);
    assert!(said.contains("interface: mr-away"), "{said}");
    world.is_free(&world.pc, 7010);
    let said = world.run(device);
    assert!(said.contains("in place"), "{said}");
    world.is_led(7020);
    world.leak_test(leak);

    // The page has the reader stop the tunnel; the test also kills a process.
    let (stop, start) = without.rsplit_once("systemctl start").unwrap();
    let said = world.run(stop);
    assert!(said.contains("held: there is no device mr-away"), "{said}");
    world.is_held(7030);
    world.run(&format!("systemctl start{start}"));
    world.is_led(7040);
    world.run("kill -9 $(cat /run/millrace@mr-away.pid)");
    until("a device that is gone", || {
        !world.router.has_interface("mr-away").unwrap()
    });
    world.is_held(7050);
    world.run("systemctl start millrace@mr-away");
    world.is_led(7060);

    // An entry takes effect at once while the policy is on, and ends so.
    let said = world.run("millrace policy add 02:00:5e:10:00:02 --block --name pc");
    assert!(said.contains("pc"), "{said}");
    for to in FAR {
        world.sends(&world.pc, to, 7066);
    }
    let said = world.run("millrace policy remove pc; millrace policy list");
    assert!(said.contains("television: 02:00:5e:10:00:01 to everywhere: through mr-away"));
    assert!(!said.contains("pc: "), "{said}");
    world.is_free(&world.pc, 7067);
    assert!(!world.came("eth0", 7066));

    world.run(undone);
    assert_eq!(world.state(), before);
    world.is_free(&world.television, 7070);
}

#[test]
fn on_openwrt() {
    if !ready(&["busybox"]) {
        return;
    }
    let busybox = tools::find("busybox").unwrap();
    let world = World::new(vec![busybox, "ash".into()], &["apk", "ifstatus"]);
    world.run("echo 'DISTRIB_ID=OpenWrt' > /etc/openwrt_release");
    let uci = world.directory.path().join("config");
    fs::write(
        uci.join("network"),
        "config interface 'lan'\n\toption proto 'static'\n",
    )
    .unwrap();
    fs::write(uci.join("firewall"), "").unwrap();
    let all = blocks("\n## OpenWrt\n");
    let [install, tunnel, device, checks, undone] = &all[..] else {
        panic!("{all:#?}");
    };
    world.run(install);
    // netifd flushes rules when it starts.
    let mut netifd = Netifd::start(&world.router, "away", &uci);
    let before = world.state();
    let run = |netifd: &mut Netifd<'_>, block: &str| {
        let mut said = String::new();
        let mut rest = String::new();
        for line in block.lines() {
            match line.trim_end() {
                "ifup away" => {
                    said += &world.run(&std::mem::take(&mut rest));
                    netifd.if_up();
                    netifd.until_up();
                }
                "ifdown away" => {
                    said += &world.run(&std::mem::take(&mut rest));
                    netifd.if_down();
                }
                line => rest += &format!("{line}\n"),
            }
        }
        said + &world.run(&rest)
    };
    run(&mut netifd, tunnel);
    assert_eq!(netifd.complaints(), Vec::<String>::new());
    world.is_free(&world.pc, 7010);
    let said = run(&mut netifd, device);
    assert!(said.contains("in place"), "{said}");
    world.is_led(7020);

    let (leak, without) = checks.split_once('\n').unwrap();
    world.leak_test(leak);
    let (down, up) = without.split_once("ifup away").unwrap();
    let said = run(&mut netifd, down);
    assert!(said.contains("held: there is no device mr-away"), "{said}");
    world.is_held(7030);
    run(&mut netifd, &format!("ifup away{up}"));
    world.is_led(7040);
    netifd.kill();
    until("a device that is gone", || {
        !world.router.has_interface("mr-away").unwrap()
    });
    world.is_held(7050);
    until("another process", || {
        netifd.tick();
        netifd.starts == 3
    });
    netifd.until_up();
    world.is_led(7060);

    run(&mut netifd, undone);
    assert_eq!(world.state(), before);
    let left = fs::read_to_string(uci.join("network")).unwrap();
    assert!(!left.contains("away") && left.contains("lan"), "{left}");
    world.is_free(&world.television, 7070);
}
