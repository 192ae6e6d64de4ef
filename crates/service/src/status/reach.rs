//! Whether peers are heard, and whether the uplink to them has a carrier.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netio::netlink::{Netlink, RouteKind};

use super::{PeerStatus, Status};

/// State of a peer that should have been heard by now.
pub const SILENT: &str = "silent";

/// State of a peer to which no uplink leads.
pub const NO_CARRIER: &str = "no carrier";

/// State of a tunnel that waits for something before it can come up.
pub const WAITING: &str = "waiting";

/// Maximum number of peers whose routes the kernel is asked for in one document. Further peers share the uplinks of
/// these.
const ASKED: usize = 64;

/// Age in seconds up to which a packet shows that an uplink works.
const JUST_HEARD: u64 = 2;

/// Extra time that a ping may take beyond its interval.
const SLACK: Duration = Duration::from_secs(3);

/// Longest time between two packets of a peer that pings every `ping`, and is given up after a silence of `limit`;
/// `None` if nothing says that the peer pings.
pub(crate) fn expected_within(ping: Option<Duration>, limit: Option<Duration>) -> Option<Duration> {
    let limit = limit?;
    Some(ping.map_or(limit / 2, |ping| (ping + SLACK).min(limit)))
}

impl PeerStatus {
    /// Records when the peer was last heard, and marks it silent if that is longer ago than `within`.
    pub(crate) fn set_heard(
        &mut self,
        last: Option<Instant>,
        within: Option<Duration>,
        now: Instant,
    ) {
        let silence = last.map(|at| now.saturating_duration_since(at));
        self.last_heard_age = silence.map(|it| it.as_secs());
        if let (Some(silence), Some(within)) = (silence, within)
            && silence > within
        {
            self.set_silent(format!("no packet from it for {} s", silence.as_secs()));
        }
    }

    /// Marks the peer silent, for this reason.
    pub(crate) fn set_silent(&mut self, reason: String) {
        self.state = Some(SILENT.to_owned());
        self.reason = Some(reason);
    }
}

/// Returns what keeps packets to an address on this host. A route through `tunnel` itself does not count: such a
/// route remains when an uplink has lost its addresses with its carrier.
fn obstacle(
    netlink: &mut Netlink,
    to: IpAddr,
    mark: u32,
    device: Option<&str>,
    tunnel: &str,
) -> Option<String> {
    let link = match device {
        Some(name) => netlink.link(name),
        None => match netlink.route_get(to, mark) {
            Ok(way) if way.kind == RouteKind::Local => return None,
            Ok(way) => netlink.link_by_index(way.dev),
            Err(error) if error.is_unreachable() => return Some(format!("no route to {to}")),
            Err(_) => return None,
        },
    };
    match link {
        Ok(link) if link.name == tunnel => Some(format!("no route to {to} past the tunnel")),
        Ok(link) if link.running => None,
        Ok(link) if link.up => Some(format!("{} has no carrier", link.name)),
        Ok(link) => Some(format!("{} is down", link.name)),
        Err(error) if error.is_not_found() => {
            Some(format!("{} is not there", device.unwrap_or("its device")))
        }
        Err(_) => None,
    }
}

impl Status {
    /// Checks the uplinks to the peers, and derives the tunnel's state from the states of its peers.
    pub(crate) fn look_at_uplinks(&mut self) {
        if let Ok(mut netlink) = Netlink::open() {
            let (mark, device) = (self.fwmark, self.bound_device.clone());
            let tunnel = self.interface.clone();
            self.judge(|to| obstacle(&mut netlink, to, mark, device.as_deref(), &tunnel));
        } else {
            self.judge(|_| None);
        }
    }

    fn judge(&mut self, mut obstacle: impl FnMut(IpAddr) -> Option<String>) {
        let mut known = HashMap::new();
        for peer in &mut self.peers {
            if !peer.lines.is_empty() {
                // Each line has a state of its own.
                if peer.lines.iter().all(|it| it.state == "down") {
                    peer.set_silent("no uplink reaches it".to_owned());
                }
                continue;
            }
            // Packets arrive, whatever the routing tables say.
            if peer.last_heard_age.is_some_and(|age| age < JUST_HEARD) {
                continue;
            }
            let Some(to) = peer.endpoint.as_deref().and_then(address) else {
                continue;
            };
            if known.len() >= ASKED && !known.contains_key(&to) {
                continue;
            }
            let found = known.entry(to).or_insert_with(|| obstacle(to));
            if let Some(reason) = found {
                peer.state = Some(NO_CARRIER.to_owned());
                peer.reason = Some(reason.clone());
            }
        }
        let is_server = self.role.as_deref() == Some("server");
        if is_server || self.peers.iter().any(|it| it.state.is_none()) {
            return;
        }
        // A state that holds for every peer holds for the tunnel. A client hears nobody without a carrier
        // either.
        if let Some(first) = self.peers.first() {
            let connecting = matches!(self.state.as_deref(), Some("connecting" | WAITING));
            let state = first.state.as_deref();
            if !connecting || state == Some(NO_CARRIER) {
                self.state = state.map(str::to_owned);
            }
        }
    }
}

/// The address of an endpoint, with or without a port.
fn address(endpoint: &str) -> Option<IpAddr> {
    let with_port: Result<std::net::SocketAddr, _> = endpoint.parse();
    let address = with_port.map(|it| it.ip()).or_else(|_| endpoint.parse());
    address
        .ok()
        .map(|it| it.to_canonical())
        // The routing tables cannot resolve a link-local address without its device.
        .filter(|it| match it {
            IpAddr::V4(it) => !it.is_unspecified(),
            IpAddr::V6(it) => !(it.is_unspecified() || it.is_unicast_link_local()),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::LineStatus;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_peer_that_misses_its_pings_is_silent() {
        let start = Instant::now();
        for (ping, limit, silent_from) in [
            (Some(10), Some(60), Some(14)),
            (Some(10), Some(12), Some(13)),
            (None, Some(120), Some(61)),
            // The other end may send no pings at all.
            (Some(10), None, None),
            (None, None, None),
        ] {
            let seconds = |it: Option<u32>| it.map(|it| it * SECOND);
            let within = expected_within(seconds(ping), seconds(limit));
            let silent = (0..200_u32).find(|passed| {
                let mut peer = PeerStatus::default();
                peer.set_heard(Some(start), within, start + *passed * SECOND);
                assert_eq!(peer.last_heard_age, Some(u64::from(*passed)));
                peer.state.is_some()
            });
            assert_eq!(silent, silent_from, "{ping:?} {limit:?}");
        }
        let mut peer = PeerStatus::default();
        peer.set_heard(None, Some(SECOND), start + 100 * SECOND);
        assert_eq!((peer.last_heard_age, peer.state), (None, None));
    }

    fn status(state: Option<&str>, role: Option<&str>, peers: &[(&str, Option<&str>)]) -> Status {
        let peer = |(endpoint, state): &(&str, Option<&str>)| PeerStatus {
            endpoint: Some((*endpoint).to_owned()),
            state: state.map(str::to_owned),
            ..PeerStatus::default()
        };
        Status {
            state: state.map(str::to_owned),
            role: role.map(str::to_owned),
            peers: peers.iter().map(peer).collect(),
            ..Status::default()
        }
    }

    #[test]
    fn a_tunnel_is_as_all_of_its_peers_are() {
        let (client, server) = (Some("client"), Some("server"));
        let (heard, silent) = (("192.0.2.1:1", None), ("192.0.2.2:1", Some(SILENT)));
        let cut = ("198.51.100.1:1", None);
        for (before, role, peers, after) in [
            (Some("connected"), client, vec![heard], Some("connected")),
            (Some("connected"), client, vec![silent], Some(SILENT)),
            (Some("connected"), client, vec![cut], Some(NO_CARRIER)),
            // The server has not answered the client yet.
            (Some("connecting"), client, vec![silent], Some("connecting")),
            (Some("connecting"), client, vec![cut], Some(NO_CARRIER)),
            (Some(WAITING), None, vec![silent], Some(WAITING)),
            (None, None, vec![heard, silent], None),
            (None, None, vec![silent, silent], Some(SILENT)),
            (None, None, vec![cut], Some(NO_CARRIER)),
            (None, None, vec![], None),
            // A server waits for any client.
            (None, server, vec![silent], None),
            // PPTP names no port, and no address before a look-up.
            (
                Some("connected"),
                client,
                vec![("198.51.100.1", None)],
                Some(NO_CARRIER),
            ),
            (
                Some("connecting"),
                client,
                vec![("0.0.0.0", None)],
                Some("connecting"),
            ),
            (None, None, vec![("[fe80::1]:1", None)], None),
        ] {
            let mut status = status(before, role, &peers);
            status.judge(|to| {
                let cut = to.to_string().starts_with("198.51.100.");
                cut.then(|| "wan has no carrier".to_owned())
            });
            assert_eq!(status.state.as_deref(), after, "{before:?} {peers:?}");
        }
    }

    #[test]
    fn a_peer_whose_packets_come_has_an_uplink() {
        for (heard, cut) in [
            (Some(0), false),
            (Some(1), false),
            (Some(2), true),
            (None, true),
        ] {
            let mut status = status(Some("connected"), None, &[("198.51.100.1:1", None)]);
            status.peers[0].last_heard_age = heard;
            status.judge(|_| Some("no route".to_owned()));
            assert_eq!(
                status.state.as_deref() == Some(NO_CARRIER),
                cut,
                "{heard:?}"
            );
        }
    }

    #[test]
    fn a_peer_with_lines_is_silent_when_all_of_them_are_down() {
        let line = |state: &str| LineStatus {
            state: state.to_owned(),
            ..LineStatus::default()
        };
        for (lines, silent) in [(["down", "down"], true), (["down", "up"], false)] {
            let mut status = status(Some("connected"), None, &[("192.0.2.1:1", None)]);
            status.peers[0].lines = lines.map(line).to_vec();
            status.judge(|_| unreachable!("lines have states of their own"));
            assert_eq!(status.state.as_deref() == Some(SILENT), silent, "{lines:?}");
        }
    }
}
