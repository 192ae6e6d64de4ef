//! New clients: only their address is known.

use super::client::{Client, Step};
use super::told::stranger;
use super::{Machine, PlaneCall, line, peer};
use crate::openvpn::policy::log_lines;
use crate::openvpn::sizes;
use openvpn::data::format::Shape;
use openvpn::keyfile::v2::Metadata;
use openvpn::server::{ClientId, Remote};
use openvpn::session::{CloseReason, Session};
use plane::Moving;
use std::sync::Arc;

impl Machine<'_> {
    /// Handles a new session.
    pub(super) fn started(&mut self, id: ClientId, from: Remote, metadata: Option<Metadata>) {
        if let Some(stream) = from.connection {
            if !self.connections.has(stream) {
                return self.with(id, |session, _, out| session.close(CloseReason::Local, out));
            }
            self.connections.begun(stream);
        }
        self.about_whom(Some(stranger(from.address)), |machine| {
            let from = log_lines::outer(from.address);
            line!(machine, Info, "TLS: Initial packet from {from}");
        });
        let begun = self.listener.session(id);
        let control = begun.map(Session::control_traffic).map(Arc::clone);
        let control = control.unwrap_or_default();
        let line = self.listener.line(id).unwrap_or_else(|| from.line(None));
        // A TCP connection cannot move between lines.
        let gathered = self.theirs.gathered.filter(|_| from.connection.is_none());
        let moving = match gathered {
            Some(_) => Moving::Gather,
            None => Moving::Tell,
        };
        for call in PlaneCall::new_peer(peer(id), line, moving) {
            self.plane(call);
        }
        if let Some(mode) = gathered {
            self.plane(PlaneCall::SetLineMode(peer(id), mode));
        }
        if self.config.data.reorder && from.connection.is_none() {
            self.plane(PlaneCall::Reorder(peer(id)));
        }
        let number = self.counted;
        self.counted += 1;
        let mut environment = self.hooks.base.clone();
        environment.set_peer("untrusted", from.address);
        let client = Client {
            from,
            step: Step::Arriving,
            since: self.now.system,
            authorised: false,
            common_name: String::new(),
            username: String::new(),
            number,
            environment,
            metadata,
            framing: sizes::configured(self.config.data.framing),
            deferred: None,
            settings: Default::default(),
            scripted: Default::default(),
            options: Vec::new(),
            lease: None,
            addresses: Default::default(),
            networks: Vec::new(),
            control,
            shape: Shape {
                stream: from.is_stream(),
                ..Shape::default()
            },
            bytes: 0,
            bytes_before: Default::default(),
            renewed: None,
            cipher: None,
            announced: false,
            options_told: None,
            located: None,
            moved: false,
            move_told: None,
        };
        self.clients.insert(id, Box::new(client));
    }
}
