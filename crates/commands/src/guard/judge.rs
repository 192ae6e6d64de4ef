//! Notes for a report about the guard, beside the kernel's state: lists of OpenWrt's interfaces (`only_through`)
//! that are not in force, and tunnels that the guard's `router` cuts off from their servers, as it does not know the
//! mark of their packets.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use config::guard::Guard;
use openwrt::only_through::Lists;
use service::status::Status;
#[cfg(feature = "policy")]
use steer::guard::PartReport;
use steer::guard::{Report, State};

use super::wanted::unheld_of;
#[cfg(feature = "policy")]
use crate::carrying::{dead, down};
use crate::status;

/// Adds faults of lists to a report. Returns whether all listed devices are guarded.
pub(super) fn lists(uci: &Path, report: &mut Report) -> bool {
    let lists = match Lists::of(uci) {
        Ok(lists) => lists,
        Err(error) => {
            report
                .notes
                .push(format!("{}: {error}", uci.join("network").display()));
            return false;
        }
    };
    let mut notes = unheld_of(&lists);
    let in_force = report.guard.clone().unwrap_or_default();
    let groups = in_force.groups.clone();
    let (wanted, left) = in_force.with_lists(&lists.lists, &groups);
    notes.extend(left);
    // A removed list would still hold devices; a new one would not hold its devices yet.
    let is_in_force =
        report.asked && wanted.groups == groups || wanted.groups.is_empty() && groups.is_empty();
    if !is_in_force {
        notes.push(what_to_do(&wanted));
    }
    let is_held = notes.is_empty();
    report.notes.extend(notes);
    is_held
}

/// Adds notes on tunnels that have a route, and carry no packets now.
#[cfg(feature = "policy")]
pub(super) fn carried(report: &mut Report) {
    let tunnels = status::now().unwrap_or_default();
    note_dead(report, &dead(&tunnels));
}

/// Adds a note for each of these tunnels and uplinks that a route of the guard uses.
#[cfg(feature = "policy")]
pub(super) fn note_dead(report: &mut Report, dead: &[(String, &str)]) {
    let ways: Vec<String> = report.parts.iter().map(PartReport::words).collect();
    let mut notes: Vec<String> = ways.iter().map(|it| down(it, dead)).collect();
    notes.retain(|it| !it.is_empty());
    notes.dedup();
    let notes = notes.iter().map(|it| format!("no packet passes {it}"));
    report.notes.extend(notes);
}

/// Whether interfaces list devices, and the guard can block none of these devices.
pub(super) fn is_refused(uci: &Path) -> bool {
    Lists::of(uci).is_ok_and(|it| it.is_empty() && !it.faults.is_empty())
}

fn what_to_do(wanted: &Guard) -> String {
    let devices: Vec<&str> = wanted
        .groups
        .iter()
        .flat_map(|it| &it.lan)
        .map(String::as_str)
        .collect();
    let listed = match devices.is_empty() {
        true => "no device any more".to_owned(),
        false => devices.join(", "),
    };
    let how = match steer::guard::is_let_go() {
        true => "`millrace guard off` switched it off; `millrace guard on` sets it again",
        false => "run `/etc/init.d/millrace-guard enable` and `start`, or `reload`",
    };
    format!("`only_through` lists {listed}, which differs from the settings in force: {how}")
}

/// Adds a note for each running tunnel that is cut off, with the setting that allows its packets.
pub(super) fn router(report: &mut Report) {
    let is_held = |it: &&Guard| it.router && report.state != State::Off;
    let Some(guard) = report.guard.as_ref().filter(is_held) else {
        return;
    };
    let Ok((tunnels, _)) = status::all() else {
        return;
    };
    let notes = tunnels
        .iter()
        .filter_map(|it| cut_off(it, guard, &report.marks));
    let notes: Vec<String> = notes.collect();
    report.notes.extend(notes);
}

fn cut_off(tunnel: &Status, guard: &Guard, marks: &[u32]) -> Option<String> {
    let name = &tunnel.interface;
    let is_server =
        tunnel.role.as_deref() == Some("server") || guard.guarded().contains(&name.as_str());
    if is_server || marks.contains(&tunnel.fwmark) {
        return None;
    }
    let endpoints = tunnel.peers.iter().filter_map(|it| it.endpoint.as_deref());
    let mut servers: Vec<IpAddr> = endpoints
        .filter_map(|it| it.parse::<SocketAddr>().ok())
        .map(|it| it.ip().to_canonical())
        .collect();
    let is_unknown = servers.is_empty() && tunnel.state.as_deref() == Some("connecting");
    let is_allowed = |ip: &IpAddr| {
        let mut nets = guard.router_allow.iter();
        nets.any(|it| it.contains(*ip))
    };
    servers.retain(|it| !is_allowed(it));
    servers.sort_unstable();
    servers.dedup();
    match (
        servers.is_empty(),
        is_unknown && guard.router_allow.is_empty(),
    ) {
        (false, _) => {
            let servers: Vec<String> = servers.iter().map(|it| format!("\"{it}\"")).collect();
            Some(format!(
                "`router` blocks the packets of {name} to its server; add {} to `router_allow`",
                servers.join(", ")
            ))
        }
        (true, true) => Some(format!(
            "`router` blocks the packets of {name} to its server; give the server as an address, and add it to \
             `router_allow`"
        )),
        (true, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_no_server_yet_is_told_and_servers_and_marked_ones_are_not() {
        let path = Path::new("guard.toml");
        let text = "lan = [\"br-lan\"]\nrouter = true\n";
        let mut guard = Guard::from_toml(text, path).unwrap();
        let mut tunnel = Status {
            interface: "ovpn0".to_owned(),
            role: Some("client".to_owned()),
            state: Some("connecting".to_owned()),
            ..Status::default()
        };
        let told = cut_off(&tunnel, &guard, &[51820]).unwrap();
        assert!(told.contains("give the server as an address"), "{told}");
        tunnel.fwmark = 51820;
        assert_eq!(cut_off(&tunnel, &guard, &[51820]), None);
        tunnel.fwmark = 7;
        guard.router_allow = config::guard::allowed("203.0.113.5").into_iter().collect();
        assert_eq!(cut_off(&tunnel, &guard, &[51820]), None);
        tunnel.role = Some("server".to_owned());
        guard.router_allow.clear();
        assert_eq!(cut_off(&tunnel, &guard, &[51820]), None);
    }
}
