use super::*;
use proptest::prelude::*;

const PRIVATE: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
const FIRST: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
const SECOND: &str = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=";

fn read(text: &str) -> Result<Network, Vec<String>> {
    let package = Package::parse(text).unwrap();
    let network = Network::read(&package, "office");
    network.map_err(|it| it.iter().map(ToString::to_string).collect())
}

fn warnings(network: &Network) -> Vec<String> {
    network.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_file_with_everything_beside_it_is_read() {
    let network = read(
        "config interface 'office'\n option proto 'millrace'\n\
         option config_file '/etc/millrace/office.ovpn'\n list uplink 'wan'\n list uplink 'lte'\n\
         list uplink 'wan'\n option mode 'duplicate'\n option dataplane 'kernel'\n list only_through 'lan'\n option peerdns '1'\n\
         option ip4table '77'\n option mtu '1400'\n option hostroute 0\n option defaultroute 0\n\
         config interface 'lan'\n option device 'br-lan'\n option proto 'static'\n",
    )
    .unwrap();
    assert_eq!(
        network.source,
        Source::File("/etc/millrace/office.ovpn".into())
    );
    assert_eq!(network.lines, ["wan", "lte"]);
    assert_eq!(network.mode, Some(LineMode::Duplicate));
    assert_eq!(network.dataplane, Some(DataplaneKind::Kernel));
    assert_eq!(network.only_through[0].device, "br-lan");
    let routes = RouteRules {
        own_table_v4: true,
        own_table_v6: false,
        no_default: true,
    };
    assert_eq!((network.mtu, network.routes), (Some(1400), routes));
    assert!(!network.host_route);
    assert_eq!(warnings(&network), Vec::<String>::new());
    assert_eq!(network.device(), "mr-office");
    let device = |name: &str| (name == "wan").then(|| "eth1".to_owned());
    let (lines, unknown) = network.lines_by(device);
    assert_eq!(unknown, ["lte"]);
    let given = lines.unwrap().fit(false, 1);
    assert_eq!(given.warnings, Vec::<String>::new());
    assert_eq!(given.lines.mode, LineMode::Duplicate);
    assert_eq!(given.lines.lines.len(), 1);
    assert_eq!(given.lines.lines[0].interface.as_deref(), Some("eth1"));
    let mut other = network.clone();
    other.mtu = None;
    assert!(!network.needs_new_device(&other));
    other.lines.pop();
    assert!(network.needs_new_device(&other));
}

#[test]
fn prefixes_to_hand_out_are_networks() {
    let section = |more: &str| office(&format!(" option private_key {PRIVATE}\n{more}"), "");
    let network = read(&section(
        " list ip6prefix 2001:db8:7::/48\n list ip6prefix 2001:db8:7::/48\n list ip6prefix fd00::/64",
    ));
    let network = network.unwrap();
    let prefix = |word: &str, bits| (word.parse::<Ipv6Addr>().unwrap(), bits);
    let wanted = [prefix("2001:db8:7::", 48), prefix("fd00::", 64)];
    assert_eq!(network.prefixes, wanted);
    assert_eq!(warnings(&network), Vec::<String>::new());
    for wrong in [
        "2001:db8::1/48",
        "2001:db8::/65",
        "10.0.0.0/8",
        "fd00::",
        "::/0",
        "fd00::/-1",
    ] {
        let network = read(&section(&format!(" list ip6prefix {wrong}"))).unwrap();
        assert_eq!(
            (network.prefixes.len(), warnings(&network).len()),
            (0, 1),
            "{wrong}"
        );
    }
    let many: String = (0..20)
        .map(|it| format!(" list ip6prefix fd00:{it}::/48\n"))
        .collect();
    assert_eq!(read(&section(&many)).unwrap().prefixes.len(), PREFIXES_MAX);
}

fn office(interface: &str, peers: &str) -> String {
    format!("config interface office\n option proto millrace\n{interface}\n{peers}")
}

fn keyed_with(options: &str) -> Network {
    read(&office(
        &format!(" option private_key {PRIVATE}\n{options}"),
        "",
    ))
    .unwrap()
}

fn keyed(peers: &str) -> Network {
    let key = format!(" option private_key {PRIVATE}");
    read(&office(&key, peers)).unwrap()
}

#[test]
fn peers_have_the_options_of_wireguard() {
    let interface = format!(
        " option private_key '{PRIVATE}'\n option listen_port 51000\n\
         list addresses 10.8.0.2/24\n list addresses fd00::2\n option fwmark 0x10"
    );
    let peers = format!(
        "config millrace_office\n option description 'head office'\n option public_key {FIRST}\n\
         option preshared_key {SECOND}\n list allowed_ips 0.0.0.0/0\n list allowed_ips ::/0\n\
         option endpoint_host vpn.example\n option endpoint_port 4500\n\
         option persistent_keepalive 25\n option route_allowed_ips 1\n\
         config millrace_office lab\n option description 'lab-2'\n option public_key {SECOND}\n\
         option allowed_ips '10.9.1.7/16 10.10.0.1'\n option endpoint_host fd00::1\n\
         config millrace_other\n option public_key nonsense\n\
         config millrace_office\n option disabled 1\n option public_key nonsense\n"
    );
    let network = read(&office(&interface, &peers)).unwrap();
    assert_eq!(warnings(&network), Vec::<String>::new());
    let Source::Options { tunnel, unrouted } = network.source else {
        panic!("not options")
    };
    let second = Key32::from_base64(SECOND).unwrap();
    assert_eq!(unrouted, std::slice::from_ref(&second));
    let interface = &tunnel.interface;
    assert_eq!(
        (interface.listen_port, interface.fwmark),
        (Some(51000), Some(16))
    );
    let addresses: Vec<String> = interface
        .addresses
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(addresses, ["10.8.0.2/24", "fd00::2/128"]);
    let [first, lab] = &tunnel.peers[..] else {
        panic!("not two")
    };
    assert_eq!(first.preshared_key, Some(second));
    // The first description is no name of a peer.
    let names = [first, lab].map(|it| it.name.as_deref());
    assert_eq!(names, [None, Some("lab-2")]);
    assert_eq!(
        first.endpoint.as_ref().unwrap().to_string(),
        "vpn.example:4500"
    );
    assert_eq!(first.persistent_keepalive, Some(25));
    assert!(first.allowed_ips.iter().all(AllowedIp::is_default));
    assert_eq!(
        lab.endpoint.as_ref().unwrap().to_string(),
        "[fd00::1]:51820"
    );
    let ranges: Vec<String> = lab.allowed_ips.iter().map(ToString::to_string).collect();
    assert_eq!(ranges, ["10.9.0.0/16", "10.10.0.1/32"]);
}

use config::types::AllowedIp;

#[test]
fn a_peer_that_is_wrong_is_left_out_with_its_line_and_takes_no_other_with_it() {
    let network = keyed(&format!(
        "config millrace_office\n option public_key {FIRST}\n\
         config millrace_office\n option public_key short\n\
         config millrace_office bad\n option public_key {SECOND}\n list allowed_ips 10.0.0.0/33\n\
         config millrace_office\n option public_key {FIRST}\n\
         config millrace_office\n option allowed_ips 10.0.0.0/8\n option endpont_host x\n"
    ));
    let told = warnings(&network);
    let begins = [
        "network:7: @millrace_office[1].public_key: ",
        "network:10: bad.allowed_ips: ",
        "network:12: @millrace_office[3].public_key: is also another",
        "network:15: @millrace_office[4].endpont_host: unknown option, ignored; did you mean `endpoint_host`?",
        "network:13: @millrace_office[4].public_key: is missing",
    ];
    assert_eq!(told.len(), begins.len(), "{told:?}");
    for (told, begin) in told.iter().zip(begins) {
        assert!(told.starts_with(begin), "{told}");
    }
    let Source::Options { tunnel, .. } = network.source else {
        panic!("not options")
    };
    assert_eq!(tunnel.peers.len(), 1);
}

#[test]
fn what_there_is_no_tunnel_without_is_a_fault_and_the_rest_a_warning() {
    let faults = |text: &str| read(text).unwrap_err();
    assert_eq!(
        faults("config device office\n"),
        ["network: office: this interface does not exist"]
    );
    assert!(faults(&office("", ""))[0].starts_with("network:1: office.private_key: is missing"));
    let wrong = faults(&office(
        " option private_key x\n list addresses 10.0.0.1/40\n option fwmark z",
        "",
    ));
    assert_eq!(wrong.len(), 3, "{wrong:?}");
    assert!(wrong.iter().all(|it| !it.contains("x:")), "{wrong:?}");
    assert!(faults(&office(" option config_file a.conf", ""))[0].contains("absolute"));
    assert!(faults("config interface office\n option proto static\n")[0].contains("proto"));
    let network = read(&office(
        &format!(
            " option config_file /x.conf\n option private_key {PRIVATE}\n option mtu 9\n\
             option mode best\n option dataplane fast\n option uplink 'a/b'\n option hostroute maybe"
        ),
        "",
    ))
    .unwrap();
    assert_eq!(warnings(&network).len(), 6, "{:?}", warnings(&network));
    assert_eq!((network.mtu, network.mode), (None, None));
    assert_eq!(network.dataplane, None);
    assert!(network.host_route);
}

/// LuCI and netifd write options of their own, and later versions other ones. A misspelled option of ours is a fault.
#[test]
fn options_of_others_are_no_faults_and_misspelled_ones_of_ours_are() {
    let read = |name: &str| keyed_with(&format!(" option {name} '1'"));
    for name in NETIFDS.iter().filter(|it| **it != "disabled") {
        assert_eq!(warnings(&read(name)), Vec::<String>::new(), "{name}");
    }
    for name in ["future_option", "metrics", "mtu6", "ip6hints", "macaddr"] {
        assert_eq!(warnings(&read(name)), Vec::<String>::new(), "{name}");
    }
    for (name, meant) in [
        ("alow_files", "allow_files"),
        ("privat_key", "private_key"),
        ("Private_Key", "private_key"),
        ("uplinks", "uplink"),
        ("line", "uplink"),
        ("adresses", "addresses"),
        ("hostrute", "hostroute"),
        ("only_trough", "only_through"),
        ("ip6prefixes", "ip6prefix"),
        ("confg_file", "config_file"),
        ("mut", "mtu"),
    ] {
        let told = warnings(&read(name));
        let words = format!("office.{name}: unknown option; did you mean `{meant}`?");
        assert!(told.len() == 1 && told[0].ends_with(&words), "{told:?}");
    }
    let told = warnings(&read("nohostroute"));
    assert!(
        told[0].ends_with("did you mean `hostroute` with 0?"),
        "{told:?}"
    );
}

#[test]
#[cfg(feature = "amnezia")]
fn amneziawg_has_the_options_of_its_protocol() {
    let settings = |lines: &str| {
        let network = keyed_with(lines);
        assert_eq!(warnings(&network), Vec::<String>::new(), "{lines}");
        let Source::Options { tunnel, .. } = network.source else {
            panic!("not options")
        };
        tunnel.interface.amnezia
    };
    let given = settings(&format!(
        " option awg_jc 4\n option awg_jmin 40\n option awg_jmax 70\n option awg_s1 30\n option awg_s2 40\n\
         option awg_s3 25\n option awg_s4 16\n option awg_h1 100-200\n option awg_h4 '7'\n\
         option awg_i1 '<b 0xc0ffee><t>'\n option awg_i2 ''\n option awg_rekey_timeout 3-7\n\
         option awg_header_protection_key {FIRST}\n option awg_random_trailers yes\n option awg_disable_cookies 1\n"
    ));
    for (key, value) in [
        ("Jc", "4"),
        ("S4", "16"),
        ("H1", "100-200"),
        ("H4", "7"),
        ("I1", "<b 0xc0ffee><t>"),
        ("RekeyTimeout", "3-7"),
        ("RandomTrailers", "on"),
        ("DisableCookies", "on"),
    ] {
        assert_eq!(given.show(key).as_deref(), Some(value), "{key}");
    }
    assert!(given.header_key.is_some());
    assert!(settings(" option awg_random_trailers disabled").is_plain());

    for (line, option, words) in [
        ("awg_jc 4-8", "awg_jc", "must be a number from 0 to 128"),
        ("awg_jc yes", "awg_jc", "must be a number from 0 to 128"),
        ("awg_h1 2", "awg_h1", "H1 and H2 overlap; choose ranges"),
        ("awg_jmin 9", "awg_jmin", "Jmin is above Jmax; exchange"),
        ("awg_i1 '<q>'", "awg_i1", "unknown tag; use <b 0xHEX>"),
        (
            "awg_random_trailers x",
            "awg_random_trailers",
            "must be `on`",
        ),
        (
            "awg_keepalive_timeout 600",
            "awg_reject_after_time",
            "raise it",
        ),
        (
            "awg_header_protection_key c2VjcmV0",
            "awg_header_protection_key",
            "",
        ),
    ] {
        let text = office(
            &format!(" option private_key {PRIVATE}\n option {line}"),
            "",
        );
        let faults = read(&text).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        let (at, said) = faults[0]
            .split_once(&format!(": office.{option}: "))
            .unwrap();
        assert!(
            at.starts_with("network:") && said.contains(words),
            "{faults:?}"
        );
        assert!(!said.contains("c2VjcmV0"), "{said}");
    }
    for (name, words) in [
        ("awg_jcc", "unknown option; did you mean `awg_jc`?"),
        (
            "awg_header_protecion_key",
            "unknown option; did you mean `awg_header_protection_key`?",
        ),
        (
            "awg_mimic",
            "unknown AmneziaWG setting, ignored; correct or remove it",
        ),
    ] {
        let told = warnings(&keyed_with(&format!(" option {name} 1")));
        assert!(told.len() == 1 && told[0].ends_with(words), "{told:?}");
    }
    let beside = read(&office(" option config_file /x.conf\n option awg_jc 4", ""));
    let told = warnings(&beside.unwrap());
    assert!(told[0].contains("awg_jc: is ignored"), "{told:?}");
}

/// AmneziaWG draws each interval from a range.
#[test]
fn a_range_of_keepalives_counts_as_its_least() {
    let peer = |value: &str| {
        let network = keyed(&format!(
            "config millrace_office\n option public_key {FIRST}\n option persistent_keepalive {value}\n"
        ));
        let told = warnings(&network).len();
        let Source::Options { tunnel, .. } = network.source else {
            panic!("not options")
        };
        (tunnel.peers[0].persistent_keepalive, told)
    };
    assert_eq!(peer("22-30"), (Some(22), 0));
    assert_eq!(peer("25"), (Some(25), 0));
    assert_eq!(peer("0"), (Some(0), 0));
    assert_eq!(peer("70000"), (None, 1));
}

#[test]
fn the_device_of_an_interface_is_told_from_its_section() {
    let package = Package::parse(
        "config interface wan\n option proto dhcp\n option device eth1.2\n\
         config interface dsl\n option proto pppoe\n option device eth1\n\
         config interface lte\n option proto qmi\n option device /dev/cdc-wdm0\n\
         config interface wan6\n option proto dhcpv6\n option device @wan\n\
         config interface lan\n option type bridge\n option ifname 'eth0 eth2'\n\
         config interface old\n option proto static\n option ifname 'eth0 eth2'\n\
         config interface office\n option proto millrace\n\
         config interface awg0\n option proto amneziawg\n",
    )
    .unwrap();
    for (interface, device) in [
        ("wan", Some("eth1.2")),
        ("dsl", Some("pppoe-dsl")),
        ("lte", None),
        ("wan6", None),
        ("lan", Some("br-lan")),
        ("old", Some("eth0")),
        ("office", Some("mr-office")),
        ("awg0", Some("awg0")),
        ("none", None),
    ] {
        assert_eq!(
            device_of(&package, interface).as_deref(),
            device,
            "{interface}"
        );
    }
}

proptest! {
    #[test]
    fn no_options_do_harm(
        own in prop::collection::vec((prop::sample::select([&NETIFDS[..], &OURS, &replacing()].concat()), "[ -&(-~]{0,20}"), 0..8),
        peer in prop::collection::vec(("(public_key|allowed_ips|endpoint_host|endpoint_port|disabled|persistent_keepalive)", "[ -&(-~]{0,20}"), 0..8),
    ) {
        let mut text = office(&format!(" option private_key {PRIVATE}"), "");
        for (name, value) in own {
            text += &format!(" option {name} '{value}'\n");
        }
        text += "config millrace_office\n";
        for (name, value) in peer {
            text += &format!(" list {name} '{value}'\n");
        }
        let package = Package::parse(&text).unwrap();
        let _ = Network::read(&package, "office");
    }
}
