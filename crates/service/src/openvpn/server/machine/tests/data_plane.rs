//! Model of the server's data plane: it records each client's state.

use super::wire::{DataPacket, Packet};
use crate::openvpn::server::machine::{Event, PlaneCall};
use openvpn::data::protocol::session;
use openvpn::server::ClientId;
use openvpn::session::{DataKeys, Layout};
use plane::{
    CipherName, Endpoint, KeyUsage, Line, LineId, Notice, PeerId, PeerState, RouteChange, Sender,
    Source,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// The data plane's state of one client.
#[derive(Default)]
pub(super) struct Peer {
    pub(super) address: Option<SocketAddr>,
    /// Source address of packets without a peer-id.
    sender: Option<SocketAddr>,
    pub(super) keys: BTreeMap<u8, DataKeys>,
    pub(super) sealing: Option<u8>,
    pub(super) routes: BTreeSet<(IpAddr, u8)>,
    state: PeerState,
}

#[derive(Default)]
pub(super) struct DataPlane {
    pub(super) peers: HashMap<PeerId, Peer>,
    /// The peer that owns a network.
    pub(super) routes: HashMap<(IpAddr, u8), PeerId>,
    /// Packets that no key opened.
    pub(super) lost: u64,
    pub(super) opened: u64,
    pub(super) renewals: u64,
    pub(super) floats: u64,
}

impl Peer {
    fn seal(&mut self, now: Instant) -> Option<(SocketAddr, Packet)> {
        let keys = self.keys.get(&self.sealing?)?;
        self.state.tx_bytes += 100;
        self.state.times.last_sent = Some(now);
        let packet = DataPacket {
            peer_id: peer_id(keys),
            key_id: keys.key_id,
            secret: keys.send.cipher,
        };
        Some((self.address?, Packet::Data(packet)))
    }
}

/// A client's address, and which of the server's two addresses it calls; fixed for the client's life.
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
    /// Makes a call. Returns its answer and a packet to send.
    pub(super) fn call(
        &mut self,
        call: PlaneCall,
        now: Instant,
    ) -> (Option<Event<'static>>, Option<(SocketAddr, Packet)>) {
        match call {
            PlaneCall::Send(line, message) => {
                assert_eq!(line.endpoint, heard(line.endpoint.addr), "as it was called");
                let packet = Packet::Control(message);
                return (None, Some((line.endpoint.addr, packet)));
            }
            PlaneCall::AddPeer(id, _) => {
                let before = self.peers.insert(id, Peer::default());
                assert!(before.is_none(), "{id:?} was removed before");
            }
            PlaneCall::SetLine(id, line) => {
                assert_eq!(line.endpoint, heard(line.endpoint.addr), "as it was called");
                self.peer(id).address = Some(line.endpoint.addr);
            }
            PlaneCall::SetSender(id, Sender::Address(from), first) => {
                assert_eq!(first, session(id, 0));
                self.peer(id).sender = Some(from);
            }
            PlaneCall::ClearSender(id, Sender::Address(from)) => {
                let before = self.peer(id).sender.take();
                assert_eq!(before, Some(from), "what was said before");
                self.floats += 1;
            }
            PlaneCall::AddKeys(client, material) => {
                let peer = self.peer(client.peer());
                let key_id = material.keys.key_id;
                assert!(key_id != 0 || peer.keys.is_empty(), "the first keys");
                peer.keys.insert(key_id, *material.keys);
                assert!(peer.keys.len() <= 3, "three sets of keys at most");
                self.renewals += u64::from(key_id != 0);
                let added = Event::KeysAdded(client, key_id, Ok(CipherName::default()));
                return (Some(added), None);
            }
            PlaneCall::SendWith(id, of) => {
                let key_id = key_id(id, of);
                let peer = self.peer(id);
                assert!(peer.keys.contains_key(&key_id), "added first");
                peer.sealing = Some(key_id);
            }
            PlaneCall::RemoveKeys(id, of) => {
                let key_id = key_id(id, of);
                let peer = self.peer(id);
                assert!(peer.keys.remove(&key_id).is_some(), "only what is there");
                peer.sealing = peer.sealing.filter(|it| *it != key_id);
            }
            PlaneCall::KeyUsage(client, key_id) => {
                let peer = self.peer(client.peer());
                assert!(peer.keys.contains_key(&key_id), "keys that are there");
                let used = Event::KeyUsed(client, key_id, KeyUsage::default());
                return (Some(used), None);
            }
            PlaneCall::Peer(client, look) => {
                let peer = self.peer(client.peer());
                let state = PeerState {
                    line: peer.address.map(|at| Line::udp(heard(at))),
                    ..peer.state
                };
                return (Some(Event::PeerState(client, look, state)), None);
            }
            PlaneCall::Inject(id, _) => return (None, self.peer(id).seal(now)),
            PlaneCall::ChangeRoutes(changes) => changes.iter().for_each(|it| self.route(*it)),
            PlaneCall::RemovePeer(id) => {
                let peer = self.peers.remove(&id);
                assert!(peer.is_some(), "{id:?} is no peer");
                self.routes.retain(|_, owner| *owner != id);
            }
            // The machine keeps these times itself.
            PlaneCall::KeepAlive(id, ping, silence) => {
                self.peer(id);
                assert!(
                    ping.is_some() && silence.is_some(),
                    "as the configuration says"
                );
            }
            PlaneCall::InjectBy(..) | PlaneCall::UseLine(..) | PlaneCall::SetLineMode(..) => {
                panic!("clients of this server have one line")
            }
            // The model has no connections and ignores traffic between clients.
            PlaneCall::SetSender(_, Sender::Stream(_), _)
            | PlaneCall::ClearSender(_, Sender::Stream(_))
            | PlaneCall::AddStream(_)
            | PlaneCall::RemoveStream(_)
            | PlaneCall::CloseLine(_)
            | PlaneCall::SendToPeer(..)
            | PlaneCall::SetMtu(_)
            | PlaneCall::SetRate(_)
            | PlaneCall::SetLineRates(_)
            | PlaneCall::Reorder(_)
            | PlaneCall::SetHairpin(_) => {}
        }
        (None, None)
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
        let peer = self.peers.get_mut(&id);
        let opens = |peer: &Peer| {
            let keys = peer.keys.get(&packet.key_id);
            keys.is_some_and(|keys| keys.receive.cipher == packet.secret)
        };
        let Some(peer) = peer.filter(|peer| opens(peer)) else {
            self.lost += 1;
            return None;
        };
        self.opened += 1;
        peer.state.rx_bytes += 100;
        peer.state.times.last_received = Some(now);
        if peer.address == Some(from) {
            return None;
        }
        peer.address = Some(from);
        Some(Event::Notice(
            ClientId(id.0),
            Notice::Moved {
                line: LineId::FIRST,
            },
        ))
    }

    pub(super) fn state(&self, id: PeerId) -> PeerState {
        self.peers[&id].state
    }
}
