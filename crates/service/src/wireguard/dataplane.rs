//! Carries out a machine's requests to its data plane.

use super::effect::PlaneRequest;
use super::event::Event;
use ::wireguard::WireGuard;
use plane::{DataPlane, Notice, PeerId, Reorder, Whole};
use std::time::Instant;

/// Calls the data plane for a request of the machine at `now`. Returns the resulting event for the machine, if any.
pub fn perform<D>(plane: &D, request: PlaneRequest, now: Instant) -> Option<Event>
where
    D: DataPlane<Protocol = WireGuard> + ?Sized,
{
    match request {
        PlaneRequest::AddPeer(id, moving) => {
            plane.add_peer(id, moving);
        }
        PlaneRequest::RemovePeer(id) => plane.remove_peer(id),
        PlaneRequest::ChangeRoutes(changes) => plane.change_routes(&changes),
        PlaneRequest::SetLine(id, line) => plane.set_line(id, line),
        PlaneRequest::UseLine(id, line) => plane.use_line(id, line),
        PlaneRequest::SetLineMode(id, mode) => plane.set_line_mode(id, mode),
        PlaneRequest::Reorder(id) => plane.set_reorder(id, Some(Reorder::default())),
        PlaneRequest::ForgetSource(id) => plane.forget_source(id),
        PlaneRequest::Send(to, datagram) => {
            plane.send(&to, datagram.as_bytes());
        }
        PlaneRequest::SendToPeer(id, datagram) => {
            plane.send_to_peer(id, None, datagram.as_bytes());
        }
        PlaneRequest::NoteSent(id, bytes) => plane.note_sent(id, now, bytes),
        PlaneRequest::NoteReceived(id, bytes) => plane.note_received(id, now, bytes),
        PlaneRequest::AddKeys(id, keys) => {
            if let Err(error) = plane.add_keys(id, keys) {
                log::error!("{error}");
            }
        }
        PlaneRequest::SendWith(id, session) => plane.send_with(id, session),
        PlaneRequest::StopSending(id) => plane.stop_sending(id),
        PlaneRequest::RemoveKeys(id, session) => plane.remove_keys(id, session),
        PlaneRequest::SendKeepalive(id) => {
            plane.send_keepalive(id);
        }
        PlaneRequest::Probe(id, number, packet) => {
            let sent = plane.send_whole(id, &packet);
            return (sent == Whole::TooLong).then_some(Event::ProbeTooLong(id, number));
        }
        PlaneRequest::SendStaged(id) => {
            plane.send_staged(id);
        }
        PlaneRequest::DropStaged(id) => plane.drop_staged(id),
        PlaneRequest::Disarm(id) => {
            plane.disarm(id);
            return active(plane, id);
        }
        PlaneRequest::SetRate(rate) => plane.set_rate(Some(rate)),
        PlaneRequest::SetLineRates(rates) => plane.set_line_rates(rates),
        PlaneRequest::SetMtu(mtu) => plane.set_mtu(mtu),
    }
    None
}

/// Reports a peer's activity between the machine's last look and the disarming, which raised no notice.
fn active<D: DataPlane + ?Sized>(plane: &D, id: PeerId) -> Option<Event> {
    let times = plane.peer(id)?.times;
    let active = times.unanswered_since.is_some() || times.unacked_since.is_some();
    (active && plane.arm(id)).then(|| Event::Notices(vec![(id, Notice::Active)]))
}
