//! The Prometheus text, read by a parser that shares no code with the writer.

use monitor::day::Day;
use monitor::figures::{Figures, Ticks};
use monitor::metrics;
use monitor::overview::Overview;
use monitor::sample::{GuardView, Sample};
use service::status::{CapStatus, LineStatus, PeerStatus, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Sorted labels.
type Labels = Vec<(String, String)>;

/// One metric, as parsed from the text.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    samples: BTreeMap<Labels, f64>,
}

/// Parses the exposition format, version 0.0.4, strictly: HELP and TYPE once and before the samples, samples of one
/// metric together, no duplicate sample, valid names and escapes.
fn parse(text: &str) -> Result<BTreeMap<String, Metric>, String> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut current = String::new();
    if !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    for line in text.lines() {
        let fault = |why: &str| format!("{why}: {line}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or_else(|| fault("no help"))?;
            if help.is_empty() || !helped.insert(name.to_owned()) {
                return Err(fault("help"));
            }
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| fault("no type"))?;
            if !helped.contains(name) || metrics.contains_key(name) {
                return Err(fault("type"));
            }
            current = name.to_owned();
            let metric = Metric {
                kind: kind.to_owned(),
                ..Metric::default()
            };
            metrics.insert(current.clone(), metric);
        } else {
            let (name, labels, value) = sample(line).ok_or_else(|| fault("no sample"))?;
            if name != current {
                return Err(fault("not among its own"));
            }
            let metric = metrics.get_mut(&name).ok_or_else(|| fault("no type"))?;
            if metric.samples.insert(labels, value).is_some() {
                return Err(fault("twice"));
            }
        }
    }
    Ok(metrics)
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = |it: u8| it.is_ascii_alphabetic() || it == b'_';
    bytes.next().is_some_and(first) && bytes.all(|it| first(it) || it.is_ascii_digit())
}

fn sample(line: &str) -> Option<(String, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, behind) = rest.split_once("=\"")?;
            if !is_name(label) {
                return None;
            }
            let mut value = String::new();
            let mut letters = behind.char_indices();
            let end = loop {
                match letters.next()? {
                    (end, '"') => break end,
                    (_, '\\') => value.push(match letters.next()?.1 {
                        '\\' => '\\',
                        '"' => '"',
                        'n' => '\n',
                        _ => return None,
                    }),
                    (_, letter) => value.push(letter),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &behind[end + 1..];
            match rest.strip_prefix(',') {
                Some(behind) => rest = behind,
                None => break,
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    labels.sort();
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    is_name(name).then(|| (name.to_owned(), labels, value))
}

const STRANGE: &str = "a \"name\" \\ of\ntwo lines, {x=\"y\"} \u{e9}";

fn overview() -> Overview {
    let line = LineStatus {
        name: "dsl".to_owned(),
        state: "up".to_owned(),
        round_trip_ms: Some(12.5),
        sent: 6,
        cap: Some(CapStatus {
            left_bytes: 9,
            ..CapStatus::default()
        }),
        ..LineStatus::default()
    };
    // Two clients of the same name, as a server may have.
    let peer = |id| PeerStatus {
        name: Some(STRANGE.to_owned()),
        client_id: Some(id),
        rx_bytes: 7 + id,
        latest_handshake_age: Some(3),
        lines: vec![line.clone()],
        ..PeerStatus::default()
    };
    let tunnel = |name: &str| {
        let mut status = Status {
            interface: name.to_owned(),
            protocol: "openvpn".to_owned(),
            role: Some("server".to_owned()),
            uptime_ms: 1500,
            peers: vec![peer(0), peer(1)],
            ..Status::default()
        };
        status.dataplane.inbound.bytes = u64::MAX;
        status.dataplane.inbound.waited_us = 1500;
        status.dataplane.drops.insert("no_route".to_owned(), 4);
        status.refused.insert("malformed".to_owned(), 5);
        status
    };
    let mut branches = tunnel("branches");
    for (peer, key) in branches.peers.iter_mut().zip(["one=", "two="]) {
        (peer.client_id, peer.public_key) = (None, key.to_owned());
    }
    let sample = Sample {
        tunnels: vec![tunnel("home"), tunnel("office"), branches],
        guard: Some(GuardView {
            state: "held".to_owned(),
            groups: vec![
                ("br-lan".to_owned(), "through".to_owned()),
                ("br-guest".to_owned(), "held".to_owned()),
            ],
            refused: Some(11),
            ..GuardView::default()
        }),
        ..Sample::default()
    };
    let figures = |busy| Figures {
        cores: vec![Ticks {
            busy,
            all: 2 * busy,
        }],
        clock: Some((600_000, 1_400_000)),
        temperatures: vec![("cpu".to_owned(), 41.5), ("cpu".to_owned(), 40.0)],
        ..Figures::default()
    };
    let begin = Instant::now();
    let mut overview = Overview::new(begin, Day::default());
    for second in 1..=2 {
        let now = begin + Duration::from_secs(second);
        overview.observe(sample.clone(), figures(second * 100), now, 1_800_000_000);
    }
    overview
}

#[test]
fn another_parser_reads_what_is_written() {
    let text = metrics::text(&overview());
    let metrics = parse(&text).unwrap();
    let find = |name: &str, labels: &[(&str, &str)]| {
        let samples = metrics[name].samples.iter();
        let has = |of: &Labels| {
            let wanted = |(label, value): &(&str, &str)| {
                of.contains(&((*label).to_owned(), (*value).to_owned()))
            };
            labels.iter().all(wanted)
        };
        let found: Vec<f64> = samples
            .filter(|(of, _)| has(of))
            .map(|(_, value)| *value)
            .collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        found[0]
    };
    assert_eq!(find("millrace_tunnel_up", &[("tunnel", "home")]), 1.0);
    assert_eq!(
        find("millrace_tunnel_uptime_seconds", &[("tunnel", "office")]),
        1.5
    );
    let client = [("tunnel", "home"), ("peer", STRANGE), ("client", "1")];
    assert_eq!(find("millrace_peer_receive_bytes_total", &client), 8.0);
    assert_eq!(find("millrace_line_round_trip_seconds", &client), 0.0125);
    assert_eq!(find("millrace_line_cap_left_bytes", &client), 9.0);
    assert_eq!(find("millrace_line_transmit_packets_total", &client), 6.0);
    let branch = [("tunnel", "branches"), ("peer", STRANGE), ("key", "two=")];
    assert_eq!(find("millrace_peer_receive_bytes_total", &branch), 8.0);
    assert_eq!(find("millrace_line_transmit_packets_total", &branch), 6.0);
    let home = [("tunnel", "home")];
    assert_eq!(
        find("millrace_tunnel_receive_waited_seconds", &home),
        0.0015
    );
    assert!(
        text.contains(
            "millrace_tunnel_receive_bytes_total{tunnel=\"home\"} 18446744073709551615\n"
        )
    );
    assert_eq!(
        find(
            "millrace_tunnel_dropped_packets_total",
            &[("tunnel", "home"), ("reason", "no_route")]
        ),
        4.0
    );
    assert_eq!(find("millrace_guard_state", &[("state", "held")]), 1.0);
    assert_eq!(find("millrace_guard_state", &[("state", "off")]), 0.0);
    for (lan, state) in [("br-lan", "through"), ("br-guest", "held")] {
        let group = [("lan", lan), ("state", state)];
        assert_eq!(find("millrace_guard_group_state", &group), 1.0);
    }
    assert_eq!(find("millrace_guard_refused_packets_total", &[]), 11.0);
    assert_eq!(find("millrace_core_busy_ratio", &[("core", "0")]), 0.5);
    assert_eq!(find("millrace_clock_hertz", &[]), 600e6);
    assert_eq!(
        find("millrace_temperature_celsius", &[("number", "1")]),
        40.0
    );
}

/// Prometheus' naming rules, and the documentation page.
#[test]
fn names_say_the_unit_and_are_documented() {
    let pages = [
        include_str!("../../../docs/monitor.md"),
        include_str!("../../../docs/status.md"),
    ];
    let pages = pages.concat();
    for (name, metric) in parse(&metrics::text(&overview())).unwrap() {
        assert!(name.starts_with("millrace_"), "{name}");
        // A metric of both directions has one row.
        let of_both = name
            .replace("_receive_", "_*_")
            .replace("_transmit_", "_*_");
        assert_eq!(name.ends_with("_total"), metric.kind == "counter", "{name}");
        let units = [
            "bytes",
            "seconds",
            "packets",
            "ratio",
            "hertz",
            "celsius",
            "_per_second",
            "_per_batch",
        ];
        // Numbers of objects, and states, which have no unit.
        let bare = [
            "info",
            "peers",
            "state",
            "up",
            "in_use",
            "workers",
            "batches_total",
            "syscalls_total",
            "refused_total",
        ];
        let end = name.trim_end_matches("_total");
        let is_fit =
            units.iter().any(|it| end.ends_with(it)) || bare.iter().any(|it| name.ends_with(it));
        assert!(is_fit || name.contains("bytes"), "{name} has no unit");
        assert!(
            [&name, &of_both]
                .map(|it| format!("`{it}`"))
                .iter()
                .any(|it| pages.contains(it)),
            "{name} is in neither docs/monitor.md nor docs/status.md"
        );
    }
}

#[test]
fn the_parser_refuses_what_is_wrong() {
    for text in [
        "a 1\n",
        "# HELP a x\n# TYPE a gauge\na 1\na 2\n",
        "# HELP a x\n# TYPE a gauge\na{b=\"c\\d\"} 2\n",
        "# HELP a x\n# TYPE a gauge\na 1",
        "# HELP a x\n# TYPE a gauge\n9a 1\n",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
}
