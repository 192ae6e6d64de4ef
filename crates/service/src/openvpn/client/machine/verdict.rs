//! `tls-verify`: a program judges the server's certificates, from the authority down, before the client sends any
//! credentials.

use super::Machine;
use super::connection::Connection;
use crate::openvpn::client::host::Cx;
use openvpn::session::Output;
use openvpn::verify::PeerCertificate;
use openvpn_host::scripts::{Hook, tls_verify_arguments};
use plane::Now;

/// Pending request to the `tls-verify` program.
pub(super) struct Question {
    /// Number of the request.
    number: u64,
    /// Key id of the waiting negotiation.
    key_id: u8,
    /// Log lines for accepted certificates, in the order of judgment.
    lines: Vec<String>,
}

impl Machine<'_> {
    pub(super) fn judge(
        &mut self,
        it: &mut Connection,
        key_id: u8,
        peer: &PeerCertificate,
        cx: &mut Cx<'_>,
    ) {
        let number = self.request();
        let Some(command) = &self.config.scripts.tls_verify else {
            return;
        };
        let mut environment = self.hooks.base.clone();
        environment.set_peer("untrusted", it.remote);
        for (name, value) in peer.environment() {
            environment.set(&name, &value);
        }
        let (mut programs, mut lines) = (Vec::new(), Vec::new());
        for (depth, certificate) in peer.chain.iter().enumerate().rev() {
            let subject = &certificate.subject;
            let arguments = tls_verify_arguments(depth, subject);
            let hook = Hook::TlsVerify;
            match self
                .hooks
                .invocation(hook, command, arguments, &environment)
            {
                Ok(program) => programs.push(program),
                Err(error) => return it.fail(error.to_string()),
            }
            lines.push(format!("VERIFY SCRIPT OK: depth={depth}, {subject}"));
        }
        it.question = Some(Question {
            number,
            key_id,
            lines,
        });
        cx.host.judge(number, programs);
    }
}

/// Handles the program's result: `passed` certificates are accepted.
pub(super) fn judged(
    it: &mut Connection,
    number: u64,
    passed: usize,
    verdict: Result<(), String>,
    now: Now,
    outputs: &mut Vec<Output>,
    cx: &mut Cx<'_>,
) {
    // Ignores a late answer to an earlier question.
    let Some(question) = it.question.take_if(|it| it.number == number) else {
        return;
    };
    for line in question.lines.into_iter().take(passed) {
        cx.info(line);
    }
    it.session
        .judged(question.key_id, verdict, now.monotonic, outputs);
}
