//! Restricts a profile's access to files of this machine: `millrace up` runs as root, and a path in a profile may
//! name any file.
//!
//! Keys and certificates are exempt; see [`crate::permissions`].

use std::net::IpAddr;
use std::path::Path;

use super::Entry;
use crate::file;
use crate::openvpn::directive::Directive;
use crate::openvpn::draft::Draft;

/// The treatment of a directive that names a restricted file.
pub(crate) enum Restriction {
    /// The directive is ignored: the tunnel is the same without it.
    PassedOver(&'static str),
    /// The directive is refused.
    Denied(&'static str),
    /// The directive is refused, and with it the profile.
    Needed(&'static str),
    /// The directive is refused, and the given one applies instead.
    Instead(Directive, &'static str),
}

const LOG: &str = "not written: a profile may name files for root to write only with --allow-files; the log goes to \
                   standard error";

const WRITTEN: &str =
    "not written: a profile may name files for root to write only with --allow-files";

const SOCKET: &str = "a profile may make a socket as root only with --allow-files; permit it, or write `management \
                      127.0.0.1 PORT NAME.management`";

const OPEN: &str = "everyone who reaches this address could command the tunnel, which runs as root; permit it with \
                    --allow-files, or write `management 127.0.0.1 PORT NAME.management`";

const NO_PASSWORD: &str = "every program of this machine could command the tunnel, which runs as root; put a password \
                           into a file that only its owner can read, name it after the profile with the ending \
                           .management, and write that name behind the port, or permit it with --allow-files";

const CALLS: &str = "the profile would make this machine connect to a management client, and obey its commands; \
                     permit it with --allow-files";

const SENT: &str = "the profile could send two lines of any file on this machine to the other end; permit it with \
                    --allow-files, put the lines into the profile as `<auth-user-pass>`, name the file after the \
                    profile with the ending .password, or name no file and enter them at the prompt";

const READ: &str = "its lines may decide which server is trusted, so the profile is not used without them; put them \
                    into the profile, or permit the file with --allow-files";

const CERTIFICATES: &str = "the profile could send the certificates in any file on this machine to the other end; \
                            permit it with --allow-files, or put them into the profile as `<extra-certs>`";

const PIPE: &str =
    "a pipe of this process, which a profile may read only with --allow-files; name a file";

const SENT_TO_PROXY: &str = "the profile could send two lines of any file on this machine to the proxy; permit it \
                             with --allow-files, or name no file and enter them at the prompt";

/// The restriction on a directive; `None` if it names no restricted file.
pub(crate) fn restriction(
    directive: &Directive,
    entry: &Entry,
    draft: &Draft,
) -> Option<Restriction> {
    let is_pipe = |value: &String| file::is_handed_over(Path::new(value));
    if directive.values.iter().any(is_pipe) {
        return Some(Restriction::Denied(PIPE));
    }
    entry.foreign?(directive, draft)
}

/// The directive with its first `keep` values and `rest` instead.
fn instead(
    directive: &Directive,
    keep: usize,
    rest: &[&str],
    reason: &'static str,
) -> Option<Restriction> {
    let mut changed = directive.clone();
    changed.values.truncate(keep);
    changed.values.extend(rest.iter().map(|&it| it.to_owned()));
    Some(Restriction::Instead(changed, reason))
}

/// Whether the value at `index` names a file.
fn names_file(directive: &Directive, index: usize) -> bool {
    directive.inline.is_none() && directive.get(index).is_some_and(|it| it != "stdin")
}

pub(super) fn log(_: &Directive, _: &Draft) -> Option<Restriction> {
    Some(Restriction::PassedOver(LOG))
}

pub(super) fn written(_: &Directive, _: &Draft) -> Option<Restriction> {
    Some(Restriction::PassedOver(WRITTEN))
}

pub(super) fn config(directive: &Directive, _: &Draft) -> Option<Restriction> {
    directive
        .origin
        .is_foreign()
        .then_some(Restriction::Needed(READ))
}

pub(super) fn management(directive: &Directive, draft: &Draft) -> Option<Restriction> {
    let path = draft.path(directive.at(2));
    let reason = match directive.at(2) {
        _ if directive.at(1) == "unix" => SOCKET,
        _ if !is_loopback(directive.at(0)) => OPEN,
        "stdin" => return None,
        // The first line of another file may be public: every OpenSSH key begins alike.
        _ if draft.own_management.as_ref() != Some(&path) || file::exposed(&path).is_some() => {
            NO_PASSWORD
        }
        _ => return None,
    };
    Some(Restriction::Denied(reason))
}

pub(super) fn calls(_: &Directive, _: &Draft) -> Option<Restriction> {
    Some(Restriction::Denied(CALLS))
}

pub(super) fn certificates(directive: &Directive, _: &Draft) -> Option<Restriction> {
    let named = directive.inline.is_none();
    named.then_some(Restriction::Denied(CERTIFICATES))
}

pub(super) fn credentials(directive: &Directive, draft: &Draft) -> Option<Restriction> {
    let is_own = draft.own_passwords.contains(&draft.path(directive.at(0)));
    let other = names_file(directive, 0) && !is_own;
    other.then(|| instead(directive, 0, &[], SENT)).flatten()
}

pub(super) fn proxy_credentials(directive: &Directive, _: &Draft) -> Option<Restriction> {
    names_file(directive, 0)
        .then(|| instead(directive, 0, &[], SENT_TO_PROXY))
        .flatten()
}

pub(super) fn http_proxy(directive: &Directive, _: &Draft) -> Option<Restriction> {
    if !names_file(directive, 2) || matches!(directive.at(2), "auto" | "auto-nct") {
        return None;
    }
    let mut method = vec!["stdin"];
    method.extend(directive.get(3));
    instead(directive, 2, &method, SENT_TO_PROXY)
}

pub(super) fn socks_proxy(directive: &Directive, _: &Draft) -> Option<Restriction> {
    names_file(directive, 2)
        .then(|| instead(directive, 2, &["stdin"], SENT_TO_PROXY))
        .flatten()
}

/// Whether a host is this machine's loopback.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|it: IpAddr| it.is_loopback())
}
