//! End of a connection attempt, and the next step.

use super::connection::{Connection, End};
use super::{Machine, Phase};
use crate::openvpn::Ended;
use crate::openvpn::client::host::{Cx, SERVER, Told};
use config::openvpn::{AuthRetry, RemapUsr1};
use openvpn::session::CloseReason;
use openvpn_host::management::State;
use openvpn_host::signals::Signal;

/// Outcome of a connection attempt.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Try the next server.
    Again,
    /// Try the same server.
    Same,
    /// Exit with this status.
    Exit(u8),
    /// Act on a signal, or on the same request from a management client.
    Signal(Signal),
}

impl Machine<'_> {
    /// Handles the end of a connection.
    pub(super) fn connection_ended(&mut self, connection: &Connection, end: End, cx: &mut Cx<'_>) {
        (self.is_connected, cx.connected) = (false, false);
        if connection.session.has_shown_login() {
            self.logins.sent();
        }
        if matches!(end, End::Closed(CloseReason::HandshakeWindow(_)))
            && connection.session.is_tls_unanswered()
        {
            // Stock servers before 2.6 refuse silently.
            cx.error(format!(
                "TLS: the server answers, but not to our TLS hello. Either large packets are lost on the path (set \
                 max-packet-size 1000), or we have no TLS version, cipher suite or group in common with the server \
                 (see its log). We offer {}",
                self.tls.offer()
            ));
        }
        match &end {
            End::Closed(CloseReason::PingRestart(time) | CloseReason::HandshakeWindow(time)) => {
                self.blame_line(connection, *time, cx);
            }
            End::Closed(CloseReason::Local) => {
                if let Some(time) = connection.waited_in_vain(cx.now.monotonic) {
                    self.blame_line(connection, time, cx);
                }
            }
            _ => {}
        }
        // Removes the peer first, so that no key stays usable.
        cx.plane(|plane| plane.remove_peer(SERVER));
        self.forget_lines();
        self.close_line(connection.stream, cx);
        self.drop_broken_network(cx);
        self.leave_interface(cx);
        if std::mem::take(&mut self.was_up) {
            self.attempts.succeeded();
        }
        let outcome = match (end, connection.leaving) {
            (End::OtherLine(words), None) => {
                cx.info(format!("{words}; reconnecting"));
                Outcome::Same
            }
            (End::Moved, None) => self.calls_anew(cx),
            (End::OtherLine(_) | End::Moved, Some(signal)) => Outcome::Signal(signal),
            (End::Failed(error), _) => {
                cx.error(error);
                Outcome::Again
            }
            (End::Closed(_), Some(signal)) => Outcome::Signal(signal),
            (End::Closed(reason), None) => self.after(&reason, cx),
        };
        self.after_attempt(outcome, cx);
    }

    /// Prepares another call of the same server, without a pause: it did not end the attempt.
    pub(super) fn calls_anew(&mut self, cx: &mut Cx<'_>) -> Outcome {
        cx.info("the uplink has changed; reconnecting");
        self.attempts.at_once();
        Outcome::Same
    }

    /// Handles an attempt that failed with this error.
    pub(super) fn attempt_failed(&mut self, error: &str, cx: &mut Cx<'_>) {
        cx.error(error);
        self.after_attempt(Outcome::Again, cx);
    }

    /// Takes the step after an attempt.
    #[allow(clippy::needless_pass_by_value, reason = "an outcome has one use")]
    pub(super) fn after_attempt(&mut self, outcome: Outcome, cx: &mut Cx<'_>) {
        let service = &self.config.service;
        if matches!(outcome, Outcome::Again | Outcome::Same) {
            cx.later(|host| host.is_lost());
        }
        match outcome {
            Outcome::Again | Outcome::Signal(Signal::Status) => {}
            Outcome::Same => self.attempts.same(),
            Outcome::Exit(status) => return self.end(Ended::Exit(status), cx),
            Outcome::Signal(Signal::Exit(name)) => {
                cx.info(format!("{name}[hard,] received, process exiting"));
                return self.end(Ended::Exit(0), cx);
            }
            Outcome::Signal(Signal::Reload) => {
                cx.info("SIGHUP[hard,] received, process restarting");
                return self.end(Ended::Reload, cx);
            }
            Outcome::Signal(Signal::Restart) => match service.remap_usr1 {
                Some(RemapUsr1::Hup) => return self.end(Ended::Reload, cx),
                Some(RemapUsr1::Term) => return self.end(Ended::Exit(0), cx),
                None => {
                    cx.info("SIGUSR1[hard,] received, process restarting");
                    if !service.persist_remote_ip {
                        self.attempts.forget_addresses();
                    }
                }
            },
        }
        cx.state(State::Reconnecting, "SIGUSR1");
        cx.tell(Told::Closed);
        // Another user could not set everything up again.
        let other_user = service.user.is_some() || service.group.is_some();
        if !service.persist_tun && !other_user {
            self.take_down("restart", true, cx);
            if self.ifname.take().is_some() {
                self.close_interface(cx);
            }
        }
        // After the removal: a hold would otherwise leave packets in a tunnel without a server.
        self.phase = Phase::Hold;
        cx.step(|host| host.hold());
    }

    /// Ends the client.
    pub(super) fn end(&mut self, ended: Ended, cx: &mut Cx<'_>) {
        self.phase = Phase::Over;
        if matches!(ended, Ended::Exit(_)) {
            cx.state(State::Exiting, "SIGTERM");
        }
        self.take_down("init", true, cx);
        cx.later(move |host| host.end(ended));
    }

    /// Returns the outcome that the end of a session means.
    fn after(&mut self, reason: &CloseReason, cx: &mut Cx<'_>) -> Outcome {
        if let Some(refusal) = reason.refusal() {
            self.refusals.count(refusal);
        }
        match reason {
            CloseReason::AuthFailed(failed) => self.after_auth_failed(failed, cx),
            CloseReason::Halt(_) => {
                let text = format!("Connection reset command was pushed by server: {reason}");
                cx.info(text);
                Outcome::Exit(self.given_up)
            }
            CloseReason::PingExit(_) => {
                cx.info(reason.to_string());
                cx.info("SIGTERM[soft,ping-exit] received, process exiting");
                Outcome::Exit(0)
            }
            CloseReason::Inactive(_) | CloseReason::SessionTimeout(_) => {
                cx.info(format!("{reason}, exiting"));
                Outcome::Exit(0)
            }
            CloseReason::PingRestart(_) => {
                cx.info(format!("{reason}, restarting"));
                cx.info("SIGUSR1[soft,ping-restart] received, process restarting");
                Outcome::Again
            }
            CloseReason::HandshakeWindow(_) | CloseReason::Tls(_) => {
                cx.error(format!("TLS Error: {reason}"));
                cx.error("TLS Error: TLS handshake failed");
                if self.config.timers.tls_exit {
                    cx.info("SIGTERM[soft,tls-error] received, process exiting");
                    return Outcome::Exit(self.given_up);
                }
                cx.info("SIGUSR1[soft,tls-error] received, process restarting");
                Outcome::Again
            }
            CloseReason::Restart(restart) => {
                let text = format!("Connection reset command was pushed by server: {reason}");
                cx.info(text);
                self.attempts.after_restart(restart);
                Outcome::Again
            }
            CloseReason::NoCipher(_) | CloseReason::Push(_) => {
                cx.error(format!("OPTIONS ERROR: {reason}"));
                cx.error("ERROR: Failed to apply push options");
                Outcome::Again
            }
            CloseReason::DataPlane if self.mover.can_move() => {
                cx.info(reason.to_string());
                // The pause is for servers that fail.
                self.attempts.at_once();
                Outcome::Same
            }
            _ => {
                cx.info(reason.to_string());
                Outcome::Again
            }
        }
    }

    fn after_auth_failed(
        &mut self,
        failed: &openvpn::message::AuthFailed,
        cx: &mut Cx<'_>,
    ) -> Outcome {
        cx.error(format!(
            "AUTH: Received control message: AUTH_FAILED{failed}"
        ));
        if self.logins.drop_token() {
            // The token has expired; the password may still be valid.
            return Outcome::Same;
        }
        let reason = Some(failed.reason.clone()).filter(|reason| !reason.is_empty());
        cx.tell(Told::VerificationFailed(reason));
        if self.attempts.after_auth_failed(failed) {
            return Outcome::Again;
        }
        match self.auth_retry {
            AuthRetry::NoInteract => Outcome::Again,
            AuthRetry::Interact => {
                self.logins.forget_password();
                Outcome::Again
            }
            AuthRetry::None => {
                cx.warn(
                    "the server refuses this login; many providers have another one for the VPN than for their web page",
                );
                cx.info("SIGTERM[soft,auth-failure] received, process exiting");
                Outcome::Exit(self.given_up)
            }
        }
    }
}
