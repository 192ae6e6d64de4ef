//! Performs the outputs of sessions.

use super::{Cx, Machine, line, peer};
use openvpn::data::inband::PING;
use openvpn::data::protocol::session;
use openvpn::message::Message;
use openvpn::server::{ClientId, ServerOutput};
use openvpn::session::{Output, Session};
use plane::SourceNetwork;

impl Machine<'_> {
    /// Performs the outputs in order. Packets leave from the address that their receiver sent to.
    pub(super) fn perform(&mut self, cx: &mut Cx<'_>, out: Vec<ServerOutput>) {
        for output in out {
            match output {
                ServerOutput::Send {
                    to,
                    called,
                    datagram,
                } => {
                    cx.plane.send(&to.line(called), &datagram);
                }
                ServerOutput::Started {
                    client,
                    from,
                    metadata,
                } => self.started(cx, client, from, metadata),
                ServerOutput::Client { client, output } => {
                    let _about = self.about(client);
                    self.one(cx, client, output);
                }
            }
        }
    }

    fn one(&mut self, cx: &mut Cx<'_>, id: ClientId, output: Output) {
        match output {
            Output::InstallKeys(keys) => self.install(cx, id, keys),
            Output::UseForSending { key_id } => {
                cx.plane.send_with(peer(id), session(peer(id), key_id));
            }
            Output::RemoveKeys { key_id } => {
                cx.plane.remove_keys(peer(id), session(peer(id), key_id));
            }
            Output::SendPing => cx.plane.inject(peer(id), &PING),
            Output::SendData(payload) => cx.plane.inject(peer(id), &payload),
            Output::Handshake(work) => {
                if let Some(client) = self.clients.get(&id) {
                    let source = SourceNetwork::from(client.from.address);
                    let renewal = self.listener.session(id).is_some_and(Session::is_up);
                    cx.host.handshake(client.key(id), source, renewal, work);
                }
            }
            Output::Authenticate(request) => self.authenticate(cx, id, &request),
            Output::PushRequested => self.push_requested(cx, id),
            Output::Connected => self.connected(cx, id),
            Output::Renegotiated { key_id } => {
                line!(cx, Info, "new data channel keys, key id {key_id}");
            }
            Output::Closed(reason) => self.gone(cx, id, &reason),
            // Debug level: any sender can cause these without limit.
            Output::Message(Message::Info(text)) => {
                line!(cx, Debug, "info from the client: {text}");
            }
            Output::Message(Message::CrResponse(text)) => self.answered(cx, id, text),
            Output::Message(_) => {}
            // Outputs of client sessions only.
            Output::Judge { .. } | Output::Pushed(_) | Output::AuthToken(_) | Output::Send(_) => {}
        }
    }
}
