//! The cross-platform userspace protocol: what `wg` says to a userspace WireGuard over its
//! UNIX socket, as defined at <https://www.wireguard.com/xplatform/>.
//!
//! A connection carries requests, each a run of `key=value` lines that an empty line ends:
//! `get=1`, answered with [`write_get`], or `set=1` and settings, answered with
//! [`write_errno`]. [`Requests`] reads them with bounded memory.

use std::io::{self, Read, Write};

use thiserror::Error;
use zeroize::Zeroizing;

use crate::types::{AllowedIp, Endpoint, Host, Key32, decimal};

/// Longest line that is read, in bytes. The longest that `wg` writes is `preshared_key=` and
/// 64 digits.
pub const LINE_MAX: usize = 256;

/// Most peers in one request.
pub const PEERS_MAX: usize = 1 << 16;

/// Most allowed-ips lines in one request, over all peers.
pub const ALLOWED_IPS_MAX: usize = 1 << 20;

const EIO: i32 = 5;
const E2BIG: i32 = 7;
const EINVAL: i32 = 22;
const EPROTO: i32 = 71;

/// What a client asked for.
#[derive(Debug)]
pub enum Request {
    /// `get=1`: tell everything, with [`write_get`].
    Get,
    /// `set=1`: apply the settings, then answer with [`write_errno`].
    Set(SetDevice),
}

/// The settings of one `set=1` request. `None` and empty leave a thing as it is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SetDevice {
    /// The interface's private key; the all-zero key removes it.
    pub private_key: Option<Key32>,
    /// UDP port to listen on; 0 lets the kernel choose one.
    pub listen_port: Option<u16>,
    /// Mark of outgoing datagrams; 0 is none.
    pub fwmark: Option<u32>,
    /// All existing peers go before `peers` are applied.
    pub replace_peers: bool,
    /// Changes to peers, to be applied in this order; a key may come more than once.
    pub peers: Vec<SetPeer>,
}

/// The settings of one peer in a [`SetDevice`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SetPeer {
    /// Who it is. The peer is made if it does not exist.
    pub public_key: Key32,
    /// The peer goes; everything else is to be ignored.
    pub remove: bool,
    /// Nothing is done unless the peer exists already.
    pub update_only: bool,
    /// Preshared key; the all-zero key removes it.
    pub preshared_key: Option<Key32>,
    /// Where the peer is; never a [`Host::Name`].
    pub endpoint: Option<Endpoint>,
    /// Seconds between keepalives; 0 switches them off.
    pub persistent_keepalive: Option<u16>,
    /// All its ranges go before `allowed_ips` are applied.
    pub replace_allowed_ips: bool,
    /// Changes to its ranges, to be applied in this order.
    pub allowed_ips: Vec<AllowedIpChange>,
}

/// One `allowed_ip` line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AllowedIpChange {
    /// The range becomes this peer's, whoever had it.
    Add(AllowedIp),
    /// The range goes if it is this peer's (`allowed_ip=-10.0.0.0/8`).
    Remove(AllowedIp),
}

/// Why a request was refused. The text never repeats a value: it may be a secret.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("line {line} of the request: {message}")]
pub struct UapiError {
    /// The error number to answer with, positive as in `errno.h`.
    pub errno: i32,
    /// Line of the request, counted from 1 for its first.
    pub line: usize,
    /// What was wrong.
    pub message: String,
}

/// Collects the lines of one `set=1` request. Nothing is applied before the whole is known to
/// be right, so that a mistake in the last line leaves the interface as it was.
#[derive(Debug, Default)]
pub struct SetParser {
    device: SetDevice,
    line: usize,
    allowed_ips: usize,
}

impl SetParser {
    /// Takes one line, without its line feed. Not for the empty line that ends the request.
    ///
    /// # Errors
    /// [`UapiError`] with `EPROTO` when it is no `key=value`, `E2BIG` above the limits, and
    /// `EINVAL` for every other fault. The parser is of no use after one.
    pub fn line(&mut self, line: &str) -> Result<(), UapiError> {
        self.line += 1;
        let Some((key, value)) = line.split_once('=') else {
            return Err(self.error(EPROTO, "not of the form key=value".to_owned()));
        };
        if key == "public_key" {
            return self.add_peer(value);
        }
        let known = match self.device.peers.last_mut() {
            None => device_line(&mut self.device, key, value),
            Some(peer) => {
                if key == "allowed_ip" {
                    self.allowed_ips += 1;
                }
                peer_line(peer, key, value)
            }
        };
        known.map_err(|why| self.error(EINVAL, why))?;
        if self.allowed_ips > ALLOWED_IPS_MAX {
            let why = format!("more than {ALLOWED_IPS_MAX} allowed-ips in one request");
            return Err(self.error(E2BIG, why));
        }
        Ok(())
    }

    /// The settings that the lines add up to.
    #[must_use]
    pub fn finish(self) -> SetDevice {
        self.device
    }

    fn add_peer(&mut self, value: &str) -> Result<(), UapiError> {
        if self.device.peers.len() == PEERS_MAX {
            let why = format!("more than {PEERS_MAX} peers in one request");
            return Err(self.error(E2BIG, why));
        }
        let public_key = Key32::from_hex(value)
            .map_err(|why| self.error(EINVAL, format!("public_key: {why}")))?;
        self.device.peers.push(SetPeer {
            public_key,
            ..SetPeer::default()
        });
        Ok(())
    }

    const fn error(&self, errno: i32, message: String) -> UapiError {
        UapiError {
            errno,
            line: self.line,
            message,
        }
    }
}

/// Reads the lines of a `set=1` request, up to an empty line or the end.
///
/// # Errors
/// As [`SetParser::line`], for the first line that is wrong.
pub fn parse_set<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<SetDevice, UapiError> {
    let mut parser = SetParser::default();
    for line in lines.into_iter().take_while(|line| !line.is_empty()) {
        parser.line(line)?;
    }
    Ok(parser.finish())
}

fn device_line(device: &mut SetDevice, key: &str, value: &str) -> Result<(), String> {
    match key {
        "private_key" => device.private_key = Some(hex_key(key, value)?),
        "listen_port" => device.listen_port = Some(number(key, value)?),
        "fwmark" => device.fwmark = Some(number(key, value)?),
        "replace_peers" => device.replace_peers = only_true(key, value)?,
        "protocol_version" => version(value)?,
        _ => return Err(unknown_key(key, "interface")),
    }
    Ok(())
}

fn peer_line(peer: &mut SetPeer, key: &str, value: &str) -> Result<(), String> {
    match key {
        "remove" => peer.remove = only_true(key, value)?,
        "update_only" => peer.update_only = only_true(key, value)?,
        "preshared_key" => peer.preshared_key = Some(hex_key(key, value)?),
        "endpoint" => {
            let endpoint: Endpoint = value.parse().map_err(|why| format!("{key}: {why}"))?;
            if matches!(endpoint.host, Host::Name(_)) {
                return Err(format!("{key}: must be an address, not a name"));
            }
            peer.endpoint = Some(endpoint);
        }
        "persistent_keepalive_interval" => peer.persistent_keepalive = Some(number(key, value)?),
        "replace_allowed_ips" => {
            peer.replace_allowed_ips = only_true(key, value)?;
            // It replaces what came before it, in this message too.
            peer.allowed_ips.clear();
        }
        "allowed_ip" => {
            let (range, removed) = match value.strip_prefix('-') {
                Some(range) => (range, true),
                None => (value, false),
            };
            if !range.contains('/') {
                return Err(format!("{key}: the prefix length is missing"));
            }
            let range: AllowedIp = range.parse().map_err(|why| format!("{key}: {why}"))?;
            peer.allowed_ips.push(if removed {
                AllowedIpChange::Remove(range)
            } else {
                AllowedIpChange::Add(range)
            });
        }
        "protocol_version" => version(value)?,
        _ => return Err(unknown_key(key, "peer")),
    }
    Ok(())
}

fn hex_key(key: &str, value: &str) -> Result<Key32, String> {
    Key32::from_hex(value).map_err(|why| format!("{key}: {why}"))
}

fn number<N: TryFrom<u64>>(key: &str, value: &str) -> Result<N, String> {
    decimal(value)
        .and_then(|n| N::try_from(n).ok())
        .ok_or_else(|| format!("{key}: not a decimal number in its range"))
}

fn only_true(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        _ => Err(format!("{key}: its only value is true")),
    }
}

fn version(value: &str) -> Result<(), String> {
    match value {
        "1" => Ok(()),
        _ => Err("protocol_version: only 1 is known".to_owned()),
    }
}

fn unknown_key(key: &str, place: &str) -> String {
    let shown: String = key.chars().take(32).collect();
    format!("unknown {place} key `{}`", shown.escape_debug())
}

/// The requests of one connection.
///
/// The buffer is of fixed size and overwritten when dropped: private keys pass through it.
#[derive(Debug)]
pub struct Requests<R> {
    source: R,
    buffer: Zeroizing<Vec<u8>>,
    start: usize,
    end: usize,
}

/// What [`Requests::line`] found.
enum Line<'a> {
    Text(&'a str),
    NotText,
    TooLong,
    End,
}

impl<R: Read> Requests<R> {
    /// Reads from `source`, which needs no buffer of its own. It should have a read time limit.
    pub fn new(source: R) -> Self {
        Self {
            source,
            buffer: Zeroizing::new(vec![0; 4 * LINE_MAX]),
            start: 0,
            end: 0,
        }
    }

    /// The next request, `None` at the end of the connection.
    ///
    /// After an error in a request its lines have been read to the end, so that the answer
    /// reaches a client that is still writing, and the next request can follow.
    ///
    /// # Errors
    /// The outer error is the connection's and ends it. The inner one is the client's fault, to
    /// be answered with [`write_errno`]; after one with [`UapiError::errno`] `EPROTO` at line 1
    /// the connection should be closed, as nobody knows where the next request begins.
    pub fn next_request(&mut self) -> io::Result<Option<Result<Request, UapiError>>> {
        let operation = match self.line()? {
            Line::End => return Ok(None),
            Line::Text("get=1") => Some(false),
            Line::Text("set=1") => Some(true),
            _ => None,
        };
        let Some(set) = operation else {
            return Ok(Some(Err(UapiError {
                errno: EPROTO,
                line: 1,
                message: "a request begins with get=1 or set=1".to_owned(),
            })));
        };
        let mut parser = SetParser {
            line: 1,
            ..SetParser::default()
        };
        let mut fault = None;
        loop {
            let outcome = match self.line()? {
                Line::Text("") => break,
                // `wg` always writes the empty line; without it the request may be half of one.
                Line::End => {
                    let why = "the connection ended within the request".to_owned();
                    fault.get_or_insert_with(|| parser.error(EIO, why));
                    break;
                }
                _ if fault.is_some() => continue,
                Line::Text(_) if !set => {
                    parser.line += 1;
                    Err(parser.error(EINVAL, "nothing may follow get=1".to_owned()))
                }
                Line::Text(line) => parser.line(line),
                Line::TooLong => {
                    parser.line += 1;
                    Err(parser.error(EINVAL, format!("longer than {LINE_MAX} bytes")))
                }
                Line::NotText => {
                    parser.line += 1;
                    Err(parser.error(EINVAL, "not UTF-8".to_owned()))
                }
            };
            fault = outcome.err();
        }
        Ok(Some(match fault {
            Some(fault) => Err(fault),
            None if set => Ok(Request::Set(parser.finish())),
            None => Ok(Request::Get),
        }))
    }

    /// The next line without its line feed. A longer one than [`LINE_MAX`] is skipped to its end.
    fn line(&mut self) -> io::Result<Line<'_>> {
        let mut too_long = false;
        loop {
            let held = &self.buffer[self.start..self.end];
            if let Some(length) = held.iter().position(|&byte| byte == b'\n') {
                let line = self.start..self.start + length;
                self.start += length + 1;
                if too_long || line.len() > LINE_MAX {
                    return Ok(Line::TooLong);
                }
                return Ok(match std::str::from_utf8(&self.buffer[line]) {
                    Ok(text) => Line::Text(text),
                    Err(_) => Line::NotText,
                });
            }
            if held.len() > LINE_MAX {
                too_long = true;
                self.start = self.end;
            }
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            // There is room: at most LINE_MAX bytes are held, a quarter of the buffer.
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(Line::End),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The interface's own part of the answer to `get=1`.
#[derive(Clone, Debug, Default)]
pub struct DeviceState {
    /// Private key, if one is set.
    pub private_key: Option<Key32>,
    /// UDP port that is listened on; 0 while there is none.
    pub listen_port: u16,
    /// Mark of outgoing datagrams; 0 is none.
    pub fwmark: u32,
}

/// One peer's part of the answer to `get=1`.
#[derive(Clone, Debug, Default)]
pub struct PeerState {
    /// Who it is.
    pub public_key: Key32,
    /// Preshared key, if one is set.
    pub preshared_key: Option<Key32>,
    /// Where it is, if known; never a [`Host::Name`].
    pub endpoint: Option<Endpoint>,
    /// Seconds (since 1970) and nanoseconds of the last handshake; zeros when there was none.
    pub last_handshake: (u64, u32),
    /// Bytes of authenticated datagrams received.
    pub rx_bytes: u64,
    /// Bytes of datagrams sent.
    pub tx_bytes: u64,
    /// Seconds between keepalives; 0 when they are off.
    pub persistent_keepalive: u16,
    /// Its ranges.
    pub allowed_ips: Vec<AllowedIp>,
}

/// Writes the whole answer to `get=1`, `errno=0` and the empty line included.
///
/// The peers come from an iterator, so that nobody has to hold the text or the state of
/// thousands at once; `out` should be buffered.
///
/// # Errors
/// Those of `out`.
pub fn write_get(
    out: &mut impl Write,
    device: &DeviceState,
    peers: impl IntoIterator<Item = PeerState>,
) -> io::Result<()> {
    if let Some(key) = &device.private_key {
        writeln!(out, "private_key={}", key.to_hex().as_str())?;
    }
    if device.listen_port != 0 {
        writeln!(out, "listen_port={}", device.listen_port)?;
    }
    if device.fwmark != 0 {
        writeln!(out, "fwmark={}", device.fwmark)?;
    }
    for peer in peers {
        write_peer(out, &peer)?;
    }
    write_errno(out, 0)
}

fn write_peer(out: &mut impl Write, peer: &PeerState) -> io::Result<()> {
    writeln!(out, "public_key={}", peer.public_key.to_hex().as_str())?;
    let preshared = peer.preshared_key.clone().unwrap_or_default();
    writeln!(out, "preshared_key={}", preshared.to_hex().as_str())?;
    writeln!(out, "protocol_version=1")?;
    if let Some(endpoint) = &peer.endpoint {
        writeln!(out, "endpoint={endpoint}")?;
    }
    writeln!(out, "last_handshake_time_sec={}", peer.last_handshake.0)?;
    writeln!(out, "last_handshake_time_nsec={}", peer.last_handshake.1)?;
    writeln!(out, "tx_bytes={}", peer.tx_bytes)?;
    writeln!(out, "rx_bytes={}", peer.rx_bytes)?;
    let keepalive = peer.persistent_keepalive;
    writeln!(out, "persistent_keepalive_interval={keepalive}")?;
    for range in &peer.allowed_ips {
        writeln!(out, "allowed_ip={range}")?;
    }
    Ok(())
}

/// Writes the end of an answer: `errno=` and the empty line. `errno` is positive as in
/// `errno.h`, or 0; on the wire it is negated, which is what `wg` expects after a `set=1`.
///
/// # Errors
/// Those of `out`.
pub fn write_errno(out: &mut impl Write, errno: i32) -> io::Result<()> {
    write!(out, "errno={}\n\n", -i64::from(errno))
}

/// Writes the request that `device` was, or would have been, parsed from.
///
/// # Errors
/// Those of `out`.
pub fn write_set(out: &mut impl Write, device: &SetDevice) -> io::Result<()> {
    writeln!(out, "set=1")?;
    if let Some(key) = &device.private_key {
        writeln!(out, "private_key={}", key.to_hex().as_str())?;
    }
    if let Some(port) = device.listen_port {
        writeln!(out, "listen_port={port}")?;
    }
    if let Some(mark) = device.fwmark {
        writeln!(out, "fwmark={mark}")?;
    }
    if device.replace_peers {
        writeln!(out, "replace_peers=true")?;
    }
    for peer in &device.peers {
        write_set_peer(out, peer)?;
    }
    writeln!(out)
}

fn write_set_peer(out: &mut impl Write, peer: &SetPeer) -> io::Result<()> {
    writeln!(out, "public_key={}", peer.public_key.to_hex().as_str())?;
    if peer.remove {
        writeln!(out, "remove=true")?;
    }
    if peer.update_only {
        writeln!(out, "update_only=true")?;
    }
    if let Some(key) = &peer.preshared_key {
        writeln!(out, "preshared_key={}", key.to_hex().as_str())?;
    }
    if let Some(endpoint) = &peer.endpoint {
        writeln!(out, "endpoint={endpoint}")?;
    }
    if let Some(seconds) = peer.persistent_keepalive {
        writeln!(out, "persistent_keepalive_interval={seconds}")?;
    }
    if peer.replace_allowed_ips {
        writeln!(out, "replace_allowed_ips=true")?;
    }
    for change in &peer.allowed_ips {
        match change {
            AllowedIpChange::Add(range) => writeln!(out, "allowed_ip={range}")?,
            AllowedIpChange::Remove(range) => writeln!(out, "allowed_ip=-{range}")?,
        }
    }
    Ok(())
}
