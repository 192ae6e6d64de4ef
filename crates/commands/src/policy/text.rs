//! Formats the policy's report for people and for programs.

use std::fmt::Write as _;

use crate::carrying::down;
use serde_json::{Value, json};
use steer::policy::{EntryReport, Report};

/// The report as text.
pub(super) fn render(report: &Report) -> String {
    let mut out = format!("policy: {}\n", headline(report));
    for (label, value) in rows(report) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {label}: {value}");
    }
    out
}

/// Adds the state of tunnels and uplinks that carry nothing to the ways through them.
pub(crate) fn mark_down(report: &mut Report, dead: &[(String, &str)]) {
    for way in report.entries.iter_mut().flat_map(|it| &mut it.ways) {
        let state = down(way, dead);
        if let Some((_, state)) = state.split_once(": ") {
            *way += &format!(", down: {state}");
        }
    }
}

/// The rows of the report, each with its name.
pub(crate) fn rows(report: &Report) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut line = |label: &str, value: &str| rows.push((label.to_owned(), value.to_owned()));
    for entry in &report.entries {
        let ways = match report.on {
            true => format!("; {}", ways(entry)),
            false => String::new(),
        };
        line(
            &format!("entry {}", entry.name),
            &format!("{} to {}{ways}", entry.who, entry.to),
        );
        if !entry.dns.is_empty() {
            line(
                "names",
                &format!("asked of {}, through the tunnel", entry.dns),
            );
        }
        if !entry.gap.is_empty() {
            line("gap", &entry.gap);
        }
    }
    if report.on {
        line("packet filter", report.table.words());
        line("rules and routes", report.rules.words());
        line("dnsmasq", report.dnsmasq.words());
        if let Some(refused) = report.refused {
            let s = if refused == 1 { "" } else { "s" };
            line("refused", &format!("{refused} packet{s}"));
        }
    }
    for other in &report.others {
        line(other.name, &other.what);
        for conflict in &other.conflicts {
            line("conflict", conflict);
        }
        for note in &other.notes {
            line("note", note);
        }
    }
    for note in report.idle.iter().chain(&report.notes) {
        line("note", note);
    }
    if report.is_unwatched() {
        line("note", &unwatched(report));
    }
    rows
}

/// A short report, to follow the status of tunnels.
pub(crate) fn render_brief(report: &Report) -> String {
    let mut out = format!("policy: {}\n", headline(report));
    for entry in &report.entries {
        let _ = writeln!(out, "  entry {}: {}", entry.name, ways(entry));
    }
    for (name, conflict) in report.conflicts() {
        let _ = writeln!(out, "  conflict with {name}: {conflict}");
    }
    if report.lacks().is_some() {
        let _ = writeln!(out, "  note: {}", report.remedy());
    }
    out
}

/// The state of the policy, with what is missing.
fn headline(report: &Report) -> String {
    match report.lacks() {
        Some(lacks) if report.is_whole() => format!("on; {lacks}"),
        Some(lacks) => format!("partly on: {lacks}"),
        None => state(report).to_owned(),
    }
}

/// The effect of a missing watch, and its remedy.
fn unwatched(report: &Report) -> String {
    format!(
        "no `millrace policy watch` runs, so tunnels that restart and new leases get no rules, and rules that other \
         programs remove stay missing; {}",
        report.remedy()
    )
}

/// Whether the policy is in force, in a word or two.
pub(crate) fn state(report: &Report) -> &'static str {
    match (report.on, report.is_whole()) {
        (false, _) => "off",
        (true, true) => "on",
        (true, false) => "partly on",
    }
}

fn ways(entry: &EntryReport) -> String {
    match &entry.ways {
        [v4, v6] if v4 == v6 => v4.clone(),
        [v4, v6] => format!("IPv4 {v4}, IPv6 {v6}"),
    }
}

/// The report as a document for programs.
pub(super) fn document(report: &Report) -> Value {
    let entry = |entry: &EntryReport| {
        json!({
            "name": entry.name,
            "who": entry.who,
            "to": entry.to,
            "dns": entry.dns,
            "ipv4": entry.ways[0],
            "ipv6": entry.ways[1],
            "gap": entry.gap,
            "unknown": entry.unknown,
        })
    };
    let entries: Vec<Value> = report.entries.iter().map(entry).collect();
    let others: Vec<Value> = report
        .others
        .iter()
        .map(|other| {
            json!({
                "name": other.name,
                "what": other.what,
                "conflicts": other.conflicts,
                "notes": other.notes,
            })
        })
        .collect();
    json!({
        "on": report.on,
        "asked": report.asked,
        "whole": report.on && report.is_good(),
        "entries": entries,
        "packet_filter": report.table.words(),
        "rules": report.rules.words(),
        "dnsmasq": report.dnsmasq.words(),
        "refused_packets": report.refused,
        "watched": report.watched,
        "others": others,
        "notes": report.idle.iter().chain(&report.notes).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use steer::Part;
    use steer::policy::Other;

    fn report() -> Report {
        let ways = ["through mr-us", "held: no address"].map(str::to_owned);
        Report {
            on: true,
            asked: true,
            entries: vec![EntryReport {
                name: "television".to_owned(),
                who: "television".to_owned(),
                to: "everywhere".to_owned(),
                ways,
                allowed: [
                    steer::picture::Allowed::Through,
                    steer::picture::Allowed::Held,
                ],
                dns: "10.8.0.1".to_owned(),
                gap: "this entry does not block packets to corp.example".to_owned(),
                bypassed: false,
                unknown: Vec::new(),
            }],
            table: Part::Whole,
            rules: Part::Missing,
            dnsmasq: Part::NotNeeded,
            watched: true,
            refused: Some(7),
            others: vec![Other {
                name: "pbr",
                what: "rules 29999 to 30000".to_owned(),
                conflicts: vec!["marks share the bits 0xff0000".to_owned()],
                notes: vec!["a word".to_owned()],
            }],
            idle: Vec::new(),
            notes: vec!["another".to_owned()],
        }
    }

    #[test]
    fn people_read_ways_parts_and_conflicts() {
        let text = render(&report());
        for wanted in [
            "policy: partly on: rules and routes missing\n",
            "  entry television: television to everywhere; IPv4 through mr-us, IPv6 held: no address\n",
            "  gap: this entry does not block packets to corp.example\n",
            "  rules and routes: missing\n  dnsmasq: not needed\n  refused: 7 packets\n",
            "  pbr: rules 29999 to 30000\n  conflict: marks share the bits 0xff0000\n  note: a word\n",
            "  note: another\n",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is not in {text}");
        }
        let mut unwatched = report();
        unwatched.watched = false;
        for (rules, headline) in [
            (
                Part::Missing,
                "policy: partly on: rules and routes missing; nothing watches\n",
            ),
            (Part::Whole, "policy: on; nothing watches\n"),
        ] {
            unwatched.rules = rules;
            for text in [render(&unwatched), render_brief(&unwatched)] {
                assert!(text.starts_with(headline), "{text}");
                assert!(text.contains("`service millrace-policy start`"), "{text}");
            }
        }
        let mut bypassed = report();
        (bypassed.rules, bypassed.entries[0].bypassed) = (Part::Whole, true);
        assert_eq!(document(&bypassed)["whole"], json!(false));
        for text in [render(&bypassed), render_brief(&bypassed)] {
            let headline = "policy: partly on: packets bypass entry television\n";
            assert!(text.starts_with(headline), "{text}");
        }
        let brief = render_brief(&report());
        assert!(brief.contains("conflict with pbr: marks share") && !brief.contains("another"));
    }

    #[test]
    fn a_tunnel_that_carries_nothing_is_told() {
        let mut report = report();
        mark_down(&mut report, &[("mr-us".to_owned(), "no carrier")]);
        let wanted = "IPv4 through mr-us, down: no carrier, IPv6 held: no address\n";
        let text = render(&report);
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn programs_get_the_same() {
        let mut full = report();
        full.entries[0].unknown.push("a-name".to_owned());
        let bare = Report {
            refused: None,
            ..report()
        };
        let samples = [full, bare].map(|it| document(&it));
        crate::tests::assert_documented("policy status", &samples);
        let document = document(&report());
        assert_eq!(
            (&document["on"], &document["whole"]),
            (&json!(true), &json!(false))
        );
        assert_eq!(document["entries"][0]["ipv4"], "through mr-us");
        assert_eq!(document["entries"][0]["gap"], report().entries[0].gap);
        assert_eq!(
            document["others"][0]["conflicts"][0],
            "marks share the bits 0xff0000"
        );
    }
}
