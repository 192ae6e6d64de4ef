//! Performs the outputs of sessions.

use super::{Effect, Machine, PlaneCall, line, peer};
use openvpn::data::inband::PING;
use openvpn::data::protocol::session;
use openvpn::message::Message;
use openvpn::server::{ClientId, ServerOutput};
use openvpn::session::{Output, Session};
use plane::SourceNetwork;

impl Machine<'_> {
    /// Performs the outputs in order. Packets leave from the address that their receiver called.
    pub(super) fn perform(&mut self, out: Vec<ServerOutput>) {
        for output in out {
            match output {
                ServerOutput::Send {
                    to,
                    called,
                    datagram,
                } => self.plane(PlaneCall::Send(to.line(called), datagram)),
                ServerOutput::Started {
                    client,
                    from,
                    metadata,
                } => self.started(client, from, metadata),
                ServerOutput::Client { client, output } => {
                    self.about(client, |machine| machine.one(client, output));
                }
            }
        }
    }

    fn one(&mut self, id: ClientId, output: Output) {
        match output {
            Output::InstallKeys(keys) => self.install(id, keys),
            Output::UseForSending { key_id } => {
                self.plane(PlaneCall::SendWith(peer(id), session(peer(id), key_id)));
            }
            Output::RemoveKeys { key_id } => {
                self.plane(PlaneCall::RemoveKeys(peer(id), session(peer(id), key_id)));
            }
            Output::SendPing => self.plane(PlaneCall::Inject(peer(id), PING.to_vec())),
            Output::SendData(payload) => self.plane(PlaneCall::Inject(peer(id), payload)),
            Output::Handshake(work) => {
                if let Some(client) = self.clients.get(&id) {
                    self.out.push(Effect::Handshake {
                        client: client.key(id),
                        source: SourceNetwork::from(client.from.address),
                        renewal: self.listener.session(id).is_some_and(Session::is_up),
                        work,
                    });
                }
            }
            Output::Authenticate(request) => self.authenticate(id, &request),
            Output::PushRequested => self.push_requested(id),
            Output::Connected => self.connected(id),
            Output::Renegotiated { key_id } => {
                line!(self, Info, "new data channel keys, key id {key_id}");
            }
            Output::Closed(reason) => self.gone(id, &reason),
            // Debug level: any sender can cause these without limit.
            Output::Message(Message::Info(text)) => {
                line!(self, Debug, "info from the client: {text}");
            }
            Output::Message(Message::CrResponse(text)) => self.answered(id, text),
            Output::Message(_) => {}
            // Outputs of client sessions only.
            Output::Judge { .. } | Output::Pushed(_) | Output::AuthToken(_) | Output::Send(_) => {}
        }
    }
}
