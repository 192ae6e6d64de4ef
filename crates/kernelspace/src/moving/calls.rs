//! Control's calls to a tunnel that moves: which data plane each is for.

use super::{DRAIN, KernelSide, MovableTunnel};
use openvpn::data::cipher::CipherError;
use openvpn::data::protocol::Material;
use openvpn::data::wire::OpenVpn as Packets;
use plane::{
    CipherName, DataPlane, Endpoint, KeyError, KeyUsage, LINES_MAX, Line, LineId, LineMode, Moving,
    PeerId, PeerLines, PeerState, Reorder, RouteChange, Sender, SessionKeys, Statistics, StreamId,
    Transports, Whole,
};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

impl<P: Transports<Protocol = Packets> + ?Sized, B: KernelSide<P>> Transports
    for MovableTunnel<P, B>
{
    type Sockets = P::Sockets;
    type Connection = P::Connection;

    fn open_line(&self, line: LineId, sockets: P::Sockets) -> io::Result<()> {
        let mut state = self.state();
        self.end_kernel(&mut state);
        state.side.set_sockets(Some(&sockets));
        // Before the first keys of a session, a handshake passes.
        state.side.disable_gro(self.wish.is_for_kernel());
        self.user.open_line(line, sockets)
    }

    fn add_stream(
        &self,
        id: StreamId,
        line: LineId,
        connection: P::Connection,
    ) -> io::Result<Endpoint> {
        self.user.add_stream(id, line, connection)
    }
}

impl<P: Transports<Protocol = Packets> + ?Sized, B: KernelSide<P>> DataPlane
    for MovableTunnel<P, B>
{
    type Protocol = Packets;

    fn close_line(&self, line: LineId) {
        let mut state = self.state();
        self.end_kernel(&mut state);
        state.side.set_sockets(None);
        self.user.close_line(line);
    }

    fn port(&self, line: LineId) -> Option<u16> {
        self.user.port(line)
    }

    fn set_mark(&self, line: LineId, mark: u32) -> io::Result<()> {
        if let Some(kernel) = &self.state().kernel {
            kernel.set_mark(line, mark)?;
        }
        self.user.set_mark(line, mark)
    }

    fn remove_stream(&self, id: StreamId) {
        self.user.remove_stream(id);
    }

    fn add_peer(&self, id: PeerId, moving: Moving) -> bool {
        self.user.add_peer(id, moving)
    }

    fn remove_peer(&self, id: PeerId) {
        let mut state = self.state();
        self.end_kernel(&mut state);
        state.keys.clear();
        (state.sealing, state.line) = (None, None);
        (state.ping, state.silence) = (None, None);
        (state.past.rx_bytes, state.past.tx_bytes) = (0, 0);
        state.waits = false;
        state.is_fulfilled();
        self.user.remove_peer(id);
    }

    fn set_moving(&self, id: PeerId, moving: Moving) {
        self.user.set_moving(id, moving);
    }

    fn set_line(&self, id: PeerId, line: Line) {
        let mut state = self.state();
        state.line = Some(line);
        if let Some(kernel) = &state.kernel {
            kernel.set_line(id, line);
        }
        self.user.set_line(id, line);
    }

    fn remove_line(&self, id: PeerId, line: LineId) {
        self.user.remove_line(id, line);
    }

    fn use_line(&self, id: PeerId, line: LineId) {
        self.user.use_line(id, line);
    }

    fn set_line_mode(&self, id: PeerId, mode: LineMode) {
        self.user.set_line_mode(id, mode);
    }

    fn set_reorder(&self, id: PeerId, reorder: Option<Reorder>) {
        self.user.set_reorder(id, reorder);
    }

    fn peer_lines(&self, id: PeerId) -> PeerLines {
        self.user.peer_lines(id)
    }

    fn carried(&self) -> [u64; LINES_MAX] {
        self.user.carried()
    }

    fn forget_source(&self, id: PeerId) {
        if let Some(kernel) = &self.state().kernel {
            kernel.forget_source(id);
        }
        self.user.forget_source(id);
    }

    fn set_sender(&self, id: PeerId, from: Sender, first: u32) {
        self.user.set_sender(id, from, first);
    }

    fn clear_sender(&self, id: PeerId, from: Sender) {
        self.user.clear_sender(id, from);
    }

    fn peer(&self, id: PeerId) -> Option<PeerState> {
        let mut state = self.state();
        let now = Instant::now();
        self.drive(&mut state, now);
        let mut peer = self.user.peer(id)?;
        peer.rx_bytes += state.past.rx_bytes;
        peer.tx_bytes += state.past.tx_bytes;
        let Some(kernel) = state.kernel.as_ref().and_then(|it| it.peer(id)) else {
            state.line = peer.line.or(state.line);
            return Some(peer);
        };
        peer.rx_bytes += kernel.rx_bytes;
        peer.tx_bytes += kernel.tx_bytes;
        peer.heard = peer.heard.max(kernel.heard);
        // The kernel reports the silence of a peer that seals with its keys, or may still do so after it has stopped.
        let watches = state.seals_in_kernel() || state.left.is_some_and(|at| now < at + DRAIN);
        let alive = kernel.times.last_received.filter(|_| watches);
        peer.times.last_received = peer.times.last_received.max(kernel.heard).max(alive);
        if state.seals_in_kernel() {
            // The kernel pings in time.
            peer.times.last_sent = Some(now);
            peer.sealed = kernel.sealed;
        }
        peer.line = self.follow(&mut state, peer.line, kernel.line);
        Some(peer)
    }

    fn arm(&self, id: PeerId) -> bool {
        self.user.arm(id)
    }

    fn disarm(&self, id: PeerId) {
        self.user.disarm(id);
    }

    fn keep_alive(&self, id: PeerId, ping: Option<Duration>, silence: Option<Duration>) {
        let mut state = self.state();
        (state.ping, state.silence) = (ping, silence);
        state.keep_alive(Instant::now());
        self.user.keep_alive(id, ping, silence);
    }

    fn note_sent(&self, id: PeerId, at: Instant, bytes: usize) {
        self.user.note_sent(id, at, bytes);
    }

    fn note_received(&self, id: PeerId, at: Instant, bytes: usize) {
        self.user.note_received(id, at, bytes);
    }

    fn add_keys(
        &self,
        id: PeerId,
        keys: SessionKeys<Material>,
    ) -> Result<CipherName, KeyError<CipherError>> {
        let mut state = self.state();
        let session = keys.session;
        // Numbers come again.
        self.take(&mut state, session);
        if self.wishes_kernel(&state) {
            match self.give(&mut state, &keys) {
                Ok(Some(name)) => {
                    state.is_fulfilled();
                    return Ok(name);
                }
                Ok(None) => {}
                Err(why) => {
                    // Nothing was sealed with these keys. Packets reach them only if all steps succeed.
                    self.take(&mut state, session);
                    let may_leave = self.wish.refuse(&why);
                    self.end_unused(&mut state);
                    if !may_leave {
                        return Err(KeyError::Unable(why));
                    }
                }
            }
        }
        let added = self.user.add_keys(id, keys)?;
        state.note_keys(session, false);
        if !self.wish.is_for_kernel() {
            state.is_fulfilled();
        }
        Ok(added)
    }

    fn send_with(&self, id: PeerId, session: u32) {
        let mut state = self.state();
        let now = Instant::now();
        let in_kernel = match state.kernel_with(session) {
            Some(kernel) => {
                kernel.send_with(id, session);
                true
            }
            None => {
                self.user.send_with(id, session);
                false
            }
        };
        state.sealing = Some(session);
        if in_kernel {
            state.left = None;
            state.began.get_or_insert(now);
            state.keep_alive(now);
        } else if let Some(kernel) = &state.kernel {
            kernel.keep_alive(id, None, None);
            state.began = None;
            state.left.get_or_insert(now);
        }
        if self.redirect(&mut state, in_kernel) && self.wish.seals(in_kernel) {
            let mover = if in_kernel {
                "the kernel"
            } else {
                "this program"
            };
            log::info!("Data plane: {mover} moves the packets");
        }
    }

    fn stop_sending(&self, id: PeerId) {
        self.user.stop_sending(id);
    }

    fn remove_keys(&self, _: PeerId, session: u32) {
        let mut state = self.state();
        self.take(&mut state, session);
        self.end_unused(&mut state);
    }

    fn key_usage(&self, id: PeerId, session: u32) -> KeyUsage {
        let state = self.state();
        match state.kernel_with(session) {
            Some(kernel) => kernel.key_usage(id, session),
            None => self.user.key_usage(id, session),
        }
    }

    fn send(&self, to: &Line, message: &[u8]) -> bool {
        self.user.send(to, message)
    }

    fn send_to_peer(&self, id: PeerId, to: Option<SocketAddr>, message: &[u8]) -> bool {
        self.user.send_to_peer(id, to, message)
    }

    /// Does nothing while the kernel seals, as the kernel's own data plane does.
    fn inject(&self, id: PeerId, payload: &[u8]) {
        if !self.state().seals_in_kernel() {
            self.user.inject(id, payload);
        }
    }

    fn inject_by(&self, id: PeerId, line: LineId, payload: &[u8]) {
        if !self.state().seals_in_kernel() {
            self.user.inject_by(id, line, payload);
        }
    }

    fn send_whole(&self, id: PeerId, payload: &[u8]) -> Whole {
        match self.state().seals_in_kernel() {
            true => Whole::Nowhere,
            false => self.user.send_whole(id, payload),
        }
    }

    fn send_keepalive(&self, id: PeerId) -> bool {
        !self.state().seals_in_kernel() && self.user.send_keepalive(id)
    }

    fn send_staged(&self, id: PeerId) -> bool {
        self.user.send_staged(id)
    }

    fn drop_staged(&self, id: PeerId) {
        self.user.drop_staged(id);
    }

    fn change_routes(&self, changes: &[RouteChange]) {
        self.user.change_routes(changes);
    }

    fn set_rate(&self, rate: Option<u64>) {
        let mut state = self.state();
        state.is_limited = rate.is_some();
        self.wishes_kernel(&state);
        self.user.set_rate(rate);
    }

    fn set_line_rates(&self, rates: [u64; LINES_MAX]) {
        self.user.set_line_rates(rates);
    }

    fn set_mtu(&self, mtu: usize) {
        self.user.set_mtu(mtu);
    }

    fn mtu(&self) -> usize {
        self.user.mtu()
    }

    fn set_hairpin(&self, hairpin: bool) {
        self.user.set_hairpin(hairpin);
    }

    fn interface(&self) -> io::Result<String> {
        self.user.interface()
    }

    fn pulse(&self) -> bool {
        let kernel = self.state().kernel.as_ref().is_none_or(|it| it.pulse());
        self.user.pulse() && kernel
    }

    fn statistics(&self) -> Statistics {
        let state = self.state();
        let mut sum = state.past.clone();
        let mut statistics = self.user.statistics();
        if let Some(kernel) = &state.kernel {
            let its = kernel.statistics();
            sum.add(&its, &PeerState::default());
        }
        statistics.drops.extend(sum.drops);
        for (all, more) in [
            (&mut statistics.outbound, sum.outbound),
            (&mut statistics.inbound, sum.inbound),
        ] {
            all.packets += more.packets;
            all.bytes += more.bytes;
        }
        statistics
    }
}

/// A copy for the kernel, which may refuse it. Both copies erase themselves.
pub(super) fn copy_of(keys: &SessionKeys<Material>) -> SessionKeys<Material> {
    let material = &keys.material;
    SessionKeys {
        session: keys.session,
        remote: keys.remote,
        material: Material {
            keys: material.keys.clone(),
            shape: material.shape.clone(),
            allow_insecure: material.allow_insecure,
        },
        receive: keys.receive,
        send: keys.send,
        confirm: keys.confirm,
    }
}

impl<P: Transports<Protocol = Packets> + ?Sized, B: KernelSide<P>> Drop for MovableTunnel<P, B> {
    fn drop(&mut self) {
        let mut state = self.state();
        self.end_kernel(&mut state);
    }
}
