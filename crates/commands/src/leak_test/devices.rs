//! Finds the role of each network device in the test.

use std::collections::BTreeMap;

use config::guard::Pattern;
use host::tunnel_devices::is_tunnel;
use netio::netlink::{Link, Netlink, NetlinkError};

use super::judge::Role;

/// The devices of this host.
pub(super) struct Devices {
    all: BTreeMap<u32, (String, Role)>,
    /// Whether a device other than loopback is up and has a carrier.
    pub(super) can_leave: bool,
}

impl Devices {
    /// Reads the host's devices. `tunnels` are patterns of tunnel names; without them, the kind of device decides.
    /// `own` are devices of other tunnels of this program.
    pub(super) fn new(
        tunnels: Option<&[Pattern]>,
        own: &[String],
        lan: &[String],
    ) -> Result<Self, NetlinkError> {
        let links = Netlink::open()?.links()?;
        let role = |name: &str| {
            let is_tunnel = match tunnels {
                Some(patterns) => patterns.iter().any(|it| it.matches(name)),
                None => is_tunnel(name),
            };
            match (is_tunnel, own.iter().any(|it| it == name)) {
                (true, _) => Role::Tunnel,
                (false, true) => Role::OtherTunnel,
                (false, false) => Role::Outside,
            }
        };
        Ok(Self::of(&links, role, lan))
    }

    fn of(links: &[Link], role_of: impl Fn(&str) -> Role, lan: &[String]) -> Self {
        let is_lan = |link: &Link| lan.contains(&link.name);
        let role = |link: &Link| {
            // A port has the role of its bridge.
            let master = links.iter().find(|it| Some(it.index) == link.master);
            match () {
                () if link.name == "lo" => Role::Loopback,
                () if is_lan(link) || master.is_some_and(is_lan) => Role::Lan,
                () => role_of(&link.name),
            }
        };
        let all = links
            .iter()
            .map(|link| (link.index, (link.name.clone(), role(link))));
        Self {
            all: all.collect(),
            can_leave: links.iter().any(|it| it.running && it.name != "lo"),
        }
    }

    /// The role of a device; a device that appeared later counts as outside.
    pub(super) fn role(&self, index: u32) -> Role {
        self.all.get(&index).map_or(Role::Outside, |it| it.1)
    }

    /// The names of devices.
    pub(super) fn names(&self, list: &[u32]) -> Vec<String> {
        let name = |index: &u32| match self.all.get(index) {
            Some((name, _)) => name.clone(),
            None => format!("device {index}"),
        };
        list.iter().map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netio::netlink::Counters;

    #[test]
    fn ports_are_where_their_bridge_is() {
        let link = |index, name: &str, master| Link {
            index,
            name: name.to_owned(),
            mtu: 1500,
            up: true,
            running: true,
            mac: Vec::new(),
            master,
            group: 0,
            alias: String::new(),
            counters: Counters::default(),
        };
        let links = [
            link(1, "lo", None),
            link(2, "br-lan", None),
            link(3, "lan1", Some(2)),
            link(4, "wan", None),
            link(5, "mr-office", None),
        ];
        let lan = ["br-lan".to_owned()];
        let role_of = |name: &str| match name.starts_with("mr-") {
            true => Tunnel,
            false => Outside,
        };
        let devices = Devices::of(&links, role_of, &lan);
        let roles = [1, 2, 3, 4, 5, 6].map(|index| devices.role(index));
        use Role::{Lan, Loopback, Outside, Tunnel};
        assert_eq!(roles, [Loopback, Lan, Lan, Outside, Tunnel, Outside]);
        assert_eq!(devices.names(&[5, 6]), ["mr-office", "device 6"]);
    }
}
