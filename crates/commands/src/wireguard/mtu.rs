//! The MTU of an interface that no file describes, while AmneziaWG's `S4` makes its datagrams longer.

use config::types::Host;
use host::{Facts, MtuFollower, TunnelMtu, Want, WantedAddress};
use netio::netlink::{Netlink, NetlinkError};
use service::wireguard::{Daemon, OVERHEAD};

/// Maximum number of peers whose paths are read.
const PEERS_MAX: usize = 8;

/// The longest outer packet in bytes: `S4` never raises the MTU.
const PATH_MAX: u32 = 1500;

/// MTU with room for `S4`. Plain WireGuard's MTU and a value that the user sets stay. The MTU that `wg-quick` and
/// `awg-quick` compute has no room for `S4` and counts as the default.
#[derive(Default)]
pub(super) struct Mtu {
    follower: Option<MtuFollower>,
}

impl Mtu {
    /// Sets the MTU anew if `S4` or a path to a peer has changed.
    pub(super) fn follow(&mut self, daemon: &Daemon) {
        if let Err(error) = self.try_follow(daemon) {
            log::warn!("{}: cannot make room for S4: {error}", daemon.ifname());
        }
    }

    fn try_follow(&mut self, daemon: &Daemon) -> Result<(), NetlinkError> {
        let begun = self.follower.is_some();
        let found = daemon.with(|interface| {
            let prefix = interface.data_prefix();
            (prefix > 0 || begun).then(|| (prefix, interface.get()))
        });
        let Some((prefix, (device, peers))) = found.flatten() else {
            return Ok(());
        };
        let mut netlink = Netlink::open()?;
        let index = netlink.index_of(daemon.ifname())?;
        let addresses = netlink.addresses(Some(index))?.into_iter();
        let endpoints = peers.iter().filter_map(|peer| peer.endpoint.as_ref());
        let endpoints = endpoints.filter_map(|endpoint| match endpoint.host {
            Host::Ip(ip) => Some(ip),
            Host::Scoped(..) | Host::Name(_) => None,
        });
        let mut want = Want {
            addresses: addresses
                .map(|it| WantedAddress {
                    addr: it.ip,
                    prefix: it.prefix,
                    peer: None,
                })
                .collect(),
            endpoints: endpoints.take(PEERS_MAX).collect(),
            fwmark: device.fwmark,
            mtu: host::Mtu::Path { overhead: OVERHEAD },
            ..Want::default()
        };
        let mut facts = Facts {
            interface: daemon.ifname().to_owned(),
            // An interface with an IPv6 address shows that the host has IPv6.
            ipv6: true,
            ..Facts::default()
        };
        let follower = self.follower.get_or_insert_with(|| {
            let mut follower = MtuFollower::default();
            follower.begin(&want, &facts);
            follower
        });
        facts.look_again(&want, daemon.ifname(), &mut netlink)?;
        facts.look_at_mtu(&want, device.fwmark, &mut netlink)?;
        let lines = facts.endpoints.iter_mut().map(|way| &mut way.mtu);
        for line in lines.chain([&mut facts.default_line]).flatten() {
            line.route = Some(line.bytes().min(PATH_MAX));
        }
        let now = netlink.link_by_index(index)?.mtu;
        if now == TunnelMtu::new(&want, &facts).bytes {
            follower.begin(&want, &facts);
        }
        want.mtu = host::Mtu::Path {
            overhead: OVERHEAD + prefix,
        };
        follower.follow(&want, &facts, &mut netlink)
    }
}
