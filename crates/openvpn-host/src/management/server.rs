//! The management port with its sockets: accepts clients and forwards their commands.

use super::socket::ManagementSocket;
use super::{Management, Settings, Told};
use crate::monitored::{Monitored, ProcessRequest};
use crate::secrets;
use crate::signals::Signal;
use crate::timestamp::unix;
use config::openvpn::{Management as Wanted, OpenVpn, Prompted};
use host::gate::Gate;
use host::strangers;
use log::Level;
use netio::poll::Poller;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant, SystemTime};
use zeroize::Zeroizing;

/// Interval at which the port retries a client that has not taken all output.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long a client may stay silent after connecting: it blocks other clients meanwhile.
const SILENCE: Duration = Duration::from_secs(30);

/// Limit for a client without the password while another waits.
const CROWDED: Duration = Duration::from_secs(3);

/// Minimum interval between log lines about connections that spoke another protocol.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// Management port with its sockets.
pub struct Port {
    /// The conversation with its client.
    pub machine: Management,
    socket: ManagementSocket,
    /// Watches the listening socket while there is no client.
    gate: Gate,
    client: Option<File>,
    /// When a silent client must make room, and when it must if another waits.
    silent_until: [Instant; 2],
    /// Watches the client or, without one, the listening socket, in whose queue further clients wait.
    pub events: Poller,
    /// `management-signal`.
    signal_on_leave: bool,
    /// `management-forget-disconnect`.
    forget_on_leave: bool,
    /// `management-up-down`.
    pub up_down: bool,
    /// When the log last reported a connection that spoke another protocol.
    told: Option<Instant>,
}

/// Returns the port's password, if it has one.
pub fn password(
    config: &OpenVpn,
    wanted: &Wanted,
) -> Result<Option<Zeroizing<String>>, Box<dyn std::error::Error>> {
    let password: Zeroizing<String> = match &wanted.password {
        None => return Ok(None),
        Some(Prompted::Ask) => secrets::ask("Management password: ", false)?,
        Some(Prompted::From(source)) => {
            let bytes = source.load(config.directory.as_deref());
            let bytes = bytes.map_err(|error| format!("management: the password file: {error}"))?;
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
    /// Opens the listening socket, or connects out with `management-client`.
    ///
    /// # Errors
    /// The socket cannot be opened, or the user of the client that this end connected to is not permitted.
    pub fn open(
        config: &OpenVpn,
        wanted: &Wanted,
        settings: Settings,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let mut machine = Management::new(settings);
        let (socket, client) = ManagementSocket::open(config, wanted)?;
        if client.is_some() {
            machine.connected();
            log::info!("MANAGEMENT: Connected to the management server");
        } else if socket.was_called() {
            return Err("the management server is not who it should be".into());
        } else {
            log::info!("MANAGEMENT: socket listening");
        }
        for text in &config.service.echo {
            machine.tell(unix(SystemTime::now()), &Told::Echo(text.clone()));
        }
        let events = Poller::new()?;
        if let Some(client) = &client {
            events.add(client, 0)?;
        }
        let mut port = Self {
            machine,
            socket,
            gate: Gate::default(),
            client,
            silent_until: [Instant::now() + SILENCE; 2],
            events,
            signal_on_leave: wanted.signal,
            forget_on_leave: wanted.forget_disconnect,
            up_down: wanted.up_down,
            told: None,
        };
        port.follow(Instant::now())?;
        Ok(port)
    }

    /// Watches for the next client if there is none.
    fn follow(&mut self, now: Instant) -> io::Result<()> {
        if self.client.is_some() {
            return self.gate.rest(&self.events, self.socket.fd());
        }
        let socket = self.socket.fd().map(|socket| (socket, 0));
        self.gate.follow(&self.events, socket, now)
    }

    /// Accepts the waiting client, unless descriptors ran out or the last client has just guessed at the password.
    fn accept(&mut self, now: Instant) -> Option<File> {
        if self.gate.next_deadline().is_some_and(|until| now < until) {
            return None;
        }
        self.socket.accept().unwrap_or_else(|error| {
            self.gate.failed(&error, now, || self.socket.turn_away());
            None
        })
    }

    /// When the port needs attention next.
    pub fn next_deadline(&self) -> Option<Instant> {
        let waits = !self.machine.transmit().is_empty();
        [
            self.machine.next_deadline(),
            self.is_silent().then_some(self.silent_until[1]),
            waits.then(|| Instant::now() + PATIENCE),
            self.gate.next_deadline().filter(|_| self.client.is_none()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Accepts a client and handles its commands. Returns requests to the process.
    pub fn serve(&mut self, monitored: &mut dyn Monitored) -> Vec<ProcessRequest> {
        self.serve_at(Instant::now(), monitored);
        std::mem::take(&mut self.machine.requests)
    }

    fn serve_at(&mut self, now: Instant, monitored: &mut dyn Monitored) {
        self.receive(now);
        self.machine.handle_lines(now, monitored);
        self.end_silence(now);
        self.machine.tell_bytes(now, monitored);
        self.transmit();
    }

    fn receive(&mut self, now: Instant) {
        if self.client.is_none()
            && let Some(client) = self.accept(now)
        {
            self.admit(client, now);
        }
        // One buffer per turn: the rest wakes the loop again, and the input kept in memory stays bounded.
        let mut buffer = [0; 4096];
        loop {
            let Some(client) = &mut self.client else {
                return;
            };
            match client.read(&mut buffer) {
                Ok(n) if n > 0 => return self.machine.receive(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => self.leave(),
            }
        }
    }

    fn admit(&mut self, client: File, now: Instant) {
        if let Err(error) = self.events.add(&client, 0) {
            log::warn!("MANAGEMENT: {error}");
        }
        self.machine.connected();
        self.client = Some(client);
        self.silent_until = [now + SILENCE, now + self.patience()];
        strangers::log(Level::Info, format_args!("MANAGEMENT: Client connected"));
    }

    /// Whether the client is silent and blocks others. A client that this end connected to may listen forever.
    fn is_silent(&self) -> bool {
        self.client.is_some() && !self.socket.was_called() && !self.machine.has_spoken()
    }

    /// How long the client may stay silent while another waits.
    fn patience(&self) -> Duration {
        match self.machine.has_trusted_peer() {
            true => SILENCE,
            false => CROWDED,
        }
    }

    /// Closes the connection of a client that sent no password in time, or that is silent while another waits.
    fn end_silence(&mut self, now: Instant) {
        let [until, look] = self.silent_until;
        if !self.is_silent() || now < look {
            return;
        }
        let trusted = self.machine.has_trusted_peer();
        self.silent_until[1] = now + self.patience();
        let next = self.accept(now);
        if next.is_some() || (now >= until && !trusted) {
            strangers::log(
                Level::Info,
                format_args!("MANAGEMENT: the client has said nothing for too long, closed"),
            );
            self.leave();
        }
        if let Some(next) = next {
            self.admit(next, now);
        }
    }

    fn leave(&mut self) {
        // Closing removes the socket from the poller.
        self.client = None;
        let (stranger, spoken) = (self.machine.has_stranger(), self.machine.has_spoken());
        let now = Instant::now();
        if self.machine.has_guessed() {
            self.gate.shut(now);
        }
        self.machine.disconnected();
        if stranger && self.told.is_none_or(|at| now >= at + TOLD_AGAIN) {
            self.told = Some(now);
            log::warn!(
                "MANAGEMENT: closed a connection that began with HTTP or another protocol; \
                 does a web page call this port? Add a password file, or use a unix socket"
            );
        }
        strangers::log(Level::Info, format_args!("MANAGEMENT: Client disconnected"));
        // A web page or a scanner that connects and leaves must not restart the tunnel.
        if !spoken && !self.socket.was_called() {
            return;
        }
        let requests = &mut self.machine.requests;
        if self.forget_on_leave {
            requests.push(ProcessRequest::Forget);
        }
        if self.signal_on_leave {
            log::info!("MANAGEMENT: Triggering management signal");
            requests.push(ProcessRequest::Signal(Signal::Restart));
        }
        if self.socket.was_called() {
            // The client that this end connected to is the process that started this one.
            log::info!("MANAGEMENT: Triggering management exit");
            requests.push(ProcessRequest::Signal(Signal::Exit("SIGTERM")));
        }
    }

    /// Sends output without blocking. If the client has left, watches for the next one.
    pub fn transmit(&mut self) {
        while let Some(client) = &mut self.client
            && !self.machine.transmit().is_empty()
        {
            match client.write(self.machine.transmit()) {
                Ok(n) if n > 0 => self.machine.sent(n),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                _ => self.leave(),
            }
        }
        if self.machine.wants_close() {
            self.leave();
        }
        if let Err(error) = self.follow(Instant::now()) {
            log::warn!("MANAGEMENT: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::management::tests::{Daemon, settings};
    use crate::tests::client;
    use std::os::unix::net::UnixListener;
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    fn open(path: &Path, password: Option<&str>) -> Port {
        let settings = Settings {
            password: password.map(|password| password.to_owned().into()),
            ..settings()
        };
        open_with(path, "", settings).unwrap()
    }

    fn open_with(
        path: &Path,
        more: &str,
        settings: Settings,
    ) -> Result<Port, Box<dyn std::error::Error>> {
        let path = path.display();
        let config = client(&format!("auth-user-pass\nmanagement {path} unix\n{more}"));
        let wanted = config.service.management.as_ref().unwrap();
        Port::open(&config, wanted, settings)
    }

    fn turn(port: &mut Port, now: Instant) {
        port.serve_at(now, &mut Daemon::default());
    }

    fn call(path: &Path) -> UnixStream {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// Reads the received text, and whether the connection has ended.
    fn heard(stream: &mut UnixStream) -> (String, bool) {
        let mut text = Vec::new();
        let ended = stream.read_to_end(&mut text).is_ok();
        (String::from_utf8(text).unwrap(), ended)
    }

    #[test]
    fn a_client_that_sends_nothing_gives_way_to_one_that_waits() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut port = open(&path, None);
        let start = Instant::now();
        let mut silent = call(&path);
        turn(&mut port, start);
        assert!(heard(&mut silent).0.starts_with(">INFO:"));
        // A silent client may stay while no other waits.
        turn(&mut port, start + 2 * SILENCE);
        assert!(!heard(&mut silent).1);
        let mut second = call(&path);
        turn(&mut port, start + 2 * SILENCE);
        assert_eq!(heard(&mut second).0, "");
        assert!(port.next_deadline().is_some());
        turn(&mut port, start + 3 * SILENCE);
        assert!(heard(&mut silent).1);
        assert!(heard(&mut second).0.starts_with(">INFO:"));
        // A client that has sent a command stays.
        second.write_all(b"pid\n").unwrap();
        let mut third = call(&path);
        turn(&mut port, start + 3 * SILENCE);
        turn(&mut port, start + 9 * SILENCE);
        assert_eq!(
            heard(&mut second),
            ("SUCCESS: pid=42\r\n".to_owned(), false)
        );
        assert_eq!(heard(&mut third), (String::new(), false));
        assert!(port.next_deadline().is_none());
    }

    /// A web page can make a browser send these bytes to any local port.
    #[test]
    fn a_web_page_gives_no_commands() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut port = open(&path, None);
        port.signal_on_leave = true;
        let now = Instant::now();
        let mut page = call(&path);
        turn(&mut port, now);
        assert!(heard(&mut page).0.starts_with(">INFO:"));
        let post = "POST / HTTP/1.1\r\nHost: 127.0.0.1:7506\r\n\r\nstatus\nsignal SIGTERM\n";
        page.write_all(post.as_bytes()).unwrap();
        turn(&mut port, now);
        assert_eq!(heard(&mut page), (String::new(), true));
        // Connecting and leaving has no effect either.
        drop(call(&path));
        turn(&mut port, now);
        turn(&mut port, now);
        assert!(port.client.is_none() && port.machine.requests.is_empty());
        // After a command, leaving has its effect.
        let mut known = call(&path);
        known.write_all(b"pid\n").unwrap();
        turn(&mut port, now);
        drop(known);
        turn(&mut port, now);
        assert_eq!(port.machine.requests.len(), 1);
    }

    #[test]
    fn the_connection_of_a_client_without_the_password_is_closed() {
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
    #[test]
    fn one_that_shows_no_password_gives_way_soon_to_one_that_waits() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut port = open(&path, Some("secret"));
        let start = Instant::now();
        let mut silent = call(&path);
        turn(&mut port, start);
        // No other client waits yet.
        turn(&mut port, start + CROWDED);
        assert!(!heard(&mut silent).1);
        let mut known = call(&path);
        known.write_all(b"secret\n").unwrap();
        turn(&mut port, start + 2 * CROWDED);
        assert!(heard(&mut silent).1);
        turn(&mut port, start + 2 * CROWDED);
        assert!(heard(&mut known).0.contains("password is correct"));
    }

    #[test]
    fn the_password_is_the_first_line_of_its_file_and_never_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let read = || {
            let path = path.display();
            let lines = format!("auth-user-pass\nmanagement 127.0.0.1 7505 {path}");
            let config = client(&lines);
            let wanted = config.service.management.as_ref().unwrap();
            password(&config, wanted).map_err(|error| error.to_string())
        };
        let missing = read().unwrap_err();
        assert!(
            missing.starts_with("management: the password file: "),
            "{missing}"
        );
        for empty in ["", "\nsecret\n"] {
            std::fs::write(&path, empty).unwrap();
            let error = read().unwrap_err();
            assert!(error.contains("the password is empty"), "{error}");
        }
        std::fs::write(&path, "secret\r\nnote\n").unwrap();
        assert_eq!(**read().unwrap().unwrap(), *"secret");
        let config = client("auth-user-pass\nmanagement 127.0.0.1 7505");
        let wanted = config.service.management.as_ref().unwrap();
        assert_eq!(password(&config, wanted).unwrap(), None);
    }

    #[test]
    fn a_client_that_was_called_ends_the_program_when_it_leaves() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let lines =
            "management-client\nmanagement-forget-disconnect\nmanagement-signal\necho hello";
        let mut port = open_with(&path, lines, settings()).unwrap();
        let (mut client, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        let start = Instant::now();
        turn(&mut port, start);
        // It may listen forever without a word.
        turn(&mut port, start + 9 * SILENCE);
        client.write_all(b"echo all\n").unwrap();
        assert_eq!(port.serve(&mut Daemon::default()), []);
        let (text, ended) = heard(&mut client);
        assert!(text.contains(",hello\r\n") && !ended, "{text}");
        drop(client);
        assert_eq!(
            port.serve(&mut Daemon::default()),
            [
                ProcessRequest::Forget,
                ProcessRequest::Signal(Signal::Restart),
                ProcessRequest::Signal(Signal::Exit("SIGTERM")),
            ]
        );
    }

    #[test]
    fn a_called_client_of_another_user_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let own = nix::unistd::User::from_uid(nix::unistd::Uid::current());
        let other = match own.unwrap().unwrap().name.as_str() {
            "daemon" => "root",
            _ => "daemon",
        };
        let lines = format!("management-client\nmanagement-client-user {other}");
        let error = open_with(&path, &lines, settings()).err().unwrap();
        assert_eq!(
            error.to_string(),
            "the management server is not who it should be"
        );
    }
}
