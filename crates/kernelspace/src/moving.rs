//! A tunnel that moves between user space and the kernel without losing a packet or sending one twice.
//!
//! Keys never move: their packet numbers and their replay window are in the data plane that got them first. The next
//! keys of the session go to the data plane that is [wished for](Wish), and while both ends go over to them, as at any
//! renewal, both data planes open packets. A program in the kernel sends each arriving packet to the data plane that has
//! its key. Packets to the peer are redirected to the other data plane when the new keys begin to seal; packets that wait
//! in the old one already are sealed with the old keys.

use super::keys::{self, Unfit};
use super::wish::Wish;
use openvpn::data::protocol::Material;
use openvpn::data::wire::{KEYS_PER_PEER, OpenVpn as Packets};
use plane::{
    CipherName, Control, Line, Moving, Notice, PeerId, PeerState, PipelineCounts, SessionKeys,
    Statistics, Transports,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

mod calls;
#[cfg(test)]
mod tests;

/// The only peer.
pub(crate) const PEER: PeerId = PeerId(0);

/// How long the kernel opens packets after it has stopped sealing. By then the peer seals with newer keys: stock waits
/// for the handshake window, 60 s.
const DRAIN: Duration = Duration::from_secs(150);

/// How many renewals in a row may leave the tunnel in user space because trains still wait.
const TRIES: u32 = 3;

/// Why a tunnel with a rate limit stays in user space.
const LIMITED: &str = "shaper: the kernel's data plane does not limit rates";

/// Pauses between requests for new keys: the first one, which is longer than a handshake, and the longest.
const PAUSE: Duration = Duration::from_secs(4);
const PAUSE_MAX: Duration = Duration::from_secs(256);

/// The kernel's side of a tunnel that also has a data plane in user space.
pub(crate) trait KernelSide<P: Transports + ?Sized>: Send {
    /// Sets the sockets of the data plane in user space.
    fn set_sockets(&mut self, sockets: Option<&P::Sockets>);

    /// Whether those sockets can share their port.
    fn can_begin(&self) -> bool;

    /// Has the sockets in user space receive single datagrams only, as soon as nothing waits, or ends that.
    fn disable_gro(&mut self, disable: bool);

    /// Whether they receive single datagrams only. A train may mix packets for both sides.
    fn is_gro_disabled(&self) -> bool;

    /// Makes the kernel's data plane, which gets no packet yet.
    fn begin(&mut self) -> Result<Box<P>, String>;

    /// Lets it send; it has a peer by now.
    fn come_up(&mut self) -> Result<(), String>;

    /// Sends arriving packets with these key ids to it, and no others.
    fn steer(&mut self, key_ids: &[u8]) -> Result<(), String>;

    /// Redirects packets for the peer to it, or to user space again.
    fn redirect_to_kernel(&mut self, to_kernel: bool) -> Result<(), String>;

    /// Forgets what [`begin`](Self::begin) made; the data plane is gone.
    fn end(&mut self);
}

/// Both data planes of a client's tunnel.
pub(crate) struct MovableTunnel<P: Transports<Protocol = Packets> + ?Sized, B: KernelSide<P>> {
    user: Box<P>,
    wish: Arc<Wish>,
    control: Arc<dyn Control>,
    state: Mutex<State<P, B>>,
}

/// The keys of a session, and the data plane that has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyOwner {
    session: u32,
    kernel: bool,
}

struct State<P: ?Sized, B> {
    side: B,
    kernel: Option<Box<P>>,
    /// The keys, the newest last.
    keys: Vec<KeyOwner>,
    sealing: Option<u32>,
    /// Packets for the peer go to the kernel.
    is_redirected: bool,
    line: Option<Line>,
    /// The pings and the allowed silence of the session.
    ping: Option<Duration>,
    silence: Option<Duration>,
    /// Since when the kernel seals.
    began: Option<Instant>,
    /// The tunnel has a rate limit.
    is_limited: bool,
    /// Renewals in a row that trains kept in user space.
    in_vain: u32,
    /// The kernel can move the packets of the next session only.
    waits: bool,
    /// Since when the kernel does not seal any more.
    left: Option<Instant>,
    /// When to ask for new keys again, and the pause after that.
    ask_at: Option<Instant>,
    pause: Duration,
    /// Sums over the data planes in the kernel that are gone.
    past: Past,
}

/// Packets from the interface and to it, the peer's bytes, and drops.
#[derive(Clone, Default)]
struct Past {
    outbound: PipelineCounts,
    inbound: PipelineCounts,
    rx_bytes: u64,
    tx_bytes: u64,
    drops: Vec<(&'static str, u64)>,
}

impl<P: Transports<Protocol = Packets> + ?Sized, B: KernelSide<P>> MovableTunnel<P, B> {
    pub(crate) fn new(user: Box<P>, side: B, wish: Arc<Wish>, control: Arc<dyn Control>) -> Self {
        // An earlier interface may have been in the kernel.
        wish.seals(false);
        Self {
            user,
            wish,
            control,
            state: Mutex::new(State {
                side,
                kernel: None,
                keys: Vec::new(),
                sealing: None,
                is_redirected: false,
                line: None,
                ping: None,
                silence: None,
                began: None,
                is_limited: false,
                in_vain: 0,
                waits: false,
                left: None,
                ask_at: None,
                pause: PAUSE,
                past: Past::default(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<P, B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the kernel is to move the packets. Gives up the wish while there is a rate limit.
    fn wishes_kernel(&self, state: &State<P, B>) -> bool {
        if state.is_limited {
            self.wish.leave_kernel(LIMITED);
        }
        self.wish.is_for_kernel()
    }

    /// Stops trains to user space while the kernel moves packets or is to do so with the next keys.
    fn disable_gro(&self, state: &mut State<P, B>) {
        let next = self.wish.is_for_kernel() && !state.waits;
        state.side.disable_gro(state.kernel.is_some() || next);
    }

    /// Asks for new keys if the wished data plane has not got the newest ones, and ends a kernel's side that is not
    /// needed any more.
    fn drive(&self, state: &mut State<P, B>, now: Instant) {
        let wished = self.wishes_kernel(state);
        self.disable_gro(state);
        match state.keys.last() {
            Some(newest) if newest.kernel != wished && !(wished && state.waits) => {
                let index = newest.session;
                // An idle socket stops trains with its next datagram, which the handshake brings at the latest.
                let is_ready = !wished || state.side.is_gro_disabled();
                let is_first = state.pause == PAUSE;
                let at = *state.ask_at.get_or_insert(now + PAUSE);
                if now >= at || (is_first && is_ready) {
                    self.control.notify(PEER, Notice::Refresh { index });
                    state.ask_at = Some(now + state.pause);
                    state.pause = (2 * state.pause).min(PAUSE_MAX);
                }
            }
            _ => state.is_fulfilled(),
        }
        if !wished && state.left.is_some_and(|at| now >= at + DRAIN) {
            self.end_kernel(state);
        }
        state.keep_alive(now);
    }

    /// Makes the kernel's side ready for these keys. Returns whether it is, or why the kernel cannot have them.
    fn prepare(&self, state: &mut State<P, B>, material: &Material) -> Result<bool, String> {
        match keys::peer_id(material) {
            Ok(_) => {}
            // The format belongs to the session. With this wish the next one will have another.
            Err(Unfit::Epochs) => {
                if !std::mem::replace(&mut state.waits, true) {
                    log::info!(
                        "Data plane: the kernel moves the packets from the next connection on, as it does not support \
                         this one's packets (epoch format)"
                    );
                }
                return Ok(false);
            }
            Err(why) => return Err(why.to_string()),
        }
        let Some(line) = state.line.filter(|_| state.side.can_begin()) else {
            return Err("the kernel cannot share the UDP port".to_owned());
        };
        state.side.disable_gro(true);
        if !state.side.is_gro_disabled() {
            state.in_vain += 1;
            if state.in_vain >= TRIES {
                return Err(
                    "the UDP socket never runs empty, so trains of packets would mix both data planes' keys"
                        .to_owned(),
                );
            }
            return Ok(false);
        }
        if state.kernel.is_none() {
            let kernel = state.side.begin()?;
            kernel.add_peer(PEER, Moving::Stay);
            kernel.set_line(PEER, line);
            state.kernel = Some(kernel);
        }
        Ok(true)
    }

    /// Gives keys to the kernel's side, which it makes first if necessary. Returns `None` if user space keeps them for
    /// now, or why the kernel cannot have them.
    fn give(
        &self,
        state: &mut State<P, B>,
        keys: &SessionKeys<Material>,
    ) -> Result<Option<CipherName>, String> {
        if !self.prepare(state, &keys.material)? {
            return Ok(None);
        }
        let first = !state.keys.iter().any(|it| it.kernel);
        let session = keys.session;
        let Some(kernel) = &state.kernel else {
            return Err("the kernel's side is gone".to_owned());
        };
        let added = kernel.add_keys(PEER, calls::copy_of(keys));
        let name = added.map_err(|error| error.to_string())?;
        state.note_keys(session, true);
        if first {
            state.side.come_up()?;
        }
        state.steer()?;
        Ok(Some(name))
    }

    /// Removes keys that one of the sides has.
    fn take(&self, state: &mut State<P, B>, session: u32) {
        let Some(at) = state.keys.iter().position(|it| it.session == session) else {
            return;
        };
        let owner = state.keys.remove(at);
        if state.sealing == Some(session) {
            state.sealing = None;
        }
        match &state.kernel {
            Some(kernel) if owner.kernel => {
                kernel.remove_keys(PEER, session);
                if let Err(why) = state.steer() {
                    log::warn!("{why}");
                }
            }
            _ => self.user.remove_keys(PEER, session),
        }
    }

    /// Ends a kernel's side without keys.
    fn end_unused(&self, state: &mut State<P, B>) {
        if !state.keys.iter().any(|it| it.kernel) {
            self.end_kernel(state);
        }
    }

    /// Ends the kernel's side with all its keys.
    fn end_kernel(&self, state: &mut State<P, B>) {
        (state.left, state.began) = (None, None);
        let Some(kernel) = state.kernel.take() else {
            return;
        };
        if !self.redirect(state, false) {
            // Otherwise the packets would be lost from now on.
            self.control.device_gone();
        }
        state.keys.retain(|it| !it.kernel);
        if let Err(why) = state.side.steer(&[]) {
            log::warn!("{why}");
        }
        let (statistics, peer) = (kernel.statistics(), kernel.peer(PEER));
        state.past.add(&statistics, &peer.unwrap_or_default());
        drop(kernel);
        state.side.end();
        self.disable_gro(state);
        if self.wish.seals(false) {
            log::info!("Data plane: this program moves the packets");
        }
    }

    /// Redirects packets for the peer to the kernel, or to user space. Returns whether they go there.
    fn redirect(&self, state: &mut State<P, B>, to_kernel: bool) -> bool {
        if state.is_redirected == to_kernel {
            return true;
        }
        match state.side.redirect_to_kernel(to_kernel) {
            Ok(()) => {
                state.is_redirected = to_kernel;
                true
            }
            Err(why) => {
                log::warn!("{why}");
                if !self.wish.refuse(&why) {
                    self.control.notify(PEER, Notice::Failed);
                }
                false
            }
        }
    }

    /// Follows a peer that one of the sides has seen elsewhere. Returns the peer's line.
    fn follow(
        &self,
        state: &mut State<P, B>,
        user: Option<Line>,
        kernel: Option<Line>,
    ) -> Option<Line> {
        let moved = |line: &Line| {
            let known = state.line.map(|it| it.endpoint.addr);
            known.is_some_and(|known| known != line.endpoint.addr)
        };
        if let Some(line) = kernel.filter(moved) {
            self.user.set_line(PEER, line);
            state.line = Some(line);
        } else if let Some(line) = user.filter(moved) {
            if let Some(kernel) = &state.kernel {
                kernel.set_line(PEER, line);
            }
            state.line = Some(line);
        } else {
            return user;
        }
        state.line
    }
}

impl<P: Transports<Protocol = Packets> + ?Sized, B: KernelSide<P>> State<P, B> {
    /// The wished data plane has the newest keys: the next wish need not wait.
    fn is_fulfilled(&mut self) {
        (self.ask_at, self.pause, self.in_vain) = (None, PAUSE, 0);
    }

    /// Has the kernel ping and watch the peer while it seals. It hears only packets of its own keys, so it allows a
    /// longer silence while the peer may still seal with keys in user space.
    fn keep_alive(&self, now: Instant) {
        let Some(kernel) = self.kernel.as_deref().filter(|_| self.seals_in_kernel()) else {
            return;
        };
        let heard_after = |began| {
            let heard = kernel.peer(PEER).and_then(|it| it.heard);
            heard.is_some_and(|at| at > began)
        };
        let has_moved = self.keys.iter().all(|it| it.kernel)
            || (self.began).is_none_or(|it| now >= it + DRAIN || heard_after(it));
        let more = if has_moved { Duration::ZERO } else { DRAIN };
        kernel.keep_alive(PEER, self.ping, self.silence.map(|it| it + more));
    }

    /// Notes the data plane of these keys, the newest ones.
    fn note_keys(&mut self, session: u32, kernel: bool) {
        self.keys.push(KeyOwner { session, kernel });
    }

    /// Sends arriving packets to the side that has their keys.
    fn steer(&mut self) -> Result<(), String> {
        let key_id = |it: &KeyOwner| (it.session % KEYS_PER_PEER) as u8;
        let in_kernel = self.keys.iter().filter(|it| it.kernel);
        let key_ids: Vec<u8> = in_kernel.map(key_id).collect();
        self.side.steer(&key_ids)
    }

    /// The kernel's side, if it has these keys.
    fn kernel_with(&self, session: u32) -> Option<&P> {
        let owner = self
            .keys
            .iter()
            .any(|it| it.kernel && it.session == session);
        self.kernel.as_deref().filter(|_| owner)
    }

    /// Whether the kernel seals.
    fn seals_in_kernel(&self) -> bool {
        self.sealing
            .is_some_and(|it| self.kernel_with(it).is_some())
    }
}

impl Past {
    fn add(&mut self, statistics: &Statistics, peer: &PeerState) {
        for (sum, more) in [
            (&mut self.outbound, &statistics.outbound),
            (&mut self.inbound, &statistics.inbound),
        ] {
            sum.packets += more.packets;
            sum.bytes += more.bytes;
        }
        for (name, count) in &statistics.drops {
            match self.drops.iter_mut().find(|(it, _)| it == name) {
                Some((_, sum)) => *sum += count,
                None => self.drops.push((name, *count)),
            }
        }
        self.rx_bytes += peer.rx_bytes;
        self.tx_bytes += peer.tx_bytes;
    }
}
