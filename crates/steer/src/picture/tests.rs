//! Situations of a router, and the rows and warnings that the picture has for them.

use super::*;
use crate::facts::Facts;
use crate::fixture::{self, address, facts, ip, link, made, route, tunnel};
use crate::policy::{Lease, Resolved};
use config::policy::Mac;
use netio::netlink::Rule;

fn lease(last: u8, name: &str, address: &str) -> Lease {
    Lease {
        mac: Mac([2, 0, 0x5e, 0x10, 0, last]),
        address: ip(address),
        name: name.to_owned(),
    }
}

fn leases() -> Vec<Lease> {
    vec![
        lease(9, "Laptop", "192.168.1.9"),
        lease(2, "television", "192.168.1.7"),
        lease(3, "phone", "192.168.1.8"),
        lease(5, "", "192.168.2.5"),
    ]
}

/// The picture of a policy, as one line for each row and each warning.
fn drawn(
    resolved: Resolved,
    facts: Facts,
    leases: Vec<Lease>,
    is_guarded: bool,
    own: [Option<&str>; 2],
) -> (Vec<String>, Vec<String>) {
    let guard = guard::Report::new(Some(&fixture::guard()), true, &facts, None);
    let guard = guard::Report {
        state: guard::State::Held,
        ..guard
    };
    let present = Present::new(resolved, true, true, facts, leases);
    let scene = Scene {
        present: &present,
        guard: is_guarded.then_some(&guard),
        tunnels: &["wg0"],
        own: own.map(|it| it.map(str::to_owned)),
    };
    let drawn = scene.draw();
    let warnings = scene.warnings(true, scene.guard, &drawn);
    let line = |it: Row| {
        let who = [it.name, it.lan, it.to].join("/");
        format!("{who} {}: {} ({})", it.allowed.name(), it.path, it.by)
    };
    (drawn.rows.into_iter().map(line).collect(), warnings)
}

/// A router with four leases, and the policy of the fixture.
fn seen(facts: Facts, is_guarded: bool, own: [Option<&str>; 2]) -> (Vec<String>, Vec<String>) {
    drawn(fixture::resolved(), facts, leases(), is_guarded, own)
}

/// The facts of a policy that is in force.
fn on(mut facts: Facts, resolved: &Resolved) -> Facts {
    facts.chains.found = made(&policy::table::wanted(resolved, &facts));
    facts
}

/// The picture of the policy of a text that is in force for `br-lan`, with the tunnel mr-us up.
fn pictured(text: &str, leases: Vec<Lease>, own: [Option<&str>; 2]) -> (Vec<String>, Vec<String>) {
    let resolved = fixture::of(&format!("lan = [\"br-lan\"]\n{text}"));
    let facts = on(with_tunnel(), &resolved);
    drawn(resolved, facts, leases, false, own)
}

/// The facts with a tunnel that has both families.
fn with_tunnel() -> Facts {
    let mut facts = facts();
    facts.links.push(link(7, "mr-us", true));
    tunnel(&mut facts, 7, "10.8.0.2");
    tunnel(&mut facts, 7, "fd00:8::2");
    facts.tables.push(route("0.0.0.0", 0, 7, 7701));
    facts.tables.push(route("::", 0, 7, 7701));
    facts
}

fn entry(name: &str, rest: &str) -> String {
    format!("[[entry]]\nname = \"{name}\"\n{rest}\n")
}

const CLEAR: &str = "clear: through wan, unencrypted (the router's own routes)";
const SITES: &str = "example.org, www.example.org, 203.0.113.0/24, 2001:db8:f::/48";
const WAN: [Option<&str>; 2] = [Some("wan"), Some("wan")];

#[track_caller]
fn has(lines: &[String], wanted: &str) {
    assert!(lines.iter().any(|it| it == wanted), "{wanted}\n{lines:#?}");
}

#[test]
fn the_first_entry_decides_then_the_guard_then_the_router() {
    let around = "clear: around tunnels (policy entry bank)";
    let blocked = "blocked: blocked (policy entry guests)";
    let facts_on = on(facts(), &fixture::resolved());
    let (rows, warnings) = seen(facts_on, false, [Some("wan"), None]);
    let phone =
        format!("phone/br-lan/{SITES} clear: through wan, unencrypted (policy entry phone)");
    let held = "held: there is no device mr-us (policy entry television)";
    assert_eq!(
        rows,
        [
            format!("/br-guest/ {CLEAR}"),
            format!("/br-guest/bank.example {around}"),
            format!("/br-guest/192.168.1.0/24 {blocked}"),
            format!("/br-guest/ {CLEAR}"),
            format!("/br-guest/bank.example {around}"),
            format!("/br-guest/192.168.1.0/24 {blocked}"),
            format!("Laptop/br-lan/ {CLEAR}"),
            format!("Laptop/br-lan/bank.example {around}"),
            format!("phone/br-lan/ {CLEAR}"),
            phone.clone(),
            format!("phone/br-lan/bank.example {around}"),
            format!("television/br-lan/ {held}"),
            format!("/br-lan/ {CLEAR}"),
            format!("/br-lan/bank.example {around}"),
            // The entry names a second device, which has no lease.
            format!("// {held}"),
        ]
    );
    let down = "policy entry phone: ignored now; packets take the router's routes: there is no device mr-nl";
    has(&warnings, down);

    let mut with = facts();
    with.links.push(link(7, "mr-us", true));
    tunnel(&mut with, 7, "10.8.0.2");
    with.tables.push(route("0.0.0.0", 0, 7, 7701));
    let with = on(with, &fixture::resolved());
    let (rows, _) = seen(with.clone(), true, [Some("wan"), None]);
    let held = "held: mr-us is up, but table 77 has no default route";
    let has = |start: &str| {
        assert!(
            rows.iter().any(|it| it.starts_with(start)),
            "{start}: {rows:#?}"
        );
    };
    has("television/br-lan/ through: through mr-us; IPv6 is blocked (policy entry television)");
    has(&format!("Laptop/br-lan/ {held}"));
    has("/br-lan/bank.example blocked: around tunnels, which the guard blocks (policy entry bank)");
    has(&format!("phone/br-lan/{SITES} {held}"));
    // The router's own tunnel takes all traffic, and nothing holds it.
    let (rows, _) = seen(with, false, [Some("wg0"), None]);
    assert_eq!(
        rows[6],
        "Laptop/br-lan/ loose: through wg0 while it is up, then without it (the router's own routes)"
    );
}

#[test]
fn what_is_not_in_force_is_told() {
    let (rows, warnings) = seen(facts(), false, [None; 2]);
    let row = "television/br-lan/ clear: no route now; unencrypted once there is one (the router's own routes)";
    has(&rows, row);
    assert_eq!(warnings[0], format!("policy: {}", missing("policy")));
    let mut facts = facts();
    facts.links.retain(|it| it.name != "br-guest");
    facts.chains.found.clear();
    facts.rules[0].as_mut().unwrap().push(Rule {
        priority: Some(guard::rules::POLICY[0]),
        fwmark: Some(1),
        ..Rule::new(Family::V4, 7701)
    });
    let (_, warnings) = seen(facts, true, [None; 2]);
    for (what, words) in [
        ("policy", "packets may leave unencrypted"),
        ("policy", "there is no device br-guest"),
        ("guard", "packets may leave unencrypted"),
        ("guard", "there is no device br-guest"),
    ] {
        let has = |it: &String| it.starts_with(what) && it.contains(words);
        assert!(warnings.iter().any(has), "{what}, {words}: {warnings:#?}");
    }
}

/// Exceptions of the whole LAN stand below each device, and one that an earlier one hides does not.
#[test]
fn each_device_has_the_exceptions_that_hold_for_it() {
    let bank = entry("bank", "to = \"203.0.113.0/24\"\nway = \"around\"");
    let tv = entry("TV", "who = \"television\"\nthrough = \"mr-us\"");
    let (rows, _) = pictured(&format!("{bank}{tv}"), leases(), WAN);
    has(
        &rows,
        "television/br-lan/ through: through mr-us (policy entry TV)",
    );
    let around = "clear: around tunnels (policy entry bank)";
    has(&rows, &format!("television/br-lan/203.0.113.0/24 {around}"));

    let block = |name: &str, to: &str| entry(name, &format!("to = \"{to}\"\nway = \"block\""));
    for (second, is_hidden) in [
        (block("x", "203.0.113.0/24"), true),
        (block("x", "203.0.113.7/32"), true),
        (block("x", "203.0.0.0/16"), false),
        (block("x", "2001:db8:f::/48"), false),
        (block("x", "bank.example"), false),
    ] {
        let (rows, _) = pictured(&format!("{bank}{second}"), leases(), WAN);
        let is_told = rows.iter().any(|it| it.contains("(policy entry x)"));
        assert_ne!(is_told, is_hidden, "{second}: {rows:#?}");
    }
    // Packets within the LAN pass the first entry, and the second one blocks them.
    let wide = entry("wide", "to = \"192.168.0.0/16\"\nway = \"around\"");
    let text = format!("{wide}{}", block("x", "192.168.1.0/24"));
    let (rows, _) = pictured(&text, leases(), WAN);
    has(
        &rows,
        "/br-lan/192.168.1.0/24 blocked: blocked (policy entry x)",
    );
}

/// A tunnel that holds nothing once it is down is not one that holds.
#[test]
fn down_around_is_not_held_while_the_tunnel_is_up() {
    let text = entry(
        "TV",
        "who = \"television\"\nthrough = \"mr-us\"\ndown = \"around\"",
    );
    let (rows, _) = pictured(&text, leases(), WAN);
    let loose = "loose: through mr-us while it is up, then the router's routes (policy entry TV)";
    has(&rows, &format!("television/br-lan/ {loose}"));
    // The guard holds the device when the tunnel is down.
    let resolved = fixture::of(&format!("lan = [\"br-lan\"]\n{text}"));
    let facts = on(with_tunnel(), &resolved);
    let (rows, _) = drawn(resolved, facts, leases(), true, WAN);
    has(
        &rows,
        "television/br-lan/ through: through mr-us (policy entry TV)",
    );
}

/// Entries by address hold one family, and the other leaves freely.
#[test]
fn addresses_hold_one_family_only() {
    let by = |who: &str| entry("TV", &format!("who = \"{who}\"\nthrough = \"mr-us\""));
    let both = "IPv4 through mr-us; IPv6 through wan, unencrypted (IPv4: policy entry TV; IPv6: the router's own routes)";
    let later = "loose: through mr-us; IPv6 leaves unencrypted once the router has a route (IPv4: policy entry TV; IPv6: the router's own routes)";
    let through = "through: through mr-us (policy entry TV)";
    let or = "clear: through mr-us, or through wan, unencrypted (policy entry TV, or the router's own routes)";
    for (who, own, wanted) in [
        ("192.168.1.7", WAN, format!("television/br-lan/ clear: {both}")),
        ("192.168.1.7", [Some("wan"), None], format!("television/br-lan/ {later}")),
        ("192.168.1.0/24", WAN, format!("/br-lan/ clear: {both}")),
        ("television", WAN, format!("television/br-lan/ {through}")),
        ("br-lan", WAN, format!("/br-lan/ {through}")),
        // Some of the other devices have addresses in the network, and IPv6 of all passes the entry.
        (
            "192.168.1.128/25",
            [Some("wan"), None],
            format!("/br-lan/ {or}"),
        ),
        ("192.168.1.128/25", WAN, format!("Laptop/br-lan/ {CLEAR}")),
        // The device's IPv6 address is not known.
        (
            "2001:db8:1:1::7",
            WAN,
            "television/br-lan/ clear: IPv4 through wan, unencrypted; IPv6 through mr-us, or through wan, unencrypted (IPv4: the router's own routes; IPv6: policy entry TV, or the router's own routes)".to_owned(),
        ),
        ("10.0.0.0/8", WAN, format!("/br-lan/ {CLEAR}")),
    ] {
        let (rows, warnings) = pictured(&by(who), leases(), own);
        has(&rows, &wanted);
        let is_told = warnings.iter().any(|it| it.contains("bypass this entry"));
        let is_address = who.contains(['/', ':']) || who.contains("1.7");
        assert_eq!(is_told, is_address, "{who}: {warnings:#?}");
    }
}

/// A device that has joined another network than the policy's is shown as that network treats it.
#[test]
fn devices_outside_the_lan_are_shown_as_they_are() {
    let guest = || vec![lease(2, "television", "192.168.2.7")];
    let by = |rest: &str| entry("TV", &format!("who = \"television\"\n{rest}"));
    let outside = "because the policy's lan does not name this interface (policy entry TV)";
    let dropped = "their packets are dropped there";
    let nothing = "the entry has no effect there";
    for (rest, row, effect) in [
        (
            "through = \"mr-us\"",
            format!("blocked: blocked, {outside}"),
            dropped,
        ),
        (
            "way = \"block\"",
            format!("blocked: blocked, {outside}"),
            dropped,
        ),
        (
            "through = \"mr-us\"\ndown = \"around\"",
            CLEAR.to_owned(),
            nothing,
        ),
        ("way = \"around\"", CLEAR.to_owned(), nothing),
        (
            "way = \"block\"\nto = \"203.0.113.0/24\"",
            CLEAR.to_owned(),
            nothing,
        ),
    ] {
        let (rows, warnings) = pictured(&by(rest), guest(), WAN);
        has(&rows, &format!("television/br-guest/ {row}"));
        let words =
            "`lan` does not name the interface of television (02:00:5e:10:00:02) in br-guest";
        has(&warnings, &format!("policy entry TV: {words}: {effect}"));
    }
    let network = entry("net", "who = \"192.168.2.0/24\"\nway = \"block\"");
    let net = "clear: through wan, unencrypted; IPv4 is blocked (IPv4: policy entry net; IPv6: the router's own routes)";
    let around = by("way = \"around\"");
    for (text, row) in [
        (network.clone(), net),
        (format!("{around}{network}"), CLEAR),
        // Another entry holds the hardware address.
        (
            format!(
                "{around}{}",
                by("way = \"block\"").replace("\"TV\"", "\"TV2\"")
            ),
            "blocked: blocked, because the policy's lan does not name this interface (policy entry TV2)",
        ),
    ] {
        let (rows, _) = pictured(&text, guest(), WAN);
        has(&rows, &format!("television/br-guest/ {row}"));
    }
    // Without a lease, its interface is unknown: only an entry that holds it anywhere is certain.
    for (rest, row) in [
        (
            "through = \"mr-us\"",
            "through: through mr-us (policy entry TV)",
        ),
        (
            "through = \"mr-us\"\ndown = \"around\"",
            "clear: through mr-us while it is up, then the router's routes, or through wan, unencrypted (policy entry TV, or the router's own routes)",
        ),
    ] {
        let (rows, _) = pictured(&by(rest), Vec::new(), WAN);
        has(&rows, &format!("television// {row}"));
    }
}

/// Cut rows are told.
#[test]
fn rows_that_are_left_out_are_told() {
    let many = |count: u16| -> Vec<Lease> {
        let one = |it: u16| Lease {
            mac: Mac([2, 0, 0, 0, (it >> 8) as u8, it as u8]),
            address: ip(&format!("192.168.1.{}", it % 250 + 2)),
            name: String::new(),
        };
        (0..count).map(one).collect()
    };
    let exceptions = |count: u8| -> String {
        let one = |it| {
            entry(
                &format!("e{it}"),
                &format!("to = \"203.0.{it}.0/24\"\nway = \"block\""),
            )
        };
        (0..count).map(one).collect()
    };
    for (count, entries, wanted) in [
        (256, 0, None),
        (
            257,
            0,
            Some("devices: only 256 devices with leases have rows; the others have none"),
        ),
        (
            20,
            60,
            Some("devices: 13 devices have no row, because there are too many"),
        ),
    ] {
        let (rows, warnings) = pictured(&exceptions(entries), many(count), WAN);
        assert!(rows.len() <= ROWS_MAX);
        let told = warnings.iter().find(|it| it.starts_with("devices: "));
        assert_eq!(told.map(String::as_str), wanted);
    }
}

#[test]
fn addresses_of_a_fixture_are_those_of_its_interfaces() {
    let mut facts = facts();
    facts.addresses.push(address(2, "10.1.0.1", 16));
    assert_eq!(
        Device::of_lease(&lease(1, "", "10.1.7.7"), &facts).lan,
        "br-lan"
    );
    assert_eq!(Device::of_lease(&lease(1, "", "10.2.7.7"), &facts).lan, "");
}
