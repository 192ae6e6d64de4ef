//! Status of a client.

use super::Executor;
use crate::openvpn::client::host::SERVER;
use crate::openvpn::monitoring::Documented;
use crate::openvpn::statusdoc;
use crate::status::lines;
use crate::status::{PeerStatus, Status as Document};
use openvpn_host::monitored::{Monitored, Status};
use std::net::IpAddr;
use std::time::Instant;
#[cfg(feature = "kernel")]
use {crate::openvpn::kernel_plane, config::settings::Kind};

impl Monitored for Executor<'_> {
    fn status(&self) -> Status {
        Status::Client(self.machine.status(self.host.plane().as_deref()))
    }

    #[cfg(feature = "kernel")]
    fn move_to(&mut self, wanted: Option<Kind>) -> Result<&'static str, String> {
        let plane = self.host.plane();
        if let Some(plane) = plane.as_ref().filter(|_| wanted == Some(Kind::Kernel)) {
            let mtu = u16::try_from(plane.mtu()).unwrap_or(u16::MAX);
            kernel_plane::check_mssfix(&self.context.config, mtu)?;
        }
        let moves = self
            .context
            .mover
            .wish_for(wanted, "a management client asked for it")?;
        if let Some(plane) = plane {
            // The data plane looks at the wish, too.
            plane.peer(SERVER);
        }
        Ok(moves)
    }
}

impl Documented for Executor<'_> {
    fn document(&self) -> Document {
        let Self { machine, host, .. } = self;
        let config = &self.context.config;
        let plane = host.device.as_ref().map(|(plane, _)| plane);
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
        let mut document = statusdoc::document(
            self.context,
            host.plane().as_deref(),
            host.inside.as_ref(),
            self.context.expiry(&host.tls),
        );
        let dropped = machine.connection().and_then(|it| it.dropped);
        document.warnings.extend(dropped.map(str::to_owned));
        Document {
            role: Some("client".to_owned()),
            state: Some(state.to_owned()),
            addresses: addresses.iter().flatten().map(IpAddr::to_string).collect(),
            peers: server.into_iter().collect(),
            refused: machine.refusals().to_map(),
            ..document
        }
    }
}
