//! Lines of a tunnel that OpenWrt's netifd runs, and prefixes that it delegates.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;

use lab::acceptance::netifd::Netifd;
use lab::acceptance::{A4, B4, PORT_B, Site, peer, pings, reaches, ready};

const OFFICE: &str = "office";
const ADDRESS: &str = "10.0.0.1/24";

/// Writes the interface's section with these lines, and its peer's section.
fn write(site: &Site, lines: &str, range: &str) {
    let host = site.net.link.b4();
    let text = format!(
        "config interface '{OFFICE}'\n\toption proto 'millrace'\n\
         \toption private_key '{}'\n\toption multipath 'off'\n\tlist addresses '{A4}/24'\n{lines}\n\
         config millrace_{OFFICE}\n\toption public_key '{}'\n\
         \toption endpoint_host '{host}'\n\toption endpoint_port '{PORT_B}'\n\
         \tlist allowed_ips '{range}'\n\toption route_allowed_ips '1'\n",
        site.keys_a.private, site.keys_b.public
    );
    let new = site.directory.file("new", &text);
    fs::rename(new, site.directory.path().join("network")).unwrap();
}

fn netifd(site: &Site) -> Netifd<'_> {
    Netifd::start(&site.net.a, OFFICE, site.directory.path())
}

#[test]
fn lines_are_the_devices_of_netifds_interfaces() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _b = site.server(&[], &[]);
    let a = &site.net.a;
    let lines = "\tlist uplink 'wan'\n\tlist uplink 'lte'\n\toption mode 'failover'\n";
    write(&site, lines, "0.0.0.0/0");
    let mut netifd = netifd(&site);
    netifd.has_line("wan", "eth0");
    netifd.if_up();
    netifd.until_has(&[ADDRESS], &["0.0.0.0/1", "128.0.0.0/1"]);
    reaches(a, B4);
    let status = lab::acceptance::status_of(a, "mr-office");
    assert!(status.to_string().contains("\"wan\""), "{status}");
    assert!(netifd.until_fault("UPLINK_UNKNOWN").contains("lte"));
    // The tunnel's packets are bound to their device, so they need no route.
    let routes = a.output("ip", ["route"]).unwrap();
    let gateway = site.net.link.b4().to_string();
    assert!(!routes.contains(&format!("{gateway} dev")), "{routes}");
}

/// A tunnel whose lines have no device yet sends nothing elsewhere, although the host has a route to the peer.
#[test]
fn a_tunnel_waits_for_a_device_of_one_of_its_lines() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let b = site.server(&[], &[]);
    let a = &site.net.a;
    write(
        &site,
        "\tlist uplink 'modem'\n\tlist uplink 'stick'\n",
        "10.0.0.0/24",
    );
    let mut netifd = netifd(&site);
    netifd.if_up();
    let fault = netifd.until_fault("UPLINK_UNKNOWN");
    assert!(fault.contains("modem, stick"), "{fault}");
    netifd.until_said("waiting until the tunnel can be created");
    assert!(!a.has_interface("mr-office").unwrap());
    // After a renew the tunnel still waits; told to end, it ends.
    netifd.renew();
    netifd.if_down();
    netifd.if_up();
    netifd.until_fault("UPLINK_UNKNOWN");
    assert_eq!(peer(&b, &site.keys_a).latest_handshake, None);
    // The modem appears without any notice to the tunnel.
    netifd.has_line("modem", "eth0");
    netifd.until_has(&[ADDRESS], &["10.0.0.0/24"]);
    reaches(a, B4);
    let status = lab::acceptance::status_of(a, "mr-office");
    assert!(status.to_string().contains("\"modem\""), "{status}");
    assert_eq!(netifd.taken(), 1);
    netifd.until_faults(&["uplink stick"]);
}

#[test]
fn prefixes_are_handed_out_by_netifd_and_change_in_place() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _b = site.server(&[], &[]);
    let a = &site.net.a;
    write(&site, "\tlist ip6prefix '2001:db8:7::/48'\n", "10.0.0.0/24");
    let mut netifd = netifd(&site);
    netifd.if_up();
    netifd.until_has(&[ADDRESS], &["10.0.0.0/24"]);
    assert_eq!(netifd.prefixes(), ["2001:db8:7::/48"]);
    reaches(a, B4);
    let more = "\tlist ip6prefix '2001:db8:8::/56'\n\tlist ip6prefix 'fd00:7::/48'\n\tlist addresses '10.0.9.1/32'\n";
    write(&site, more, "10.0.0.0/24");
    netifd.renew();
    netifd.until_has(&[ADDRESS, "10.0.9.1/32"], &["10.0.0.0/24"]);
    assert_eq!(netifd.prefixes(), ["2001:db8:8::/56", "fd00:7::/48"]);
    pings(a, B4, 3);
    assert_eq!((netifd.taken(), netifd.starts), (1, 1));
    assert_eq!(netifd.complaints(), Vec::<String>::new());
}
