//! A management client: it says part of what it has to say, does not listen, and leaves when it likes.

use super::super::super::super::management::{
    Addresses, LogFlag, Management, Settings, State, StateEntry,
};
use super::super::super::super::policy::status_file::Format;
use super::super::super::super::policy::timestamp::unix;
use super::super::Now;
use crate::openvpn::seeded::Random;
use config::openvpn::AuthRetry;

pub(super) struct ManagementClient {
    pub(super) port: Management,
    connected: bool,
    /// Rest of a line that the client has not sent yet.
    rest: String,
    /// How often one has gone.
    pub(super) left: u64,
}

impl ManagementClient {
    /// A port to which none has connected.
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

    /// Says something, or the first part of it. One that is not there yet connects, and is greeted before all else.
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

    /// Hears what it was told, some of the time. The port hangs up on one that never does.
    pub(super) fn hear(&mut self, random: &mut Random) {
        if random.percent(80) {
            let waiting = self.port.transmit().len();
            self.port.sent(waiting);
        }
        if self.port.wants_close() {
            self.leave();
        }
    }

    /// Goes, without a word.
    pub(super) fn leave(&mut self) {
        if std::mem::take(&mut self.connected) {
            self.left += 1;
            self.rest.clear();
            assert!(self.port.disconnected());
        }
    }

    pub(super) fn logged(&mut self, text: &str, now: Now) {
        self.port.logged(unix(now.system), LogFlag::Info, text);
    }

    pub(super) fn state_changed(&mut self, state: State, now: Now) {
        self.port.state_changed(StateEntry {
            at: unix(now.system),
            state,
            detail: String::new(),
            addresses: Addresses::default(),
        });
    }
}
