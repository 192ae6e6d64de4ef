//! Calls of the data plane.

use super::{Executor, Failure};
use crate::openvpn::client::effect::PlaneCall;
use crate::openvpn::client::event::Event;
use crate::openvpn::plane_call::PlaneAnswer;

impl Executor<'_> {
    /// Makes one call. Its result becomes an event for the machine.
    #[inline(never)]
    pub(super) fn call(&mut self, call: PlaneCall) -> Result<(), Failure> {
        let Some((plane, _)) = &self.device else {
            return Ok(());
        };
        let agreed = match &call {
            PlaneCall::AddKeys(_, material) => material.keys.cipher.name(),
            _ => "",
        };
        let connection = &mut self.connection;
        let take = |id| Some(connection.take_if(|(it, _)| *it == id)?.1);
        let Some(answer) = call.perform(&**plane, take) else {
            return Ok(());
        };
        self.results.push_back(match answer {
            PlaneAnswer::StreamRefused(id, error) => {
                log::error!("{error}");
                Event::StreamClosed(id)
            }
            PlaneAnswer::PeerState(_, look, state) => Event::PeerState(look, state),
            PlaneAnswer::KeysAdded(_, key_id, added) => {
                let cipher = added?;
                // Logged here to precede the batch's other lines about the session.
                log::info!("Data Channel: cipher '{agreed}', {}", cipher.backend);
                Event::KeysAdded(key_id, cipher)
            }
            PlaneAnswer::KeyUsed(_, key_id, usage) => Event::KeyUsed(key_id, usage),
        });
        Ok(())
    }
}
