//! A minimal data plane.
//!
//! A simulated data packet contains the key id, the peer id and the sealing key itself. Only a plane with that key
//! installed for opening under that id can open it.

use std::collections::BTreeMap;
use std::time::Instant;

use openvpn::session::{AuthRequest, CloseReason, DataKeys, Layout, Output, Times};

#[derive(Debug)]
// Events are few, so their size does not matter.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Event {
    Pushed(openvpn::push::PushReply),
    Connected,
    Renegotiated(u8),
    Ping,
    Data,
    Token(String),
    Message(String),
    Authenticate(AuthRequest),
    /// The client must judge the server's certificate, in the negotiation with this key id.
    Judge(u8),
    Closed(CloseReason),
}

/// A simulated data plane for one peer.
#[derive(Default)]
pub(crate) struct Plane {
    pub(crate) keys: BTreeMap<u8, DataKeys>,
    pub(crate) sealing: Option<u8>,
    pub(crate) sent: u64,
    pub(crate) opened: u64,
    /// Number of data packets that no installed key opens.
    pub(crate) lost: u64,
    pub(crate) times: Times,
}

impl Plane {
    pub(crate) fn seal(&mut self, now: Instant) -> Option<Vec<u8>> {
        let keys = self.keys.get(&self.sealing?)?;
        let peer_id = match keys.layout {
            Layout::V1 => u32::MAX,
            Layout::V2 { peer_id } | Layout::Epoch { peer_id } => peer_id,
        };
        let mut packet = vec![9 << 3 | keys.key_id];
        packet.extend_from_slice(&peer_id.to_be_bytes());
        packet.extend_from_slice(&keys.send.cipher);
        packet.extend_from_slice(&keys.send.hmac);
        self.sent += 1;
        self.times.last_sent = Some(now);
        Some(packet)
    }

    pub(crate) fn open(&mut self, packet: &[u8], now: Instant) {
        let keys = self.keys.get(&(packet[0] & 7));
        let fits = keys.is_some_and(|keys| {
            packet[5..69] == keys.receive.cipher && packet[69..133] == keys.receive.hmac
        });
        if fits {
            self.opened += 1;
            self.times.last_received = Some(now);
        } else {
            self.lost += 1;
        }
    }

    /// Applies outputs about keys, and returns all others as events.
    pub(crate) fn perform(&mut self, output: Output) -> Option<Event> {
        Some(match output {
            Output::InstallKeys(keys) => {
                self.keys.insert(keys.key_id, *keys);
                assert!(self.keys.len() <= 3, "three sets of keys at most");
                return None;
            }
            Output::UseForSending { key_id } => {
                assert!(self.keys.contains_key(&key_id), "installed first");
                self.sealing = Some(key_id);
                return None;
            }
            Output::RemoveKeys { key_id } => {
                assert!(
                    self.keys.remove(&key_id).is_some(),
                    "removes only existing keys"
                );
                return None;
            }
            Output::Pushed(reply) => Event::Pushed(*reply),
            Output::Connected => Event::Connected,
            Output::Renegotiated { key_id } => Event::Renegotiated(key_id),
            Output::SendPing => Event::Ping,
            Output::SendData(_) => Event::Data,
            Output::AuthToken(token) => Event::Token(token.to_string()),
            Output::Message(message) => Event::Message(message.to_string()),
            Output::Authenticate(request) => Event::Authenticate(*request),
            Output::Judge { key_id, .. } => Event::Judge(key_id),
            Output::Closed(reason) => Event::Closed(reason),
            Output::Send(_) | Output::PushRequested | Output::Handshake(_) => return None,
        })
    }
}
