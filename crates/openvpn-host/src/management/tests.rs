//! Conversations with the management port, with the answers of stock 2.6.

use super::*;
use crate::monitored::{Monitored, ProcessRequest, Status};
use crate::signals::Signal;
use crate::status_file::{ClientStatus, Format};
use config::openvpn::AuthRetry;
use proptest::prelude::*;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

pub(crate) fn settings() -> Settings {
    Settings {
        password: None,
        hold: false,
        server: false,
        title: "Millrace 0".to_owned(),
        pid: 42,
        log_lines: 3,
        verb: 3,
        mute: 0,
        auth_retry: AuthRetry::None,
        format: Format::One,
    }
}

fn server() -> Settings {
    Settings {
        server: true,
        ..settings()
    }
}

/// A daemon with one client.
#[derive(Default)]
pub(crate) struct Daemon {
    killed: Vec<Victim>,
}

impl Monitored for Daemon {
    fn status(&self) -> Status {
        Status::Client(ClientStatus {
            link_read: 2,
            link_write: 3,
            ..ClientStatus::default()
        })
    }

    fn kill(&mut self, victim: &Victim) -> usize {
        self.killed.push(victim.clone());
        match victim {
            Victim::CommonName(_) => 2,
            Victim::Address(_) => 0,
        }
    }

    fn kill_client(&mut self, number: u64) -> bool {
        number == 7
    }

    #[cfg(feature = "kernel")]
    fn move_to(&mut self, wanted: Option<config::settings::Kind>) -> Result<&'static str, String> {
        match wanted {
            Some(config::settings::Kind::Kernel) => Err("not this one".to_owned()),
            _ => Ok("user"),
        }
    }
}

struct Conversation {
    port: Management,
    now: Instant,
}

impl Conversation {
    fn new(settings: Settings) -> Self {
        let mut port = Management::new(settings);
        port.connected();
        let mut conversation = Self {
            port,
            now: Instant::now(),
        };
        conversation.heard();
        conversation
    }

    /// Returns the port's output since the last call.
    fn heard(&mut self) -> String {
        let text = String::from_utf8(self.port.transmit().to_vec()).unwrap();
        self.port.sent(text.len());
        text.replace("\r\n", "\n")
    }

    /// Returns the client's requests to the process.
    fn send(&mut self, text: &str) -> Vec<ProcessRequest> {
        self.port.receive(text.as_bytes());
        self.port.handle_lines(self.now, &mut Daemon::default());
        std::mem::take(&mut self.port.requests)
    }

    /// Returns the reply to a command that needs no action of the process.
    fn ask(&mut self, line: &str) -> String {
        assert_eq!(self.send(&format!("{line}\r\n")), []);
        self.heard()
    }

    /// Returns the only request of a command.
    fn act(&mut self, line: &str) -> ProcessRequest {
        let mut requests = self.send(&format!("{line}\n"));
        assert_eq!(requests.len(), 1, "{line}");
        requests.remove(0)
    }

    fn state_changed(&mut self, at: u64, state: State, detail: &str) {
        let told = Told::State(state, detail.to_owned(), Addresses::default());
        self.port.tell(at, &told);
    }
}

/// A web page may control every line after the first.
#[test]
fn a_peer_that_begins_with_another_protocol_is_closed() {
    let long = format!("GET /{} HTTP/1.1", "a".repeat(3000));
    for password in [None, Some("secret")] {
        let settings = Settings {
            password: password.map(|it| Zeroizing::new(it.to_owned())),
            ..settings()
        };
        for first in [
            "POST / HTTP/1.1",
            "GET /signal%20SIGTERM HTTP/1.0",
            "PRI * HTTP/2.0",
            &long,
            "\u{16}\u{3}\u{1}\u{2}",
            "\u{0}\u{1}",
        ] {
            let mut talk = Conversation::new(settings.clone());
            let sent = format!("{first}\r\nHost: a\r\nsecret\nsignal SIGTERM\nstatus\n");
            for byte in sent.bytes() {
                talk.port.receive(&[byte]);
                talk.port.handle_lines(talk.now, &mut Daemon::default());
            }
            assert_eq!(talk.port.requests, [], "{first}");
            assert!(talk.port.wants_close(), "{first}");
            assert_eq!(talk.heard(), "", "{first}");
        }
    }
    // Later lines may have any content, such as an `echo` or a password.
    let mut talk = Conversation::new(settings());
    talk.ask("pid");
    assert!(talk.ask("GET / HTTP/1.1").starts_with("ERROR: unknown"));
    assert!(!talk.port.wants_close());
}

#[test]
fn a_peer_is_greeted() {
    let mut port = Management::new(settings());
    port.connected();
    let greeting = ">INFO:OpenVPN Management Interface Version 5 -- type 'help' for more info\r\n";
    assert_eq!(port.transmit(), greeting.as_bytes());
}

#[test]
fn a_password_comes_first_and_may_be_wrong_twice() {
    let with_password = || Settings {
        password: Some(Zeroizing::new("pw".to_owned())),
        ..settings()
    };
    let mut port = Management::new(with_password());
    port.connected();
    let mut talk = Conversation {
        port,
        now: Instant::now(),
    };
    assert_eq!(talk.heard(), "ENTER PASSWORD:");
    assert_eq!(talk.ask("pid"), "ENTER PASSWORD:");
    // The port sends nothing before the password.
    talk.port.tell(1, &Told::Echo("x".to_owned()));
    talk.port.logged(1, LogFlag::Fatal, "x");
    assert_eq!(talk.heard(), "");
    assert!(
        talk.ask("pw")
            .starts_with("SUCCESS: password is correct\n>INFO:")
    );
    assert_eq!(talk.ask("pid"), "SUCCESS: pid=42\n");

    let mut talk = Conversation::new(with_password());
    talk.send("a\nb\nc\npw\npid\n");
    assert_eq!(talk.heard(), "ENTER PASSWORD:ENTER PASSWORD:");
    assert!(talk.port.wants_close());
}

#[test]
fn simple_questions_have_the_answers_of_stock() {
    let mut talk = Conversation::new(settings());
    for (line, answer) in [
        ("", ""),
        ("  ", ""),
        ("pid", "SUCCESS: pid=42\n"),
        (
            "version",
            "OpenVPN Version: Millrace 0\nManagement Version: 5\nEND\n",
        ),
        ("version 3", ""),
        ("verb", "SUCCESS: verb=3\n"),
        ("verb 99", "ERROR: verb level is out of range\n"),
        ("mute", "SUCCESS: mute=0\n"),
        ("mute -1", "ERROR: mute level is out of range\n"),
        ("auth-retry", "SUCCESS: auth-retry=none\n"),
        ("auth-retry x", "ERROR: bad auth-retry parameter\n"),
        ("hold", "SUCCESS: hold=0\n"),
        ("hold on", "SUCCESS: hold flag set to ON\n"),
        ("hold off", "SUCCESS: hold flag set to OFF\n"),
        ("hold bad", "ERROR: bad hold command parameter\n"),
        (
            "bytecount",
            "ERROR: the 'bytecount' command requires 1 parameter\n",
        ),
        (
            "log",
            "ERROR: the 'log' command requires at least 1 parameter\n",
        ),
        (
            "nosuch",
            "ERROR: unknown command, enter 'help' for more options\n",
        ),
        (
            "password Auth x",
            "ERROR: no password is currently needed at this time\n",
        ),
        (
            "username Auth x",
            "ERROR: no username is currently needed at this time\n",
        ),
        (
            "needok a b",
            "ERROR: no needok-confirmation is currently needed at this time\n",
        ),
        (
            "needstr a b",
            "ERROR: no needstr-string is currently needed at this time\n",
        ),
        (
            "\"x",
            "ERROR: Options error: No closing quotation (\") in TCP:0\n",
        ),
        (
            "kill x",
            "ERROR: The 'kill' command is not supported by the current daemon mode\n",
        ),
        (
            "nclients",
            "ERROR: The 'nclients' command is not supported by the current daemon mode\n",
        ),
        (
            "net",
            "ERROR: The 'net' command is not supported by the current daemon mode\n",
        ),
        (
            "rsa-sig",
            "ERROR: The rsa-sig command is not currently available\n",
        ),
        ("env-filter 1", "SUCCESS: env_filter_level=1\n"),
        (
            "client-auth-nt 1 2",
            "ERROR: The 'client-auth-nt' command is not supported by the current daemon mode\n",
        ),
        (
            "state foo",
            "ERROR: state parameter must be 'on' or 'off' or some number n or 'all'\n",
        ),
    ] {
        assert_eq!(talk.ask(line), answer, "{line}");
    }
    // Lines of client settings, up to `END`, do not run as commands.
    assert_eq!(talk.ask("client-auth 1 2"), "");
    assert_eq!(talk.ask("kill everybody"), "");
    assert_eq!(
        talk.ask("END"),
        "ERROR: The 'client-auth' command is not supported by the current daemon mode\n"
    );
    let help = talk.ask("help");
    assert!(help.lines().count() > 20 && help.ends_with("END\n"));
    let long = "x".repeat(2000);
    assert!(talk.ask(&long).starts_with("ERROR: the line is too long"));
    assert_eq!(talk.ask("pid"), "SUCCESS: pid=42\n");
    assert_eq!(talk.ask("exit"), "");
    assert!(talk.port.wants_close());
}

#[test]
fn what_the_daemon_must_do_is_done_in_order() {
    let mut talk = Conversation::new(server());
    let mut daemon = Daemon::default();
    let lines =
        "kill foo\nkill 192.0.2.1:5\nload-stats\nnclients\nclient-kill 7\nclient-kill 8\npid\n";
    talk.port.receive(lines.as_bytes());
    talk.port.handle_lines(talk.now, &mut daemon);
    assert_eq!(
        daemon.killed,
        [
            Victim::CommonName("foo".to_owned()),
            Victim::Address("192.0.2.1:5".parse().unwrap())
        ]
    );
    assert_eq!(
        talk.heard(),
        "SUCCESS: common name 'foo' found, 2 client(s) killed\n\
         ERROR: client at address 192.0.2.1:5 not found\n\
         SUCCESS: nclients=0,bytesin=2,bytesout=3\n\
         SUCCESS: nclients=0\n\
         SUCCESS: client-kill command succeeded\n\
         ERROR: client-kill command failed\n\
         SUCCESS: pid=42\n"
    );
}

#[cfg(feature = "server")]
mod of_two_clients {
    use super::*;
    use crate::status_file::server::{ClientRow, ServerStatus};
    use std::time::SystemTime;

    /// A server's daemon, with numbers that are all different.
    pub(super) struct Daemon;

    impl Monitored for Daemon {
        fn status(&self) -> Status {
            let row = |client_id, bytes_received, bytes_sent| ClientRow {
                common_name: String::new(),
                real_address: String::new(),
                ipv4: None,
                ipv6: None,
                bytes_received,
                bytes_sent,
                connected_since: SystemTime::UNIX_EPOCH,
                username: String::new(),
                client_id,
                peer_id: 0,
                cipher: String::new(),
            };
            Status::Server(ServerStatus {
                clients: vec![row(7, 10, 4), row(9, 20, 5)],
                routes: Vec::new(),
                broadcast_queue_max: 0,
                kernel_data_plane: false,
            })
        }
    }

    #[test]
    fn are_added_up() {
        let mut talk = Conversation::new(server());
        talk.port.receive(b"load-stats\nnclients\n");
        talk.port.handle_lines(talk.now, &mut Daemon);
        let wanted = "SUCCESS: nclients=2,bytesin=30,bytesout=9\nSUCCESS: nclients=2\n";
        assert_eq!(talk.heard(), wanted);
    }
}

#[test]
fn settings_are_changed() {
    let mut talk = Conversation::new(settings());
    assert_eq!(talk.act("verb 5"), ProcessRequest::Verb(5));
    assert_eq!(talk.act("mute 7"), ProcessRequest::Mute(7));
    let interact = ProcessRequest::AuthRetry(AuthRetry::Interact);
    assert_eq!(talk.act("auth-retry interact"), interact);
    assert_eq!(talk.act("forget-passwords"), ProcessRequest::Forget);
    let exit = ProcessRequest::Signal(Signal::Exit("SIGTERM"));
    assert_eq!(talk.act("signal SIGTERM"), exit);
    talk.heard();
    assert_eq!(talk.ask("verb"), "SUCCESS: verb=5\n");
}

/// A server with no clients.
#[cfg(feature = "server")]
struct Empty;

#[cfg(feature = "server")]
impl Monitored for Empty {
    fn status(&self) -> Status {
        Status::Server(Default::default())
    }
}

#[cfg(feature = "server")]
#[test]
fn a_status_is_given_in_the_form_that_is_asked_for() {
    let mut talk = Conversation::new(server());
    let mut ask = |line: &[u8]| {
        talk.port.receive(line);
        talk.port.handle_lines(talk.now, &mut Empty);
        talk.heard()
    };
    let three = ask(b"status 3\n");
    assert!(three.starts_with("TITLE\tMillrace 0\n") && three.ends_with("\nEND\n"));
    assert_eq!(
        ask(b"status 9\n"),
        "ERROR: bad status format version number\n"
    );
    assert!(ask(b"status\n").starts_with("OpenVPN CLIENT LIST\n"));
    let mut talk = Conversation::new(settings());
    assert!(talk.ask("status 9").starts_with("OpenVPN STATISTICS\n"));
}

#[test]
#[cfg(feature = "kernel")]
fn a_tunnel_is_moved_or_says_why_not() {
    let mut talk = Conversation::new(settings());
    assert_eq!(talk.ask("dataplane"), "SUCCESS: dataplane=user\n");
    assert_eq!(
        talk.ask("dataplane auto"),
        "SUCCESS: dataplane auto is asked for\n"
    );
    assert_eq!(talk.ask("dataplane kernel"), "ERROR: not this one\n");
    assert_eq!(
        talk.ask("dataplane fast"),
        "ERROR: bad dataplane parameter\n"
    );
    let mut talk = Conversation::new(server());
    assert!(talk.ask("dataplane kernel").contains("not supported"));
}

#[test]
fn states_are_told_at_once_and_looked_up() {
    let mut talk = Conversation::new(settings());
    talk.state_changed(1, State::Connecting, "");
    talk.state_changed(2, State::Wait, "");
    assert_eq!(talk.ask("state"), "2,WAIT,,,,,,\nEND\n");
    assert_eq!(
        talk.ask("state on all"),
        "SUCCESS: real-time state notification set to ON\n\
         1,CONNECTING,,,,,,\n2,WAIT,,,,,,\nEND\n"
    );
    talk.state_changed(3, State::Exiting, "SIGTERM");
    assert_eq!(talk.heard(), ">STATE:3,EXITING,SIGTERM,,,,,\n");
    // The next client starts with default settings.
    assert!(talk.port.disconnected() && !talk.port.disconnected());
    talk.port.connected();
    talk.heard();
    talk.state_changed(4, State::Exiting, "");
    assert_eq!(talk.heard(), "");
    // Clients' handshakes do not change a server's state.
    let mut talk = Conversation::new(server());
    talk.state_changed(1, State::Auth, "");
    assert_eq!(talk.ask("state"), "END\n");
}

#[test]
fn logs_and_echoes_are_kept_and_made_one_line() {
    let mut talk = Conversation::new(settings());
    for n in 0..5 {
        talk.port.logged(n, LogFlag::Info, "line");
    }
    assert_eq!(talk.ask("log all"), "2,I,line\n3,I,line\n4,I,line\nEND\n");
    assert_eq!(
        talk.ask("log on 1"),
        "SUCCESS: real-time log notification set to ON\n4,I,line\nEND\n"
    );
    talk.port.logged(9, LogFlag::Detail, "a\r\n>INFO:b");
    talk.port.tell(9, &Told::Echo("not told".to_owned()));
    assert_eq!(talk.heard(), ">LOG:9,,a  >INFO:b\n");
    assert_eq!(talk.ask("echo on all").lines().nth(1), Some("9,not told"));
    talk.port.tell(10, &Told::Echo("x".to_owned()));
    assert_eq!(talk.heard(), ">ECHO:10,x\n");
}

#[test]
fn a_hold_lasts_until_it_is_released() {
    let mut talk = Conversation::new(Settings {
        hold: true,
        ..settings()
    });
    assert!(talk.port.hold());
    assert_eq!(talk.heard(), ">HOLD:Waiting for hold release:0\n");
    assert_eq!(
        talk.ask("signal SIGUSR1"),
        "ERROR: signal 'SIGUSR1' is currently ignored\n>HOLD:Waiting for hold release:0\n"
    );
    talk.port.disconnected();
    talk.port.connected();
    assert!(talk.heard().ends_with(">HOLD:Waiting for hold release:0\n"));
    assert_eq!(talk.act("hold release"), ProcessRequest::Begin);
    assert_eq!(talk.heard(), "SUCCESS: hold release succeeded\n");
    let restart = ProcessRequest::Signal(Signal::Restart);
    assert_eq!(talk.act("signal SIGUSR1"), restart);
    assert!(!talk.port.hold(), "released for this tunnel");
    talk.port.tell(1, &Told::Closed);
    assert!(talk.port.hold());
}

#[test]
fn names_and_passwords_are_entered() {
    let mut talk = Conversation::new(settings());
    talk.port.ask(Query {
        kind: "Auth".to_owned(),
        question: QueryKind::UserPassword {
            challenge: Some(("pin".to_owned(), true, false)),
        },
    });
    assert_eq!(
        talk.heard(),
        ">PASSWORD:Need 'Auth' username/password SC:1,pin\n"
    );
    assert_eq!(
        talk.ask("username Priv x"),
        "ERROR: username of type 'Priv' entered, but we need one of type 'Auth'\n"
    );
    assert_eq!(
        talk.ask("username Auth u"),
        "SUCCESS: 'Auth' username entered, but not yet verified\n"
    );
    let answer = talk.act("password Auth \"p\\\"w\"");
    let expected = Answer {
        kind: "Auth".to_owned(),
        username: Zeroizing::new("u".to_owned()),
        text: Zeroizing::new("p\"w".to_owned()),
    };
    assert_eq!(answer, ProcessRequest::Answer(expected));
    assert!(!format!("{answer:?}").contains("p\\\"w"));
    assert!(talk.heard().contains("password entered"));
    assert!(
        talk.ask("password Auth x")
            .starts_with("ERROR: no password")
    );
    for reason in [None, Some("CRV1:R:x::y".to_owned())] {
        talk.port.tell(1, &Told::VerificationFailed(reason));
    }
    let token = Zeroizing::new("SESS_ID".to_owned());
    talk.port.tell(1, &Told::AuthToken(token));
    assert_eq!(
        talk.heard(),
        ">PASSWORD:Verification Failed: 'Auth'\n\
         >PASSWORD:Verification Failed: 'Auth' ['CRV1:R:x::y']\n\
         >PASSWORD:Auth-Token:SESS_ID\n"
    );
}

#[test]
fn other_questions_have_their_own_answers() {
    let mut talk = Conversation::new(settings());
    let mut ask = |kind: &str, question, line: &str| {
        let kind = kind.to_owned();
        talk.port.ask(Query { kind, question });
        let asked = talk.heard();
        let ProcessRequest::Answer(answer) = talk.act(line) else {
            panic!("no answer to {asked}: {}", talk.heard())
        };
        talk.heard();
        (asked, answer.text.to_string())
    };
    let (asked, text) = ask(
        "Private Key",
        QueryKind::Password,
        "password \"Private Key\" \"\"",
    );
    assert_eq!(asked, ">PASSWORD:Need 'Private Key' password\n");
    assert_eq!(text, "");
}

#[test]
fn bytes_are_told_when_it_is_time() {
    let mut talk = Conversation::new(settings());
    assert_eq!(talk.port.next_deadline(), None);
    assert_eq!(
        talk.ask("bytecount 5"),
        "SUCCESS: bytecount interval changed\n"
    );
    let due = talk.now + Duration::from_secs(5);
    assert_eq!(talk.port.next_deadline(), Some(due));
    talk.port.tell_bytes(talk.now, &Daemon::default());
    assert_eq!(talk.heard(), "");
    talk.port.tell_bytes(due, &Daemon::default());
    talk.port.tell_bytes(due, &Daemon::default());
    assert_eq!(talk.heard(), ">BYTECOUNT:2,3\n");
    #[cfg(feature = "server")]
    {
        let due = due + Duration::from_secs(5);
        talk.port.tell_bytes(due, &of_two_clients::Daemon);
        assert_eq!(
            talk.heard(),
            ">BYTECOUNT_CLI:7,10,4\n>BYTECOUNT_CLI:9,20,5\n"
        );
    }
    talk.ask("bytecount 0");
    assert_eq!(talk.port.next_deadline(), None);
    talk.ask("bytecount 99999999999999999999");
    assert!(talk.port.next_deadline().is_some());
}

#[test]
fn a_peer_that_does_not_read_is_dropped() {
    let mut talk = Conversation::new(settings());
    talk.ask("log on");
    let text = "x".repeat(5000);
    while !talk.port.wants_close() {
        talk.port.logged(0, LogFlag::Info, &text);
    }
    let waiting = talk.port.transmit().len();
    talk.port.logged(0, LogFlag::Info, &text);
    assert_eq!(talk.port.transmit().len(), waiting);
}

proptest! {
    #[test]
    fn no_peer_does_harm(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..1500),
                "(client-auth|password|state|kill|hold|END|version|\"|'|\\\\|[0-9]+| |\n){0,30}"
                    .prop_map(String::into_bytes),
            ],
            0..20,
        ),
        is_server: bool,
    ) {
        let mut talk = Conversation::new(if is_server { server() } else { settings() });
        talk.port.ask(Query { kind: "Auth".to_owned(), question: QueryKind::Password });
        for piece in pieces {
            talk.port.receive(&piece);
            talk.port.handle_lines(talk.now, &mut Daemon::default());
            let _ = talk.heard();
        }
        let _ = talk.port.wants_close();
    }
}
