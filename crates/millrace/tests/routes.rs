//! Packet paths: route configurations on several kinds of hosts, compared with the stock program and `wg-quick`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use lab::acceptance::openvpn::{credentials, millrace, ready};
use lab::acceptance::world::World;
use lab::acceptance::{B4, Directory, PATIENCE, PROGRAM, Site, pings, quick, until};
use lab::openvpn::{KeyKind, OpenVpn, RunningOpenVpn, Setup, StockOpenVpn};
use lab::peer::Keys;
use lab::tools;
use nix::sys::signal::Signal;

/// The host's own default routes in both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A route without a metric, as udhcpc, pppd and netifd set it. The kernel gives IPv6's metric 1024, as with router
    /// advertisements.
    Plain,
    /// A route with metric 100, as `NetworkManager` sets it.
    Metric,
    /// A route without a metric, and a route with metric 50 through another gateway.
    Two,
    /// A route through a device without a gateway, as on a PPP line.
    Ppp,
}

use Kind::{Metric, Plain, Ppp, Two};

const ALL: &[Kind] = &[Plain, Metric, Two, Ppp];

/// Destinations to look up: the Internet, a network with its own route on the host, the LAN, the server, and two of
/// these over IPv6.
const ADDRESSES: [&str; 6] = [
    "8.8.8.8",
    "10.20.1.9",
    "192.168.1.77",
    "192.168.2.2",
    "2001:db8::1",
    "fd20::9",
];
const WORLD4: usize = 0;
const SERVER: usize = 3;
const WORLD6: usize = 4;
const OTHER6: usize = 5;

/// A route configuration.
#[derive(Clone, Copy)]
struct Form {
    lines: &'static str,
    hosts: &'static [Kind],
    /// Destinations where the stock program uses another path, with ours.
    differs: &'static [(usize, &'static str)],
    /// Millrace's message about the configuration.
    says: &'static str,
}

const fn same(lines: &'static str, hosts: &'static [Kind]) -> Form {
    Form {
        lines,
        hosts,
        differs: &[],
        says: "",
    }
}

const fn says(form: Form, says: &'static str) -> Form {
    Form { says, ..form }
}

const fn but(form: Form, differs: &'static [(usize, &'static str)]) -> Form {
    Form { differs, ..form }
}

/// Name of the tunnel's interface.
const TUN: &str = "ovpn0";
const LINE: &str = "eth0";

/// Packets to the server must not go into the tunnel, as they do with the stock program.
const SERVER_OUTSIDE: &[(usize, &str)] = &[(SERVER, LINE)];
/// The default route of router advertisements, and other routes of metric 1024, beat the stock program's.
const WORLD6_INSIDE: &[(usize, &str)] = &[(WORLD6, TUN), (OTHER6, LINE)];
const HIDDEN: &str = "packets to there do not go through the tunnel";

fn openvpn_forms() -> Vec<Form> {
    vec![
        // The stock program has no `net_gateway` if the default route names no gateway.
        but(
            same(
                "route 0.0.0.0 0.0.0.0\nroute remote_host 255.255.255.255 net_gateway",
                ALL,
            ),
            SERVER_OUTSIDE,
        ),
        but(
            same(
                "route 0.0.0.0 0.0.0.0 vpn_gateway\nroute remote_host 255.255.255.255 net_gateway",
                ALL,
            ),
            SERVER_OUTSIDE,
        ),
        but(same("route 0.0.0.0 0.0.0.0", &[Plain, Ppp]), SERVER_OUTSIDE),
        but(
            same("route 0.0.0.0 128.0.0.0\nroute 128.0.0.0 128.0.0.0", &[Two]),
            SERVER_OUTSIDE,
        ),
        but(
            same("route 0.0.0.0 0.0.0.0 vpn_gateway 0", &[Plain, Metric]),
            SERVER_OUTSIDE,
        ),
        says(
            same("route 0.0.0.0 0.0.0.0 vpn_gateway 40", &[Plain, Two]),
            HIDDEN,
        ),
        but(
            same("route 0.0.0.0 0.0.0.0 vpn_gateway 40", &[Metric]),
            SERVER_OUTSIDE,
        ),
        but(
            same("route 0.0.0.0 0.0.0.0 vpn_gateway 100", &[Metric]),
            SERVER_OUTSIDE,
        ),
        says(same("route 0.0.0.0 0.0.0.0 vpn_gateway 300", ALL), HIDDEN),
        says(
            same("route-metric 300\nroute 0.0.0.0 0.0.0.0", &[Plain, Metric]),
            HIDDEN,
        ),
        same("redirect-gateway", ALL),
        same("redirect-gateway def1", ALL),
        same("redirect-gateway def1 bypass-dhcp", &[Plain]),
        same("redirect-gateway autolocal", ALL),
        same("redirect-private", &[Plain, Ppp]),
        same("redirect-gateway def1 ipv6", ALL),
        same("redirect-gateway ipv6 !ipv4", ALL),
        but(
            same(
                "redirect-gateway def1\nroute 8.8.8.8 255.255.255.255 net_gateway",
                &[Plain, Metric, Ppp],
            ),
            &[(WORLD4, LINE)],
        ),
        same(
            "redirect-gateway def1\nroute 8.0.0.0 255.0.0.0 net_gateway",
            &[Two],
        ),
        same(
            "redirect-gateway def1\nroute 10.20.0.0 255.255.0.0",
            &[Plain, Ppp],
        ),
        but(
            same("redirect-gateway def1\nblock-ipv6", &[Plain]),
            &[(WORLD6, "unreachable")],
        ),
        same("route 10.20.0.0 255.255.0.0", ALL),
        same("route 10.20.0.0 255.255.0.0 vpn_gateway", &[Plain]),
        says(
            same("route 10.20.0.0 255.255.0.0 vpn_gateway 5", &[Plain]),
            HIDDEN,
        ),
        same("route 10.20.1.0 255.255.255.0", &[Plain, Metric]),
        same("route 10.20.1.9", &[Plain]),
        same("route 10.0.0.0 255.0.0.0", &[Plain, Two]),
        same("route 10.8.0.0 255.255.255.0", &[Plain]),
        same("route 192.168.1.0 255.255.255.0", &[Plain, Metric]),
        same("route 192.168.1.77", &[Plain, Ppp]),
        but(
            same("route 192.168.0.0 255.255.0.0", &[Plain, Metric]),
            SERVER_OUTSIDE,
        ),
        but(
            same("route 192.168.2.0 255.255.255.0", &[Plain, Ppp]),
            SERVER_OUTSIDE,
        ),
        but(
            says(same("route 192.168.2.2", &[Plain]), "is left out"),
            SERVER_OUTSIDE,
        ),
        same(
            "route 8.8.8.8 255.255.255.255 192.168.1.2",
            &[Plain, Metric],
        ),
        same(
            "route 8.8.8.0 255.255.255.0\nroute 8.8.8.8 255.255.255.255 net_gateway",
            &[Plain],
        ),
        but(same("route-ipv6 ::/0", ALL), WORLD6_INSIDE),
        says(same("route-ipv6 ::/0 default 2000", &[Plain]), HIDDEN),
        same("route-ipv6 ::/0 default 50", &[Plain]),
        same("route-ipv6 2000::/3", ALL),
        same("route-ipv6 2001:db8::1/128", &[Plain]),
        but(
            same("route-ipv6 fd20::/64", &[Plain, Two]),
            &[(OTHER6, TUN)],
        ),
        same("route-ipv6 fd20::/64 default 9", &[Plain]),
        same("route-noexec\nroute 0.0.0.0 0.0.0.0", &[Plain]),
    ]
}

/// A world whose client has this kind of default routes, and its own routes beside them.
fn world(kind: Kind) -> World {
    let world = World::new();
    // The router answers the client's ARP requests for any address.
    world
        .router
        .sysctl("net/ipv4/conf/lan/proxy_arp", "1")
        .unwrap();
    lay_routes(&world, kind);
    world
}

/// Replaces all routes that programs made on the client by those of this kind.
fn lay_routes(world: &World, kind: Kind) {
    let ip = |words: &str| drop(world.client.output("ip", words.split(' ')).unwrap());
    for maker in ["boot", "static"] {
        ip(&format!("-4 route flush proto {maker}"));
        ip(&format!("-6 route flush proto {maker}"));
    }
    for (family, gateways) in [("-4", "192.168.1."), ("-6", "fd00:1::")] {
        let default = |way: &str| ip(&format!("{family} route add default {way}"));
        match kind {
            Plain => default(&format!("via {gateways}2")),
            Metric => default(&format!("via {gateways}2 metric 100")),
            Two => {
                default(&format!("via {gateways}2"));
                default(&format!("via {gateways}3 metric 50"));
            }
            Ppp => default("dev eth0 scope link"),
        }
    }
    ip("route add 10.20.0.0/16 via 192.168.1.2");
    ip("-6 route add fd20::/64 via fd00:1::2 metric 1024");
}

/// The devices through which the client sends to each of [`ADDRESSES`].
fn ways(world: &World) -> Vec<String> {
    let way = |address: &&str| {
        let found = world.way_to(address);
        if found.is_empty() || found == "lo" {
            "unreachable".to_owned()
        } else {
            found
        }
    };
    ADDRESSES.iter().map(way).collect()
}

/// Runs a client with a configuration's lines; returns the paths while it is up, and its output.
fn run(world: &World, program: &dyn OpenVpn, setup: &Setup, lines: &str) -> (Vec<String>, String) {
    let mut setup = setup.clone();
    for line in lines.lines() {
        setup.client.line(line);
    }
    let keys = credentials(KeyKind::Ecdsa);
    let file = setup
        .client_file(program, keys, world.outside.b4())
        .unwrap();
    let client: RunningOpenVpn<'_> = program.start(&world.client, &file).unwrap();
    let found = ways(world);
    let said = client.process.stdout() + &client.process.stderr();
    client.stop().unwrap();
    until("the interface is gone", || {
        !world.client.has_interface(TUN).unwrap()
    });
    (found, said)
}

/// Runs the configurations on one kind of host with both programs, and returns deviations from the table.
fn compare(kind: Kind) {
    if !ready() {
        return;
    }
    let world = world(kind);
    let setup = Setup::default();
    let keys = credentials(KeyKind::Ecdsa);
    let file = setup
        .server_file(&StockOpenVpn, keys, world.outside.b4())
        .unwrap();
    let _server = StockOpenVpn.start(&world.server, &file).unwrap();
    let before = world.state();
    let mut wrong = Vec::new();
    for form in openvpn_forms() {
        if !form.hosts.contains(&kind) {
            continue;
        }
        let (mut expected, _) = run(&world, &StockOpenVpn, &setup, form.lines);
        // The stock program leaves some of its routes behind.
        lay_routes(&world, kind);
        let (ours, said) = run(&world, &millrace(), &setup, form.lines);
        let left = world.state();
        if left != before {
            wrong.push(format!(
                "{kind:?}, {:?}: it leaves {left}, of {before}",
                form.lines
            ));
            lay_routes(&world, kind);
        }
        for (address, way) in form.differs {
            (*way).clone_into(&mut expected[*address]);
        }
        if ours != expected || !said.contains(form.says) {
            wrong.push(format!(
                "{kind:?}, {:?}: {ours:?} in place of {expected:?}, and is to say {:?}:\n{said}",
                form.lines, form.says
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn openvpn_beside_a_default_route_without_a_metric() {
    compare(Plain);
}

#[test]
fn openvpn_beside_a_default_route_of_metric_100() {
    compare(Metric);
}

#[test]
fn openvpn_beside_two_default_routes() {
    compare(Two);
}

#[test]
fn openvpn_beside_a_default_route_by_a_device() {
    compare(Ppp);
}

/// Millrace adds pushed routes into the LAN or past the tunnel, and reports them in the log and in the status.
#[test]
fn pushed_routes_into_the_lan_and_past_the_tunnel_are_told() {
    if !ready() {
        return;
    }
    let world = world(Plain);
    let mut setup = Setup::default();
    for route in [
        "192.168.1.64 255.255.255.192",
        "8.8.8.8 255.255.255.255 net_gateway",
        "0.0.0.0 0.0.0.0 vpn_gateway 500",
    ] {
        setup.server.words("push", [format!("route {route}")]);
    }
    // The lowest log level that logs these messages.
    setup.client.line("verb 1");
    let keys = credentials(KeyKind::Ecdsa);
    let file = setup
        .server_file(&StockOpenVpn, keys, world.outside.b4())
        .unwrap();
    let _server = StockOpenVpn.start(&world.server, &file).unwrap();
    let file = setup
        .client_file(&millrace(), keys, world.outside.b4())
        .unwrap();
    let client = millrace().start(&world.client, &file).unwrap();
    let found = ways(&world);
    assert_eq!(found[..4], [LINE, LINE, TUN, LINE], "{found:?}");
    assert_eq!(world.way_to("9.9.9.9"), TUN);
    let said = client.process.stdout() + &client.process.stderr();
    let status = world
        .client
        .output(PROGRAM, ["status", "--json", "--no-rate"])
        .unwrap();
    let text = world
        .client
        .output(PROGRAM, ["status", "--no-rate"])
        .unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in [
        "the server leads route 192.168.1.64, which is on the local network 192.168.1.0/24 of eth0, into the tunnel",
        "the server leads route 8.8.8.8 past the tunnel",
    ] {
        assert!(said.contains(told), "{told}: {said}");
        assert!(status.contains(told), "{told}: {status}");
        assert!(text.contains(told), "{told}: {text}");
    }
    client.stop().unwrap();
}

/// The start after `SIGKILL` removes everything left behind; meanwhile the host's own default route is in force.
#[test]
fn a_killed_client_leaves_the_hosts_own_routes() {
    if !ready() {
        return;
    }
    let world = world(Plain);
    let before = world.state();
    let mut setup = Setup::default();
    for line in [
        "route 0.0.0.0 0.0.0.0",
        "route 10.20.0.0 255.255.0.0",
        "route-ipv6 ::/0",
        "route-ipv6 fd20::/64",
    ] {
        setup.client.line(line);
    }
    let keys = credentials(KeyKind::Ecdsa);
    let file = setup
        .server_file(&StockOpenVpn, keys, world.outside.b4())
        .unwrap();
    let _server = StockOpenVpn.start(&world.server, &file).unwrap();
    let file = setup
        .client_file(&millrace(), keys, world.outside.b4())
        .unwrap();
    let client = millrace().start(&world.client, &file).unwrap();
    let inside = ways(&world);
    assert_eq!(inside, [TUN, TUN, LINE, LINE, TUN, TUN]);
    client.process.signal(Signal::SIGKILL).unwrap();
    until("the interface is gone", || {
        !world.client.has_interface(TUN).unwrap()
    });
    assert!(ways(&world).iter().all(|way| way == LINE));
    drop(client);
    let client = millrace().start(&world.client, &file).unwrap();
    assert_eq!(ways(&world), inside);
    client.stop().unwrap();
    until("everything is as it was before", || world.state() == before);
}

/// IPv6 traffic does not leave through the uplink when the interface cannot carry IPv6.
#[test]
fn ipv6_is_unreachable_where_the_tunnel_has_none() {
    if !ready() {
        return;
    }
    let world = world(Plain);
    let setup = Setup::default();
    let keys = credentials(KeyKind::Ecdsa);
    let file = setup
        .server_file(&StockOpenVpn, keys, world.outside.b4())
        .unwrap();
    let _server = StockOpenVpn.start(&world.server, &file).unwrap();
    let before = world.state();
    let blocked = |lines: &str| {
        let (found, said) = run(&world, &millrace(), &setup, lines);
        assert_eq!(found[WORLD6], "unreachable", "{lines}: {said}");
        assert_eq!(world.state(), before, "{lines}");
    };
    for lines in [
        "route-ipv6 2000::/3",
        "route-ipv6 ::/1\nroute-ipv6 8000::/1",
        "redirect-gateway def1 ipv6",
    ] {
        // The server pushes its own MTU, which the filter ignores.
        blocked(&format!(
            "pull-filter ignore tun-mtu\ntun-mtu 1200\n{lines}"
        ));
    }
    for of in ["default", "all"] {
        let key = format!("net/ipv6/conf/{of}/disable_ipv6");
        let before = world.state();
        world.client.sysctl(&key, "1").unwrap();
        for lines in [
            "redirect-gateway def1 ipv6",
            "block-ipv6",
            "route-ipv6 2000::/3",
        ] {
            let (found, said) = run(&world, &millrace(), &setup, lines);
            assert_eq!(found[WORLD6], "unreachable", "{of}, {lines}: {said}");
        }
        if of == "default" {
            assert_eq!(world.state(), before);
        }
    }
}

/// The program restores routes that a lease renewal or an interface that was down removed.
#[test]
fn routes_that_are_taken_away_while_the_tunnel_is_up_come_back() {
    if !ready() {
        return;
    }
    let world = world(Plain);
    let setup = Setup::default();
    let keys = credentials(KeyKind::Ecdsa);
    let file = setup
        .server_file(&StockOpenVpn, keys, world.outside.b4())
        .unwrap();
    let _server = StockOpenVpn.start(&world.server, &file).unwrap();
    let before = world.state();
    let ip = |words: &str| drop(world.client.output("ip", words.split(' ')).unwrap());
    for (lines, commands) in [
        (
            "redirect-gateway ipv6",
            &["route replace default via 192.168.1.2"][..],
        ),
        (
            "redirect-gateway def1 ipv6",
            &["link set ovpn0 down", "link set ovpn0 up"],
        ),
        (
            "redirect-gateway def1 ipv6",
            &["route del 0.0.0.0/1", "-6 route del 2000::/4"],
        ),
    ] {
        let mut setup = setup.clone();
        for line in lines.lines() {
            setup.client.line(line);
        }
        let file = setup
            .client_file(&millrace(), keys, world.outside.b4())
            .unwrap();
        let client = millrace().start(&world.client, &file).unwrap();
        assert_eq!(world.way_to("8.8.8.8"), TUN);
        for command in commands {
            ip(command);
        }
        for address in ["8.8.8.8", "2001:db8::1"] {
            until("the tunnel has its routes again", || {
                world.way_to(address) == TUN
            });
        }
        client.stop().unwrap();
        until("everything is as it was before", || world.state() == before);
    }
}

/// Both programs name the interface after this file.
const QUICK: &str = "quick0";

/// AllowedIPs of the peer at 192.168.2.2, and the hosts to test them on.
fn wireguard_forms() -> Vec<Form> {
    vec![
        same("0.0.0.0/0", ALL),
        same("0.0.0.0/0, ::/0", ALL),
        same("::/0", ALL),
        same("0.0.0.0/1, 128.0.0.0/1", ALL),
        same("0.0.0.0/1, 128.0.0.0/1, ::/1, 8000::/1", ALL),
        same("0.0.0.0/5, 8.0.0.0/7, 192.0.0.0/2", &[Plain, Two]),
        same("10.50.0.0/16", &[Plain]),
        same("10.0.0.0/8", &[Plain]),
        // Both programs refuse a route that the host already has.
        says(same("10.20.0.0/16", &[Plain]), "File exists"),
        same("10.20.1.0/24, 192.168.2.0/24", &[Plain, Ppp]),
        same("192.168.2.2/32", &[Plain]),
        same("192.168.1.77/32", &[Plain]),
        says(same("fd20::/64", &[Plain]), "File exists"),
        same("fd20::9/128, 2001:db8::/32", &[Plain]),
    ]
}

/// A client with `wg-quick`, and the settings to compare both programs with.
struct WireGuard {
    world: World,
    directory: Directory,
    keys: [Keys; 2],
    wg_quick: PathBuf,
}

impl WireGuard {
    fn new(kind: Kind) -> Option<Self> {
        let ready = lab::acceptance::ready();
        let original = lab::require(tools::find("wg-quick")).filter(|_| ready)?;
        let world = world(kind);
        quick::hide_kernel_modules(&world.client);
        let directory = Directory::new();
        let wg_quick = quick::without_the_kernels(&directory, &original);
        symlink(PROGRAM, directory.path().join("millrace-wireguard")).unwrap();
        let keys = [(), ()].map(|()| Keys::generate(&world.client).unwrap());
        Some(Self {
            world,
            directory,
            keys,
            wg_quick,
        })
    }

    fn file(&self, ranges: &str) -> PathBuf {
        let [own, peer] = &self.keys;
        let text = format!(
            "[Interface]\nPrivateKey = {}\nAddress = 10.77.0.2/32, fd77::2/128\n\
             [Peer]\nPublicKey = {}\nEndpoint = 192.168.2.2:1002\nAllowedIPs = {ranges}\n",
            own.private, peer.public
        );
        self.directory.file(&format!("{QUICK}.conf"), &text)
    }

    fn quick(&self, what: &str, file: &Path) -> bool {
        let program = self.directory.path().join("millrace-wireguard");
        let command = self
            .world
            .client
            .command(&self.wg_quick)
            .arg(what)
            .arg(file);
        let command = command.env("WG_QUICK_USERSPACE_IMPLEMENTATION", program);
        let exit = command.spawn().unwrap().wait_at_most(PATIENCE).unwrap();
        exit.status.success()
    }

    fn by_wg_quick(&self, file: &Path) -> Option<Vec<String>> {
        let found = self.quick("up", file).then(|| ways(&self.world));
        if found.is_some() {
            assert!(self.quick("down", file));
        }
        found
    }

    /// Returns the paths if the tunnel is up, the device of the tunnel's own packets to the peer, and the output.
    fn by_millrace(&self, file: &Path) -> (Option<Vec<String>>, String, String) {
        let client = &self.world.client;
        let mut process = client.command(PROGRAM).arg("up").arg(file).spawn().unwrap();
        let up = process.wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"));
        let mut marked = String::new();
        let found = up.is_ok().then(|| {
            let mark = lab::acceptance::status_of(client, QUICK)["fwmark"]
                .as_u64()
                .unwrap();
            marked = self.world.way_to(&format!("192.168.2.2 mark {mark}"));
            ways(&self.world)
        });
        // A refused tunnel has already ended.
        let _ = process.signal(Signal::SIGTERM);
        let exit = process.wait_at_most(PATIENCE).unwrap();
        (found, marked, exit.stdout + &exit.stderr)
    }
}

fn compare_wireguard(kind: Kind) {
    let Some(tried) = WireGuard::new(kind) else {
        return;
    };
    let before = tried.world.state();
    let as_before = || {
        until("everything is as it was before", || {
            tried.world.state() == before
        });
    };
    let mut wrong = Vec::new();
    for form in wireguard_forms() {
        if !form.hosts.contains(&kind) {
            continue;
        }
        let file = tried.file(form.lines);
        let expected = tried.by_wg_quick(&file);
        as_before();
        let (ours, marked, said) = tried.by_millrace(&file);
        as_before();
        // With wg-quick the tunnel's own packets enter the tunnel if ranges other than a default route contain the
        // peer.
        let outside = ours.is_none() || marked == LINE;
        if ours != expected || !outside || !said.contains(form.says) {
            wrong.push(format!(
                "{kind:?}, {:?}: {ours:?} in place of {expected:?}, its own by {marked:?}:\n{said}",
                form.lines
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn wireguard_beside_a_default_route_without_a_metric() {
    compare_wireguard(Plain);
}

#[test]
fn wireguard_beside_a_default_route_of_metric_100() {
    compare_wireguard(Metric);
}

#[test]
fn wireguard_beside_two_default_routes() {
    compare_wireguard(Two);
}

#[test]
fn wireguard_beside_a_default_route_by_a_device() {
    compare_wireguard(Ppp);
}

/// Restores the default route of a file after its rules were flushed, and after its interface was down.
#[test]
fn rules_and_routes_of_a_file_come_back() {
    if !lab::acceptance::ready() {
        return;
    }
    let site = Site::new();
    let a = &site.net.a;
    let endpoint = site.net.link.b4().to_string();
    let file = site.file(QUICK, "Address = 10.0.0.1/24", &endpoint, "0.0.0.0/0", "");
    let mut process = a.command(PROGRAM).arg("up").arg(&file).spawn().unwrap();
    process
        .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
        .unwrap();
    let ip = |words: &str| a.output("ip", words.split(' ')).unwrap_or_default();
    for commands in [
        &["-4 rule flush", "-4 rule add table main priority 32766"][..],
        &["link set quick0 down", "link set quick0 up"],
    ] {
        for command in commands {
            ip(command);
        }
        until("the tunnel has its packets again", || {
            ip("route get 8.8.8.8").contains(QUICK)
        });
    }
    process.signal(Signal::SIGTERM).unwrap();
    process.wait_at_most(PATIENCE).unwrap();
}

/// Ranges that contain the peer's own address: packets go through, `check` warns, and `doctor` finds no fault.
#[test]
fn ranges_that_hold_the_peer_carry_packets() {
    if !lab::acceptance::ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server(&[], &[]);
    let a = &site.net.a;
    let endpoint = site.net.link.b4().to_string();
    for ranges in [
        "0.0.0.0/1, 128.0.0.0/1",
        "10.0.0.0/24, 192.168.0.0/16",
        "10.0.0.0/24, 192.168.1.2/32",
        "0.0.0.0/0",
        "0.0.0.0/0, 192.168.1.0/24",
        "0.0.0.0/1, 128.0.0.0/1, 192.168.1.0/24",
    ] {
        let file = site.file(QUICK, "Address = 10.0.0.1/24", &endpoint, ranges, "");
        let checked = a.command(PROGRAM).arg("check").arg(&file).exit().unwrap();
        let told = checked
            .stdout
            .contains(&format!("holds the endpoint {endpoint}"));
        assert_eq!(told, ranges != "0.0.0.0/0", "{}", checked.stdout);
        let of_the_lan = ranges.ends_with("192.168.1.0/24");
        let mut process = a.command(PROGRAM).arg("up").arg(&file).spawn().unwrap();
        process
            .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
            .unwrap();
        pings(a, B4, 2);
        let way = a.output("ip", ["route", "get", "192.168.1.77"]).unwrap();
        assert!(!of_the_lan || way.contains(QUICK), "{ranges}: {way}");
        let doctor = a.command(PROGRAM).arg("doctor").exit().unwrap();
        assert!(!doctor.stdout.contains("loop:"), "{}", doctor.stdout);
        process.signal(Signal::SIGTERM).unwrap();
        process.wait_at_most(PATIENCE).unwrap();
    }
}
