//! The management port with its sockets: who comes in, and what is done with what was said.

use super::console::Console;
use super::door::{Door, Visitor};
use super::office::{Desk, Wish};
use super::policy::management::{Action, Management, Settings, Signal as Asked};
use super::policy::timestamp::{Clock, unix};
use super::secrets;
use super::signals::Signal;
use config::openvpn::{Management as Wanted, OpenVpn, Prompted};
use netio::poll::Poller;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant, SystemTime};
use zeroize::Zeroizing;

/// How often a visitor who waits is looked at: only bytes that he could not take yet are served so.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long a visitor may say nothing at first, and with that keep others out.
const SILENCE: Duration = Duration::from_secs(30);

/// The management port.
pub(super) struct Port {
    pub(super) machine: Management,
    door: Door,
    visitor: Option<Visitor>,
    /// When a visitor that has said nothing yet is to make room.
    silent_until: Instant,
    /// The visitor, or where there is none the door: whoever comes while one is there waits outside.
    pub(super) events: Poller,
    /// `management-signal`.
    signal_on_leave: bool,
    /// `management-forget-disconnect`.
    forget_on_leave: bool,
    /// `management-up-down`.
    pub(super) up_down: bool,
    /// What comes of a visitor's leaving.
    wishes: Vec<Wish>,
}

/// The password that the port wants, if any.
pub(super) fn password(
    config: &OpenVpn,
    wanted: &Wanted,
) -> Result<Option<Zeroizing<String>>, Box<dyn std::error::Error>> {
    let password: Zeroizing<String> = match &wanted.password {
        None => return Ok(None),
        Some(Prompted::Ask) => secrets::ask("Management password: ", false)?,
        Some(Prompted::From(source)) => {
            let bytes = source.load(config.directory.as_deref())?;
            let text = String::from_utf8_lossy(&bytes);
            text.lines().next().unwrap_or_default().to_owned().into()
        }
    };
    if password.is_empty() {
        return Err(
            "management: the password is empty, which would let everybody in; \
            write one into the first line of the file"
                .into(),
        );
    }
    Ok(Some(password))
}

impl Port {
    /// Opens the port, or with `management-client` calls.
    ///
    /// # Errors
    /// The socket cannot be opened, or who was called is not who may be.
    pub(super) fn open(
        config: &OpenVpn,
        wanted: &Wanted,
        settings: Settings,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let mut machine = Management::new(settings);
        let (door, visitor) = Door::open(config, wanted)?;
        if visitor.is_some() {
            machine.connected();
            log::info!("MANAGEMENT: Connected to the management server");
        } else if door.was_called() {
            return Err("the management server is not who it should be".into());
        } else {
            log::info!("MANAGEMENT: socket listening");
        }
        for text in &config.service.echo {
            machine.echoed(unix(SystemTime::now()), text);
        }
        let events = Poller::new()?;
        match (&visitor, door.fd()) {
            (Some(visitor), _) => events.add(visitor, 0)?,
            (None, Some(door)) => events.add(door, 0)?,
            (None, None) => {}
        }
        Ok(Self {
            machine,
            door,
            visitor,
            silent_until: Instant::now() + SILENCE,
            events,
            signal_on_leave: wanted.signal,
            forget_on_leave: wanted.forget_disconnect,
            up_down: wanted.up_down,
            wishes: Vec::new(),
        })
    }

    /// When something is to be done here.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let waits = !self.machine.transmit().is_empty();
        [
            self.machine.next_deadline(),
            self.is_silent().then_some(self.silent_until),
            waits.then(|| Instant::now() + PATIENCE),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Lets a visitor in, and does what it says. What concerns the process goes into `wishes`.
    pub(super) fn serve(
        &mut self,
        desk: &mut dyn Desk,
        console: &Console,
        title: &str,
        clock: &Clock,
        wishes: &mut Vec<Wish>,
    ) {
        let now = Instant::now();
        self.receive(now);
        wishes.append(&mut self.wishes);
        while let Some(action) = self.machine.next_action(now) {
            self.act(action, desk, console, title, clock, wishes);
        }
        self.end_silence(now);
        if self.machine.bytes_due(now) {
            desk.status().tell_bytes(&mut self.machine);
        }
        self.transmit();
        wishes.append(&mut self.wishes);
    }

    fn receive(&mut self, now: Instant) {
        if self.visitor.is_none()
            && let Some(visitor) = self.door.accept()
        {
            self.admit(visitor, now);
        }
        let mut buffer = [0; 4096];
        while let Some(visitor) = &mut self.visitor {
            match visitor.read(&mut buffer) {
                Ok(n) if n > 0 => self.machine.receive(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => self.leave(),
            }
        }
    }

    fn admit(&mut self, visitor: Visitor, now: Instant) {
        if let Err(error) = self.watch_visitor(&visitor) {
            log::warn!("MANAGEMENT: {error}");
        }
        self.machine.connected();
        self.visitor = Some(visitor);
        self.silent_until = now + SILENCE;
        log::info!("MANAGEMENT: Client connected");
    }

    /// Whether a visitor is there that others could have to wait for in vain. Whom this end called
    /// may listen for as long as it likes.
    fn is_silent(&self) -> bool {
        self.visitor.is_some() && !self.door.was_called() && !self.machine.has_spoken()
    }

    /// A visitor that has not said the password in time is hung up on, and so is one that has not
    /// said anything when another one waits.
    fn end_silence(&mut self, now: Instant) {
        if !self.is_silent() || now < self.silent_until {
            return;
        }
        self.silent_until = now + SILENCE;
        let next = self.door.accept();
        if next.is_some() || !self.machine.has_trusted_peer() {
            log::info!("MANAGEMENT: the client has said nothing for {SILENCE:?}, closed");
            self.leave();
        }
        if let Some(next) = next {
            self.admit(next, now);
        }
    }

    fn watch_visitor(&self, visitor: &Visitor) -> io::Result<()> {
        if let Some(door) = self.door.fd() {
            self.events.remove(door)?;
        }
        self.events.add(visitor, 0)
    }

    fn leave(&mut self) {
        // Closed, and so out of the set by itself.
        self.visitor = None;
        if let Some(door) = self.door.fd()
            && let Err(error) = self.events.add(door, 0)
        {
            log::warn!("MANAGEMENT: {error}");
        }
        self.machine.disconnected();
        log::info!("MANAGEMENT: Client disconnected");
        if self.forget_on_leave {
            self.wishes.push(Wish::Forget);
        }
        if self.signal_on_leave {
            log::info!("MANAGEMENT: Triggering management signal");
            self.wishes.push(Wish::Signal(Signal::Restart));
        }
        if self.door.was_called() {
            // Whoever started us has gone.
            log::info!("MANAGEMENT: Triggering management exit");
            self.wishes.push(Wish::Signal(Signal::Exit("SIGTERM")));
        }
    }

    /// Sends what waits, as much as goes without waiting.
    pub(super) fn transmit(&mut self) {
        while let Some(visitor) = &mut self.visitor
            && !self.machine.transmit().is_empty()
        {
            match visitor.write(self.machine.transmit()) {
                Ok(n) if n > 0 => self.machine.sent(n),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                _ => self.leave(),
            }
        }
        if self.machine.wants_close() {
            self.leave();
        }
    }

    fn act(
        &mut self,
        action: Action,
        desk: &mut dyn Desk,
        console: &Console,
        title: &str,
        clock: &Clock,
        wishes: &mut Vec<Wish>,
    ) {
        match action {
            Action::Signal(asked) => wishes.push(Wish::Signal(match asked {
                Asked::Hup => Signal::Reload,
                Asked::Usr1 => Signal::Restart,
                Asked::Usr2 => Signal::Status,
                Asked::Term => Signal::Exit("SIGTERM"),
                Asked::Int => Signal::Exit("SIGINT"),
            })),
            Action::Status(format) => {
                let text = desk.status().text(format, title, clock);
                self.machine.reply_status(&text);
            }
            Action::Kill(victim) => {
                let count = desk.kill(&victim);
                self.machine.reply_kill(count);
            }
            Action::ClientKill { client, .. } => {
                let done = desk.kill_client(client);
                self.machine.reply_done(done);
            }
            Action::LoadStats => {
                let status = desk.status();
                let (received, sent) = status.bytes();
                self.machine.reply_load(status.clients(), received, sent);
            }
            Action::ClientCount => self.machine.reply_client_count(desk.status().clients()),
            Action::Verb(verb) => console.set_verb(verb),
            Action::Mute(mute) => console.set_mute(mute),
            Action::Begin => wishes.push(Wish::Begin),
            Action::Answer(answer) => wishes.push(Wish::Answer(answer)),
            Action::ForgetPasswords => wishes.push(Wish::Forget),
            // Decisions about clients are made by scripts and files here.
            Action::ChallengeResponse(_) => self.machine.reply_done(false),
            Action::AuthRetry(how) => wishes.push(Wish::AuthRetry(how)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::status_file::Format;
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    fn open(path: &Path, password: Option<&str>) -> Port {
        let text = format!(
            "client\ndev tun\nremote a\nca c\nauth-user-pass\nremote-cert-tls server\n\
             management {} unix\n",
            path.display()
        );
        let mut none = |_: &Path| Err(ErrorKind::NotFound.into());
        let options = config::openvpn::Options {
            allow_files: true,
            ..Default::default()
        };
        let name = Path::new("a.ovpn");
        let import = config::openvpn::parse_bytes(text.as_bytes(), name, &mut none, options);
        let config = import.unwrap().into_model().unwrap().0;
        let settings = Settings {
            password: password.map(|password| password.to_owned().into()),
            hold: false,
            server: false,
            title: String::new(),
            pid: 1,
            log_lines: 1,
            verb: 1,
            mute: 0,
            auth_retry: Default::default(),
            format: Format::One,
        };
        Port::open(
            &config,
            config.service.management.as_ref().unwrap(),
            settings,
        )
        .unwrap()
    }

    fn turn(port: &mut Port, now: Instant) {
        port.receive(now);
        while port.machine.next_action(now).is_some() {}
        port.end_silence(now);
        port.transmit();
    }

    fn call(path: &Path) -> UnixStream {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// What came; the second is true where the connection has ended.
    fn heard(stream: &mut UnixStream) -> (String, bool) {
        let mut text = Vec::new();
        let ended = stream.read_to_end(&mut text).is_ok();
        (String::from_utf8(text).unwrap(), ended)
    }

    #[test]
    fn a_visitor_that_says_nothing_makes_room_for_one_that_waits() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut port = open(&path, None);
        let start = Instant::now();
        let mut silent = call(&path);
        turn(&mut port, start);
        assert!(heard(&mut silent).0.starts_with(">INFO:"));
        // As long as it is in nobody's way it may listen.
        turn(&mut port, start + 2 * SILENCE);
        assert!(!heard(&mut silent).1);
        let mut second = call(&path);
        turn(&mut port, start + 2 * SILENCE);
        assert_eq!(heard(&mut second).0, "");
        assert!(port.next_deadline().is_some());
        turn(&mut port, start + 3 * SILENCE);
        assert!(heard(&mut silent).1);
        assert!(heard(&mut second).0.starts_with(">INFO:"));
        // One that has said something stays.
        second.write_all(b"pid\n").unwrap();
        let mut third = call(&path);
        turn(&mut port, start + 3 * SILENCE);
        turn(&mut port, start + 9 * SILENCE);
        assert_eq!(heard(&mut second), ("SUCCESS: pid=1\r\n".to_owned(), false));
        assert_eq!(heard(&mut third), (String::new(), false));
        assert!(port.next_deadline().is_none());
    }

    #[test]
    fn a_visitor_without_the_password_is_hung_up_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut port = open(&path, Some("secret"));
        let start = Instant::now();
        let mut stranger = call(&path);
        turn(&mut port, start);
        stranger.write_all(b"wrong\n").unwrap();
        turn(&mut port, start);
        assert!(!heard(&mut stranger).1);
        turn(&mut port, start + SILENCE);
        assert!(heard(&mut stranger).1);
        let mut known = call(&path);
        turn(&mut port, start + SILENCE);
        known.write_all(b"secret\n").unwrap();
        turn(&mut port, start + SILENCE);
        turn(&mut port, start + 9 * SILENCE);
        let (text, ended) = heard(&mut known);
        assert!(
            text.contains("SUCCESS: password is correct") && !ended,
            "{text}"
        );
    }
}
