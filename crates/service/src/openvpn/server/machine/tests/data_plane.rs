//! The server's data plane: a fake that records calls, and the packets that result from them.

use super::wire::{DataPacket, Packet};
use crate::openvpn::server::machine::Event;
use openvpn::data::inband::InBand;
use openvpn::data::protocol::session;
use openvpn::data::wire::OpenVpn as Packets;
use openvpn::server::ClientId;
use openvpn::session::{DataKeys, Layout};
use plane::fake::{Call, FakeDataPlane};
use plane::{DataPlane as _, Endpoint, Line, LineId, Notice, PeerId, RouteChange, Sender, Source};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// State of one client, after the calls so far.
#[derive(Default)]
pub(super) struct Peer {
    /// Source address of packets without a peer-id.
    sender: Option<SocketAddr>,
    keys: BTreeSet<u8>,
    pub(super) routes: BTreeSet<(IpAddr, u8)>,
}

pub(super) struct DataPlane {
    pub(super) fake: FakeDataPlane<Packets>,
    pub(super) peers: HashMap<PeerId, Peer>,
    /// The peer that owns a network.
    pub(super) routes: HashMap<(IpAddr, u8), PeerId>,
    /// Packets that no key opened.
    pub(super) lost: u64,
    pub(super) opened: u64,
    pub(super) renewals: u64,
    pub(super) floats: u64,
    /// Answers to clients that asked for the options.
    pub(super) options_told: u64,
}

/// A client's address, and which of the server's two addresses it uses; fixed for the client's life.
pub(super) fn heard(from: SocketAddr) -> Endpoint {
    let odd = match from.ip() {
        IpAddr::V4(ip) => ip.octets()[3] & 1,
        IpAddr::V6(_) => 0,
    };
    Endpoint {
        addr: from,
        source: Some(Source {
            ip: [203, 0, 113, 1 + 76 * odd].into(),
            ifindex: 1,
        }),
    }
}

/// Returns the key id of one of this peer's sessions.
fn key_id(id: PeerId, of: u32) -> u8 {
    (of - session(id, 0)).try_into().unwrap()
}

pub(super) fn peer_id(keys: &DataKeys) -> u32 {
    match keys.layout {
        Layout::V1 => u32::MAX,
        Layout::V2 { peer_id } | Layout::Epoch { peer_id } => peer_id,
    }
}

impl DataPlane {
    pub(super) fn new() -> Self {
        Self {
            fake: FakeDataPlane::new(Packets::Server, "tun0", 1500),
            peers: HashMap::new(),
            routes: HashMap::new(),
            lost: 0,
            opened: 0,
            renewals: 0,
            floats: 0,
            options_told: 0,
        }
    }

    /// Checks the calls since the last check, and returns the packets that they send.
    pub(super) fn called(&mut self, now: Instant) -> Vec<(SocketAddr, Packet)> {
        let calls = self.fake.take_calls();
        calls
            .into_iter()
            .filter_map(|call| self.call(call, now))
            .collect()
    }

    fn call(&mut self, call: Call, now: Instant) -> Option<(SocketAddr, Packet)> {
        match call {
            Call::Send(line, message) => {
                assert_eq!(line.endpoint, heard(line.endpoint.addr), "as it was called");
                return Some((line.endpoint.addr, Packet::Control(message)));
            }
            Call::AddPeer(id, _) => {
                let before = self.peers.insert(id, Peer::default());
                assert!(before.is_none(), "{id:?} was removed before");
            }
            Call::SetLine(_, line) => {
                assert_eq!(line.endpoint, heard(line.endpoint.addr), "as it was called");
            }
            Call::SetSender(id, Sender::Address(from), first) => {
                assert_eq!(first, session(id, 0));
                self.peer(id).sender = Some(from);
            }
            Call::ClearSender(id, Sender::Address(from)) => {
                let before = self.peer(id).sender.take();
                assert_eq!(before, Some(from), "what was said before");
                self.floats += 1;
            }
            Call::AddKeys {
                peer: id,
                session: of,
                ..
            } => {
                let key_id = key_id(id, of);
                let peer = self.peer(id);
                assert!(key_id != 0 || peer.keys.is_empty(), "the first keys");
                peer.keys.insert(key_id);
                assert!(peer.keys.len() <= 3, "three sets of keys at most");
                self.renewals += u64::from(key_id != 0);
            }
            Call::SendWith(id, of) => {
                assert!(self.peer(id).keys.contains(&key_id(id, of)), "added first");
            }
            Call::RemoveKeys(id, of) => {
                let removed = self.peer(id).keys.remove(&key_id(id, of));
                assert!(removed, "only what is there");
            }
            Call::Inject(id, payload) => {
                let tells = matches!(InBand::of(&payload), Some(InBand::Options(_)));
                self.options_told += u64::from(tells);
                return self.seal(id, now);
            }
            Call::ChangeRoutes(changes) => changes.iter().for_each(|it| self.route(*it)),
            Call::RemovePeer(id) => {
                let peer = self.peers.remove(&id);
                assert!(peer.is_some(), "{id:?} is no peer");
                self.routes.retain(|_, owner| *owner != id);
            }
            // The machine keeps these times itself.
            Call::KeepAlive(_, ping, silence) => assert!(
                ping.is_some() && silence.is_some(),
                "as the configuration says"
            ),
            Call::CloseLine(_) | Call::SetHairpin(_) => {}
            other => panic!("{other:?} is not for clients with one line over UDP"),
        }
        None
    }

    fn seal(&self, id: PeerId, now: Instant) -> Option<(SocketAddr, Packet)> {
        let to = self.fake.peer(id)?.line?.endpoint.addr;
        let packet = self.fake.with_keys(id, self.fake.sealing(id)?, |keys| {
            let keys = &keys.material.keys;
            Packet::Data(DataPacket {
                peer_id: peer_id(keys),
                key_id: keys.key_id,
                secret: keys.send.cipher,
            })
        })?;
        self.fake.change_peer(id, |state| {
            state.tx_bytes += 100;
            state.times.last_sent = Some(now);
        });
        Some((to, packet))
    }

    fn peer(&mut self, id: PeerId) -> &mut Peer {
        let peer = self.peers.get_mut(&id);
        peer.unwrap_or_else(|| panic!("{id:?} is no peer"))
    }

    fn route(&mut self, change: RouteChange) {
        match change {
            RouteChange::Add { address, len, peer } => {
                self.peer(peer).routes.insert((address, len));
                self.routes.insert((address, len), peer);
            }
            RouteChange::Remove { address, len, peer } => {
                assert!(self.peer(peer).routes.remove(&(address, len)));
                if self.routes.get(&(address, len)) == Some(&peer) {
                    self.routes.remove(&(address, len));
                }
            }
        }
    }

    /// Receives a data packet. Returns the notices for the machine.
    pub(super) fn arrive(
        &mut self,
        from: SocketAddr,
        packet: &DataPacket,
        now: Instant,
    ) -> Option<Event<'static>> {
        let id = PeerId(packet.peer_id);
        let of = session(id, packet.key_id);
        let opens = self.fake.with_keys(id, of, |keys| {
            keys.material.keys.receive.cipher == packet.secret
        });
        if opens != Some(true) {
            self.lost += 1;
            return None;
        }
        self.opened += 1;
        let here = Some(Line::udp(heard(from)));
        let mut before = None;
        self.fake.change_peer(id, |state| {
            state.rx_bytes += 100;
            state.times.last_received = Some(now);
            before = std::mem::replace(&mut state.line, here);
        });
        if before == here {
            return None;
        }
        Some(Event::Notice(
            ClientId(id.0),
            Notice::Moved {
                line: LineId::FIRST,
            },
        ))
    }
}
