//! Doing what the sessions ask for.

use super::super::conduit::Way;
use super::super::sizes;
use super::Server;
use super::served::Served;
use netio::udp::Endpoint;
use openvpn::message::Message;
use openvpn::server::{ClientId, Remote, ServerOutput};
use openvpn::session::{CloseReason, DataKeys, Output};

impl Server<'_> {
    /// Does what the sessions ask for, in order. `heard` is where the datagram came from that led to
    /// it: strangers are answered from the address that they called.
    pub(super) fn perform_from(&mut self, out: Vec<ServerOutput>, heard: Option<Endpoint>) {
        for output in out {
            match output {
                ServerOutput::Send { to, datagram } => self.send(to, heard, &datagram),
                ServerOutput::Started {
                    client,
                    from,
                    metadata,
                } => self.started(client, from, heard, metadata),
                ServerOutput::Client { client, output } => self.one(client, output),
            }
        }
    }

    fn send(&mut self, to: Remote, heard: Option<Endpoint>, datagram: &[u8]) {
        match self.way(to, heard) {
            Some(Way::Stream(stream)) => {
                self.tunnel.send_record(&stream, datagram);
            }
            Some(Way::Datagrams(endpoint)) => {
                self.tunnel.send(endpoint, datagram);
            }
            None => {}
        }
    }

    fn one(&mut self, id: ClientId, output: Output) {
        let _who = self.speak_of(id);
        match output {
            Output::InstallKeys(keys) => {
                if let Err(error) = self.install(id, &keys) {
                    log::error!("{error}");
                    self.with(id, |session, _, out| session.close(CloseReason::Local, out));
                }
            }
            Output::UseForSending { key_id } => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.conduit.seal_with(&self.tunnel, key_id);
                }
            }
            Output::RemoveKeys { key_id } => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.conduit.remove(&self.tunnel, key_id);
                }
            }
            Output::SendPing => {
                if let Some(client) = self.clients.get(&id) {
                    client.conduit.ping(&self.tunnel);
                }
            }
            Output::SendData(payload) => {
                if let Some(client) = self.clients.get(&id) {
                    self.tunnel.inject(&client.conduit.peer, &payload);
                }
            }
            Output::Authenticate(request) => self.judge(id, &request),
            Output::PushRequested => self.settle(id),
            Output::Connected => self.came_in(id),
            Output::Renegotiated { key_id } => {
                log::info!("new data channel keys, key id {key_id}");
            }
            Output::Closed(reason) => self.gone(id, &reason),
            // As many as the client likes, whoever it is.
            Output::Message(Message::Info(text)) => log::debug!("info from the client: {text}"),
            Output::Message(Message::CrResponse(text)) => self.answered(id, text),
            Output::Message(_) => {}
            // A client's.
            Output::Pushed(_) | Output::AuthToken(_) | Output::Send(_) => {}
        }
    }

    fn install(&mut self, id: ClientId, keys: &DataKeys) -> Result<(), Box<dyn std::error::Error>> {
        let agreed = self.listener.session(id).and_then(|s| s.data_channel());
        let stream = self.clients.get(&id).is_some_and(Served::is_stream);
        let connection = self.connection_of(stream);
        let Some(client) = self.clients.get_mut(&id) else {
            return Ok(());
        };
        if let (0, Some(agreed)) = (keys.key_id, agreed) {
            client.conduit.shape = sizes::shape(
                self.config,
                connection,
                agreed,
                client.framing,
                self.mtu,
                client.from,
            )?;
        }
        client.conduit.install(&self.tunnel, keys)?;
        client.keys = Some((keys.key_id, client.conduit.bytes()));
        log::info!("Data Channel: cipher '{}'", keys.cipher.name());
        Ok(())
    }
}
