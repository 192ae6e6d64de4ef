//! What a server tells those who ask, and keeps for its next start.

use super::super::office::{Desk, Status};
use super::super::policy::management::{Addresses, State, Victim};
use super::super::policy::persist;
use super::super::policy::status_file::{
    ClientRow, RouteRow, ServerStatus, real_address, write_atomically,
};
use super::super::statusdoc;
use super::Server;
use super::served::{Served, Step};
use crate::status::{PeerStatus, Status as Document, dataplane};
use netio::udp::UdpSocket;
use openvpn::message::Restart;
use openvpn::server::ClientId;
use openvpn::session::{CloseReason, Session};

impl Server<'_> {
    /// Sends a client away, which will come again.
    pub(super) fn send_away(&mut self, id: ClientId) {
        self.with(id, |session, now, out| {
            session.restart(Restart::default(), now, out);
        });
    }

    pub(super) fn rows(&self) -> ServerStatus {
        let mut status = ServerStatus::default();
        let inside = self
            .clients
            .iter()
            .filter(|(_, c)| matches!(c.step, Step::In));
        for (id, client) in inside {
            let last_reference = client.last_reference();
            let real = real_address(client.from);
            status.clients.push(ClientRow {
                common_name: client.common_name.clone(),
                real_address: real.clone(),
                ipv4: client.addresses.ifconfig.map(|i| i.local),
                ipv6: client.addresses.ifconfig_v6.map(|i| i.local),
                bytes_received: client.conduit.received(),
                bytes_sent: client.conduit.sent(),
                connected_since: client.since,
                username: client.username.clone(),
                client_id: client.number,
                peer_id: id.0,
                cipher: self
                    .listener
                    .session(*id)
                    .and_then(Session::data_channel)
                    .map(|(cipher, _)| cipher.name().to_owned())
                    .unwrap_or_default(),
            });
            for (address, bits) in &client.networks {
                let whole = if address.is_ipv4() { 32 } else { 128 };
                status.routes.push(RouteRow {
                    address: *address,
                    prefix: (*bits != whole).then_some(*bits),
                    cached: false,
                    common_name: client.common_name.clone(),
                    real_address: real.clone(),
                    last_reference,
                });
            }
        }
        status
    }

    /// Clients that are in, by number.
    fn peers(&self) -> Vec<PeerStatus> {
        let mut inside: Vec<_> = self
            .clients
            .iter()
            .filter(|(_, client)| matches!(client.step, Step::In))
            .collect();
        inside.sort_by_key(|(_, client)| client.number);
        let told = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        inside
            .into_iter()
            .map(|(id, client)| PeerStatus {
                name: told(&client.common_name),
                username: told(&client.username),
                client_id: Some(client.number),
                allowed_ips: client
                    .networks
                    .iter()
                    .map(|(address, bits)| format!("{address}/{bits}"))
                    .collect(),
                ..statusdoc::peer(&client.conduit, self.listener.session(*id), client.since)
            })
            .collect()
    }

    pub(super) fn persist_pool(&mut self) {
        self.persist_at = None;
        let server = self.config.server();
        let persist = server.and_then(|server| server.pool_persist.as_ref());
        if let (Some(persist), Some(pool)) = (persist, &self.pool)
            && persist.seconds > 0
        {
            let path = self.config.path(&persist.path);
            let text = persist::text(pool);
            if let Err(e) = write_atomically(&path, &text) {
                log::warn!("WARNING: {}: {e}", path.display());
            }
        }
    }

    pub(super) fn state(&self, state: State, detail: &str) {
        let network = &self.config.network;
        let addresses = Addresses {
            tunnel: network.ifconfig.map(|i| i.local),
            tunnel_v6: network.ifconfig_v6.map(|i| i.local),
            ..Addresses::default()
        };
        let mut office = self.context.office.borrow_mut();
        office.state(state, detail, addresses);
    }
}

impl Desk for Server<'_> {
    fn status(&self) -> Status {
        Status::Server(self.rows())
    }

    fn document(&self) -> Document {
        let network = &self.config.network;
        let v4 = network.ifconfig.map(|i| i.local.to_string());
        let v6 = network.ifconfig_v6.map(|i| i.local.to_string());
        let sockets = self.tunnel.sockets();
        let mut refused = self.refusals.to_map();
        for (reason, count) in self.listener.drops().iter() {
            *refused.entry(reason.to_owned()).or_default() += count;
        }
        refused.insert("connection_limit".to_owned(), self.streams.turned_away());
        Document {
            role: Some("server".to_owned()),
            listen_port: sockets.iter().map(UdpSocket::port).next().unwrap_or(0),
            listen_tcp: self.streams.ports(),
            fwmark: self.config.sockets.mark.unwrap_or(0),
            mtu: self.tunnel.mtu() as u32,
            workers: self.tunnel.workers(),
            addresses: v4.into_iter().chain(v6).collect(),
            peers: self.peers(),
            refused,
            dataplane: dataplane(&self.tunnel),
            ..Document::default()
        }
    }

    fn kill(&mut self, victim: &Victim) -> usize {
        let fits = |client: &Served| match victim {
            Victim::CommonName(name) => client.common_name == *name,
            Victim::Address(addr) => client.from == *addr,
        };
        let doomed: Vec<ClientId> = self
            .clients
            .iter()
            .filter(|(_, client)| fits(client))
            .map(|(id, _)| *id)
            .collect();
        for id in &doomed {
            // Without a word, as stock: whoever is to stay away shall not come back at once.
            self.with(*id, |session, _, out| {
                session.close(CloseReason::Local, out);
            });
        }
        doomed.len()
    }

    fn kill_client(&mut self, number: u64) -> bool {
        let found = self.clients.iter().find(|(_, c)| c.number == number);
        let found = found.map(|(id, _)| *id);
        if let Some(id) = found {
            self.send_away(id);
        }
        found.is_some()
    }
}
