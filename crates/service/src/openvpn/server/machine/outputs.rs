//! Performs the outputs of sessions.

use super::{Cx, Machine, line, peer};
use openvpn::message::Message;
use openvpn::server::{ClientId, ServerOutput};
use openvpn::session::{CloseReason, Output, Session};
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
            keys_or_data => self.carry_out(cx, id, keys_or_data),
        }
    }

    /// Carries out an output about a client's keys and data packets.
    fn carry_out(&mut self, cx: &mut Cx<'_>, id: ClientId, output: Output) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let (insecure, peer) = (
            self.config.data.allow_insecure,
            (peer(id), client.from.address),
        );
        match (client.channel).carry_out(output, cx.plane, peer, insecure, cx.now) {
            Ok(Some(keys)) => line!(cx, Info, "Data Channel: cipher '{}'", keys.agreed),
            Ok(None) => {}
            Err(why) => {
                line!(cx, Error, "{why}");
                self.close(cx, id, CloseReason::Local);
            }
        }
    }
}
