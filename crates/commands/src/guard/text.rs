//! Formats the guard's report for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};
use steer::guard::{PRIORITIES, PartReport, Report, State};
use steer::{Part, Way, Why};

/// The names of the families, in the report's order.
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

/// The report as text.
pub(crate) fn render(report: &Report) -> String {
    let mut out = format!("guard: {}\n", headline(report));
    for (label, value) in rows(report) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {label}: {value}");
    }
    out
}

/// The state of the guard, with the first device of the LAN that it cannot guard.
fn headline(report: &Report) -> String {
    let state = report.state.name();
    let idle = report.idle.first().and_then(|it| it.split(": ").next());
    let Some(why) = idle.filter(|_| report.state != State::Off) else {
        return state.to_owned();
    };
    let guarded = report.guard.as_ref().map_or(0, |it| it.guarded().len());
    match report.idle.len() < guarded {
        true => format!("{state}, but {why}"),
        false => format!("nothing is blocked: {why}"),
    }
}

/// The rows of the report, each with its name.
pub(crate) fn rows(report: &Report) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut line = |label: &str, value: &str| rows.push((label.to_owned(), value.to_owned()));
    let is_one = is_one(report);
    if let Some(guard) = &report.guard {
        line("guarded", &guard.guarded().join(", "));
        if !guard.reach.is_empty() {
            line("they reach", &guard.reach.join(", "));
        }
    }
    if report.state != State::Off {
        for part in report.parts.iter().filter(|_| !is_one) {
            let tunnels = match part.tunnels.is_empty() {
                true => "through no tunnel".to_owned(),
                false => format!("only through {}", part.tunnels.join(", ")),
            };
            line(
                &part.lan.join(", "),
                &format!("{tunnels}: {}", part.words()),
            );
        }
        let ways = report
            .parts
            .iter()
            .filter(|_| is_one)
            .flat_map(|it| &it.ways);
        for (family, way) in FAMILIES.iter().zip(ways) {
            match way {
                Way::Through { device, .. } => line(family, &format!("through {device}")),
                Way::Held(why) => line(family, &format!("held: {why}")),
            }
        }
        let rules = match report.rules[0] == report.rules[1] {
            true => report.rules[0].words().to_owned(),
            false => format!(
                "IPv4 {}, IPv6 {}",
                report.rules[0].words(),
                report.rules[1].words()
            ),
        };
        line("packet filter", report.chain.words());
        let [lan, .., nowhere] = PRIORITIES;
        line(&format!("rules {lan} to {nowhere}"), &rules);
        for (label, layer) in [
            ("masquerading", &report.masquerade),
            ("the router's own packets", &report.router),
            ("port 53 to the router", &report.redirect),
            ("dnsmasq through the tunnel", &report.dnsmasq),
        ] {
            if let Some(layer) = layer {
                line(label, layer.words());
            }
        }
        if let Some(refused) = report.refused {
            let s = if refused == 1 { "" } else { "s" };
            line("refused", &format!("{refused} packet{s}"));
        }
    }
    for note in report.idle.iter().chain(&report.notes) {
        line("note", note);
    }
    if let Some(words) = unwatched(report) {
        line("note", &words);
    }
    if let Some(how) = how(report) {
        line("to unblock", &how);
    }
    rows
}

/// The remedy if no process follows tunnels and networks.
fn unwatched(report: &Report) -> Option<String> {
    let is_on = report.state != State::Off && report.asked;
    (is_on && !report.watched).then(|| {
        format!(
            "no `millrace guard watch` runs, so tunnels that come up later get no route, and new networks of the LAN \
             are not followed; {}, or run `millrace guard refresh` after each change",
            steer::to_watch("guard")
        )
    })
}

/// Whether all guarded devices have the same tunnels: those of the file.
fn is_one(report: &Report) -> bool {
    let groups = report.guard.as_ref().map_or(&[][..], |it| &it.groups);
    groups.is_empty()
}

/// The state of a group of devices, while the guard is on.
pub(crate) fn state_of(part: &PartReport) -> State {
    match part.is_through() {
        true => State::Through,
        false => State::Held,
    }
}

/// Returns advice on how to unblock the blocked devices.
fn how(report: &Report) -> Option<String> {
    match report.state {
        State::Held => {
            let mut ways: Vec<String> = Vec::new();
            let mut tunnels: Vec<&str> = Vec::new();
            for part in report.held() {
                let mut whys = part.ways.iter().filter_map(|way| match way {
                    Way::Held(why) => Some(why),
                    Way::Through { .. } => None,
                });
                // A tunnel that is up is not what is missing.
                if whys.any(|why| matches!(why, Why::NoRoute { .. })) {
                    let way = "add the route into the tunnel: run `millrace guard watch`, or `millrace guard refresh` \
                               once";
                    if !ways.iter().any(|it| it == way) {
                        ways.push(way.to_owned());
                    }
                    continue;
                }
                if part.tunnels.is_empty() {
                    ways.push(format!(
                        "name a tunnel of {} in guard.toml and in the list",
                        part.lan.join(", ")
                    ));
                }
                for tunnel in &part.tunnels {
                    if !tunnels.contains(&tunnel.as_str()) {
                        tunnels.push(tunnel);
                    }
                }
            }
            if !tunnels.is_empty() {
                ways.insert(0, format!("bring a tunnel up ({})", tunnels.join(", ")));
            }
            ways.push(
                "or run `millrace guard off`: then all traffic leaves unencrypted".to_owned(),
            );
            Some(ways.join(", "))
        }
        State::Through => Some("`millrace guard off`".to_owned()),
        State::Off => None,
    }
}

/// The report as a document for programs.
pub(crate) fn document(report: &Report) -> Value {
    let way = |way: &Way| match way {
        Way::Through { device, .. } => json!({"through": device}),
        Way::Held(why) => json!({"held": why.to_string()}),
    };
    let names = |list: &[String]| json!(list);
    let group = |part: &PartReport| {
        json!({
            "lan": part.lan,
            "state": state_of(part).name(),
            "tunnels": part.tunnels,
            "table": part.table,
            "ipv4": way(&part.ways[0]),
            "ipv6": way(&part.ways[1]),
        })
    };
    let guard = report.guard.as_ref();
    let notes: Vec<&String> = report.idle.iter().chain(&report.notes).collect();
    // While the guard is off, no part is needed.
    let is_on = report.state != State::Off || report.asked;
    let part = |part: &Part| match is_on {
        true => part.words().to_owned(),
        false => Part::NotNeeded.words().to_owned(),
    };
    json!({
        "state": report.state.name(),
        "asked": report.asked,
        "whole": report.state != State::Off && report.is_good(),
        "lan": guard.map(|it| json!(it.guarded())),
        "reach": guard.map(|it| names(&it.reach)),
        "table": guard.map(|it| it.table),
        // The first group's routes; it is the only group unless interfaces list devices.
        "ipv4": report.parts.first().map(|it| way(&it.ways[0])),
        "ipv6": report.parts.first().map(|it| way(&it.ways[1])),
        "groups": report.parts.iter().map(group).collect::<Vec<_>>(),
        "packet_filter": part(&report.chain),
        "rules_ipv4": part(&report.rules[0]),
        "rules_ipv6": part(&report.rules[1]),
        "masquerade": report.masquerade.as_ref().map(Part::words),
        "router": report.router.as_ref().map(Part::words),
        "watched": report.watched,
        "dns_redirect": report.redirect.as_ref().map(Part::words),
        "dnsmasq": report.dnsmasq.as_ref().map(Part::words),
        "refused_packets": report.refused,
        "notes": notes,
        "to_let_go": how(report),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::guard::{Guard, Listed};

    fn report() -> Report {
        let path = std::path::Path::new("guard.toml");
        let held = Way::Held(Why::NoDevice {
            tunnels: "mr-*".to_owned(),
        });
        Report {
            state: State::Held,
            guard: Guard::from_toml("lan = [\"br-lan\"]", path).ok(),
            asked: true,
            parts: vec![PartReport {
                lan: vec!["br-lan".to_owned()],
                tunnels: vec!["mr-*".to_owned()],
                table: 77,
                ways: [held.clone(), held],
            }],
            chain: Part::Whole,
            rules: [Part::Whole, Part::Missing],
            redirect: None,
            masquerade: Some(Part::Whole),
            router: None,
            marks: Vec::new(),
            watched: true,
            dnsmasq: Some(Part::Missing),
            refused: Some(7),
            idle: vec!["no device".to_owned()],
            notes: vec!["a word".to_owned()],
        }
    }

    #[test]
    fn held_says_why_and_how_to_let_go() {
        let text = render(&report());
        for wanted in [
            "guard: nothing is blocked: no device\n",
            "  guarded: br-lan\n",
            "  IPv4: held: no tunnel is up: there is no device mr-*\n",
            "  rules 900 to 981: IPv4 in place, IPv6 missing\n",
            "  dnsmasq through the tunnel: missing\n",
            "  refused: 7 packets\n",
            "  note: no device\n  note: a word\n",
            "  to unblock: bring a tunnel up (mr-*), or run `millrace guard off`",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is not in {text}");
        }
    }

    #[test]
    fn the_headline_names_a_device_that_is_missing() {
        let mut report = report();
        let path = std::path::Path::new("guard.toml");
        report.guard = Guard::from_toml("lan = [\"br-lan\", \"br-guest\"]", path).ok();
        for (idle, wanted) in [
            (&[][..], "held"),
            (
                &["there is no device br-guest: packets"],
                "held, but there is no device br-guest",
            ),
            (
                &[
                    "there is no device br-lan: packets",
                    "there is no device br-guest: packets",
                ],
                "nothing is blocked: there is no device br-lan",
            ),
        ] {
            report.idle = idle.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(headline(&report), wanted);
        }
        report.state = State::Off;
        assert_eq!(headline(&report), "off");
        report.asked = false;
        for key in ["packet_filter", "rules_ipv4", "rules_ipv6"] {
            assert_eq!(document(&report)[key], "not needed");
        }
    }

    #[cfg(feature = "policy")]
    #[test]
    fn a_tunnel_that_carries_nothing_is_told() {
        let dead = [("mr-office".to_owned(), "no carrier")];
        let mut report = report();
        crate::guard::judge::note_dead(&mut report, &dead);
        assert_eq!(report.notes.len(), 1, "the guard uses no tunnel");
        report.parts[0].ways = [4, 6].map(|_| Way::Through {
            device: "mr-office".to_owned(),
            index: 7,
        });
        crate::guard::judge::note_dead(&mut report, &dead);
        let text = render(&report);
        let note = "  note: no packet passes mr-office: no carrier\n";
        assert_eq!(text.matches(note).count(), 1, "{text}");
    }

    #[test]
    fn a_tunnel_that_is_up_is_not_to_be_brought_up() {
        let mut report = report();
        report.watched = false;
        report.parts[0].ways[0] = Way::Held(Why::NoRoute {
            device: "mr-office".to_owned(),
            table: 77,
        });
        let text = render(&report);
        assert!(
            text.contains("  note: no `millrace guard watch` runs"),
            "{text}"
        );
        assert!(
            text.contains("  to unblock: add the route into the tunnel"),
            "{text}"
        );
        assert!(!text.contains("bring a tunnel up"), "{text}");
        assert_eq!(document(&report)["watched"], false);
    }

    #[test]
    fn each_group_has_a_line() {
        let mut report = report();
        let list = Listed {
            interface: "office".to_owned(),
            device: "mr-office".to_owned(),
            lan: vec!["br-guest".to_owned()],
        };
        let (guard, _) = report.guard.take().unwrap().with_lists(&[list], &[]);
        report.guard = Some(guard);
        report.parts.push(PartReport {
            lan: vec!["br-guest".to_owned()],
            tunnels: vec!["mr-office".to_owned()],
            table: 7740,
            ways: [
                Way::Through {
                    device: "mr-office".to_owned(),
                    index: 7,
                },
                Way::Held(Why::NoAddress {
                    device: "mr-office".to_owned(),
                }),
            ],
        });
        let text = render(&report);
        for wanted in [
            "  guarded: br-lan, br-guest\n",
            "  br-lan: only through mr-*: held: no tunnel is up",
            "  br-guest: only through mr-office: IPv4 through mr-office; IPv6 held: mr-office has no address",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is not in {text}");
        }
        let document = document(&report);
        assert_eq!(document["groups"][1]["ipv4"]["through"], "mr-office");
        assert_eq!(document["groups"][1]["table"], 7740);
        let states = [0, 1].map(|place| document["groups"][place]["state"].clone());
        assert_eq!(states, ["held", "through"]);
        // The advice does not name the tunnel of a group whose packets pass already.
        assert_eq!(
            document["to_let_go"],
            "bring a tunnel up (mr-*), or run `millrace guard off`: then all traffic leaves unencrypted"
        );
        report.parts[0].tunnels.clear();
        let told = how(&report).unwrap();
        assert!(told.starts_with("name a tunnel of br-lan in"), "{told}");
    }

    #[test]
    fn off_is_one_line() {
        let mut report = report();
        report.state = State::Off;
        report.guard = None;
        report.idle.clear();
        report.notes.clear();
        assert_eq!(render(&report), "guard: off\n");
        assert_eq!(document(&report)["state"], "off");
        assert_eq!(document(&report)["whole"], false);
    }

    #[test]
    fn programs_get_the_same() {
        let mut full = report();
        full.redirect = Some(Part::Whole);
        full.router = Some(Part::Whole);
        full.parts[0].ways[0] = Way::Through {
            device: "mr-office".to_owned(),
            index: 7,
        };
        full.parts[0].ways.swap(0, 1);
        let mut swapped = full.clone();
        swapped.parts[0].ways.swap(0, 1);
        let mut guard = full.guard.clone().unwrap();
        guard.reach = vec!["br-iot".to_owned()];
        full.guard = Some(guard);
        let bare = Report {
            state: State::Off,
            guard: None,
            parts: Vec::new(),
            masquerade: None,
            dnsmasq: None,
            refused: None,
            ..report()
        };
        let samples = [full, swapped, bare].map(|it| document(&it));
        crate::tests::assert_documented("guard status", &samples);
        let document = document(&report());
        assert_eq!(document["state"], "held");
        assert_eq!(document["whole"], false);
        assert_eq!(document["lan"][0], "br-lan");
        assert_eq!(document["rules_ipv6"], "missing");
        assert_eq!(document["dnsmasq"], "missing");
        assert!(document["dns_redirect"].is_null());
        assert!(document["ipv4"]["held"].as_str().unwrap().contains("mr-*"));
    }
}
