//! Performs a device's output.

use plane::ReplayWindow;
use wireguard::Output;

use super::host::{ReceiveKey, SendKey};
use super::{Event, Sim};

impl Sim {
    /// Performs a device's outputs.
    pub(super) fn perform(&mut self, at: usize, out: Vec<Output>) {
        let now = self.now;
        for output in out {
            match output {
                Output::Send { peer, to, datagram } => {
                    if let Some(peer) = peer {
                        let plane = self.hosts[at].planes.entry(peer).or_default();
                        plane.notes.unacknowledged_since = None;
                        plane.notes.last_traversal = Some(now);
                    }
                    let event = match (datagram.is_initiation(), peer) {
                        (true, _) => Event::Initiation,
                        (false, Some(_)) => Event::Response,
                        (false, None) => Event::CookieReply,
                    };
                    self.log(at, event);
                    self.throw(at, to, datagram.as_bytes().to_vec());
                }
                Output::Heard { peer, from, .. } => {
                    let plane = self.hosts[at].planes.entry(peer).or_default();
                    plane.endpoint = Some(from);
                    plane.notes.unanswered_since = None;
                    plane.notes.last_traversal = Some(now);
                }
                Output::AddKeys { peer, keys } => {
                    #[cfg(feature = "postquantum")]
                    let only_exchange = keys.material.exchange.is_some_and(|it| it.only);
                    #[cfg(not(feature = "postquantum"))]
                    let only_exchange = false;
                    let send = SendKey {
                        remote_index: keys.material.remote_index,
                        local_index: keys.session,
                        key: keys.material.seal.clone(),
                        limits: keys.send,
                        counter: 0,
                        reported: false,
                        only_exchange,
                    };
                    let key = ReceiveKey {
                        peer,
                        key: keys.material.open.clone(),
                        limits: keys.receive,
                        confirm: keys.confirm,
                        window: ReplayWindow::new(),
                        send: Some(send),
                    };
                    assert!(self.hosts[at].receive.insert(keys.session, key).is_none());
                }
                Output::SendWith {
                    peer,
                    local_index,
                    confirm,
                } => {
                    let key = self.hosts[at].receive.get_mut(&local_index).unwrap();
                    let send = key.send.take();
                    assert!(send.is_some(), "{local_index} is sent with twice");
                    let plane = self.hosts[at].planes.entry(peer).or_default();
                    plane.send = send;
                    if confirm && plane.staged.is_empty() {
                        self.seal(at, peer, &[]);
                    }
                    self.flush(at, peer);
                }
                Output::RemoveKeys { local_index, .. } => {
                    assert!(self.hosts[at].receive.remove(&local_index).is_some());
                }
                Output::StopSending { peer } => {
                    let plane = self.hosts[at].planes.entry(peer).or_default();
                    plane.send = None;
                    plane.notes.unacknowledged_since = None;
                    plane.notes.unanswered_since = None;
                    self.log(at, Event::Cleared);
                }
                Output::SendKeepalive { peer } => {
                    let plane = self.hosts[at].planes.entry(peer).or_default();
                    if plane.staged.is_empty() {
                        self.seal(at, peer, &[]);
                    }
                    self.flush(at, peer);
                }
                Output::DropStaged { peer } => {
                    self.hosts[at]
                        .planes
                        .entry(peer)
                        .or_default()
                        .staged
                        .clear();
                    self.log(at, Event::DropStaged);
                }
                #[cfg(feature = "postquantum")]
                Output::SendInside {
                    peer,
                    local_index,
                    payload,
                } => {
                    // Packets, if they may be sent with the key, wait until this is over.
                    let key = self.hosts[at].receive.get_mut(&local_index);
                    let own = key.and_then(|key| key.send.take());
                    let plane = self.hosts[at].planes.entry(peer).or_default();
                    let is_own = own.is_some();
                    let other = own.map(|key| plane.send.replace(key));
                    self.seal(at, peer, &payload);
                    if is_own {
                        let plane = self.hosts[at].planes.entry(peer).or_default();
                        let used = std::mem::replace(&mut plane.send, other.flatten());
                        let key = self.hosts[at].receive.get_mut(&local_index);
                        key.unwrap().send = used;
                    }
                }
                #[cfg(feature = "postquantum")]
                Output::Compute { peer, job } => {
                    let outcome = job.run();
                    self.with(at, |device, out| device.computed(peer, outcome, now, out));
                }
                Output::Disarmed { peer } => {
                    self.hosts[at].planes.entry(peer).or_default().armed = false;
                    self.log(at, Event::Disarmed);
                    self.noted(at, peer);
                }
                Output::HandshakeComplete { .. } => self.log(at, Event::Complete),
                Output::PeerRemoved { peer } => {
                    self.hosts[at].planes.remove(&peer);
                }
            }
        }
    }
}
