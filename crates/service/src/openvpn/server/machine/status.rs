//! Status of a server and its clients.

use super::client::{Client, Step};
use super::{Machine, peer};
use crate::openvpn::channel::Plane;
use crate::openvpn::statusdoc;
use crate::status::PeerStatus;
use crate::status::lines::{order_status, their_status};
use openvpn::negotiate::PeerInfo;
use openvpn::server::ClientId;
use openvpn::session::{ControlTraffic, Session};
use openvpn_host::status_file::real_address;
use openvpn_host::status_file::server::{ClientRow, RouteRow, ServerStatus};
use plane::Now;
use plane::{PeerLines, PeerState};
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

/// Traffic counters of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Bytes of data and control packets that came from the client.
    pub(crate) received: u64,
    /// Bytes of data and control packets that went to the client.
    pub(crate) sent: u64,
    /// When a packet last came from the client's networks or went to them.
    pub(crate) last_data: Option<Instant>,
}

impl Figures {
    /// Adds up a client's data and control packets.
    pub(crate) fn new(state: &PeerState, control: &ControlTraffic) -> Self {
        let times = &state.times;
        Self {
            received: state.rx_bytes + control.received(),
            sent: state.tx_bytes + control.sent(),
            last_data: times.last_data_sent.max(times.last_data_received),
        }
    }
}

impl Client {
    /// When a packet last came from the client's networks or went to them; before the first packet, when the client
    /// connected. Stock keeps this per route; here all routes of a client share it.
    fn last_reference(&self, figures: &Figures, now: Now) -> SystemTime {
        let ago = figures.last_data;
        let ago = ago.map(|at| now.monotonic.saturating_duration_since(at));
        let last = ago.and_then(|ago| now.wall.checked_sub(ago));
        last.map_or(self.since, |last| last.max(self.since))
    }
}

/// A client's program, as the client names it: at most 64 characters.
fn version(info: &PeerInfo) -> Option<String> {
    let words = ["IV_VER", "IV_PLAT"].map(|name| info.value(name));
    let words: Vec<&str> = words.into_iter().flatten().collect();
    let text: String = words.join(" ").chars().take(64).collect();
    (!text.is_empty()).then_some(text)
}

impl Machine<'_> {
    /// Returns the admitted clients and the networks behind them.
    pub(crate) fn status(&self, plane: &Plane, now: Now) -> ServerStatus {
        let mut status = ServerStatus::default();
        for (id, client) in self.inside() {
            let state = plane.peer(peer(id)).unwrap_or_default();
            let figures = Figures::new(&state, &client.control);
            let last_reference = client.last_reference(&figures, now);
            let real = real_address(client.from.address);
            status.clients.push(ClientRow {
                common_name: client.common_name.clone(),
                real_address: real.clone(),
                ipv4: client.addresses.ifconfig.map(|i| i.local),
                ipv6: client.addresses.ifconfig_v6.map(|i| i.local),
                bytes_received: figures.received,
                bytes_sent: figures.sent,
                connected_since: client.since,
                username: client.username.clone(),
                client_id: client.number,
                peer_id: id.0,
                cipher: self
                    .listener
                    .session(id)
                    .and_then(Session::data_channel)
                    .map(|(cipher, _)| cipher.name().to_owned())
                    .unwrap_or_default(),
            });
            for (address, bits) in &client.networks {
                let whole = if address.is_ipv4() { 32 } else { 128 };
                status.routes.push(RouteRow {
                    address: *address,
                    prefix: (*bits != whole).then_some(*bits),
                    cached: false,
                    common_name: client.common_name.clone(),
                    real_address: real.clone(),
                    last_reference,
                });
            }
        }
        status
    }

    /// Returns the admitted clients by number.
    pub(crate) fn peers(&self, plane: &Plane) -> Vec<PeerStatus> {
        let now = Instant::now();
        let gathers = self.theirs.gathered.is_some();
        let reorders = self.config.data.reorder;
        let mut inside: Vec<_> = self.inside().collect();
        inside.sort_by_key(|(_, client)| client.number);
        let told = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        inside
            .into_iter()
            .filter_map(|(id, client)| {
                let session = self.listener.session(id)?;
                let state = plane.peer(peer(id)).unwrap_or_default();
                let address = client.from.address;
                // Reading them costs an allocation.
                let known = match gathers || reorders {
                    true => plane.peer_lines(peer(id)),
                    false => PeerLines::default(),
                };
                Some(PeerStatus {
                    lines: match gathers {
                        true => their_status(&known, now),
                        false => Vec::new(),
                    },
                    order: reorders.then(|| order_status(&known)),
                    name: match &client.name {
                        Some(name) => Some(name.to_string()),
                        None => told(&client.common_name),
                    },
                    certificate_name: client.name.as_ref().map(|_| client.common_name.clone()),
                    version: session.peer_info().and_then(|it| version(it)),
                    username: told(&client.username),
                    client_id: Some(client.number),
                    allowed_ips: client
                        .networks
                        .iter()
                        .map(|(address, bits)| format!("{address}/{bits}"))
                        .collect(),
                    ..statusdoc::peer(&client.channel, address, &state, session, client.since)
                })
            })
            .collect()
    }

    /// Counts of refused packets and sessions, by reason.
    pub(crate) fn refused(&self) -> BTreeMap<String, u64> {
        let mut refused = self.refusals.to_map();
        for (reason, count) in self.listener.drops().iter() {
            *refused.entry(reason.to_owned()).or_default() += count;
        }
        refused
    }

    fn inside(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        let clients = self.clients.iter();
        let inside = clients.filter(|(_, client)| client.step == Step::In);
        inside.map(|(id, client)| (*id, &**client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_program_is_named_in_few_words() {
        let version = |text: &str| version(&PeerInfo::parse(text));
        let both = version("IV_PLAT=linux\nIV_VER=2.6.14\nIV_X=1\n");
        assert_eq!(both.as_deref(), Some("2.6.14 linux"));
        assert_eq!(version("IV_VER=3\n").as_deref(), Some("3"));
        assert_eq!(version("IV_PROTO=2\n"), None);
        let long = version(&format!("IV_VER={}\n", "\u{e4}".repeat(200)));
        assert_eq!(long.unwrap().chars().count(), 64);
    }
}
