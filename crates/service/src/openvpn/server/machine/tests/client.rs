//! A client: a protocol session and its keys.

use super::data_plane::peer_id;
use super::wire::{DataPacket, Packet};
use openvpn::session::{ClientSettings, Credentials, DataKeys, Output, Session, Times};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

pub(super) struct Client {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    pub(super) session: Option<Session>,
    /// The session's deadline, as scheduled on the agenda.
    pub(super) timer: Option<Instant>,
    keys: BTreeMap<u8, DataKeys>,
    sealing: Option<u8>,
    times: Times,
}

/// Result of a client's action.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) packets: Vec<Packet>,
    /// Whether the session is over.
    pub(super) closed: bool,
}

impl Client {
    pub(super) fn new(number: usize) -> Self {
        let host = [198, 51, (number / 250) as u8, (number % 250) as u8];
        Self {
            name: format!("client{number}"),
            address: SocketAddr::from((host, 40_000)),
            session: None,
            timer: None,
            keys: BTreeMap::new(),
            sealing: None,
            times: Times::default(),
        }
    }

    /// Begins a session.
    pub(super) fn begin(
        &mut self,
        settings: &Arc<ClientSettings>,
        now: Instant,
        system: SystemTime,
    ) -> Outcome {
        self.keys.clear();
        self.sealing = None;
        self.times = Times::default();
        let credentials = Credentials {
            username: self.name.clone().into_bytes(),
            password: b"secret".to_vec(),
        };
        let mut out = Vec::new();
        let settings = Arc::clone(settings);
        let session = Session::client(settings, Some(credentials), now, system, &mut out);
        self.session = Some(session.unwrap());
        self.perform(out, now)
    }

    /// Calls `call` with the client's session, if it has one.
    pub(super) fn call(
        &mut self,
        now: Instant,
        call: impl FnOnce(&mut Session, &mut Vec<Output>),
    ) -> Outcome {
        let mut out = Vec::new();
        if let Some(session) = &mut self.session {
            session.activity(self.times);
            call(session, &mut out);
        }
        self.perform(out, now)
    }

    fn perform(&mut self, out: Vec<Output>, now: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        for output in out {
            match output {
                Output::Send(datagram) => outcome.packets.push(Packet::Control(datagram)),
                Output::InstallKeys(keys) => {
                    self.keys.insert(keys.key_id, *keys);
                }
                Output::UseForSending { key_id } => self.sealing = Some(key_id),
                Output::RemoveKeys { key_id } => {
                    self.keys.remove(&key_id);
                    self.sealing = self.sealing.filter(|it| *it != key_id);
                }
                Output::SendPing | Output::SendData(_) => {
                    outcome.packets.extend(self.talk(now));
                }
                Output::Closed(_) => {
                    self.session = None;
                    outcome.closed = true;
                }
                _ => {}
            }
        }
        outcome
    }

    /// Returns a data packet to send.
    pub(super) fn talk(&mut self, now: Instant) -> Option<Packet> {
        let keys = self.keys.get(&self.sealing?)?;
        self.times.last_sent = Some(now);
        Some(Packet::Data(DataPacket {
            peer_id: peer_id(keys),
            key_id: keys.key_id,
            secret: keys.send.cipher,
        }))
    }

    /// Receives a data packet. Returns whether one of the client's keys opens it.
    pub(super) fn hear(&mut self, packet: &DataPacket, now: Instant) -> bool {
        let keys = self.keys.get(&packet.key_id);
        let opens = keys.is_some_and(|keys| keys.receive.cipher == packet.secret);
        if opens {
            self.times.last_received = Some(now);
        }
        opens
    }

    pub(super) fn is_up(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_up)
    }
}
