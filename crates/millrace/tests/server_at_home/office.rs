//! An office with branches: the network behind each reaches the office's and those of the others, by what `peer add
//! --behind` writes, while the server goes on.

use super::*;

/// A host in the network 192.168.N.0/24 behind branch N, which forwards.
pub(super) fn behind(branch: &Host, network: u8) -> Host {
    let host = Host::private("store").unwrap();
    let link = LinkOptions::numbered(network);
    Link::new(branch, "br-lan", &host, "eth0", &link).unwrap();
    host.add_default_route(link.a4()).unwrap();
    host.add_default_route(link.a6()).unwrap();
    for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        branch.sysctl(key, "1").unwrap();
    }
    host
}

/// The routes of a host into its tunnel; none while there is no tunnel.
fn routes(host: &Host, device: &str) -> String {
    let words = |family| [family, "route", "show", "dev", device];
    let of = |family| host.command("ip").args(words(family)).exit().unwrap();
    of("-4").stdout + &of("-6").stdout
}

pub(super) struct Office {
    pub(super) place: Place,
    pub(super) path: PathBuf,
    pub(super) server: String,
}

impl Office {
    pub(super) fn new(protocol: &str) -> Self {
        let place = Place::new();
        let path = place.init(protocol, &[]);
        let server = path.display().to_string();
        Self {
            place,
            path,
            server,
        }
    }

    /// Runs `millrace peer`; returns its notes.
    pub(super) fn peer(&self, words: &[&str]) -> String {
        let words = [&["peer"], words, &["--server", &self.server]].concat();
        let exit = self.place.home.command(PROGRAM).args(words).exit().unwrap();
        let notes = exit.stderr.clone();
        exit.success().unwrap();
        notes
    }

    /// Networks whose addresses do not belong behind a branch are refused. The branch `store-8` is connected.
    fn keeps_its_own(&self, outer: &str) {
        let home = &self.place.home;
        let far = "route add default via 198.51.100.1 dev wan onlink metric 900";
        home.output("ip", far.split(' ')).unwrap();
        let inner = "route add 192.168.50.0/24 via 192.168.2.254 dev wan onlink";
        home.output("ip", inner.split(' ')).unwrap();
        let table = self.place.path("branches.csv");
        fs::write(&table, "store-9,192.168.9.0/24\nstore-10,192.168.2.0/30\n").unwrap();
        let to = self.place.path("none").display().to_string();
        let table = table.display().to_string();
        for (words, why) in [
            (
                &["set", "store-8", "--behind", "192.168.2.0/24"][..],
                "--behind 192.168.2.0/24: overlaps 192.168.2.0/24, the office's own network at wan; choose",
            ),
            (
                &["add", "store-9", "--behind", "fd00:2::2/128"],
                "overlaps fd00:2::/64, the office's own network at wan; choose",
            ),
            (
                &["add", "store-9", "--behind", "192.0.0.0/4"],
                "the office's own network",
            ),
            (
                &["add", "store-9", "--behind", "198.51.100.0/24"],
                "overlaps 198.51.100.1/32, the office's gateway at wan; choose a network without it",
            ),
            (
                &["add", "store-9", "--behind", "192.168.50.128/25"],
                "overlaps 192.168.50.0/24, to which this host has a route through wan; choose",
            ),
            (&["add", "store-9", "--behind", "192.168.4.0/24"], outer),
            (
                &["add", "--from", &table, "--to", &to],
                "branches.csv:2: 192.168.2.0/30: overlaps 192.168.2.0/24, the office's own network at wan",
            ),
        ] {
            let refused = self.refused(words);
            assert!(refused.contains(why), "{words:?}: {refused}");
        }
    }

    /// Waits until packets to a network that was behind a branch get no further, and no branch has been sent elsewhere.
    fn closes(&self, network: &str) {
        let home = &self.place.home;
        until(&format!("no way to {network}"), || {
            let way = home.output("ip", ["route", "show", network]).unwrap();
            way.starts_with("unreachable ") && way.lines().count() == 1
        });
        let counts = home.run(|| fs::read_to_string("/proc/net/snmp")).unwrap();
        let counts = counts.unwrap();
        let mut icmp = counts.lines().filter_map(|it| it.strip_prefix("Icmp: "));
        let names = icmp.next().unwrap().split(' ');
        let mut counts = names.zip(icmp.next().unwrap().split(' '));
        let sent = counts.find(|(name, _)| *name == "OutRedirects").unwrap();
        assert_eq!(sent.1, "0");
    }

    fn refused(&self, words: &[&str]) -> String {
        let words = [&["peer"], words, &["--server", &self.server]].concat();
        self.place.refused(&words)
    }

    /// The fields `name`, `behind` and `file` of `peer list`, a line for each client.
    pub(super) fn list(&self) -> String {
        let words = ["peer", "list", "--json", "--server", &self.server];
        let rows: serde_json::Value = serde_json::from_str(&self.place.millrace(&words)).unwrap();
        let row =
            |it: &serde_json::Value| format!("{} {} {}\n", it["name"], it["behind"], it["file"]);
        rows.as_array().unwrap().iter().map(row).collect()
    }

    /// Waits until the kernel has, or lacks, a route into the tunnel.
    pub(super) fn has_route(&self, network: &str, wanted: bool) {
        until(&format!("{network}: {wanted}"), || {
            routes(&self.place.home, "home").contains(network) == wanted
        });
    }

    pub(super) fn reload(&self, process: &Process) {
        let said = |it: &Process| it.stderr().matches("was read again").count();
        let before = said(process);
        process.signal(Signal::SIGHUP).unwrap();
        until("a reload", || said(process) > before);
    }
}

#[test]
fn networks_behind_wireguard_branches_reach_each_other() {
    if !ready(&["wg", "wg-quick", "wireguard-go", "nft", "ip"]) {
        return;
    }
    let office = Office::new("wireguard");
    let place = &office.place;
    let process = place.up(&office.path, "is up");
    let [seven_at, eight_at, _] = &place.clients[..] else {
        unreachable!()
    };
    let [in_seven, in_eight] = [behind(seven_at, 7), behind(eight_at, 8)];
    let file = |name: &str| place.path(name);
    let add = |name: &str, more: &[&str], file: &Path| {
        let file = file.display().to_string();
        let words = [&["add", name, "--lan-only", "--file", &file], more].concat();
        office.peer(&words)
    };
    let seven = ["--behind", "192.168.7.0/24", "--behind", "fd00:7::/64"];
    let notes = add("store-7", &seven, &file("seven0.conf"));
    assert!(!notes.contains("client files"), "{notes}");
    office.has_route("192.168.7.0/24", true);
    office.has_route("fd00:7::/64", true);
    let old = Quick::up(seven_at, file("seven0.conf"));
    reaches(&in_seven, IN_LAN);
    // Masquerading covers the branch's network: the host at home has no route back.
    assert_eq!(seen_by(&place.lan, IN_LAN, &in_seven), ip("192.168.1.1"));
    reaches(&place.home, "192.168.7.2");
    reaches(&place.home, "fd00:7::2");

    let notes = add(
        "store-8",
        &["--behind", "192.168.8.1/24"],
        &file("eight0.conf"),
    );
    assert!(
        notes.contains("192.168.8.1/24 is taken as 192.168.8.0/24"),
        "{notes}"
    );
    assert!(
        notes.contains("lack this change or an earlier one: 1 ("),
        "{notes}"
    );
    let text = fs::read_to_string(file("eight0.conf")).unwrap();
    assert!(text.contains(", 192.168.7.0/24, fd00:7::/64\n"), "{text}");
    assert_eq!(
        office.list(),
        "\"store-7\" [\"192.168.7.0/24\",\"fd00:7::/64\"] \"outdated\"\n\
         \"store-8\" [\"192.168.8.0/24\"] \"current\"\n"
    );
    for (words, other) in [
        (
            ["set", "store-8", "--behind", "192.168.0.0/22"],
            "192.168.1.0/24, the office's own network",
        ),
        (
            ["add", "store-9", "--behind", "192.168.8.128/25"],
            "192.168.8.0/24, behind store-8",
        ),
        (["add", "store-9", "--behind", "0.0.0.0/0"], "all addresses"),
    ] {
        let refused = office.refused(&words);
        assert!(refused.contains(other), "{refused}");
    }
    // The old file of branch 7 does not name the network of branch 8.
    let _eight = Quick::up(eight_at, file("eight0.conf"));
    reaches(&in_eight, IN_LAN);
    no_ping(&in_eight, "192.168.7.2");
    office
        .keeps_its_own("overlaps 192.168.4.2/32, the address from which store-8 connects; choose");
    drop(old);
    office.peer(&["revoke", "store-7"]);
    office.has_route("192.168.7.0/24", false);
    office.closes("192.168.7.0/24");
    office.has_route("192.168.8.0/24", true);
    add("store-7", &seven, &file("seven1.conf"));
    let _seven = Quick::up(seven_at, file("seven1.conf"));
    reaches(&in_eight, "192.168.7.2");
    reaches(&in_seven, "192.168.8.2");
    assert!(!office.list().contains("outdated"), "{}", office.list());

    for _ in 0..2 {
        office.reload(&process);
        office.has_route("192.168.7.0/24", true);
    }
    pings(&in_eight, "192.168.7.2", 3);
    office.peer(&["set", "store-7", "--behind", "none"]);
    office.has_route("192.168.7.0/24", false);
    let tables = || place.home.output("nft", ["list", "ruleset"]).unwrap();
    until("no masquerading", || !tables().contains("192.168.7.0/24"));
    office.peer(&["set", "store-7", "--behind", "192.168.7.0/24"]);
    office.has_route("192.168.7.0/24", true);
    reaches(&in_eight, "192.168.7.2");
    office.peer(&["revoke", "store-7"]);
    office.has_route("192.168.7.0/24", false);
    office.closes("192.168.7.0/24");
    drop((_seven, _eight));
    place.down(&office.path, process);
}

pub(super) const READY: &str = "Initialization Sequence Completed";

#[test]
fn networks_behind_openvpn_branches_reach_each_other() {
    if !ready(&["openvpn", "nft", "ip"]) {
        return;
    }
    let office = Office::new("openvpn");
    let place = &office.place;
    // A server of an earlier version has no directory for single clients; and a person has written into the file.
    let text = fs::read_to_string(&office.path).unwrap();
    let is_new = |line: &&str| line.starts_with("client-config-dir ");
    let line = text.lines().find(is_new).unwrap();
    let text = text.replace(
        &format!("{line}\n"),
        "route 10.99.0.0 255.255.0.0 # mine\n\n",
    );
    fs::write(&office.path, &text).unwrap();
    fs::remove_dir(place.path("home.d/ccd")).unwrap();
    let process = place.up(&office.path, READY);
    let [seven_at, eight_at, _] = &place.clients[..] else {
        unreachable!()
    };
    let [in_seven, in_eight] = [behind(seven_at, 7), behind(eight_at, 8)];
    let file = |name: &str| place.path(&format!("{name}.ovpn"));
    let add = |name: &str, more: &[&str]| {
        let file = file(name).display().to_string();
        let words = [&["add", name, "--lan-only", "--file", &file], more].concat();
        office.peer(&words)
    };
    add(
        "store-7",
        &["--behind", "192.168.7.0/24", "--behind", "fd00:7::/64"],
    );
    office.has_route("192.168.7.0/24", true);
    office.has_route("fd00:7::/64", true);
    let mut seven = openvpn(seven_at, &file("store-7"));
    is_in(&mut seven);
    reaches(&in_seven, IN_LAN);
    assert_eq!(seen_by(&place.lan, IN_LAN, &in_seven), ip("192.168.1.1"));
    reaches(&place.home, "192.168.7.2");
    reaches(&place.home, "fd00:7::2");

    // Branch 7 learns of the network of branch 8 while it is in, and not of its own.
    let notes = add("store-8", &["--behind", "192.168.8.0/24"]);
    assert!(notes.contains("reconnect within seconds"), "{notes}");
    let mut eight = openvpn(eight_at, &file("store-8"));
    is_in(&mut eight);
    let learns = |network: &str, wanted: bool| {
        until(&format!("at branch 7, {network}: {wanted}"), || {
            let all = routes(seven_at, "tun0");
            !all.is_empty() && all.contains(network) == wanted
        });
    };
    learns("192.168.8.0/24", true);
    reaches(&in_seven, "192.168.8.2");
    reaches(&in_eight, "192.168.7.2");
    for own in ["192.168.7.0/24", "fd00:7::/64"] {
        let all = routes(seven_at, "tun0");
        assert!(!all.contains(own), "{all}");
    }
    let refused = office.refused(&["set", "store-8", "--behind", "192.168.7.0/25"]);
    assert!(
        refused.contains("192.168.7.0/24, behind store-7"),
        "{refused}"
    );
    let refused = office.refused(&["set", "store-8", "--behind", "10.0.0.0/8"]);
    assert!(refused.contains("the tunnel's own addresses"), "{refused}");
    for _ in 0..2 {
        office.peer(&["set", "store-8", "--behind", "192.168.8.0/24"]);
        office.has_route("192.168.8.0/24", true);
    }
    pings(&in_seven, "192.168.8.2", 3);
    office
        .keeps_its_own("overlaps 192.168.4.2/32, the address from which store-8 connects; choose");
    office.peer(&["rename", "store-8", "berlin"]);
    assert_eq!(
        office.list(),
        "\"store-7\" [\"192.168.7.0/24\",\"fd00:7::/64\"] \"current\"\n\
         \"berlin\" [\"192.168.8.0/24\"] \"current\"\n"
    );
    place.down(&office.path, process);
    drop((seven, eight));

    // The stock program serves the same file.
    let mut stock = openvpn(&place.home, &office.path);
    is_in(&mut stock);
    office.has_route("192.168.7.0/24", true);
    let mut seven = openvpn(seven_at, &file("store-7"));
    is_in(&mut seven);
    learns("192.168.8.0/24", true);
    let all = routes(seven_at, "tun0");
    assert!(!all.contains("192.168.7.0/24"), "{all}");
    drop((seven, stock));

    let process = place.up(&office.path, READY);
    let mut seven = openvpn(seven_at, &file("store-7"));
    is_in(&mut seven);
    office.peer(&["revoke", "berlin"]);
    office.has_route("192.168.8.0/24", false);
    learns("192.168.8.0/24", false);
    office.closes("192.168.8.0/24");
    office.peer(&["set", "store-7", "--behind", "none"]);
    office.has_route("192.168.7.0/24", false);
    assert_eq!(fs::read_dir(place.path("home.d/ccd")).unwrap().count(), 0);
    let with = text.replacen("<ca>", &format!("{line}\n<ca>"), 1);
    assert_eq!(fs::read_to_string(&office.path).unwrap(), with);
    drop(seven);
    place.down(&office.path, process);
}
