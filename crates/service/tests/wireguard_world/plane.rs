//! A data plane that records its calls, with simulated workers around it; packets carry their key instead of
//! encryption.

use plane::fake::{Call, FakeDataPlane};
use plane::{DataPlane, Endpoint, LineId, Notice, PeerId, PeerState, ReplayWindow};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use wireguard::WireGuard;

/// The first byte of a data packet.
pub(crate) const DATA: u8 = 4;

/// Type, receiver's index, counter, and the key's first bytes in place of a tag.
const HEADER: usize = 1 + 4 + 8 + 8;

const STAGED_MAX: usize = 128;

/// The workers' state of a session beside its keys.
#[derive(Default)]
struct Session {
    sealed: u64,
    window: ReplayWindow,
    /// Whether a packet has shown that the peer has the keys.
    confirmed: bool,
    /// Whether the session has requested newer keys, when it sealed and when it opened.
    refreshed: [bool; 2],
}

pub(crate) struct Plane {
    pub(crate) fake: Arc<FakeDataPlane<WireGuard>>,
    sessions: BTreeMap<(PeerId, u32), Session>,
    staged: BTreeMap<PeerId, VecDeque<Vec<u8>>>,
    /// Datagrams to send, each with its endpoint.
    pub(crate) datagrams: Vec<(Endpoint, Vec<u8>)>,
    /// Notices for the machine.
    pub(crate) notices: Vec<(PeerId, Notice)>,
}

impl Plane {
    pub(crate) fn new() -> Self {
        Self {
            fake: Arc::new(FakeDataPlane::new(WireGuard::new(), "wg0", 1420)),
            sessions: BTreeMap::new(),
            staged: BTreeMap::new(),
            datagrams: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Does the workers' part after control's calls.
    pub(crate) fn work(&mut self, now: Instant) {
        for call in self.fake.take_calls() {
            self.follow(call, now);
        }
        assert_eq!(
            self.fake.astray(),
            [],
            "calls refer to missing peers or keys"
        );
    }

    fn follow(&mut self, call: Call, now: Instant) {
        match call {
            Call::RemovePeer(id) => {
                self.sessions.retain(|(peer, _), _| *peer != id);
                self.staged.remove(&id);
            }
            Call::Send(line, bytes) => self.datagrams.push((line.endpoint, bytes)),
            Call::SendToPeer(id, None, bytes) => {
                let line = self.fake.peer(id).unwrap().line;
                let line = line.unwrap_or_else(|| panic!("it is not known where {id:?} is"));
                self.datagrams.push((line.endpoint, bytes));
            }
            Call::AddKeys { peer, session, .. } => {
                let expires = self.fake.with_keys(peer, session, |keys| keys.send.expires);
                assert!(expires.unwrap() > now, "keys that are over already");
                let before = self.sessions.insert((peer, session), Session::default());
                assert!(before.is_none(), "{session} is taken");
                assert!(
                    self.fake.sessions(peer).len() <= 3,
                    "{peer:?} has more than three sessions"
                );
            }
            Call::RemoveKeys(id, session) => {
                self.sessions.remove(&(id, session));
            }
            Call::StopSending(id) => self.fake.change_peer(id, |state| {
                state.times.unanswered_since = None;
                state.times.unacked_since = None;
            }),
            Call::SendKeepalive(id) => {
                self.seal(id, &[], now);
            }
            Call::SendWith(id, _) | Call::SendStaged(id) => {
                self.flush(id, now);
            }
            Call::DropStaged(id) => {
                self.staged.remove(&id);
            }
            _ => {}
        }
    }

    /// Sends data to the owner of `to`, or queues it.
    pub(crate) fn send(&mut self, to: IpAddr, data: u64, now: Instant) {
        let Some(id) = self.fake.route(to) else {
            return;
        };
        let staged = self.staged.entry(id).or_default();
        if staged.len() == STAGED_MAX {
            staged.pop_front();
        }
        staged.push_back(data.to_le_bytes().to_vec());
        if !self.flush(id, now) {
            self.notices.push((id, Notice::NeedSession));
        }
    }

    /// Sends queued data; returns whether the queue is empty.
    fn flush(&mut self, id: PeerId, now: Instant) -> bool {
        let mut staged = self.staged.remove(&id).unwrap_or_default();
        while let Some(data) = staged.front() {
            if !self.seal(id, data, now) {
                break;
            }
            staged.pop_front();
        }
        let empty = staged.is_empty();
        self.fake.change_peer(id, |state| state.staged = !empty);
        if !empty {
            self.staged.insert(id, staged);
        }
        empty
    }

    /// Seals one packet; returns whether there was a key and an address.
    fn seal(&mut self, id: PeerId, data: &[u8], now: Instant) -> bool {
        let to = self.fake.peer(id).and_then(|state| state.line);
        let (Some(to), Some(index)) = (to, self.fake.sealing(id)) else {
            return false;
        };
        let session = self.sessions.get_mut(&(id, index)).unwrap();
        let begin = |keys: &plane::SessionKeys<wireguard::DataKeys>| {
            let mut bytes = vec![DATA];
            bytes.extend(keys.material.remote_index.to_le_bytes());
            bytes.extend(session.sealed.to_le_bytes());
            bytes.extend(&keys.material.seal.as_bytes()[..8]);
            (keys.send, bytes)
        };
        let (limits, mut bytes) = self.fake.with_keys(id, index, begin).unwrap();
        if now >= limits.expires || session.sealed >= limits.messages_max {
            return false;
        }
        session.sealed += 1;
        let aged = limits.refresh_at.is_some_and(|at| now >= at);
        if aged && !std::mem::replace(&mut session.refreshed[0], true) {
            self.notices.push((id, Notice::Refresh { index }));
        }
        bytes.extend(data);
        self.fake.change_peer(id, |state| {
            state.tx_bytes += bytes.len() as u64;
            state.times.unacked_since = None;
            state.times.last_sent = Some(now);
            if !data.is_empty() {
                state.times.unanswered_since.get_or_insert(now);
                state.times.last_data_sent = Some(now);
            }
        });
        self.datagrams.push((to.endpoint, bytes));
        self.noted(id);
        true
    }

    /// Opens a data packet; returns its peer and its content.
    pub(crate) fn open(
        &mut self,
        from: Endpoint,
        bytes: &[u8],
        now: Instant,
    ) -> Option<(PeerId, u64)> {
        let (header, data) = bytes.split_at_checked(HEADER)?;
        let index = u32::from_le_bytes(header[1..5].try_into().unwrap());
        let counter = u64::from_le_bytes(header[5..13].try_into().unwrap());
        let mut sessions = self.sessions.iter_mut();
        let (&(id, _), session) = sessions.find(|((_, session), _)| *session == index)?;
        let (limits, authentic, confirm) = self.fake.with_keys(id, index, |keys| {
            let authentic = header[13..] == keys.material.open.as_bytes()[..8];
            (keys.receive, authentic, keys.confirm)
        })?;
        if !authentic || now >= limits.expires || !session.window.accept(counter) {
            return None;
        }
        let aged = limits.refresh_at.is_some_and(|at| now >= at);
        if aged && !std::mem::replace(&mut session.refreshed[1], true) {
            self.notices.push((id, Notice::Refresh { index }));
        }
        if confirm && !std::mem::replace(&mut session.confirmed, true) {
            self.confirmed(id, index);
        }
        let before = self.fake.peer(id).and_then(|state| state.line);
        if before.is_none_or(|line| line.endpoint.addr != from.addr) {
            let line = LineId::FIRST;
            self.notices.push((id, Notice::Moved { line }));
        }
        self.fake.change_peer(id, |state| {
            state.line = Some(plane::Line::udp(from));
            state.rx_bytes += bytes.len() as u64;
            state.times.unanswered_since = None;
            state.times.last_received = Some(now);
            if !data.is_empty() {
                state.times.unacked_since.get_or_insert(now);
            }
        });
        self.noted(id);
        Some((id, u64::from_le_bytes(data.try_into().ok()?)))
    }

    /// Switches sending to keys that the peer has confirmed, unless later keys are already in use.
    fn confirmed(&mut self, id: PeerId, index: u32) {
        let expires = |session| self.fake.with_keys(id, session, |keys| keys.send.expires);
        let current = self.fake.sealing(id).and_then(expires);
        if current.is_none_or(|current| Some(current) < expires(index)) {
            let staged = self.fake.peer(id).is_some_and(|state| state.staged);
            self.fake.send_with(id, index);
            self.fake.change_peer(id, |state| state.staged = staged);
            self.fake.take_calls();
        }
        self.notices.push((id, Notice::Confirmed { index }));
    }

    /// Reports activity, unless the machine polls for it.
    fn noted(&mut self, id: PeerId) {
        let times = self.fake.peer(id).unwrap_or_default().times;
        let active = times.unanswered_since.is_some() || times.unacked_since.is_some();
        if active && self.fake.arm(id) {
            self.notices.push((id, Notice::Active));
        }
        self.fake.take_calls();
    }

    /// Forgets a removed local address; answers then leave from another.
    pub(crate) fn forget_source(&mut self, to: SocketAddr) {
        for id in self.fake.peers() {
            self.fake.change_peer(id, |state| {
                if let Some(line) = state.line.as_mut().filter(|it| it.endpoint.addr == to) {
                    line.endpoint.source = None;
                }
            });
        }
    }

    /// The peers with queued packets.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = PeerState> {
        self.staged.keys().filter_map(|id| self.fake.peer(*id))
    }

    /// Returns whether no state of any peer is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.fake.peers().is_empty() && self.sessions.is_empty() && self.staged.is_empty()
    }
}
