//! How the guard stands, for people and for programs.

use std::fmt::Write as _;

use config::guard::Guard;
use guard::rules::PRIORITIES;
use guard::{Layer, Report, State, Way};
use serde_json::{Value, json};

/// Names of the families, in the order of a report.
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

/// The report as text.
pub(crate) fn render(report: &Report) -> String {
    let mut out = format!("guard: {}\n", report.state.name());
    for (label, value) in rows(report) {
        // Writing to a string does not fail.
        let _ = writeln!(out, "  {label}: {value}");
    }
    out
}

/// What the report has to say, each thing with its name.
pub(crate) fn rows(report: &Report) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut line = |label: &str, value: &str| rows.push((label.to_owned(), value.to_owned()));
    if let Some(guard) = &report.guard {
        line("guarded", &guard.lan.join(", "));
        if !guard.reach.is_empty() {
            line("they reach", &guard.reach.join(", "));
        }
    }
    if report.state != State::Off {
        for (family, way) in FAMILIES.iter().zip(&report.ways) {
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
        let [lan, table, nowhere] = PRIORITIES;
        line(&format!("rules {lan}, {table}, {nowhere}"), &rules);
        for (label, layer) in [
            ("port 53 to the router", &report.redirect),
            ("dnsmasq by the tunnel", &report.dnsmasq),
        ] {
            if let Some(layer) = layer {
                line(label, layer.words());
            }
        }
        if let Some(refused) = report.refused {
            line("refused", &format!("{refused} packets"));
        }
    }
    for note in report.idle.iter().chain(&report.notes) {
        line("note", note);
    }
    if let Some(how) = how(report) {
        line("to let go", &how);
    }
    rows
}

/// How to let go of what is held.
fn how(report: &Report) -> Option<String> {
    match report.state {
        State::Held => {
            let default = Guard::default();
            let guard = report.guard.as_ref().unwrap_or(&default);
            let tunnels: Vec<String> = guard.tunnels.iter().map(ToString::to_string).collect();
            Some(format!(
                "bring a tunnel up ({}), or `millrace guard off`: everything leaves in clear then",
                tunnels.join(", ")
            ))
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
    let guard = report.guard.as_ref();
    let notes: Vec<&String> = report.idle.iter().chain(&report.notes).collect();
    json!({
        "state": report.state.name(),
        "asked": report.asked,
        "whole": report.state != State::Off && report.is_good(),
        "lan": guard.map(|it| names(&it.lan)),
        "reach": guard.map(|it| names(&it.reach)),
        "table": guard.map(|it| it.table),
        "ipv4": way(&report.ways[0]),
        "ipv6": way(&report.ways[1]),
        "packet_filter": report.chain.words(),
        "rules_ipv4": report.rules[0].words(),
        "rules_ipv6": report.rules[1].words(),
        "dns_redirect": report.redirect.as_ref().map(Layer::words),
        "dnsmasq": report.dnsmasq.as_ref().map(Layer::words),
        "refused_packets": report.refused,
        "notes": notes,
        "to_let_go": how(report),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use guard::Why;

    fn report() -> Report {
        let path = std::path::Path::new("guard.toml");
        let held = Way::Held(Why::NoDevice {
            tunnels: "mr-*".to_owned(),
        });
        Report {
            state: State::Held,
            guard: Guard::from_toml("lan = [\"br-lan\"]", path).ok(),
            asked: true,
            ways: [held.clone(), held],
            chain: Layer::Whole,
            rules: [Layer::Whole, Layer::Missing],
            redirect: None,
            dnsmasq: Some(Layer::Missing),
            refused: Some(7),
            idle: vec!["no device".to_owned()],
            notes: vec!["a word".to_owned()],
        }
    }

    #[test]
    fn held_says_why_and_how_to_let_go() {
        let text = render(&report());
        for wanted in [
            "guard: held\n",
            "  guarded: br-lan\n",
            "  IPv4: held: no tunnel is up: there is no device mr-*\n",
            "  rules 900, 980, 981: IPv4 in place, IPv6 missing\n",
            "  dnsmasq by the tunnel: missing\n",
            "  refused: 7 packets\n",
            "  note: no device\n  note: a word\n",
            "  to let go: bring a tunnel up (mr-*), or `millrace guard off`",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is not in {text}");
        }
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
