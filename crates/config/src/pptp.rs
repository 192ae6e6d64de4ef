//! PPTP clients and servers: a TOML file with `protocol = "pptp"`, as a checked model.
//!
//! ```toml
//! protocol = "pptp"
//! allow-insecure = "pptp"
//! server = "vpn.example"
//! username = "alice"
//! password-file = "office.password"
//! routes = ["10.0.0.0/8"]
//! ```
//!
//! Or the files of pppd and pptpd, see [`ppp`]. One refused line refuses the whole file: a misread option would cost
//! what little protection PPTP has.

mod keys;
pub mod ppp;
mod values;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::error::ImportError;
use crate::file;
use crate::lines::Lines;
use crate::permissions::{ALLOW_FILES, Permissions, own_passwords};
use crate::report::Report;
use crate::text::Text;
use crate::types::{AllowedIp, is_ifname};
use keys::Keys;

/// The port that servers listen on (RFC 2637, section 2).
pub const PORT: u16 = 1723;

/// Shell commands that make OpenWrt's firewall accept GRE from the Internet. By default it rejects a server's packets:
/// its conntrack does not count them as answers.
pub const GRE_RULE: &str = "uci set firewall.millrace_pptp_gre=rule; \
    uci set firewall.millrace_pptp_gre.name=Allow-PPTP-GRE; uci set firewall.millrace_pptp_gre.src=wan; \
    uci set firewall.millrace_pptp_gre.proto=gre; uci set firewall.millrace_pptp_gre.target=ACCEPT; \
    uci commit firewall; service firewall reload";

/// Maximum number of addresses that a server gives to clients.
pub const POOL_MAX: usize = 1024;

/// Largest accepted file, in bytes; real ones have a few hundred.
const FILE_MAX: u64 = 64 * 1024;

/// The warning for a file without `allow-insecure = "pptp"`, up to the remedy.
macro_rules! protects_nothing {
    () => {
        "PPTP protects nothing: whoever records one login can decrypt all traffic of that user, and can change \
         packets. Use WireGuard (`millrace migrate` writes its files), or OpenVPN if the other end has no WireGuard. "
    };
}
const PROTECTS_NOTHING: &str = protects_nothing!();

/// The error for a file without `allow-insecure = "pptp"`.
pub const INSECURE: &str = concat!(
    protects_nothing!(),
    "If it has to be PPTP, write allow-insecure = \"pptp\", and choose a password that you use nowhere else"
);

/// The error for any PPTP file in a program that was built without PPTP.
pub const NOT_BUILT: &str =
    "this program was built without PPTP; use WireGuard, or a build with the feature `pptp`";

/// A checked PPTP file.
#[derive(Clone, Debug)]
pub struct Pptp {
    /// Name of the interface.
    pub interface: String,
    /// Client or server, with its settings.
    pub role: Role,
    /// How packets are encrypted.
    pub mppe: Mppe,
    /// Login methods that are allowed, best first.
    pub auth: Vec<Auth>,
    /// The longest packet in the tunnel, in bytes; `None` lets both ends negotiate it.
    pub mtu: Option<u16>,
    /// Whether packets are put back into order; `None` does so if the encryption needs it.
    pub reorder: Option<bool>,
    /// A client's lines; or how a server answers clients that call over several lines, which is off by default.
    pub lines: Lines,
}

impl Pptp {
    /// Whether the password is in another file.
    #[must_use]
    pub const fn has_password_file(&self) -> bool {
        matches!(
            &self.role,
            Role::Client(Client {
                password: Password::File(_),
                ..
            })
        )
    }
}

/// The end of a tunnel that this host is.
#[derive(Clone, Debug)]
pub enum Role {
    /// Calls the server.
    Client(Client),
    /// Waits for calls.
    Server(Server),
}

/// Settings of a client only.
#[derive(Clone, Debug)]
pub struct Client {
    /// Name or address of the server.
    pub host: String,
    /// The server's TCP port.
    pub port: u16,
    /// The user's name, perhaps with a domain before it (`DOMAIN\user`).
    pub username: String,
    /// The password.
    pub password: Password,
    /// Networks that are routed into the tunnel.
    pub routes: Vec<AllowedIp>,
    /// Whether all of IPv4 is routed into the tunnel.
    pub default_route: bool,
    /// Whether this host uses the name servers that the server gives.
    pub dns: bool,
    /// Whether IPv6, which the tunnel does not carry, is answered with "unreachable".
    pub block_ipv6: bool,
}

/// Where a password is.
#[derive(Clone, Debug)]
pub enum Password {
    /// The password is in this file.
    Given(Zeroizing<String>),
    /// The password is the first line of another file.
    File(PathBuf),
}

/// Settings of a server only.
#[derive(Clone, Debug)]
pub struct Server {
    /// The address and TCP port where clients call.
    pub listen: SocketAddrV4,
    /// The server's address inside the tunnel, and the prefix length of the clients' network.
    pub address: (Ipv4Addr, u8),
    /// Networks that are routed to clients; if empty, the whole network of `address` is.
    pub routes: Vec<AllowedIp>,
    /// Addresses for clients, all within `routes`, or within the network of `address`.
    pub pool: Vec<Ipv4Addr>,
    /// Name servers for clients, two at most.
    pub dns: Vec<Ipv4Addr>,
    /// User names and their passwords.
    pub users: Vec<(String, Zeroizing<String>)>,
}

/// How packets are encrypted. There is no "if possible": an attacker could negotiate it away.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Mppe {
    /// No encryption.
    None,
    /// Encryption is required.
    Required {
        /// Key lengths in bits that may be negotiated: 128, 56, 40.
        bits: Vec<u8>,
        /// How often keys change.
        mode: MppeMode,
    },
}

/// How often MPPE changes its key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MppeMode {
    /// A new key for each packet.
    Stateless,
    /// A new key for each packet, unless the other end insists on stateful mode.
    Either,
    /// Stateful mode, unless the other end insists on a new key for each packet.
    Stateful,
}

/// A login method.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Auth {
    /// MS-CHAP version 2, the only method that provides keys for MPPE.
    MsChapV2,
    /// CHAP with MD5.
    Chap,
    /// PAP: the password in clear text.
    Pap,
}

/// The model and the report of a file.
pub type Import = crate::report::Import<Pptp>;

/// Whether a file is a PPTP file: Millrace's own by its name, pppd's or pptpd's by its content.
pub(crate) fn is_pptp_text(path: &Path, text: &str) -> bool {
    is_toml(path) || ppp::is_options(text)
}

/// Whether a file is one of Millrace's own, by its ending.
fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "toml")
}

/// Files that hold the passwords of a PPTP file: itself, or the secrets files of pppd that `permissions` let it name.
#[must_use]
pub fn secrets_of(path: &Path, permissions: Permissions) -> Vec<PathBuf> {
    match is_toml(path) {
        true => vec![path.to_owned()],
        false => {
            let bytes = file::read(path, FILE_MAX).unwrap_or_default();
            ppp::secrets_of(path, &bytes, ppp::reader(path, permissions))
        }
    }
}

/// Reads a file; `permissions` limit the other files that it may name.
///
/// # Errors
/// The file cannot be read, or is not text. Faults in its lines are in the report.
pub fn read(path: &Path, permissions: Permissions) -> Result<Import, ImportError> {
    read_bytes(&bytes(path)?, path, permissions)
}

/// Reads `bytes` as [`read`] reads a file; the file at `path` need not exist yet.
///
/// # Errors
/// The errors of [`read`].
pub fn read_bytes(
    bytes: &[u8],
    path: &Path,
    permissions: Permissions,
) -> Result<Import, ImportError> {
    Ok(parse_either(&text(bytes, path)?, path, true, permissions))
}

/// Reads a file of a tunnel that will not be started: insecure settings need no permission, and no password is sent.
///
/// # Errors
/// The errors of [`read`].
pub fn read_to_leave(path: &Path) -> Result<Import, ImportError> {
    let text = text(&bytes(path)?, path)?;
    Ok(parse_either(&text, path, false, Permissions::FILES))
}

/// Parses a file of Millrace's own, or of pppd or pptpd.
fn parse_either(text: &str, path: &Path, starts: bool, permissions: Permissions) -> Import {
    match is_toml(path) {
        true => {
            let own = own_passwords(path);
            parse_with(text, path, starts, &|named: &Path| {
                permissions.files() || own.iter().any(|it| it == named)
            })
        }
        false => ppp::parse(text, path, starts, ppp::reader(path, permissions)),
    }
}

fn bytes(path: &Path) -> Result<Zeroizing<Vec<u8>>, ImportError> {
    file::read(path, FILE_MAX).map_err(ImportError::read(path))
}

/// A file's text, which may hold a password.
fn text(bytes: &[u8], path: &Path) -> Result<Zeroizing<String>, ImportError> {
    exact_text(bytes).map_err(ImportError::not_text(path))
}

/// The text of a file without its byte order mark.
///
/// # Errors
/// The line, counted from 1, of the first byte outside comments that is not UTF-8: the password would be a wrong one.
fn exact_text(bytes: &[u8]) -> Result<Zeroizing<String>, usize> {
    let text = Text::new(bytes)?;
    let is_other = |line: &str| text.is_mended(line) && !line.trim_start().starts_with('#');
    match text.lines().position(is_other) {
        Some(at) => Err(at + 1),
        None => Ok(Zeroizing::new(
            text.trim_start_matches('\u{feff}').to_owned(),
        )),
    }
}

/// Parses the text of a file. `path` is the default for the interface's name, and the base of relative paths.
#[must_use]
pub fn parse(text: &str, path: &Path, permissions: Permissions) -> Import {
    parse_with(text, path, true, &|_| permissions.files())
}

/// Decides whether a file may be the password file.
type MayBeSent<'a> = dyn Fn(&Path) -> bool + 'a;

fn parse_with(text: &str, path: &Path, starts: bool, may_be_sent: &MayBeSent<'_>) -> Import {
    let mut report = Report {
        file: path.display().to_string(),
        ..Report::default()
    };
    let model = match Keys::parse(text, &mut report) {
        Some(keys) => model(keys, path, starts, may_be_sent),
        None => None,
    };
    Import::new(report, model)
}

/// Builds the model from the keys. `None` if a required key is missing.
fn model(
    mut keys: Keys<'_, '_>,
    path: &Path,
    starts: bool,
    may_be_sent: &MayBeSent<'_>,
) -> Option<Pptp> {
    let protocol = keys.string("protocol", |it| match it {
        "pptp" => Ok(()),
        _ => Err(
            "must be \"pptp\" in a .toml file; WireGuard uses .conf files, OpenVPN .ovpn files"
                .to_owned(),
        ),
    });
    if protocol.is_none() {
        if !keys.has("protocol") {
            keys.missing("protocol", "is missing; write protocol = \"pptp\"");
        }
        return None;
    }
    if starts {
        let allowed = keys.string("allow-insecure", |it| match it {
            "pptp" => Ok(()),
            _ => Err(INSECURE.to_owned()),
        });
        if allowed.is_none() && !keys.has("allow-insecure") {
            keys.missing("allow-insecure", INSECURE);
        }
    } else {
        keys.skip("allow-insecure");
    }
    let interface = keys.string("interface", values::interface);
    let mppe = keys.string("mppe", values::mppe);
    let mppe = mppe.unwrap_or_else(values::strongest);
    let auth = keys.string("auth", |it| values::auth(it, &mppe));
    let auth = auth.unwrap_or_else(|| vec![Auth::MsChapV2]);
    if keys.has("listen") && auth.iter().any(|it| *it != Auth::MsChapV2) {
        keys.missing(
            "auth",
            "a server must not ask for readable passwords; write mschapv2",
        );
    }
    let mtu = keys.number("mtu", 576..=1456, "a number of bytes from 576 to 1456");
    let reorder = keys.boolean("reorder");
    let role = match (keys.has("server"), keys.has("listen")) {
        (true, false) => client(&mut keys, path, may_be_sent).map(Role::Client),
        (false, true) => server(&mut keys).map(Role::Server),
        (true, true) => {
            keys.missing(
                "listen",
                "cannot be set together with `server`: `listen` makes this end a server, `server` a client; remove one",
            );
            return None;
        }
        (false, false) => {
            keys.missing(
                "server",
                "is missing; name the server to connect to, or the address to listen on (listen)",
            );
            return None;
        }
    };
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let stem = stem.filter(|stem| is_ifname(stem)).map(str::to_owned);
    let interface = interface.or(stem);
    if interface.is_none() {
        keys.missing(
            "interface",
            "is missing, and the file's name is not a valid interface name; write one of 1 to 15 letters and digits",
        );
    }
    let mut lines = lines(&mut keys, role.as_ref());
    // A server answers over several lines only if the rest of the table says so.
    lines.reorder = false;
    let among_lines = keys.reorder_of_lines();
    if among_lines.is_some() && keys.has("reorder") {
        keys.missing(
            "reorder",
            "is set twice: here and in [uplinks]; set it only here",
        );
    }
    let reorder = reorder.or(among_lines);
    keys.refuse_rest();
    Some(Pptp {
        interface: interface?,
        role: role?,
        mppe,
        auth,
        mtu: mtu.and_then(|mtu| u16::try_from(mtu).ok()),
        reorder,
        lines,
    })
}

/// Reads the lines, and refuses settings that PPTP does not support.
fn lines(keys: &mut Keys<'_, '_>, role: Option<&Role>) -> Lines {
    let (full, called) = match role {
        Some(Role::Client(client)) => (client.default_route, 1),
        Some(Role::Server(_)) | None => (false, 0),
    };
    let lines = keys.lines(full, called);
    let mut refuse = |wrong: bool, key: &str, reason: &str| {
        if wrong {
            keys.missing(key, reason);
        }
    };
    let several = !lines.lines.is_empty();
    let server = matches!(role, Some(Role::Server(_)));
    refuse(
        server && several,
        "uplink",
        "a server has no uplinks of its own, as it answers clients on theirs; remove each uplink, and set the mode in \
         [uplinks]",
    );
    refuse(
        lines.shape,
        "uplinks",
        "PPTP does not support `shape`; remove it",
    );
    let mut all = lines.lines.iter();
    let relayed = all.any(|line| line.relay.is_some());
    refuse(
        relayed,
        "uplink",
        "PPTP does not support `relay`; remove it",
    );
    let mut all = lines.lines.iter();
    let capped = all.any(|line| line.cap.is_some());
    refuse(capped, "uplink", "PPTP does not support `cap`; remove it");
    let mut all = lines.lines.iter();
    let v6 = all.any(|line| line.source.is_some_and(|source| source.is_ipv6()));
    refuse(
        v6,
        "uplink",
        "the source must be an IPv4 address; PPTP has no IPv6",
    );
    lines
}

fn client(keys: &mut Keys<'_, '_>, path: &Path, may_be_sent: &MayBeSent<'_>) -> Option<Client> {
    let server = keys.string("server", values::server);
    let username = keys.string("username", |it| values::filled(it).map(str::to_owned));
    if username.is_none() && !keys.has("username") {
        keys.missing("username", "is missing; name the user to log in as");
    }
    let given = keys.string("password", |it| Ok(Zeroizing::new(it.to_owned())));
    let file = keys.string("password-file", |it| {
        let directory = path.parent().unwrap_or_else(|| Path::new(""));
        let named = directory.join(values::filled(it)?);
        match may_be_sent(&named) {
            true => Ok(named),
            false => Err(sent(path)),
        }
    });
    let password = match (given, file) {
        (Some(given), None) => Some(Password::Given(given)),
        (None, Some(file)) => Some(Password::File(file)),
        (Some(_), Some(_)) => {
            keys.missing(
                "password",
                "is set twice: here and as password-file; remove one",
            );
            None
        }
        // The report already has the fault of either key.
        (None, None) if keys.has("password") || keys.has("password-file") => None,
        (None, None) => {
            keys.missing(
                "password",
                "is missing; write it, or name a file with it on the first line as password-file",
            );
            None
        }
    };
    let routes = keys.strings("routes", values::route).unwrap_or_default();
    let default_route = keys.boolean("default-route").unwrap_or(false);
    let dns = keys.boolean("dns").unwrap_or(false);
    let block_ipv6 = keys.boolean("block-ipv6").unwrap_or(false);
    let (host, port) = server?;
    Some(Client {
        host,
        port,
        username: username?,
        password: password?,
        routes,
        default_route,
        dns,
        block_ipv6,
    })
}

/// The error for a `password-file` that the tunnel's file may not name without permission.
fn sent(path: &Path) -> String {
    let own = path.with_extension("password");
    let own = own.file_name().unwrap_or_default().to_string_lossy();
    format!(
        "the tunnel would send that file's first line to the server; name the file {own}, beside this one, or \
         {ALLOW_FILES}"
    )
}

fn server(keys: &mut Keys<'_, '_>) -> Option<Server> {
    let listen = keys.string("listen", values::listen);
    let address = keys.string("address", values::network);
    if address.is_none() && !keys.has("address") {
        keys.missing(
            "address",
            "is missing; write the server's address inside the tunnel and its network: 10.0.0.1/24",
        );
    }
    let pool = match address {
        Some(address) if keys.has("pool") => keys.string("pool", |it| values::pool(it, address)),
        Some(address) => Some(values::others(address)),
        None => {
            // The pool can be judged only with an address, which is missing.
            keys.skip("pool");
            None
        }
    };
    let dns = keys.strings("dns", values::ipv4).unwrap_or_default();
    if dns.len() > 2 {
        keys.missing("dns", "PPTP can send at most two name servers to a client");
    }
    let users = keys.users();
    Some(Server {
        listen: listen?,
        address: address?,
        routes: Vec::new(),
        pool: pool?,
        dns,
        users: users?,
    })
}

#[cfg(test)]
mod tests;
