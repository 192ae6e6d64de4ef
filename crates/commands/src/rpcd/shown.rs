//! The state of all tunnels, for the pages that show it.

use super::At;
use crate::{guard, status};
use openwrt::blob;
use openwrt::device_name;
use openwrt::network::PROTO;
use openwrt::socket::{self, CallError};
use openwrt::ubus::Status;
use openwrt::uci::{self, Package, Section};
use openwrt::update;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The time for netifd to answer about all interfaces together.
const PATIENCE: Duration = Duration::from_millis(500);

/// Maximum number of an interface's faults that are shown.
const FAULTS_MAX: usize = 32;

/// Running tunnels, interfaces in UCI with their faults, and the guard. The page computes rates from two answers.
pub(super) fn status(at: &At) -> Value {
    let mut problems = Vec::new();
    let tunnels = status::now().unwrap_or_else(|error| {
        problems.push(error.to_string());
        Vec::new()
    });
    let mut interfaces = interfaces(&at.uci).unwrap_or_else(|words| {
        problems.push(words);
        Vec::new()
    });
    if let Err(error) = add_states(at.ubus.as_deref(), &mut interfaces) {
        problems.push(format!(
            "netifd did not answer, so faults of interfaces may be missing: {error}"
        ));
    }
    json!({
        "tunnels": tunnels,
        "interfaces": interfaces,
        "guard": guard::brief().as_ref().map(guard::document),
        "problems": problems,
    })
}

/// Adds netifd's state of each interface: `up`, `pending`, and `faults` with codes and words. An interface that netifd
/// does not know yet has none of them.
fn add_states(ubus: Option<&Path>, interfaces: &mut [Value]) -> Result<(), CallError> {
    let end = Instant::now() + PATIENCE;
    for interface in interfaces {
        let object = update::object_of(interface["interface"].as_str().unwrap_or_default());
        let left = end.saturating_duration_since(Instant::now());
        let state = match socket::call(ubus, &object, update::STATUS, Vec::new(), left) {
            Ok(state) => state,
            Err(CallError::Status(Status::NotFound)) => continue,
            Err(error) => return Err(error),
        };
        let flag = |name: &str| state.field(name).and_then(blob::Value::as_number) == Some(1);
        interface["up"] = flag("up").into();
        interface["pending"] = flag("pending").into();
        interface["faults"] = faults(&state).into();
    }
    Ok(())
}

/// The faults in an interface's state. netifd's `errors` may have mended ones, so that a list in `data` precedes them.
fn faults(state: &blob::Value) -> Vec<Value> {
    let pair = |it: &blob::Value| {
        let (code, words) = it.items().split_first()?;
        let words: Vec<&str> = words.iter().filter_map(blob::Value::as_text).collect();
        Some(json!({"code": code.as_text()?, "words": words.join(" ")}))
    };
    let mut found: Vec<Value> = match state.field("data").and_then(|it| it.field("faults")) {
        Some(list) => list.items().iter().filter_map(pair).collect(),
        None => {
            let errors = update::errors(state).into_iter();
            errors
                .map(|it| json!({"code": it.code, "words": it.words}))
                .collect()
        }
    };
    found.truncate(FAULTS_MAX);
    found
}

/// Our interfaces in UCI, with the names of peers, and only public keys.
fn interfaces(uci: &Path) -> Result<Vec<Value>, String> {
    let path = uci.join("network");
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = uci::read(&path).map_err(|error| failed(&error))?;
    let text = Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned());
    let peers = format!("{PROTO}_");
    let ours = |it: &Section| it.text("proto") == Some(PROTO) || it.kind.starts_with(&peers);
    let (package, _) = Package::parse_for(&text, ours).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        failed(&faults.join("; "))
    })?;
    let interface = |section: &Section| {
        let name = section.name.as_deref()?;
        let named = |peer: &Section| {
            let key = peer.text("public_key")?.to_owned();
            Some((key, json!(peer.text("description")?)))
        };
        let peers = package.of_kind(&format!("{PROTO}_{name}"));
        let peers: serde_json::Map<_, _> = peers.filter_map(named).collect();
        Some(json!({
            "interface": name,
            "device": device_name(name),
            "file": section.text("config_file"),
            "disabled": section.text("disabled") == Some("1"),
            "peers": peers,
        }))
    };
    let sections = package.of_kind("interface");
    let ours = sections.filter(|it| it.text("proto") == Some(PROTO));
    Ok(ours.filter_map(interface).collect())
}
