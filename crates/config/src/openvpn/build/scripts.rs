//! Directives about scripts.

use std::path::PathBuf;

use super::Builder;
use super::value::{OK, Outcome, Remark, at, command, one_of, seconds};
use crate::openvpn::directive::Directive;
use crate::openvpn::{PasswordMethod, ScriptSecurity};

const HOOKS: [&str; 12] = [
    "up",
    "down",
    "route-up",
    "route-pre-down",
    "ipchange",
    "tls-verify",
    "client-connect",
    "client-disconnect",
    "learn-address",
    "client-crresponse",
    "auth-user-pass-verify",
    "tls-crypt-v2-verify",
];

/// Scripts that decide who is let in or, at a client, which server is trusted. Without one of them the tunnel would
/// trust others, so that a file is not used if such a line is refused. `learn-address` is one, as stock refuses a
/// client's address if the script fails.
pub const DECIDING: [&str; 6] = [
    "auth-user-pass-verify",
    "client-connect",
    "client-crresponse",
    "learn-address",
    "tls-crypt-v2-verify",
    "tls-verify",
];

/// Beginning of the reason why one of [`DECIDING`] is refused.
pub(super) const WITHOUT: &str =
    "has a say in who is let in or which server is trusted, so the file is not used without it";

/// Applies a directive of this group.
pub(super) fn apply(builder: &mut Builder, directive: &Directive) -> Option<Outcome> {
    let value = at(directive, 0);
    let scripts = &mut builder.scripts;
    let name = directive.name.as_str();
    match name {
        "script-security" => {
            if let Some(method) = directive.get(1) {
                return Some(match method {
                    "execve" => security(builder, value),
                    other => Err(one_of(other, &["execve"])),
                });
            }
            return Some(security(builder, value));
        }
        "up-delay" => {
            return Some(Ok(Remark::Note(
                "always done: the interface is set up when the server has answered".to_owned(),
            )));
        }
        "up-restart" => scripts.up_restart = true,
        "down-pre" => scripts.down_pre = true,
        "tmp-dir" => scripts.tmp_dir = Some(PathBuf::from(value)),
        "setenv" | "setenv-safe" => return Some(setenv(builder, directive)),
        _ if HOOKS.contains(&name) => return Some(hook(builder, directive)),
        _ => return None,
    }
    Some(OK)
}

fn hook(builder: &mut Builder, directive: &Directive) -> Outcome {
    let name = directive.name.as_str();
    let command = command(at(directive, 0))?;
    let method = match directive.get(1) {
        Some("via-env") => PasswordMethod::Environment,
        None | Some("via-file") => PasswordMethod::File,
        Some(other) => return Err(one_of(other, &["via-env", "via-file"])),
    };
    if !builder.options.permissions.scripts() {
        return Ok(Remark::Denied(
            "scripts are not run unless --allow-scripts is given; look at what it does first"
                .to_owned(),
        ));
    }
    let scripts = &mut builder.scripts;
    if name == "auth-user-pass-verify" {
        scripts.auth_user_pass_verify = Some((command, method));
        return OK;
    }
    let slot = match name {
        "tls-crypt-v2-verify" => &mut builder.tls.tls_crypt_v2_verify,
        "up" => &mut scripts.up,
        "down" => &mut scripts.down,
        "route-up" => &mut scripts.route_up,
        "route-pre-down" => &mut scripts.route_pre_down,
        "ipchange" => &mut scripts.ipchange,
        "tls-verify" => &mut scripts.tls_verify,
        "client-connect" => &mut scripts.client_connect,
        "client-disconnect" => &mut scripts.client_disconnect,
        "learn-address" => &mut scripts.learn_address,
        _ => &mut scripts.client_crresponse,
    };
    *slot = Some(command);
    if name == "learn-address" {
        return Ok(Remark::Note(
            "only told: unlike in the stock program, a failing script refuses no address; `client-connect` may refuse a client"
                .to_owned(),
        ));
    }
    OK
}

fn security(builder: &mut Builder, level: &str) -> Outcome {
    builder.scripts.security = match level {
        "0" => ScriptSecurity::None,
        "1" => ScriptSecurity::BuiltIn,
        "2" => ScriptSecurity::Scripts,
        "3" => ScriptSecurity::Passwords,
        other => return Err(one_of(other, &["0", "1", "2", "3"])),
    };
    OK
}

fn setenv(builder: &mut Builder, directive: &Directive) -> Outcome {
    let (name, value) = (at(directive, 0), directive.get(1));
    let client = &mut builder.client;
    match (name, value) {
        _ if directive.name == "setenv-safe" => {}
        ("GENERIC_CONFIG", _) => {
            return Err(
                "this is a template without a user's keys; ask for the profile itself".to_owned(),
            );
        }
        ("REMOTE_RANDOM_HOSTNAME", None) => {
            client.remote_random_hostname = true;
            return OK;
        }
        ("PUSH_PEER_INFO", None) => {
            client.push_peer_info = true;
            return OK;
        }
        ("SERVER_POLL_TIMEOUT", Some(value)) => {
            builder.draft.timeout = seconds(value)?.max(1);
            return OK;
        }
        ("CLIENT_CERT", Some("0")) => client.no_client_cert = true,
        _ => {}
    }
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(good) {
        return Err("a variable's name is made of letters, digits and _".to_owned());
    }
    let prefix = match directive.name.as_str() {
        "setenv-safe" => "OPENVPN_",
        _ => "",
    };
    let value = value.unwrap_or_default().to_owned();
    builder
        .scripts
        .environment
        .push((format!("{prefix}{name}"), value));
    Ok(Remark::Plain)
}
