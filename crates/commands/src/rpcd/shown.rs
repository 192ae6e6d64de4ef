//! The state of all tunnels, for the pages that show it.

use crate::{guard, status};
use openwrt::device_name;
use openwrt::network::PROTO;
use openwrt::uci::{self, Package, Section};
use serde_json::{Value, json};
use std::path::Path;
use zeroize::Zeroizing;

/// Running tunnels, interfaces in UCI, and the guard. The page computes rates from two answers.
pub(super) fn status(uci: &Path) -> Value {
    let mut problems = Vec::new();
    let tunnels = status::now().unwrap_or_else(|error| {
        problems.push(error.to_string());
        Vec::new()
    });
    let interfaces = interfaces(uci).unwrap_or_else(|words| {
        problems.push(words);
        Vec::new()
    });
    json!({
        "tunnels": tunnels,
        "interfaces": interfaces,
        "guard": guard::brief().as_ref().map(guard::document),
        "problems": problems,
    })
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
