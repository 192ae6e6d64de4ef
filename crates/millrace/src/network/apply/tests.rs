//! Plans made and taken back in network namespaces.

use config::wgquick;
use lab::Host;
use netio::netlink::VethEnd;

use super::super::facts::Facts;
use super::super::plan::Options;
use super::*;

const FILE: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n\
    Address = 10.0.0.2/24, fd00::2/64\n[Peer]\n\
    PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
    AllowedIPs = 0.0.0.0/0, ::/0, 192.168.77.0/24\n";

const ENDPOINT: &str = "192.0.2.1:51820";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A host with one line to the world, and an interface that stands for the tunnel.
fn make_lines(netlink: &mut Netlink) {
    for (name, other) in [("wg0", "wg0-far"), ("wan", "wan-far")] {
        netlink
            .create_veth(VethEnd::new(name), VethEnd::new(other))
            .unwrap();
        let far = netlink.index_of(other).unwrap();
        netlink.set_up(far).unwrap();
    }
    let wan = netlink.index_of("wan").unwrap();
    netlink.set_up(wan).unwrap();
    netlink.add_address(wan, ip("198.51.100.2"), 24).unwrap();
    let default = Route::default_of(Family::V4).via(ip("198.51.100.1"));
    netlink.add_route(&default).unwrap();
}

fn plan(netlink: &mut Netlink, adjust: impl FnOnce(&mut Facts)) -> Plan {
    let import = wgquick::parse(FILE, "wg0.conf", wgquick::Options::default());
    let tunnel = import.into_tunnel().unwrap().0;
    let endpoints = [ENDPOINT.parse().unwrap()];
    let mut facts = Facts::gather(&tunnel, &endpoints, netlink).unwrap();
    adjust(&mut facts);
    Plan::new(&tunnel, &facts, Options::default()).unwrap()
}

fn state(netlink: &mut Netlink) -> impl PartialEq + std::fmt::Debug + use<> {
    let tunnels = ["wg0", "wg0-far"].map(|name| netlink.index_of(name).ok());
    let rules = [Family::V4, Family::V6].map(|family| netlink.rules(family).unwrap());
    let mut routes = netlink.routes(None).unwrap();
    // IPv6 gives every interface routes of its own whenever it is ready.
    routes.retain(|route| route.dst.is_ipv4() && !tunnels.contains(&route.dev));
    (rules, routes, sysctl(super::super::plan::SRC_VALID_MARK))
}

fn dev_to(netlink: &mut Netlink, to: &str, mark: u32) -> String {
    let way = netlink.route_get(ip(to), mark).unwrap();
    netlink.name_of(way.dev).unwrap()
}

/// Runs `test` in a host of its own, with a journal directory; says why it cannot.
fn in_host(name: &str, test: impl FnOnce(&mut Netlink, &Path) + Send) {
    let host = match Host::new(name) {
        Ok(host) => host,
        Err(error) => return eprintln!("skipped, needs network namespaces: {error}"),
    };
    let directory = std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
    host.run(|| {
        let mut netlink = Netlink::open().unwrap();
        make_lines(&mut netlink);
        test(&mut netlink, &directory);
    })
    .unwrap();
    let left = fs::read_dir(&directory).map_or(0, Iterator::count);
    let _ = fs::remove_dir_all(&directory);
    assert_eq!(left, 0, "a journal is left");
}

#[test]
fn a_full_tunnel_is_made_and_taken_back() {
    in_host("apply", |netlink, directory| {
        let before = state(netlink);
        let plan = plan(netlink, |facts| assert!(facts.suppress_prefixlength));
        assert_eq!((plan.mtu, plan.fwmark), (1420, 51820));
        let applied = Applied::apply_in(directory, &plan, "wg0", netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0");
        assert_eq!(dev_to(netlink, "2001:db8::1", 0), "wg0");
        assert_eq!(dev_to(netlink, "192.0.2.1", plan.fwmark), "wan");
        // What is on the link stays there.
        assert_eq!(dev_to(netlink, "198.51.100.7", 0), "wan");
        assert_eq!(netlink.link("wg0").unwrap().mtu, 1420);
        applied.undo().unwrap();
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn a_kernel_without_suppression_gets_halves() {
    in_host("halves", |netlink, directory| {
        let before = state(netlink);
        let plan = plan(netlink, |facts| facts.suppress_prefixlength = false);
        let applied = Applied::apply_in(directory, &plan, "wg0", netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0");
        assert_eq!(dev_to(netlink, "192.0.2.1", 0), "wan");
        applied.undo().unwrap();
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn a_killed_daemons_changes_are_undone_by_the_next() {
    in_host("killed", |netlink, directory| {
        let before = state(netlink);
        let plan = plan(netlink, |_| {});
        let mut applied = Applied::apply_in(directory, &plan, "wg0", netlink).unwrap();
        // As the kernel does with a dead process's files.
        applied.journal = None;
        drop(applied);
        assert_ne!(state(netlink), before);
        recovered(directory, "wg0", netlink)
            .unwrap()
            .remove()
            .unwrap();
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn a_plan_that_fails_half_way_leaves_nothing() {
    in_host("half", |netlink, directory| {
        let before = state(netlink);
        let mut plan = plan(netlink, |_| {});
        let again = plan.steps[0].clone();
        plan.steps.push(again);
        let error = Applied::apply_in(directory, &plan, "wg0", netlink).unwrap_err();
        assert!(matches!(error, ApplyError::Netlink(error) if error.is_exists()));
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn two_full_tunnels_do_not_take_each_others_rules() {
    in_host("two", |netlink, directory| {
        let before = state(netlink);
        let first = plan(netlink, |_| {});
        let first = Applied::apply_in(directory, &first, "wg0", netlink).unwrap();
        let between = state(netlink);
        let mut second = plan(netlink, |_| {});
        // The same network by two interfaces is refused, as it should be.
        let network = |step: &Step| matches!(step, Step::Route { table: MAIN, .. });
        second.steps.retain(|step| !network(step));
        assert_eq!(second.fwmark, 51821);
        let second = Applied::apply_in(directory, &second, "wg0-far", netlink).unwrap();
        assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0-far");
        second.undo().unwrap();
        assert_eq!(state(netlink), between);
        first.undo().unwrap();
        assert_eq!(state(netlink), before);
    });
}
