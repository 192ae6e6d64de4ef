//! The recording data plane's answers to calls.

use super::{Call, FakeDataPlane, Peer};
use crate::{
    CipherName, DataPlane, Endpoint, KeyError, KeyUsage, LINES_MAX, Line, LineId, LineMode,
    LineState, Moving, PeerId, PeerLines, PeerState, Protocol, Reorder, RouteChange, Sender,
    SessionKeys, Statistics, StreamId, Transports, Whole,
};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

impl<P: Protocol> Transports for FakeDataPlane<P> {
    type Sockets = u16;
    type Connection = SocketAddr;

    fn open_line(&self, line: LineId, port: u16) -> io::Result<()> {
        self.on(Call::OpenLine(line), |state| {
            state.lines.insert(line, port);
            Some(())
        });
        Ok(())
    }

    fn add_stream(&self, id: StreamId, line: LineId, peer: SocketAddr) -> io::Result<Endpoint> {
        self.on(Call::AddStream(id, line), |state| {
            state.streams.insert(id).then_some(())
        });
        Ok(Endpoint::new(peer))
    }
}

impl<P: Protocol> DataPlane for FakeDataPlane<P> {
    type Protocol = P;

    fn close_line(&self, line: LineId) {
        self.on(Call::CloseLine(line), |state| state.lines.remove(&line));
    }

    fn port(&self, line: LineId) -> Option<u16> {
        self.state().lines.get(&line).copied()
    }

    fn set_mark(&self, line: LineId, mark: u32) -> io::Result<()> {
        self.on(Call::SetMark(line, mark), |state| {
            state.lines.get(&line).copied()
        });
        Ok(())
    }

    fn remove_stream(&self, id: StreamId) {
        self.on(Call::RemoveStream(id), |state| {
            state.streams.remove(&id).then_some(())
        });
    }

    fn add_peer(&self, id: PeerId, moving: Moving) -> bool {
        self.on(Call::AddPeer(id, moving), |state| {
            let new = !state.peers.contains_key(&id);
            new.then(|| {
                state.peers.insert(
                    id,
                    Peer {
                        state: PeerState::default(),
                        lines: BTreeMap::new(),
                        sessions: BTreeMap::new(),
                        sealing: None,
                        armed: false,
                    },
                );
            })
        })
        .is_some()
    }

    fn remove_peer(&self, id: PeerId) {
        self.on(Call::RemovePeer(id), |state| {
            state.peers.remove(&id)?;
            state.senders.remove(&id);
            for (address, len, _) in state.owned.extract_if(.., |(.., owner)| *owner == id) {
                state.routes.remove_if(address, len, |owner| *owner == id);
            }
            Some(())
        });
    }

    fn set_moving(&self, id: PeerId, moving: Moving) {
        self.on_peer(id, Call::SetMoving(id, moving), |_| Some(()));
    }

    fn set_line(&self, id: PeerId, line: Line) {
        self.on_peer(id, Call::SetLine(id, line), |peer| {
            peer.lines.insert(line.id, line);
            if peer.state.line.is_none_or(|used| used.id == line.id) {
                peer.state.line = Some(line);
            }
            Some(())
        });
    }

    fn remove_line(&self, id: PeerId, line: LineId) {
        self.on_peer(id, Call::RemoveLine(id, line), |peer| {
            if peer.state.line.is_some_and(|used| used.id == line) {
                peer.state.line = None;
            }
            peer.lines.remove(&line)
        });
    }

    fn use_line(&self, id: PeerId, line: LineId) {
        self.on_peer(id, Call::UseLine(id, line), |peer| {
            let line = *peer.lines.get(&line)?;
            peer.state.line = Some(line);
            Some(())
        });
    }

    fn set_line_mode(&self, id: PeerId, mode: LineMode) {
        self.on_peer(id, Call::SetLineMode(id, mode), |_| Some(()));
    }

    fn set_reorder(&self, id: PeerId, reorder: Option<Reorder>) {
        self.on_peer(id, Call::SetReorder(id, reorder), |_| Some(()));
    }

    fn peer_lines(&self, id: PeerId) -> PeerLines {
        let state = self.state();
        let lines = state.peers.get(&id).into_iter();
        PeerLines {
            lines: lines
                .flat_map(|peer| peer.lines.values().copied().map(LineState::unused))
                .collect(),
            ..PeerLines::default()
        }
    }

    fn carried(&self) -> [u64; LINES_MAX] {
        self.state().carried
    }

    fn forget_source(&self, id: PeerId) {
        self.on_peer(id, Call::ForgetSource(id), |peer| {
            if let Some(line) = &mut peer.state.line {
                line.endpoint.source = None;
            }
            Some(())
        });
    }

    fn set_sender(&self, id: PeerId, from: Sender, first: u32) {
        self.on(Call::SetSender(id, from, first), |state| {
            state.peers.get(&id)?;
            for senders in state.senders.values_mut() {
                senders.retain(|(sender, _)| *sender != from);
            }
            state.senders.entry(id).or_default().push((from, first));
            Some(())
        });
    }

    fn clear_sender(&self, id: PeerId, from: Sender) {
        self.on(Call::ClearSender(id, from), |state| {
            state.peers.get(&id)?;
            if let Some(senders) = state.senders.get_mut(&id) {
                senders.retain(|(sender, _)| *sender != from);
            }
            Some(())
        });
    }

    fn peer(&self, id: PeerId) -> Option<PeerState> {
        Some(self.state().peers.get(&id)?.state)
    }

    fn arm(&self, id: PeerId) -> bool {
        self.on_peer(id, Call::Arm(id), |peer| {
            Some(!std::mem::replace(&mut peer.armed, true))
        })
        .unwrap_or(false)
    }

    fn disarm(&self, id: PeerId) {
        self.on_peer(id, Call::Disarm(id), |peer| {
            peer.armed = false;
            Some(())
        });
    }

    fn note_sent(&self, id: PeerId, at: Instant, bytes: usize) {
        self.on_peer(id, Call::NoteSent(id, bytes), |peer| {
            peer.state.tx_bytes += bytes as u64;
            peer.state.times.last_sent = Some(at);
            peer.state.times.unacked_since = None;
            Some(())
        });
    }

    fn note_received(&self, id: PeerId, at: Instant, bytes: usize) {
        self.on_peer(id, Call::NoteReceived(id, bytes), |peer| {
            peer.state.rx_bytes += bytes as u64;
            peer.state.times.last_received = Some(at);
            peer.state.times.unanswered_since = None;
            Some(())
        });
    }

    fn add_keys(
        &self,
        id: PeerId,
        keys: SessionKeys<P::Keys>,
    ) -> Result<CipherName, KeyError<P::Error>> {
        let call = Call::AddKeys {
            peer: id,
            session: keys.session,
            remote: keys.remote,
            confirm: keys.confirm,
        };
        let formats = self.protocol.formats(&keys.material);
        self.on(call, |state| {
            let has = |(of, peer): (&PeerId, &Peer<_>)| {
                *of != id && peer.sessions.contains_key(&keys.session)
            };
            let taken = state.peers.iter().any(has);
            let peer = state.peers.get_mut(&id)?;
            if taken {
                return Some(Err(KeyError::Taken(keys.session)));
            }
            let cipher = formats.map(|formats| formats.cipher);
            if cipher.is_ok() {
                if peer.sealing == Some(keys.session) {
                    peer.sealing = None;
                    peer.state.sealed = None;
                }
                peer.sessions
                    .insert(keys.session, (keys, KeyUsage::default()));
            }
            Some(cipher.map_err(KeyError::Material))
        })
        .unwrap_or(Err(KeyError::NoPeer(id)))
    }

    fn keep_alive(&self, id: PeerId, ping: Option<Duration>, silence: Option<Duration>) {
        self.on_peer(id, Call::KeepAlive(id, ping, silence), |_| Some(()));
    }

    fn send_with(&self, id: PeerId, session: u32) {
        self.on_peer(id, Call::SendWith(id, session), |peer| {
            peer.sessions.get(&session)?;
            if peer.sealing != Some(session) {
                peer.sealing = Some(session);
                peer.state.sealed = Some(0);
            }
            peer.state.staged = false;
            Some(())
        });
    }

    fn stop_sending(&self, id: PeerId) {
        self.on_peer(id, Call::StopSending(id), |peer| {
            (peer.sealing, peer.state.sealed) = (None, None);
            Some(())
        });
    }

    fn remove_keys(&self, id: PeerId, session: u32) {
        self.on_peer(id, Call::RemoveKeys(id, session), |peer| {
            if peer.sealing == Some(session) {
                (peer.sealing, peer.state.sealed) = (None, None);
            }
            peer.sessions.remove(&session)
        });
    }

    fn key_usage(&self, id: PeerId, session: u32) -> KeyUsage {
        let state = self.state();
        let peer = state.peers.get(&id);
        peer.and_then(|peer| peer.sessions.get(&session))
            .map_or_else(KeyUsage::default, |(_, usage)| *usage)
    }

    fn send(&self, to: &Line, message: &[u8]) -> bool {
        self.on(Call::Send(*to, message.to_vec()), |_| Some(()));
        true
    }

    fn send_to_peer(&self, id: PeerId, to: Option<SocketAddr>, message: &[u8]) -> bool {
        let call = Call::SendToPeer(id, to, message.to_vec());
        self.on_peer(id, call, |peer| {
            Some(to.is_some() || peer.state.line.is_some())
        })
        .unwrap_or(false)
    }

    fn inject(&self, id: PeerId, payload: &[u8]) {
        self.on_peer(id, Call::Inject(id, payload.to_vec()), |_| Some(()));
    }

    fn inject_by(&self, id: PeerId, line: LineId, payload: &[u8]) {
        self.on_peer(id, Call::InjectBy(id, line, payload.to_vec()), |_| Some(()));
    }

    fn send_whole(&self, id: PeerId, payload: &[u8]) -> Whole {
        let sent = self.on_peer(id, Call::SendWhole(id, payload.to_vec()), |peer| {
            Some(peer.sealing.is_some() && peer.state.line.is_some())
        });
        match sent {
            _ if payload.len() > self.state().longest => Whole::TooLong,
            Some(true) => Whole::Sent,
            _ => Whole::Nowhere,
        }
    }

    #[cfg(feature = "postquantum")]
    fn send_on(&self, id: PeerId, session: u32, payload: &[u8]) {
        self.on_peer(id, Call::SendOn(id, session, payload.to_vec()), |peer| {
            peer.sessions.contains_key(&session).then_some(())
        });
    }

    fn send_keepalive(&self, id: PeerId) -> bool {
        self.on_peer(id, Call::SendKeepalive(id), |peer| {
            Some(peer.sealing.is_some() && peer.state.line.is_some())
        })
        .unwrap_or(false)
    }

    fn send_staged(&self, id: PeerId) -> bool {
        self.on_peer(id, Call::SendStaged(id), |peer| {
            let staged = peer.state.staged;
            peer.state.staged &= peer.sealing.is_none();
            Some(staged)
        })
        .unwrap_or(false)
    }

    fn drop_staged(&self, id: PeerId) {
        self.on_peer(id, Call::DropStaged(id), |peer| {
            peer.state.staged = false;
            Some(())
        });
    }

    fn change_routes(&self, changes: &[RouteChange]) {
        self.on(Call::ChangeRoutes(changes.to_vec()), |state| {
            let mut all_there = true;
            for change in changes {
                match *change {
                    RouteChange::Add { address, len, peer } => {
                        if !state.peers.contains_key(&peer) {
                            all_there = false;
                            continue;
                        }
                        state.routes.insert(address, len, peer);
                        state.owned.push((address, len, peer));
                    }
                    RouteChange::Remove { address, len, peer } => {
                        let owned = |owner: &PeerId| *owner == peer;
                        state.routes.remove_if(address, len, owned);
                        state.owned.retain(|it| *it != (address, len, peer));
                    }
                }
            }
            all_there.then_some(())
        });
    }

    fn set_rate(&self, rate: Option<u64>) {
        self.on(Call::SetRate(rate), |_| Some(()));
    }

    fn set_line_rates(&self, rates: [u64; LINES_MAX]) {
        self.on(Call::SetLineRates(rates), |_| Some(()));
    }

    fn set_mtu(&self, mtu: usize) {
        self.on(Call::SetMtu(mtu), |state| {
            state.mtu = mtu;
            Some(())
        });
    }

    fn mtu(&self) -> usize {
        self.state().mtu
    }

    fn set_hairpin(&self, hairpin: bool) {
        self.on(Call::SetHairpin(hairpin), |_| Some(()));
    }

    fn interface(&self) -> io::Result<String> {
        Ok(self.state().name.clone())
    }

    fn statistics(&self) -> Statistics {
        self.state().statistics.clone()
    }
}
