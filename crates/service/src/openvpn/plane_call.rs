//! Data plane calls, as effects of a client or server.

use openvpn::data::protocol::{Material, session, session_keys};
use openvpn::data::wire::OpenVpn as Packets;
use plane::{
    CipherName, KeyUsage, LINES_MAX, Line, LineId, LineMode, Moving, PeerId, PeerState, Reorder,
    RouteChange, Sender, StreamId, Transport,
};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Data plane of a client or server.
pub(crate) type Plane = userspace::Plane<Packets>;

/// A call of the [`DataPlane`](plane::DataPlane) method with the same name. `W` names a peer in calls that have an
/// answer.
pub(crate) enum PlaneCall<W> {
    /// `add_stream`, with the accepted or dialled connection of this number.
    AddStream(StreamId),
    /// `remove_stream`.
    RemoveStream(StreamId),
    /// `close_line`.
    CloseLine(LineId),
    /// `send`.
    Send(Line, Vec<u8>),
    /// `send_to_peer`.
    SendToPeer(PeerId, Option<SocketAddr>, Vec<u8>),
    /// `add_peer`.
    AddPeer(PeerId, Moving),
    /// `remove_peer`.
    RemovePeer(PeerId),
    /// `set_line`.
    SetLine(PeerId, Line),
    /// `set_reorder`, with the usual bounds.
    Reorder(PeerId),
    /// `set_sender`.
    SetSender(PeerId, Sender, u32),
    /// `clear_sender`.
    ClearSender(PeerId, Sender),
    /// `peer`.
    Peer(W, Look),
    /// `add_keys`.
    AddKeys(W, Box<Material>),
    /// `send_with`.
    SendWith(PeerId, u32),
    /// `remove_keys`.
    RemoveKeys(PeerId, u32),
    /// `key_usage`, for the keys with this key id.
    KeyUsage(W, u8),
    /// `keep_alive`.
    KeepAlive(PeerId, Option<Duration>, Option<Duration>),
    /// `inject`.
    Inject(PeerId, Vec<u8>),
    /// `inject_by`.
    InjectBy(PeerId, LineId, Vec<u8>),
    /// `use_line`.
    UseLine(PeerId, LineId),
    /// `set_line_mode`.
    SetLineMode(PeerId, LineMode),
    /// `change_routes`.
    ChangeRoutes(Vec<RouteChange>),
    /// `set_mtu`.
    SetMtu(u16),
    /// `set_rate`.
    SetRate(Option<u64>),
    /// `set_line_rates`.
    SetLineRates([u64; LINES_MAX]),
    /// `set_hairpin`.
    #[cfg(feature = "server")]
    SetHairpin(bool),
}

/// Reason why control reads a peer's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The session's timers are due.
    Timers,
    /// To read its byte counters.
    Bytes,
    /// To read the state of its uplinks.
    Lines,
    /// To read its address after a move.
    Moved,
}

/// Result of a call.
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, on its way to the machine"
)]
pub(crate) enum PlaneAnswer<W> {
    /// Answer to `add_stream` if the data plane refused the connection.
    StreamRefused(StreamId, io::Error),
    /// Answer to `peer`; the default state for an unknown peer.
    PeerState(W, Look, PeerState),
    /// Answer to `add_keys` with this key id: the cipher in use, or why the keys cannot be used.
    KeysAdded(W, u8, Result<CipherName, String>),
    /// Answer to `key_usage`.
    KeyUsed(W, u8, KeyUsage),
}

impl<W: Copy + Into<PeerId>> PlaneCall<W> {
    /// Makes the call. `take` hands over a connection, by number, that the data plane does not own yet.
    pub(crate) fn perform(
        self,
        plane: &Plane,
        take: impl FnOnce(StreamId) -> Option<TcpStream>,
    ) -> Option<PlaneAnswer<W>> {
        match self {
            Self::AddStream(id) => {
                let added = plane.add_stream(id, LineId::FIRST, take(id)?);
                return Some(PlaneAnswer::StreamRefused(id, added.err()?));
            }
            Self::RemoveStream(id) => {
                // Closes a connection that was never added.
                drop(take(id));
                plane.remove_stream(id);
            }
            Self::CloseLine(line) => plane.close_line(line),
            Self::Send(line, message) => {
                plane.send(&line, &message);
            }
            Self::SendToPeer(id, to, message) => {
                plane.send_to_peer(id, to, &message);
            }
            Self::AddPeer(id, moving) => {
                plane.add_peer(id, moving);
            }
            Self::RemovePeer(id) => plane.remove_peer(id),
            Self::SetLine(id, line) => plane.set_line(id, line),
            Self::Reorder(id) => plane.set_reorder(id, Some(Reorder::default())),
            Self::SetSender(id, from, first) => plane.set_sender(id, from, first),
            Self::ClearSender(id, from) => plane.clear_sender(id, from),
            Self::Peer(whose, look) => {
                let state = plane.peer(whose.into()).unwrap_or_default();
                return Some(PlaneAnswer::PeerState(whose, look, state));
            }
            Self::AddKeys(whose, material) => {
                let key_id = material.keys.key_id;
                let keys = session_keys(whose.into(), *material, Instant::now());
                let added = plane.add_keys(whose.into(), keys);
                let added = added.map_err(|error| error.to_string());
                return Some(PlaneAnswer::KeysAdded(whose, key_id, added));
            }
            Self::SendWith(id, session) => plane.send_with(id, session),
            Self::RemoveKeys(id, session) => plane.remove_keys(id, session),
            Self::KeyUsage(whose, key_id) => {
                let id = whose.into();
                let usage = plane.key_usage(id, session(id, key_id));
                return Some(PlaneAnswer::KeyUsed(whose, key_id, usage));
            }
            Self::KeepAlive(id, ping, silence) => plane.keep_alive(id, ping, silence),
            Self::Inject(id, payload) => plane.inject(id, &payload),
            Self::InjectBy(id, line, payload) => plane.inject_by(id, line, &payload),
            Self::UseLine(id, line) => plane.use_line(id, line),
            Self::SetLineMode(id, mode) => plane.set_line_mode(id, mode),
            Self::ChangeRoutes(changes) => plane.change_routes(&changes),
            Self::SetMtu(mtu) => plane.set_mtu(mtu.into()),
            Self::SetRate(rate) => plane.set_rate(rate),
            Self::SetLineRates(rates) => plane.set_line_rates(rates),
            #[cfg(feature = "server")]
            Self::SetHairpin(hairpin) => plane.set_hairpin(hairpin),
        }
        None
    }

    /// Calls that add a peer, reached by this line.
    pub(crate) fn new_peer(id: PeerId, line: Line, moving: Moving) -> impl Iterator<Item = Self> {
        let sender = match line.transport {
            // Packets without a peer-id belong to the peer at the other end of the connection.
            Transport::Tcp(stream) => Some(Sender::Stream(stream)),
            Transport::Udp | Transport::Gre => None,
        };
        let sender = sender.map(|from| Self::SetSender(id, from, session(id, 0)));
        [Self::AddPeer(id, moving), Self::SetLine(id, line)]
            .into_iter()
            .chain(sender)
    }

    /// Calls that install new keys for a peer at this UDP or TCP address; the data plane opens packets with them from
    /// now on.
    pub(crate) fn new_keys(
        whose: W,
        address: SocketAddr,
        material: Material,
    ) -> impl Iterator<Item = Self> {
        let id = whose.into();
        // Packets without a peer-id are matched by source address.
        let sender = (!material.shape.stream)
            .then(|| Self::SetSender(id, Sender::Address(address), session(id, 0)));
        // Bytes are read before the keys: later bytes count for the new keys.
        let keys = [
            Self::Peer(whose, Look::Bytes),
            Self::AddKeys(whose, Box::new(material)),
        ];
        sender.into_iter().chain(keys)
    }

    /// Calls that follow a UDP peer to a new address.
    pub(crate) fn moved(id: PeerId, from: SocketAddr, to: SocketAddr) -> [Self; 2] {
        [
            Self::ClearSender(id, Sender::Address(from)),
            Self::SetSender(id, Sender::Address(to), session(id, 0)),
        ]
    }
}

#[cfg(test)]
mod tests;
