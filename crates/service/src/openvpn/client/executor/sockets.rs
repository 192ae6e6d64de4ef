//! Sockets of a connection and of its lines.

use super::{Dialled, Executor, Failure};
use crate::openvpn::client::event::Event;
use crate::openvpn::connect::{Socket, Target};
use crate::openvpn::device;
use ::plane::{LineId, StreamId};

impl Executor<'_> {
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
            None => Err("the attempt was broken off".into()),
            // Each line has its own sockets.
            Some(Socket::Udp(remote)) if !context.config.lines.lines.is_empty() => {
                Ok((remote, None))
            }
            Some(Socket::Udp(remote)) => {
                let family = Some(device::family_of(remote));
                let (config, settings) = (&context.config, context.udp_settings());
                let sockets = device::open_udp(config, &target.connection, &settings, family)?;
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

    /// Opens a line's sockets and returns their port.
    #[inline(never)]
    pub(super) fn open_line(&self, line: LineId, port: u16, mark: u32) -> Result<u16, Failure> {
        let (config, settings) = (&self.context.config, &self.context.dataplane);
        let Some((plane, _)) = &self.device else {
            return Err("no interface".into());
        };
        let Some(bound) = config.lines.lines.get(line.index()) else {
            return Err("no such uplink".into());
        };
        let sockets = device::open_line(config, settings, bound, port, mark)?;
        plane.open_line(line, sockets)?;
        Ok(plane.port(line).unwrap_or(port))
    }

    /// Reports the result of a dial; `of_line` if another line may do better.
    #[inline(never)]
    pub(super) fn dialled(
        &mut self,
        number: u64,
        dialled: Result<Dialled, Failure>,
        of_line: bool,
    ) {
        self.results.push_back(match dialled {
            Ok((remote, stream)) => Event::Connected {
                number,
                remote,
                stream,
            },
            Err(error) => Event::DialFailed(number, error.to_string(), of_line),
        });
    }
}
