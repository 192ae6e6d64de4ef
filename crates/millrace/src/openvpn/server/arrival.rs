//! A client whose session has just begun: nothing is known of it but where it is.

use super::super::conduit::{Conduit, Way};
use super::super::console::{Speaking, Who};
use super::super::policy::log_lines;
use super::super::sizes;
use super::Server;
use super::served::{Served, Step};
use engine::Moving;
use netio::udp::Endpoint;
use openvpn::keyfile::v2::Metadata;
use openvpn::server::{ClientId, Remote};
use openvpn::session::CloseReason;
use std::sync::Arc;
use std::time::SystemTime;

impl Server<'_> {
    /// A session began.
    pub(super) fn started(
        &mut self,
        id: ClientId,
        from: Remote,
        heard: Option<Endpoint>,
        metadata: Option<Metadata>,
    ) {
        let Some(way) = self.way(from, heard) else {
            self.with(id, |session, _, out| session.close(CloseReason::Local, out));
            return;
        };
        if let Way::Stream(stream) = &way {
            self.streams.begun(stream.id());
        }
        let _who = Speaking::of(Who {
            label: from.to_string(),
            stranger: true,
        });
        let config = self.config;
        log::info!(
            "TLS: Initial packet from {}",
            log_lines::outer(from.address)
        );
        let mut conduit = Conduit::new(
            &self.tunnel,
            id.0,
            way,
            Moving::Tell,
            config.data.allow_insecure,
        );
        if let Some(session) = self.listener.session(id) {
            conduit.control = Arc::clone(session.control_traffic());
        }
        self.counted += 1;
        let mut environment = self.hooks.base.clone();
        environment.set_peer("untrusted", from.address);
        let served = Served {
            conduit,
            from: from.address,
            step: Step::Arriving,
            since: SystemTime::now(),
            authorised: false,
            common_name: String::new(),
            username: String::new(),
            number: self.counted - 1,
            environment,
            metadata,
            framing: sizes::configured(config.data.framing),
            deferred: None,
            settings: Default::default(),
            scripted: Default::default(),
            options: Vec::new(),
            lease: None,
            addresses: Default::default(),
            networks: Vec::new(),
            keys: None,
            announced: false,
        };
        self.clients.insert(id, served);
    }
}
