//! Directives about scripts.

use super::value::{OK, Outcome, note, on, one_of, seconds, set, word};
use super::{DECIDING, End, Entry, LIST, WEAKENING, flag, no, path, script, yes};
use crate::openvpn::ScriptSecurity;
use crate::openvpn::directive::Directive;
use crate::openvpn::draft::Draft;

pub(super) const ROWS: &[Entry] = &[
    yes("script-security", 1, 2, security).is(WEAKENING),
    script("up", |scripts| &mut scripts.up),
    yes("up-delay", 0, 0, |_, _| {
        note("always the case: the interface is set up once the server has answered")
    })
    .end(End::Client("is for clients; remove the line")),
    flag("up-restart", |d| &mut d.scripts.up_restart),
    script("down", |scripts| &mut scripts.down),
    flag("down-pre", |d| &mut d.scripts.down_pre),
    script("route-up", |scripts| &mut scripts.route_up),
    script("route-pre-down", |scripts| &mut scripts.route_pre_down),
    script("ipchange", |scripts| &mut scripts.ipchange)
        .end(End::Client("is for clients; a server has `client-connect`")),
    script("tls-verify", |scripts| &mut scripts.tls_verify).is(DECIDING),
    script("client-connect", |scripts| &mut scripts.client_connect)
        .end(End::Server).is(DECIDING),
    script("client-disconnect", |scripts| {
        &mut scripts.client_disconnect
    })
    .end(End::Server),
    script("learn-address", |scripts| &mut scripts.learn_address)
        .end(End::Server).is(DECIDING)
        .noting(
            "runs, but cannot refuse an address by failing, unlike in the original OpenVPN; use `client-connect` to \
             refuse a client",
        ),
    script("auth-user-pass-verify", |scripts| {
        &mut scripts.auth_user_pass_verify
    })
    .values(2, 2)
    .end(End::Server).is(DECIDING),
    script("client-crresponse", |scripts| {
        &mut scripts.client_crresponse
    })
    .end(End::Server).is(DECIDING),
    script("tls-crypt-v2-verify", |scripts| {
        &mut scripts.tls_crypt_v2_verify
    })
    .end(End::Server).is(DECIDING),
    yes("setenv", 1, 2, setenv).is(LIST),
    yes("setenv-safe", 1, 2, |d, it| variable(d, "OPENVPN_", it)).is(LIST),
    path("tmp-dir", |d| &mut d.scripts.tmp_dir),
    no(
        "plugin",
        "shared objects are not loaded; use a script (`auth-user-pass-verify`, \
         `client-connect`) or `auth-user-pass-file`",
    ).is(DECIDING),
];

fn security(draft: &mut Draft, directive: &Directive) -> Outcome {
    if let Some(other) = directive.get(1).filter(|method| *method != "execve") {
        return Err(one_of(other, &["execve"]));
    }
    let levels = [
        ("0", ScriptSecurity::None),
        ("1", ScriptSecurity::BuiltIn),
        ("2", ScriptSecurity::Scripts),
        ("3", ScriptSecurity::Passwords),
    ];
    set(&mut draft.scripts.security, word(directive.at(0), &levels))
}

fn setenv(draft: &mut Draft, directive: &Directive) -> Outcome {
    match (directive.at(0), directive.get(1)) {
        ("GENERIC_CONFIG", _) => {
            return Err(
                "this file is a template without a user's keys; ask for the user's own profile"
                    .to_owned(),
            );
        }
        ("REMOTE_RANDOM_HOSTNAME", None) => return on(&mut draft.client.remote_random_hostname),
        ("PUSH_PEER_INFO", None) => return on(&mut draft.client.push_peer_info),
        ("SERVER_POLL_TIMEOUT", Some(value)) => {
            draft.connection.timeout = seconds(value)?.max(1);
            return OK;
        }
        ("CLIENT_CERT", Some("0")) => draft.client.no_client_cert = true,
        ("FORWARD_COMPATIBLE", Some("1")) => draft.forward_compatible = true,
        _ => {}
    }
    variable(draft, "", directive)
}

/// Takes a variable for scripts.
fn variable(draft: &mut Draft, prefix: &str, directive: &Directive) -> Outcome {
    let name = directive.at(0);
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(good) {
        return Err("a variable's name must consist of letters, digits and _".to_owned());
    }
    let variable = (format!("{prefix}{name}"), directive.at(1).to_owned());
    draft.scripts.environment.push(variable);
    OK
}
