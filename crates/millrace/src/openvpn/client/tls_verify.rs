//! `tls-verify`: a program has the last word on the server's certificates, from the authority down,
//! before the client sends anything of itself. The client waits for it, as it does for `up`.

use openvpn::verify::{PeerCertificate, PeerJudge};

use super::super::policy::scripts::{Invocation, tls_verify_arguments};

/// The program.
#[derive(Debug)]
pub(super) struct TlsVerify(pub(super) Invocation);

impl PeerJudge for TlsVerify {
    fn judge(&self, peer: &PeerCertificate) -> Result<(), String> {
        let mut program = self.0.clone();
        for (name, value) in peer.environment() {
            program = program.with(&name, &value);
        }
        for (depth, certificate) in peer.chain.iter().enumerate().rev() {
            let [number, subject] = tls_verify_arguments(depth, &certificate.subject);
            let one = program.clone().argument(number).argument(subject);
            one.run_well().map_err(|error| error.to_string())?;
            log::info!("VERIFY SCRIPT OK: depth={depth}, {}", certificate.subject);
        }
        Ok(())
    }
}
