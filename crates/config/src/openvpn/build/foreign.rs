//! Restricts a profile's access to files of this machine: `millrace up` runs as root, and a path in a profile may
//! name any file.
//!
//! Keys and certificates are exempt; see [`crate::permissions`].

use super::value::at;
use crate::file;
use crate::openvpn::directive::{Directive, is_foreign};
use std::net::IpAddr;
use std::path::Path;

/// The treatment of a directive that names a restricted file.
pub(super) enum Restriction {
    /// The directive is ignored: the tunnel is the same without it.
    PassedOver(&'static str),
    /// The directive is refused.
    Denied(&'static str),
    /// The directive is refused, and with it the profile.
    Needed(&'static str),
    /// The directive is refused, and this one applies instead.
    Instead(Directive, &'static str),
}

const LOG: &str = "not written: a profile names no file for root to write, unless --allow-files is \
    given; the log goes to standard error";

const WRITTEN: &str =
    "not written: a profile names no file for root to write, unless --allow-files is given";

const SOCKET: &str = "a profile makes no socket as root unless --allow-files is given; or write \
    `management 127.0.0.1 PORT NAME.management`";

const OPEN: &str = "those who reach this address could command the tunnel, which runs as root; permit it with \
    --allow-files, or write `management 127.0.0.1 PORT NAME.management`";

const NO_PASSWORD: &str = "every program of this machine could command the tunnel, which runs as root; put a password into a file \
    that only its owner can read, call it as the profile with the ending .management, and name it behind the port, or permit it with --allow-files";

const CALLS: &str = "the profile would have this machine call its management client, and take commands; permit it \
    with --allow-files";

const SENT: &str = "two lines of a file of this machine would be sent to the other end, and the \
    profile says of which file; permit it with --allow-files, put them into the profile as \
    `<auth-user-pass>`, call the file as the profile with the ending .password, or name no file and be asked";

const READ: &str = "its lines may say which server is trusted, so the profile is not used without them: put them into the \
    profile, or have the file read with --allow-files";

const CERTIFICATES: &str = "the certificates of a file of this machine would be sent to the other end, and the profile says of \
    which file; permit it with --allow-files, or put them into the profile as `<extra-certs>`";

const PIPE: &str = "a pipe of this process, which a profile does not read unless --allow-files is given; name a file";

const SENT_TO_PROXY: &str = "two lines of a file of this machine would be sent to the proxy, and \
    the profile says of which file; permit it with --allow-files, or name no file and be asked";

/// The restriction on a directive; `None` if it names no restricted file. `is_own` tells whether a password file is
/// the profile's own, `is_known` whether users other than its owner can read it.
pub(super) fn restriction(
    directive: &Directive,
    is_own: &dyn Fn(&str) -> bool,
    is_known: &dyn Fn(&str) -> bool,
) -> Option<Restriction> {
    let instead = |keep: usize, rest: &[&str], reason| {
        let mut changed = directive.clone();
        changed.values.truncate(keep);
        changed.values.extend(rest.iter().map(|&it| it.to_owned()));
        Some(Restriction::Instead(changed, reason))
    };
    let names_file = |index: usize| directive.get(index).is_some_and(|it| it != "stdin");
    let is_pipe = |value: &String| file::is_handed_over(Path::new(value));
    if directive.values.iter().any(is_pipe) {
        return Some(Restriction::Denied(PIPE));
    }
    match directive.name.as_str() {
        "log" | "log-append" => Some(Restriction::PassedOver(LOG)),
        "status" | "writepid" | "ifconfig-pool-persist" => Some(Restriction::PassedOver(WRITTEN)),
        "config" if is_foreign(&directive.origin) => Some(Restriction::Needed(READ)),
        "auth-user-pass" if is_own(at(directive, 0)) => None,
        "management" if at(directive, 1) == "unix" => Some(Restriction::Denied(SOCKET)),
        "management" if !is_loopback(at(directive, 0)) => Some(Restriction::Denied(OPEN)),
        "management" if at(directive, 2) == "stdin" => None,
        // The first line of another file may be public: every OpenSSH key begins alike.
        "management" if !is_own(at(directive, 2)) || is_known(at(directive, 2)) => {
            Some(Restriction::Denied(NO_PASSWORD))
        }
        "management-client" => Some(Restriction::Denied(CALLS)),
        "extra-certs" if directive.inline.is_none() => Some(Restriction::Denied(CERTIFICATES)),
        "auth-user-pass" if directive.inline.is_none() && names_file(0) => instead(0, &[], SENT),
        "http-proxy-user-pass" if directive.inline.is_none() && names_file(0) => {
            instead(0, &[], SENT_TO_PROXY)
        }
        "http-proxy" if names_file(2) && !matches!(at(directive, 2), "auto" | "auto-nct") => {
            let mut method = vec!["stdin"];
            method.extend(directive.get(3));
            instead(2, &method, SENT_TO_PROXY)
        }
        "socks-proxy" if names_file(2) => instead(2, &["stdin"], SENT_TO_PROXY),
        _ => None,
    }
}

/// Whether a host is this machine's loopback.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|it: IpAddr| it.is_loopback())
}
