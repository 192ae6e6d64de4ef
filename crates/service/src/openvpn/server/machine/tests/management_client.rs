//! A management client that sends partial commands, reads seldom, and disconnects at random.

use crate::openvpn::seeded::Random;
use config::openvpn::AuthRetry;
use openvpn_host::management::{Addresses, LogFlag, Management, Settings, State, Told};
use openvpn_host::status_file::Format;
use openvpn_host::timestamp::unix;
use plane::Now;

pub(super) struct ManagementClient {
    pub(super) port: Management,
    connected: bool,
    /// Rest of a line that the client has not sent yet.
    rest: String,
    /// How often a client has left.
    pub(super) left: u64,
}

impl ManagementClient {
    /// Makes a port without a client.
    pub(super) fn new() -> Self {
        let settings = Settings {
            password: None,
            hold: false,
            server: true,
            title: "Millrace 0".to_owned(),
            pid: 1,
            log_lines: 100,
            verb: 3,
            mute: 0,
            auth_retry: AuthRetry::None,
            format: Format::Two,
        };
        Self {
            port: Management::new(settings),
            connected: false,
            rest: String::new(),
            left: 0,
        }
    }

    /// Sends text, or its first part. Connects first if needed, and reads the greeting.
    pub(super) fn say(&mut self, text: &str, random: &mut Random) {
        if !self.connected {
            self.connected = true;
            self.port.connected();
            assert!(
                self.port.transmit().starts_with(b">INFO:"),
                "something is left of the one before it"
            );
        }
        let mut text = std::mem::take(&mut self.rest) + text;
        if random.percent(30) {
            let at = random.below(text.len() as u64) as usize;
            self.rest = text.split_off(at);
        }
        self.port.receive(text.as_bytes());
    }

    /// Reads the output, some of the time. The port hangs up on a client that never reads.
    pub(super) fn hear(&mut self, random: &mut Random) {
        if random.percent(80) {
            let waiting = self.port.transmit().len();
            self.port.sent(waiting);
        }
        if self.port.wants_close() {
            self.leave();
        }
    }

    /// Disconnects without a command.
    pub(super) fn leave(&mut self) {
        if std::mem::take(&mut self.connected) {
            self.left += 1;
            self.rest.clear();
            assert!(self.port.disconnected());
        }
    }

    pub(super) fn logged(&mut self, text: &str, now: Now) {
        self.port.logged(unix(now.wall), LogFlag::Info, text);
    }

    pub(super) fn state_changed(&mut self, state: State, now: Now) {
        let at = unix(now.wall);
        let told = Told::State(state, String::new(), Addresses::default());
        self.port.tell(at, &told);
    }
}
