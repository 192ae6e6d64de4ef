//! What a client tells of its connection.

use super::super::super::network::Inside;
use super::super::super::office::{Desk, Status};
use super::super::super::policy::management::{Addresses, State};
use super::super::super::policy::status_file::ClientStatus;
use super::super::super::statusdoc;
use super::Attempt;
use crate::status::{PeerStatus, Status as Document};

impl Attempt<'_, '_> {
    /// Says that all is done, once it is: scripts and people rely on the routes then.
    pub(super) fn announce(&mut self) {
        let client = &mut *self.client;
        let late = client
            .set
            .as_ref()
            .is_some_and(|set| set.routes_at.is_some());
        if late || !std::mem::take(&mut self.unannounced) {
            return;
        }
        client.is_connected = true;
        let (tunnel, tunnel_v6) = client.inside().map(Inside::addresses).unwrap_or_default();
        let addresses = Addresses {
            tunnel,
            tunnel_v6,
            remote: Some(self.remote),
            local: None,
        };
        let mut office = client.context.office.borrow_mut();
        office.state(State::Connected, "SUCCESS", addresses);
        drop(office);
        client.context.is_up();
        log::info!("Initialization Sequence Completed");
    }
}

impl Desk for Attempt<'_, '_> {
    fn status(&self) -> Status {
        let tunnel = self.client.device.as_ref();
        Status::Client(ClientStatus {
            tun_read: tunnel.map_or(0, |(t, _)| t.outbound().bytes.value()),
            tun_write: tunnel.map_or(0, |(t, _)| t.inbound().bytes.value()),
            link_read: self.conduit.received(),
            link_write: self.conduit.sent(),
            auth_read: self.conduit.peer.rx_bytes.value(),
        })
    }

    fn document(&self) -> Document {
        let certificate = self.session.certificate();
        let user = &self.client.user;
        self.client.document(Some(PeerStatus {
            name: certificate.map(|it| it.common_name.clone()),
            username: (!user.is_empty()).then(|| user.clone()),
            ..statusdoc::peer(&self.conduit, Some(&self.session), self.since)
        }))
    }
}
