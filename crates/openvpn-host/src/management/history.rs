//! Histories for the commands `state`, `log` and `echo`.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Connection state of a tunnel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// The management port is open and the tunnel is about to begin.
    Connecting,
    /// A TCP connection is being made.
    TcpConnect,
    /// Waits for the server's first answer.
    Wait,
    /// The handshake is in progress.
    Auth,
    /// The user must pass another authentication step.
    AuthPending,
    /// The client requests its options.
    GetConfig,
    /// The interface gets its addresses.
    AssignIp,
    /// Routes are being added.
    AddRoutes,
    /// The tunnel is up.
    Connected,
    /// The tunnel restarts.
    Reconnecting,
    /// The daemon exits.
    Exiting,
}

impl State {
    /// The state's name in the protocol.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "CONNECTING",
            Self::TcpConnect => "TCP_CONNECT",
            Self::Wait => "WAIT",
            Self::Auth => "AUTH",
            Self::AuthPending => "AUTH_PENDING",
            Self::GetConfig => "GET_CONFIG",
            Self::AssignIp => "ASSIGN_IP",
            Self::AddRoutes => "ADD_ROUTES",
            Self::Connected => "CONNECTED",
            Self::Reconnecting => "RECONNECTING",
            Self::Exiting => "EXITING",
        }
    }

    /// Whether a server reports this state; its clients' progress does not count.
    pub(crate) const fn is_of_servers(self) -> bool {
        !matches!(
            self,
            Self::TcpConnect | Self::Wait | Self::Auth | Self::AuthPending | Self::GetConfig
        )
    }
}

/// Inner and outer addresses of a tunnel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Addresses {
    /// This end's IPv4 address in the tunnel.
    pub tunnel: Option<Ipv4Addr>,
    /// This end's IPv6 address in the tunnel.
    pub tunnel_v6: Option<Ipv6Addr>,
    /// Address of the server.
    pub remote: Option<SocketAddr>,
}

/// A change of state in the protocol's format. The field of this end's outer address stays empty.
pub(crate) fn state_entry(at: u64, state: State, detail: &str, addresses: Addresses) -> String {
    let Addresses {
        tunnel,
        tunnel_v6,
        remote,
    } = addresses;
    let tunnel = tunnel.map(|addr| addr.to_string()).unwrap_or_default();
    let tunnel_v6 = tunnel_v6.map(|addr| format!(",{addr}")).unwrap_or_default();
    let remote = remote.map_or_else(
        || ",".to_owned(),
        |addr| format!("{},{}", addr.ip().to_canonical(), addr.port()),
    );
    let state = state.name();
    format!("{at},{state},{detail},{tunnel},{remote},,{tunnel_v6}")
}

/// Severity of a log line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFlag {
    /// `I`: information.
    Info,
    /// `F`: an error that ends the daemon.
    Fatal,
    /// `N`: an error that the daemon survives.
    NonFatal,
    /// `W`: a warning.
    Warning,
    /// `D`: for debugging.
    Debug,
    /// No letter: lines at `verb` 2 to 5.
    Detail,
}

impl LogFlag {
    pub(crate) const fn letter(self) -> &'static str {
        match self {
            Self::Info => "I",
            Self::Fatal => "F",
            Self::NonFatal => "N",
            Self::Warning => "W",
            Self::Debug => "D",
            Self::Detail => "",
        }
    }
}

/// A `state`, `log` or `echo` request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Request {
    /// Switch real-time notifications on or off.
    Realtime(bool),
    /// Show this many of the last entries.
    Last(usize),
    /// Show all entries.
    All,
    /// An unknown request.
    Unknown,
}

impl Request {
    pub(crate) fn new(word: &str) -> Self {
        match word {
            "on" => Self::Realtime(true),
            "off" => Self::Realtime(false),
            "all" => Self::All,
            _ => match super::command::leading_number(word) {
                Some(n) if n > 0 => Self::Last(usize::try_from(n).unwrap_or(usize::MAX)),
                _ => Self::Unknown,
            },
        }
    }
}

/// The last entries of one history, in the protocol's format.
#[derive(Debug)]
pub(crate) struct History {
    /// The command that shows the history.
    name: &'static str,
    entries: VecDeque<String>,
    most: usize,
    /// Send new entries at once.
    pub(crate) realtime: bool,
}

impl History {
    /// Keeps the last `most` entries.
    pub(crate) fn new(name: &'static str, most: usize) -> Self {
        Self {
            name,
            entries: VecDeque::new(),
            most,
            realtime: false,
        }
    }

    /// Adds an entry; a full history drops its oldest. Returns the notification, if the client wants it at once.
    pub(crate) fn add(&mut self, entry: String) -> Option<String> {
        let name = self.name.to_ascii_uppercase();
        let told = self.realtime.then(|| format!(">{name}:{entry}"));
        if self.entries.len() >= self.most {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
        told
    }

    /// Answers a request, line by line.
    pub(crate) fn answer(&mut self, request: Request) -> Vec<String> {
        let name = self.name;
        let count = match request {
            Request::Realtime(on) => {
                self.realtime = on;
                let state = if on { "ON" } else { "OFF" };
                return vec![format!(
                    "SUCCESS: real-time {name} notification set to {state}"
                )];
            }
            Request::Unknown => {
                return vec![format!(
                    "ERROR: {name} parameter must be 'on' or 'off' or some number n or 'all'"
                )];
            }
            Request::All => usize::MAX,
            Request::Last(count) => count,
        };
        let skipped = self.entries.len().saturating_sub(count);
        let entries = self.entries.iter().skip(skipped).cloned();
        entries.chain(["END".to_owned()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_fields_of_stock() {
        let mut addresses = Addresses::default();
        assert_eq!(
            state_entry(1_795_219_592, State::Connecting, "", addresses),
            "1795219592,CONNECTING,,,,,,"
        );
        addresses.tunnel = Some([10, 8, 0, 2].into());
        addresses.remote = Some("192.0.2.1:1194".parse().unwrap());
        assert_eq!(
            state_entry(1_795_219_592, State::Connected, "SUCCESS", addresses),
            "1795219592,CONNECTED,SUCCESS,10.8.0.2,192.0.2.1,1194,,"
        );
        addresses.tunnel_v6 = Some("fd00::2".parse().unwrap());
        assert_eq!(
            state_entry(1_795_219_592, State::Connected, "SUCCESS", addresses),
            "1795219592,CONNECTED,SUCCESS,10.8.0.2,192.0.2.1,1194,,,fd00::2"
        );
    }

    #[test]
    fn a_history_forgets_the_oldest() {
        let mut history = History::new("echo", 2);
        for at in 1..=3 {
            assert_eq!(history.add(format!("{at},x")), None);
        }
        assert_eq!(history.answer(Request::All), ["2,x", "3,x", "END"]);
        assert_eq!(history.answer(Request::Last(1)), ["3,x", "END"]);
        assert_eq!(history.answer(Request::new("9")).len(), 3);
        assert!(history.answer(Request::new("0"))[0].starts_with("ERROR: echo"));
        assert!(history.answer(Request::new("on"))[0].ends_with("echo notification set to ON"));
        assert_eq!(history.add("4,x".to_owned()).unwrap(), ">ECHO:4,x");
    }
}
