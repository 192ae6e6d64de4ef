//! Client side of SOCKS 5 (RFC 1928, RFC 1929), without I/O.
//!
//! The lengths of the proxy's answers are known in advance. The caller learns how many bytes to read, and never reads
//! bytes of the connection that follows.

use std::net::IpAddr;

use thiserror::Error;
use zeroize::Zeroizing;

use super::dial::ProxyLogin;
use super::resolve::literal;

const VERSION: u8 = 5;
const LOGIN_VERSION: u8 = 1;
const NO_AUTHENTICATION: u8 = 0;
const NAME_AND_PASSWORD: u8 = 2;
const NONE_ACCEPTABLE: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Longest name, user name and password, in bytes.
const FIELD_MAX: usize = 255;

/// Error of a SOCKS proxy.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SocksError {
    /// The answer is not SOCKS 5.
    #[error("its answer is not SOCKS 5; is this the proxy's port?")]
    NotSocks,
    /// The proxy wants a login or another method.
    #[error("it requires a user name and password; give socks-proxy a file with them")]
    NoLogin,
    /// The proxy rejected the name and password.
    #[error("it rejects the user name and password")]
    BadLogin,
    /// A name or password is too long.
    #[error("the server's name, the user name and the password may each have at most 255 bytes")]
    TooLong,
    /// The proxy refused or failed to connect.
    #[error("it cannot connect to the server: {0}")]
    Refused(&'static str),
}

/// The caller's next step.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Progress {
    /// Read this many bytes.
    Read(usize),
    /// Send these bytes, then read this many.
    Send(Zeroizing<Vec<u8>>, usize),
    /// The connection is open.
    Done,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Method,
    Login,
    Head,
    Rest,
}

/// Conversation with a proxy about one connection.
#[derive(Debug)]
pub(crate) struct Socks<'a> {
    host: &'a str,
    port: u16,
    login: Option<&'a ProxyLogin>,
    state: State,
}

impl<'a> Socks<'a> {
    /// Begins a conversation about a TCP connection to `host`, which the proxy resolves if it is a name.
    pub(crate) fn new(
        host: &'a str,
        port: u16,
        login: Option<&'a ProxyLogin>,
    ) -> Result<Self, SocksError> {
        let fits = |text: &str| text.len() <= FIELD_MAX;
        let login_fits = login.is_none_or(|it| fits(&it.name) && fits(&it.password));
        if !fits(host) || host.is_empty() || !login_fits {
            return Err(SocksError::TooLong);
        }
        Ok(Self {
            host,
            port,
            login,
            state: State::Method,
        })
    }

    /// Returns the first bytes to send, and how many to read after them.
    pub(crate) fn begin(&self) -> Progress {
        let methods: &[u8] = match self.login {
            Some(_) => &[VERSION, 2, NO_AUTHENTICATION, NAME_AND_PASSWORD],
            None => &[VERSION, 1, NO_AUTHENTICATION],
        };
        Progress::Send(Zeroizing::new(methods.to_vec()), 2)
    }

    /// Takes exactly the requested number of bytes.
    pub(crate) fn feed(&mut self, input: &[u8]) -> Result<Progress, SocksError> {
        match (self.state, input) {
            (State::Method, &[VERSION, NO_AUTHENTICATION]) => Ok(self.connect()),
            (State::Method, &[VERSION, NAME_AND_PASSWORD]) => {
                let login = self.login.ok_or(SocksError::NoLogin)?;
                self.state = State::Login;
                let mut bytes = Zeroizing::new(Vec::with_capacity(3 + 2 * FIELD_MAX));
                bytes.push(LOGIN_VERSION);
                for field in [login.name.as_str(), &login.password] {
                    // `Socks::new` checked the lengths.
                    bytes.push(field.len() as u8);
                    bytes.extend_from_slice(field.as_bytes());
                }
                Ok(Progress::Send(bytes, 2))
            }
            (State::Method, &[VERSION, NONE_ACCEPTABLE]) if self.login.is_none() => {
                Err(SocksError::NoLogin)
            }
            (State::Method, &[VERSION, NONE_ACCEPTABLE]) => Err(SocksError::BadLogin),
            (State::Login, &[LOGIN_VERSION, 0]) => Ok(self.connect()),
            (State::Login, &[LOGIN_VERSION, _]) => Err(SocksError::BadLogin),
            (State::Head, &[VERSION, 0, _, kind, first]) => {
                // Of the proxy's own address, only the length matters.
                let rest = match kind {
                    IPV4 => 3 + 2,
                    IPV6 => 15 + 2,
                    NAME => usize::from(first) + 2,
                    _ => return Err(SocksError::NotSocks),
                };
                self.state = State::Rest;
                Ok(Progress::Read(rest))
            }
            (State::Head, &[VERSION, code, ..]) => Err(SocksError::Refused(reason(code))),
            (State::Rest, _) => Ok(Progress::Done),
            _ => Err(SocksError::NotSocks),
        }
    }

    fn connect(&mut self) -> Progress {
        self.state = State::Head;
        let mut bytes = vec![VERSION, CONNECT, 0];
        match literal(self.host) {
            Some(IpAddr::V4(ip)) => {
                bytes.push(IPV4);
                bytes.extend_from_slice(&ip.octets());
            }
            Some(IpAddr::V6(ip)) => {
                bytes.push(IPV6);
                bytes.extend_from_slice(&ip.octets());
            }
            None => {
                bytes.extend_from_slice(&[NAME, self.host.len() as u8]);
                bytes.extend_from_slice(self.host.as_bytes());
            }
        }
        bytes.extend_from_slice(&self.port.to_be_bytes());
        Progress::Send(Zeroizing::new(bytes), 5)
    }
}

fn reason(code: u8) -> &'static str {
    match code {
        1 => "general failure",
        2 => "forbidden by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "it took too long",
        7 => "it does not support CONNECT",
        8 => "it does not support this kind of address",
        _ => "for an unknown reason",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(bytes: &[u8], then: usize) -> Result<Progress, SocksError> {
        Ok(Progress::Send(Zeroizing::new(bytes.to_vec()), then))
    }

    #[test]
    fn a_name_is_left_to_the_proxy() {
        let mut socks = Socks::new("vpn.example", 1194, None).unwrap();
        assert_eq!(Ok(socks.begin()), send(&[5, 1, 0], 2));
        let expected = [&[5, 1, 0, 3, 11][..], b"vpn.example", &[4, 170]].concat();
        assert_eq!(socks.feed(&[5, 0]), send(&expected, 5));
        assert_eq!(socks.feed(&[5, 0, 0, 1, 10]), Ok(Progress::Read(5)));
        assert_eq!(socks.feed(&[0, 0, 1, 4, 56]), Ok(Progress::Done));
    }

    #[test]
    fn the_password_is_shown_when_it_is_wanted() {
        let login = ProxyLogin {
            name: "me".to_owned(),
            password: Zeroizing::new("pw".to_owned()),
        };
        let mut socks = Socks::new("192.0.2.1", 443, Some(&login)).unwrap();
        assert_eq!(Ok(socks.begin()), send(&[5, 2, 0, 2], 2));
        assert_eq!(socks.feed(&[5, 2]), send(b"\x01\x02me\x02pw", 2));
        let expected = [5, 1, 0, 1, 192, 0, 2, 1, 1, 187];
        assert_eq!(socks.feed(&[1, 0]), send(&expected, 5));
        let mut socks = Socks::new("192.0.2.1", 443, Some(&login)).unwrap();
        socks.feed(&[5, 2]).unwrap();
        assert_eq!(socks.feed(&[1, 1]), Err(SocksError::BadLogin));
    }

    #[test]
    fn answers_of_every_kind_are_read_to_their_end() {
        for (kind, first, rest) in [(1, 0, 5), (4, 0, 17), (3, 9, 11)] {
            let mut socks = Socks::new("2001:db8::1", 1, None).unwrap();
            socks.feed(&[5, 0]).unwrap();
            let progress = socks.feed(&[5, 0, 0, kind, first]);
            assert_eq!(progress, Ok(Progress::Read(rest)));
        }
    }

    #[test]
    fn strangers_and_refusals_are_told_apart() {
        let feed = |bytes: &[u8]| Socks::new("a", 1, None).unwrap().feed(bytes);
        assert_eq!(feed(b"HT"), Err(SocksError::NotSocks));
        assert_eq!(feed(&[5, 0xff]), Err(SocksError::NoLogin));
        assert_eq!(feed(&[5, 2]), Err(SocksError::NoLogin));
        assert_eq!(feed(&[]), Err(SocksError::NotSocks));
        let mut socks = Socks::new("a", 1, None).unwrap();
        socks.feed(&[5, 0]).unwrap();
        let refused = socks.feed(&[5, 5, 0, 1, 0]);
        assert_eq!(refused, Err(SocksError::Refused("connection refused")));
        let long = "a".repeat(256);
        assert_eq!(Socks::new(&long, 1, None).unwrap_err(), SocksError::TooLong);
    }
}
