//! The width of the help, and the JSON of the commands beside the lists of `docs/json.md`.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The page with the lists.
const PAGE: &str = include_str!("../../../docs/json.md");

/// Fails unless the page's section lists the fields of these documents, with their types: one that has all, and others
/// that lack what may be missing.
pub(crate) fn assert_documented(section: &str, samples: &[Value]) {
    let mut fields = BTreeMap::new();
    add(&mut fields, "", samples);
    let heading = format!("## `millrace {section}`\n");
    let (_, text) = PAGE.split_once(&heading).expect("the section is missing");
    let text = text.split("\n## ").next().unwrap_or_default();
    let row = |line: &str| {
        let (name, rest) = line.strip_prefix("- `")?.split_once("`: ")?;
        Some((name.to_owned(), rest.split(", ").next()?.to_owned()))
    };
    let documented: BTreeMap<String, String> = text.lines().filter_map(row).collect();
    let rows: Vec<String> = fields
        .iter()
        .map(|(name, kind)| format!("- `{name}`: {kind}"))
        .collect();
    assert!(documented == fields, "{section}:\n{}", rows.join("\n"));
}

/// Adds the fields of these objects, each with its path and type.
fn add(fields: &mut BTreeMap<String, String>, before: &str, samples: &[Value]) {
    let objects: Vec<_> = samples.iter().filter_map(Value::as_object).collect();
    let names: BTreeSet<&String> = objects.iter().flat_map(|it| it.keys()).collect();
    for name in names {
        let values: Vec<&Value> = objects.iter().filter_map(|it| it.get(name)).collect();
        let items = values.iter().filter_map(|it| it.as_array()).flatten();
        let items: Vec<Value> = items.cloned().collect();
        let kinds: BTreeSet<&str> = values.iter().map(|it| kind(it)).collect();
        let of: BTreeSet<&str> = items.iter().map(kind).collect();
        let mut text: Vec<&str> = kinds.into_iter().filter(|it| *it != "null").collect();
        let of = of.into_iter().collect::<Vec<_>>().join(" or ");
        let list = format!("list of {of}");
        if text == ["list"] && !of.is_empty() {
            text = vec![&list];
        }
        if values.iter().any(|it| it.is_null()) {
            text.push("null");
        }
        if values.len() < objects.len() {
            text.push("left out");
        }
        let path = format!("{before}{name}");
        fields.insert(path.clone(), text.join(" or "));
        let inner = values.iter().filter(|it| it.is_object());
        let inner: Vec<Value> = inner.map(|it| (*it).clone()).collect();
        add(fields, &format!("{path}."), &inner);
        add(fields, &format!("{path}[]."), &items);
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

#[test]
fn the_status_of_tunnels_is_documented() {
    use service::status::{CapStatus, LineStatus, MeasuredStatus, OrderStatus, PeerStatus, Status};
    let text = || Some("text".to_owned());
    let line = LineStatus {
        state_age: Some(1),
        round_trip_ms: Some(1.5),
        cap: Some(CapStatus {
            renews: text(),
            ..CapStatus::default()
        }),
        ..LineStatus::default()
    };
    let bare_line = LineStatus {
        cap: Some(CapStatus::default()),
        ..LineStatus::default()
    };
    let peer = PeerStatus {
        public_key: "key".to_owned(),
        name: text(),
        username: text(),
        client_id: Some(1),
        transport: text(),
        cipher: text(),
        crypto_backend: text(),
        backend: text(),
        connected_unix: Some(1),
        endpoint: text(),
        allowed_ips: vec![String::new()],
        last_handshake_unix: Some(1),
        latest_handshake_age: Some(1),
        last_heard_age: Some(1),
        state: text(),
        reason: text(),
        rx_rate: Some(1),
        tx_rate: Some(1),
        keepalive: Some(1),
        lines: vec![line, bare_line, LineStatus::default()],
        order: Some(OrderStatus::default()),
        ..PeerStatus::default()
    };
    let mut status = Status {
        role: text(),
        state: text(),
        waiting_for: text(),
        public_key: text(),
        listen_tcp: vec![1],
        mtu_reason: text(),
        mtu_probe: text(),
        addresses: vec![String::new()],
        warnings: vec![String::new()],
        peers: vec![peer, PeerStatus::default()],
        refused: BTreeMap::from([("REASON".to_owned(), 1)]),
        ..Status::default()
    };
    let plane = &mut status.dataplane;
    plane.accelerators = Some(true);
    let measured = MeasuredStatus {
        batch_ns: Some(1),
        alone_ns: Some(1),
        ..MeasuredStatus::default()
    };
    plane.measured = vec![measured, MeasuredStatus::default()];
    plane.rungs = BTreeMap::from([("RUNG".to_owned(), String::new())]);
    plane.drops = BTreeMap::from([("REASON".to_owned(), 1)]);
    plane.outbound.packet_rate = Some(1);
    plane.outbound.bit_rate = Some(1);
    plane.inbound = plane.outbound.clone();
    let mut bare = status.clone();
    bare.dataplane.outbound = Default::default();
    bare.dataplane.inbound = Default::default();
    bare.dataplane.accelerators = None;
    let bare = Status {
        dataplane: bare.dataplane,
        refused: bare.refused,
        ..Status::default()
    };
    let samples = [status, bare].map(|it| serde_json::to_value(it).unwrap());
    assert_documented("status", &samples);
}

#[cfg(feature = "manual")]
/// The width of the widest line in a command's help, and in its subcommands'.
fn widest(command: &mut clap::Command) -> String {
    let text = command.render_long_help().to_string();
    let own = text.lines().map(str::to_owned);
    let others = command.get_subcommands_mut().map(widest);
    own.chain(others)
        .max_by_key(|line| line.chars().count())
        .unwrap_or_default()
}

#[cfg(feature = "manual")]
#[test]
fn help_fits_into_80_columns() {
    let mut cli = crate::cli();
    cli.build();
    let line = widest(&mut cli);
    assert!(line.chars().count() <= 80, "{line}");
}
