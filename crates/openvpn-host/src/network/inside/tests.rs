//! The whole inside, in a network namespace.

use config::openvpn::Network;
use lab::Host;
use netio::netlink::{Family as AddressFamily, Route, VethEnd};
use netio::poll::Waker;
use openvpn::push::{PullFilter, PushReply};

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn interface(netlink: &mut Netlink, name: &str) -> u32 {
    let far = format!("{name}-far");
    netlink
        .create_veth(VethEnd::new(name), VethEnd::new(&far))
        .unwrap();
    let far = netlink.index_of(&far).unwrap();
    netlink.set_up(far).unwrap();
    netlink.index_of(name).unwrap()
}

fn plan(options: &str, remote: &str, ifname: &str) -> Inside {
    let never = Waker::new().unwrap();
    let reply = PushReply::parse(options.split(','), &PullFilter::default()).unwrap();
    let around = Surroundings {
        ifname,
        remote: Some(ip(remote)),
        mark: 0,
    };
    let network = TunnelNetwork::merge(&Network::default(), 1500, Some(&reply)).unwrap();
    let names: Vec<String> = network.names().map(str::to_owned).collect();
    let names = route_names(&names, &Stop::new(&never));
    Inside::of(network, &names, around).unwrap()
}

fn dev_to(netlink: &mut Netlink, to: &str) -> String {
    let way = netlink.route_get(ip(to), 0).unwrap();
    netlink.name_of(way.dev).unwrap()
}

/// IPv4 routes only: the kernel adds IPv6 routes to interfaces after an unknown delay.
fn routes(netlink: &mut Netlink) -> Vec<Route> {
    let mut routes = netlink.routes(None).unwrap();
    routes.retain(|route| route.dst.is_ipv4());
    routes
}

const PUSHED: &str = "topology subnet,ifconfig 10.8.0.2 255.255.255.0,route-gateway 10.8.0.1";

#[test]
fn a_client_comes_reconnects_and_goes() {
    let Some(host) = lab::require(Host::new("inside")) else {
        return;
    };
    // Journals are named after their interfaces.
    let ifname = format!("ti{}", std::process::id() % 1_000_000);
    host.run(|| {
        let mut netlink = Netlink::open().unwrap();
        interface(&mut netlink, &ifname);
        let wan = interface(&mut netlink, "wan");
        netlink.set_up(wan).unwrap();
        netlink
            .add_address(wan, ip("198.51.100.2"), 24, None)
            .unwrap();
        let default = Route::default_of(AddressFamily::V4).via(ip("198.51.100.1"));
        netlink.add_route(&default).unwrap();
        let before = routes(&mut netlink);

        // Without `def1` the default route is replaced.
        let options = format!("{PUSHED},redirect-gateway,route 10.9.0.0 255.255.0.0");
        let mut inside = plan(&options, "192.0.2.1", &ifname);
        inside.set_interface(true).unwrap();
        assert_eq!(inside.network.addresses[0].addr, ip("10.8.0.2"));
        assert_eq!(dev_to(&mut netlink, "8.8.8.8"), "wan");
        inside.set_routes().unwrap();
        for to in ["8.8.8.8", "10.9.0.1", "10.8.0.1", "192.0.2.2"] {
            assert_eq!(dev_to(&mut netlink, to), ifname, "{to}");
        }
        assert_eq!(dev_to(&mut netlink, "192.0.2.1"), "wan");

        // The next server is reached outside the tunnel, and pushes the same options.
        inside.keep_outside(ip("192.0.2.2")).unwrap();
        assert_eq!(dev_to(&mut netlink, "192.0.2.2"), "wan");
        assert!(inside.is_like(&plan(&options, "192.0.2.2", &ifname)));
        assert!(!inside.is_like(&plan(&options, "192.0.2.3", &ifname)));

        // A plan made under the old settings must also work after them.
        let options = format!("{PUSHED},redirect-gateway");
        let mut second = plan(&options, "192.0.2.3", &ifname);
        assert!(!inside.is_like(&second));
        inside.undo();
        inside.undo();
        assert_eq!(routes(&mut netlink), before);
        second.set_interface(true).unwrap();
        second.set_routes().unwrap();
        assert_eq!(dev_to(&mut netlink, "8.8.8.8"), ifname);
        assert_eq!(dev_to(&mut netlink, "192.0.2.3"), "wan");
        assert!(!second.follow().unwrap());
        drop(second);
        // The interface stays up; its addresses and routes are gone.
        assert_eq!(routes(&mut netlink), before);
    })
    .unwrap();
}
