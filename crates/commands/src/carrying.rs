//! Tunnels and uplinks that carry no packets now, for reports about paths through them.

use netio::netlink::Netlink;
use service::status::{NO_CARRIER, Status};

/// Tunnels and uplinks that carry no packets now, each with its state.
pub(crate) fn dead(tunnels: &[Status]) -> Vec<(String, &'static str)> {
    let tunnels = tunnels
        .iter()
        .filter_map(|it| Some((it.interface.clone(), fault(it)?)));
    let links = Netlink::open().and_then(|mut it| it.links());
    let links = links.unwrap_or_default().into_iter();
    let links = links
        .filter(|it| !it.running)
        .map(|it| (it.name, NO_CARRIER));
    tunnels.chain(links).collect()
}

/// The state of a tunnel that carries no packets.
#[cfg(feature = "monitor")]
fn fault(status: &Status) -> Option<&'static str> {
    let state = monitor::health::health(status).0;
    (!state.is_good()).then(|| state.name())
}

/// The state of a tunnel that carries no packets.
#[cfg(not(feature = "monitor"))]
fn fault(status: &Status) -> Option<&'static str> {
    use service::status::{SILENT, WAITING};
    let state = status.state.as_deref()?;
    let all = ["connecting", NO_CARRIER, SILENT, WAITING];
    all.into_iter().find(|it| *it == state)
}

/// The first device of a path that carries no packets now, with its state; empty if there is none.
pub(crate) fn down(path: &str, dead: &[(String, &str)]) -> String {
    let words = || path.split([' ', ',', ';']);
    let found = dead
        .iter()
        .find(|(device, _)| words().any(|it| it == device));
    found.map_or_else(String::new, |(device, state)| format!("{device}: {state}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_through_a_dead_device_is_told() {
        let dead = [
            ("mr-us".to_owned(), "silent"),
            ("eth0".to_owned(), "no carrier"),
        ];
        for (path, told) in [
            ("through mr-us", "mr-us: silent"),
            ("through mr-us, or through mr-nl", "mr-us: silent"),
            ("through eth0, unencrypted", "eth0: no carrier"),
            ("through mr-us2 while it is up, then without it", ""),
            ("no tunnel is up", ""),
        ] {
            assert_eq!(down(path, &dead), told, "{path}");
        }
        let status = |state: &str| Status {
            interface: "mr-us".to_owned(),
            state: Some(state.to_owned()),
            ..Status::default()
        };
        for (state, is_dead) in [
            ("silent", true),
            ("no carrier", true),
            ("connecting", true),
            ("waiting", true),
            ("connected", false),
        ] {
            let found = super::dead(&[status(state)]);
            let found = found.iter().find(|it| it.0 == "mr-us");
            assert_eq!(found.map(|it| it.1), is_dead.then_some(state));
        }
    }
}
