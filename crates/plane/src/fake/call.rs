//! The calls of a data plane as values.

#[cfg(doc)]
use crate::DataPlane;
use crate::{
    LINES_MAX, Line, LineId, LineMode, Moving, PeerId, Reorder, RouteChange, Sender, StreamId,
};
use std::net::SocketAddr;
use std::time::Duration;

/// A call of control, named as in [`DataPlane`]. Queries that change nothing are not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`DataPlane::open_line`].
    OpenLine(LineId),
    /// [`DataPlane::close_line`].
    CloseLine(LineId),
    /// [`DataPlane::set_mark`].
    SetMark(LineId, u32),
    /// [`DataPlane::add_stream`].
    AddStream(StreamId, LineId),
    /// [`DataPlane::remove_stream`].
    RemoveStream(StreamId),
    /// [`DataPlane::add_peer`].
    AddPeer(PeerId, Moving),
    /// [`DataPlane::remove_peer`].
    RemovePeer(PeerId),
    /// [`DataPlane::set_moving`].
    SetMoving(PeerId, Moving),
    /// [`DataPlane::set_line`].
    SetLine(PeerId, Line),
    /// [`DataPlane::remove_line`].
    RemoveLine(PeerId, LineId),
    /// [`DataPlane::use_line`].
    UseLine(PeerId, LineId),
    /// [`DataPlane::set_line_mode`].
    SetLineMode(PeerId, LineMode),
    /// [`DataPlane::set_reorder`].
    SetReorder(PeerId, Option<Reorder>),
    /// [`DataPlane::forget_source`].
    ForgetSource(PeerId),
    /// [`DataPlane::set_sender`].
    SetSender(PeerId, Sender, u32),
    /// [`DataPlane::clear_sender`].
    ClearSender(PeerId, Sender),
    /// [`DataPlane::arm`].
    Arm(PeerId),
    /// [`DataPlane::disarm`].
    Disarm(PeerId),
    /// [`DataPlane::note_sent`].
    NoteSent(PeerId, usize),
    /// [`DataPlane::note_received`].
    NoteReceived(PeerId, usize),
    /// [`DataPlane::add_keys`].
    AddKeys {
        /// Peer of the keys.
        peer: PeerId,
        /// Our name for the session.
        session: u32,
        /// The peer's name for the session.
        remote: u32,
        /// The peer must show first that it has the keys.
        confirm: bool,
    },
    /// [`DataPlane::keep_alive`].
    KeepAlive(PeerId, Option<Duration>, Option<Duration>),
    /// [`DataPlane::send_with`].
    SendWith(PeerId, u32),
    /// [`DataPlane::stop_sending`].
    StopSending(PeerId),
    /// [`DataPlane::remove_keys`].
    RemoveKeys(PeerId, u32),
    /// [`DataPlane::send`].
    Send(Line, Vec<u8>),
    /// [`DataPlane::send_to_peer`].
    SendToPeer(PeerId, Option<SocketAddr>, Vec<u8>),
    /// [`DataPlane::inject`].
    Inject(PeerId, Vec<u8>),
    /// [`DataPlane::inject_by`].
    InjectBy(PeerId, LineId, Vec<u8>),
    /// [`DataPlane::send_whole`].
    SendWhole(PeerId, Vec<u8>),
    /// [`DataPlane::send_on`]: the peer, the session, and the payload.
    #[cfg(feature = "postquantum")]
    SendOn(PeerId, u32, Vec<u8>),
    /// [`DataPlane::send_keepalive`].
    SendKeepalive(PeerId),
    /// [`DataPlane::send_staged`].
    SendStaged(PeerId),
    /// [`DataPlane::drop_staged`].
    DropStaged(PeerId),
    /// [`DataPlane::change_routes`].
    ChangeRoutes(Vec<RouteChange>),
    /// [`DataPlane::set_line_rates`].
    SetLineRates([u64; LINES_MAX]),
    /// [`DataPlane::set_rate`].
    SetRate(Option<u64>),
    /// [`DataPlane::set_mtu`].
    SetMtu(usize),
    /// [`DataPlane::set_hairpin`].
    SetHairpin(bool),
}
