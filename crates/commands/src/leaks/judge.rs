//! Judges the captured packets of probes, by the role of each network device in the test. Reads the host's devices
//! once, and does no other I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::guard::Pattern;
use host::tunnel_devices::{is_hidden, is_tunnel};
use netio::netlink::{Link, Netlink, NetlinkError};

/// Where a probe starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum From {
    /// This host.
    Router,
    /// A device of the LAN.
    Lan,
}

/// The kind of a probe.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A DNS query.
    Query,
    /// A packet.
    Packet,
}

/// A query or packet, recognised by its token.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) from: From,
    pub(super) kind: Kind,
    /// Whether it uses IPv6: to the first server for a query; `None` for any family.
    pub(super) v6: Option<bool>,
    /// The server to ask, or the packet's destination.
    pub(super) to: Option<IpAddr>,
    /// The lower-case text to search for in packets: a label of a name, or a payload.
    pub(super) token: Vec<u8>,
    /// Whether the probe was seen on this host: incoming through a device of the LAN, or leaving.
    pub(super) began: bool,
    /// Whether a server has answered about the name.
    pub(super) answered: bool,
    /// Why the probe could not be sent.
    pub(super) unsent: Option<String>,
    /// Devices through which the probe left.
    pub(super) left: BTreeSet<u32>,
}

impl Probe {
    pub(super) fn new(from: From, kind: Kind, token: Vec<u8>) -> Self {
        Self {
            from,
            kind,
            v6: None,
            to: None,
            token,
            began: false,
            answered: false,
            unsent: None,
            left: BTreeSet::new(),
        }
    }
}

/// The role of a device in this test.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    /// Packets that leave through this device are in a tunnel.
    Tunnel,
    /// A tunnel of this program that the LAN is not to use.
    OtherTunnel,
    /// The device leads to the LAN.
    Lan,
    /// The loopback device.
    Loopback,
    /// Any other device.
    Outside,
}

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
                Some(patterns) => patterns.iter().any(|it| it.matches(name)) || is_hidden(name),
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

    /// Whether a device has such a name.
    pub(super) fn has(&self, is: impl Fn(&str) -> bool) -> bool {
        self.all.values().any(|it| is(&it.0))
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

/// The outcome of a probe.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// The probe left through these devices, which are not tunnels.
    Leak(Vec<u32>),
    /// The probe left only through these tunnels.
    Tunnel(Vec<u32>),
    /// The probe did not leave: the kernel refused or dropped it.
    Held,
    /// The result is unknown, for this reason.
    Unknown(String),
}

/// A captured packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) v6: bool,
    pub(super) to: IpAddr,
    /// Source and destination port of UDP and TCP; 0 otherwise.
    pub(super) ports: (u16, u16),
    /// The bytes behind the IP header.
    pub(super) data: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads the beginning of a packet.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (v6, to, protocol, data) = match bytes.first()? >> 4 {
            4 => {
                let header = usize::from(bytes[0] & 15) * 4;
                let to: [u8; 4] = bytes.get(16..20)?.try_into().ok()?;
                let data = bytes.get(header.max(20)..)?;
                (false, IpAddr::from(Ipv4Addr::from(to)), bytes[9], data)
            }
            6 => {
                let to: [u8; 16] = bytes.get(24..40)?.try_into().ok()?;
                let data = bytes.get(40..)?;
                (true, IpAddr::from(Ipv6Addr::from(to)), bytes[6], data)
            }
            _ => return None,
        };
        let ports = match (protocol, data.get(..4)) {
            (6 | 17, Some(it)) => (
                u16::from_be_bytes([it[0], it[1]]),
                u16::from_be_bytes([it[2], it[3]]),
            ),
            _ => (0, 0),
        };
        Some(Self {
            v6,
            to,
            ports,
            data,
        })
    }

    fn has(&self, token: &[u8]) -> bool {
        let mut places = self.data.windows(token.len());
        places.any(|it| it.eq_ignore_ascii_case(token))
    }
}

/// Port of DNS.
const DNS: u16 = 53;

/// Records a packet that was captured at a device.
pub(super) fn note(probes: &mut [Probe], index: u32, role: Role, outgoing: bool, bytes: &[u8]) {
    let Some(packet) = Packet::parse(bytes) else {
        return;
    };
    for probe in probes {
        if probe.kind == Kind::Query && packet.ports.0 == DNS && packet.has(&probe.token) {
            // A response code after the UDP header: 0 (found) or 3 (no such name).
            let code = packet.data.get(11).map(|it| it & 15);
            probe.answered |= matches!(code, Some(0 | 3));
        }
        let is_it = match probe.kind {
            Kind::Query => packet.ports.1 == DNS && packet.has(&probe.token),
            // A device of the LAN chooses the payload, so only the destination counts.
            Kind::Packet if probe.from == From::Lan => probe.to == Some(packet.to),
            Kind::Packet => probe.to == Some(packet.to) && packet.has(&probe.token),
        };
        if !is_it {
            continue;
        }
        match (outgoing, role) {
            // The packet is this host's answer to a device, or a query between devices.
            (true, Role::Lan) if probe.from == From::Lan => {}
            (true, Role::Loopback) => probe.began |= probe.from == From::Router,
            (true, _) => {
                probe.began |= probe.from == From::Router;
                probe.left.insert(index);
            }
            (false, Role::Lan) => {
                probe.began |= probe.from == From::Lan;
                if probe.from == From::Lan && probe.v6.is_none() {
                    probe.v6 = Some(packet.v6);
                }
            }
            (false, _) => {}
        }
    }
}

/// Judges a probe, by the roles of the devices.
pub(super) fn verdict(probe: &Probe, role: impl Fn(u32) -> Role) -> Verdict {
    let of = |wanted: Role| -> Vec<u32> {
        let all = probe.left.iter().copied();
        all.filter(|index| role(*index) == wanted).collect()
    };
    let mut outside = of(Role::Outside);
    let mut tunnels = of(Role::Tunnel);
    match probe.from {
        // For this host's own packets, any tunnel is safe.
        From::Router => tunnels.extend(of(Role::OtherTunnel)),
        From::Lan => outside.extend(of(Role::OtherTunnel)),
    }
    if !outside.is_empty() {
        return Verdict::Leak(outside);
    }
    // A server or proxy in the LAN forwards the query in a packet of its own.
    if !of(Role::Lan).is_empty() {
        let words = "the query went to a LAN device, and how that forwards it cannot be seen";
        return Verdict::Unknown(words.to_owned());
    }
    if !tunnels.is_empty() {
        return Verdict::Tunnel(tunnels);
    }
    if probe.answered {
        let words = "the query was answered, but not seen leaving: the name server uses DNS over TLS or HTTPS, or \
                     answers by itself";
        return Verdict::Unknown(words.to_owned());
    }
    match (&probe.unsent, probe.began, probe.from, probe.kind) {
        // The kernel had no route, or the packet filter refused it: no packet left.
        (_, true, ..) | (Some(_), _, From::Router, _) | (_, _, From::Router, Kind::Packet) => {
            Verdict::Held
        }
        (None, false, From::Router, Kind::Query) => {
            Verdict::Unknown("the query was sent, but not seen".to_owned())
        }
        (_, false, From::Lan, _) => Verdict::Unknown("no LAN device sent it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LO: u32 = 1;
    const LAN: u32 = 2;
    const WAN: u32 = 3;
    const TUN: u32 = 4;
    const OTHER: u32 = 5;

    fn role(index: u32) -> Role {
        match index {
            LO => Role::Loopback,
            LAN => Role::Lan,
            TUN => Role::Tunnel,
            OTHER => Role::OtherTunnel,
            _ => Role::Outside,
        }
    }

    /// A datagram to a port, with a payload.
    fn datagram(v6: bool, port: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; if v6 { 40 } else { 20 }];
        bytes[0] = if v6 { 0x60 } else { 0x45 };
        bytes[if v6 { 6 } else { 9 }] = 17;
        let at = if v6 { 39 } else { 19 };
        bytes[at] = 9;
        // An answer's source port is the query's destination port.
        let from: u16 = if port == 53 { 7 } else { 53 };
        bytes.extend(from.to_be_bytes());
        bytes.extend(port.to_be_bytes());
        bytes.extend([0; 16]);
        bytes.extend(payload);
        bytes
    }

    fn query(from: From) -> Probe {
        Probe::new(from, Kind::Query, b"abcdef".to_vec())
    }

    fn seen(probe: Probe, events: &[(u32, bool, u16)]) -> Verdict {
        let mut probes = [probe];
        for (index, outgoing, port) in events {
            for v6 in [false, true] {
                let bytes = datagram(v6, *port, b"\x06aBCDEf\x07example\0");
                note(&mut probes, *index, role(*index), *outgoing, &bytes);
            }
        }
        verdict(&probes[0], role)
    }

    #[test]
    fn a_query_of_the_router_is_followed_to_the_device_that_it_leaves_by() {
        let own = (LO, true, 53);
        for (events, wanted) in [
            (vec![own, (WAN, true, 53)], Verdict::Leak(vec![WAN])),
            (vec![own, (TUN, true, 53)], Verdict::Tunnel(vec![TUN])),
            (
                vec![own, (TUN, true, 53), (WAN, true, 53)],
                Verdict::Leak(vec![WAN]),
            ),
            (vec![own, (OTHER, true, 53)], Verdict::Tunnel(vec![OTHER])),
            (vec![own], Verdict::Held),
            // An incoming packet is not a leaving query.
            (vec![own, (WAN, false, 53)], Verdict::Held),
        ] {
            assert_eq!(seen(query(From::Router), &events), wanted, "{events:?}");
        }
        assert!(matches!(
            seen(query(From::Router), &[]),
            Verdict::Unknown(_)
        ));
        // A server answered a query that was not seen leaving.
        let by_others = seen(query(From::Router), &[own, (LO, true, 4242)]);
        assert!(matches!(by_others, Verdict::Unknown(_)));
        let by_lan = seen(query(From::Router), &[(LAN, true, 53)]);
        assert!(matches!(by_lan, Verdict::Unknown(_)));
    }

    #[test]
    fn what_was_not_seen_from_the_lan_says_nothing() {
        assert!(matches!(seen(query(From::Lan), &[]), Verdict::Unknown(_)));
        let came = (LAN, false, 53);
        assert_eq!(seen(query(From::Lan), &[came]), Verdict::Held);
        assert_eq!(
            seen(query(From::Lan), &[came, (WAN, true, 53)]),
            Verdict::Leak(vec![WAN])
        );
        assert_eq!(
            seen(query(From::Lan), &[came, (TUN, true, 53)]),
            Verdict::Tunnel(vec![TUN])
        );
    }

    #[test]
    fn a_device_of_the_lan_may_not_leave_by_a_tunnel_of_others() {
        assert_eq!(
            seen(query(From::Lan), &[(LAN, false, 53), (OTHER, true, 53)]),
            Verdict::Leak(vec![OTHER])
        );
    }

    #[test]
    fn packets_are_known_by_where_they_go() {
        let to = IpAddr::from([0, 0, 0, 9]);
        let mut probe = Probe::new(From::Router, Kind::Packet, b"token".to_vec());
        probe.to = Some(to);
        let mut probes = [
            probe.clone(),
            Probe {
                from: From::Lan,
                ..probe
            },
        ];
        note(
            &mut probes,
            LAN,
            Role::Lan,
            false,
            &datagram(false, 9, b"other"),
        );
        note(
            &mut probes,
            WAN,
            Role::Outside,
            true,
            &datagram(false, 9, b"token"),
        );
        for probe in &probes {
            assert_eq!(verdict(probe, role), Verdict::Leak(vec![WAN]), "{probe:?}");
        }
        // No packet of the router was seen: the kernel did not send it.
        let none = Probe::new(From::Router, Kind::Packet, b"token".to_vec());
        assert_eq!(verdict(&none, role), Verdict::Held);
    }

    #[test]
    fn what_is_no_packet_is_passed_over() {
        for bytes in [&[][..], &[0x45], &[0x60; 30], &[0x4f; 20], &[0x11; 64]] {
            assert!(
                Packet::parse(bytes).is_none_or(|it| it.ports == (0, 0)),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn ports_are_where_their_bridge_is() {
        let link = |index, name: &str, master| Link {
            index,
            name: name.to_owned(),
            mtu: 1500,
            up: true,
            running: true,
            master,
            ..Link::default()
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
