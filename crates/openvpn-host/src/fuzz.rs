//! Fuzz targets' entry points for untrusted bytes: none may panic, or allocate beyond its limits.

use crate::management::{LogFlag, Management, Settings, Victim};
use crate::monitored::{Monitored, Status};
use crate::status_file::{ClientStatus, Format};
use config::openvpn::AuthRetry;
use std::cell::Cell;
use std::time::Instant;

pub use crate::connect::fuzz::proxy;

/// Maximum output that may wait for a management client that reads nothing: its backlog and the longest answer.
const WAITING: usize = (1 << 20) + (1 << 18);

/// A daemon that records whether a command reached it.
#[derive(Default)]
struct Daemon(Cell<bool>);

impl Monitored for Daemon {
    fn status(&self) -> Status {
        self.0.set(true);
        Status::Client(ClientStatus::default())
    }

    fn kill(&mut self, _: &Victim) -> usize {
        self.0.set(true);
        1
    }

    fn kill_client(&mut self, _: u64) -> bool {
        self.0.set(true);
        true
    }
}

/// Feeds the bytes to the management port in pieces, as a client. Without the password the port executes nothing.
pub fn management(bytes: &[u8]) {
    let Some((&form, bytes)) = bytes.split_first() else {
        return;
    };
    let password = form & 1 != 0;
    let mut port = Management::new(Settings {
        password: password.then(|| "secret".to_owned().into()),
        hold: form & 2 != 0,
        server: form & 4 != 0,
        title: String::new(),
        pid: 1,
        log_lines: 250,
        verb: 3,
        mute: 0,
        auth_retry: AuthRetry::None,
        format: Format::One,
    });
    port.connected();
    port.hold();
    let mut daemon = Daemon::default();
    let now = Instant::now();
    for part in bytes.chunks(usize::from(form >> 3) * 8 + 1) {
        // One line at a time, as the password may be one of them.
        for line in part.split_inclusive(|it| *it == b'\n') {
            let trusted = port.has_trusted_peer();
            port.receive(line);
            port.handle_lines(now, &mut daemon);
            let acted = daemon.0.take() || !port.requests.is_empty();
            assert!(trusted || !acted, "no password");
            port.requests.clear();
        }
        // A peer's text in the log must not look like an answer.
        let before = port.transmit().len();
        port.logged(0, LogFlag::Info, &String::from_utf8_lossy(part));
        let told = &port.transmit()[before..];
        let lines = told.split(|it| *it == b'\n').count();
        assert!(told.is_empty() || lines == 2 && told.starts_with(b">LOG:"));
        assert!(port.transmit().len() < WAITING);
        if port.wants_close() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_fuzzing_began_with() {
        for text in [
            &b"\x00log on all\nstate 1\nstatus 3\n"[..],
            b"\x07secret\nload-stats\nkill a\nclient-kill 0 HALT\nbytecount 1\n",
            b"\x01POST / HTTP/1.1\r\n\r\nsignal SIGTERM\n",
            b"\x82hold release\npassword 'Auth' \"a\\\"b\"\nexit\n",
        ] {
            management(text);
        }
        for text in [
            &b"\x00HTTP/1.1 407 x\r\nProxy-Authenticate: Digest realm=\"a\", nonce=\"n\", qop=\"auth\"\r\n\r\n"[..],
            b"\x05HTTP/1.0 200 OK\n\n",
            b"\x81\x05\x02\x01\x00\x05\x00\x00\x03\x04abcd\x00\x50",
        ] {
            proxy(text);
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            management(&bytes);
            proxy(&bytes);
        }
    }
}
