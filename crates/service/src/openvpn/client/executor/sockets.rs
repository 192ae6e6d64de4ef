//! Sockets of a connection and of its lines, and the files that keep facts about the lines over restarts.

use super::host::ThisHost;
use crate::openvpn::client::event::Event;
use crate::openvpn::client::host::Failure;
use crate::openvpn::client::machine::Machine;
use crate::openvpn::context::Context;
use crate::openvpn::device;
use crate::uplink::{Leaving, Uplink};
use ::plane::{LineId, StreamId};
use lines::control::UsageFile;
use openvpn_host::connect::{Socket, Target};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

/// A socket's remote address and stream number; `None` for UDP.
pub(super) type Dialled = (SocketAddr, Option<StreamId>);

impl ThisHost<'_> {
    /// Prepares the dialled socket. Returns its remote address and the stream number.
    #[inline(never)]
    pub(super) fn open_socket(
        &mut self,
        target: &Target,
        socket: Option<Socket>,
    ) -> Result<Dialled, Failure> {
        let context = self.context;
        let Some((plane, _)) = &self.device else {
            return Err("no interface".into());
        };
        match socket {
            None => Err("the attempt was cancelled".into()),
            // Each line has its own sockets.
            Some(Socket::Udp(remote)) if !context.config.lines.lines.is_empty() => {
                Ok((remote, None))
            }
            Some(Socket::Udp(remote)) => {
                let family = Some(device::family_of(remote));
                let (config, settings) = (&context.config, context.udp_settings());
                let sockets = device::open_udp(
                    config,
                    &target.connection,
                    &settings,
                    family,
                    context.mover.can_move(),
                )?;
                plane.open_line(LineId::FIRST, sockets)?;
                Ok((remote, None))
            }
            Some(Socket::Tcp(socket)) => {
                // With several lines, the sockets stay for the next server, which may use UDP.
                if context.config.lines.lines.is_empty() {
                    plane.close_line(LineId::FIRST);
                }
                let remote = socket.peer_addr()?;
                self.streams += 1;
                let id = StreamId(self.streams);
                plane.add_stream(id, LineId::FIRST, socket)?;
                Ok((remote, Some(id)))
            }
        }
    }

    /// Records the way to a server before it is called: a change of the host's network may come during the dial. Only
    /// TCP over the host's own uplink is bound to its way.
    pub(super) fn calls(&mut self, target: &Target) {
        let context = self.context;
        let is_tcp = target.connection.protocol.transport.is_tcp();
        if let Some((_, link)) = &self.device
            && is_tcp
            && context.config.lines.lines.is_empty()
        {
            let leaving = leaving(context, &link.name);
            self.uplink.calls(target.remote.ip(), leaving);
        } else {
            self.uplink = Uplink::default();
        }
    }

    /// Whether the TCP connection, or the dial, cannot go on, as its source address no longer leads to the server, but
    /// another does; or, when there is none, whether the server may be reached again.
    pub(super) fn has_moved(&mut self, now: Instant, in_call: bool) -> bool {
        let tunnel = self.device.as_ref().map_or("", |(_, link)| &link.name);
        let leaving = leaving(self.context, tunnel);
        self.uplink.has_moved(now, in_call, leaving)
    }

    /// Opens a line's sockets.
    pub(super) fn open_sockets(&self, line: LineId, port: u16, mark: u32) -> Result<(), Failure> {
        let (config, settings) = (&self.context.config, &self.context.dataplane);
        let Some((plane, _)) = &self.device else {
            return Err("no interface".into());
        };
        let Some(bound) = config.lines.lines.get(line.index()) else {
            return Err("the uplink does not exist".into());
        };
        let sockets = device::open_line(config, settings, bound, port, mark)?;
        plane.open_line(line, sockets)?;
        Ok(())
    }
}

fn leaving<'a>(context: &'a Context, tunnel: &'a str) -> Leaving<'a> {
    let sockets = &context.config.sockets;
    Leaving {
        device: sockets.device.as_deref(),
        mark: sockets.mark.unwrap_or(0),
        tunnel,
    }
}

/// Returns the event of a dial's result; `of_line` if another line may do better.
pub(super) fn dialled(number: u64, dialled: Result<Dialled, Failure>, of_line: bool) -> Event {
    match dialled {
        Ok((remote, stream)) => Event::Connected {
            number,
            remote,
            stream,
        },
        Err(error) => Event::DialFailed(number, error.to_string(), of_line),
    }
}

/// Continues each uplink's monthly count from the file of the last run.
pub(super) fn restore_usage(context: &Context, machine: &mut Machine<'_>) -> Option<UsageFile> {
    let file = context.file.as_deref().map(Path::new);
    let name = file
        .and_then(Path::file_stem)
        .and_then(|name| name.to_str());
    let user = context.config.service.user.as_deref();
    let (file, usage) = UsageFile::of(name.unwrap_or("openvpn"), user);
    machine.restore_lines(&usage);
    file
}
