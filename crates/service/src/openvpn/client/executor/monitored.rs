//! Status of a client.

use super::Executor;
use crate::openvpn::client::effect::SERVER;
use crate::openvpn::client::machine::Machine;
use crate::openvpn::monitoring::{Monitored, Status};
use crate::openvpn::status_file::ClientStatus;
use crate::openvpn::statusdoc;
use crate::status::lines;
use crate::status::{PeerStatus, Status as Document};
use std::net::IpAddr;
use std::time::Instant;

/// A client's machine and its executor.
pub(super) struct View<'v, 'a>(pub(super) &'v Machine<'v>, pub(super) &'v Executor<'a>);

impl Monitored for View<'_, '_> {
    fn status(&self) -> Status {
        let Self(machine, executor) = self;
        let Some((connection, (plane, _))) = machine.connection().zip(executor.device.as_ref())
        else {
            return Status::Client(ClientStatus::default());
        };
        let statistics = plane.statistics();
        let state = plane.peer(SERVER).unwrap_or_default();
        let control = connection.session().control_traffic();
        Status::Client(ClientStatus {
            tun_read: statistics.outbound.bytes,
            tun_write: statistics.inbound.bytes,
            link_read: state.rx_bytes + control.received(),
            link_write: state.tx_bytes + control.sent(),
            auth_read: state.rx_bytes,
        })
    }

    fn document(&self) -> Document {
        let Self(machine, executor) = self;
        let config = &executor.context.config;
        let plane = executor.device.as_ref().map(|(plane, _)| plane);
        let server = machine.connection().zip(plane);
        let server = server.map(|(connection, plane)| {
            let state = plane.peer(SERVER).unwrap_or_default();
            let session = connection.session();
            let certificate = session.certificate();
            let user = machine.user();
            let mut known = plane.peer_lines(SERVER);
            // The data plane knows only one line over TCP.
            if let Some(line) = machine.stream_line() {
                known.lines.iter_mut().for_each(|it| it.line.id = line);
            }
            let reorders = config.data.reorder;
            PeerStatus {
                lines: lines::status(machine.line_reports(), &known, Instant::now()),
                order: reorders.then(|| lines::order_status(&known)),
                name: certificate.map(|it| it.common_name.clone()),
                username: (!user.is_empty()).then(|| user.to_owned()),
                ..connection.status(&state)
            }
        });
        let state = match machine.is_connected() {
            true => "connected",
            false => "connecting",
        };
        let (v4, v6) = machine.addresses();
        let addresses = [v4.map(IpAddr::V4), v6.map(IpAddr::V6)];
        Document {
            role: Some("client".to_owned()),
            state: Some(state.to_owned()),
            addresses: addresses.iter().flatten().map(IpAddr::to_string).collect(),
            peers: server.into_iter().collect(),
            refused: machine.refusals().to_map(),
            ..statusdoc::document(
                config,
                executor.plane().as_deref(),
                executor.inside.as_ref(),
            )
        }
    }
}
