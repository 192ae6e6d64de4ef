//! Options that ask for an action instead of a tunnel.

use std::path::PathBuf;

use super::Builder;
use super::value::{OK, Outcome, at, one_of};
use crate::openvpn::directive::Directive;
use crate::openvpn::{Action, GenKey, KeyKind};

const KINDS: [&str; 6] = [
    "secret",
    "tls-auth",
    "tls-crypt",
    "tls-crypt-v2-server",
    "tls-crypt-v2-client",
    "auth-token",
];

/// Applies a directive of this group.
pub(super) fn apply(builder: &mut Builder, directive: &Directive) -> Option<Outcome> {
    let action = match directive.name.as_str() {
        "help" => Action::Help,
        "version" => Action::Version,
        "show-ciphers" => Action::ShowCiphers,
        "show-digests" => Action::ShowDigests,
        "show-tls" => Action::ShowTls,
        "show-curves" | "show-groups" => Action::ShowGroups,
        "show-gateway" => Action::ShowGateway,
        "test-crypto" => {
            let reason =
                "needs a static key, which is not supported; `millrace speed` measures the ciphers";
            return Some(Err(reason.to_owned()));
        }
        "mktun" => Action::MakeTun,
        "rmtun" => Action::RemoveTun,
        "genkey" => match genkey(directive) {
            Ok(genkey) => Action::GenKey(genkey),
            Err(reason) => return Some(Err(reason)),
        },
        _ => return None,
    };
    // The first action counts: stock runs it and exits.
    builder.action.get_or_insert(action);
    Some(OK)
}

fn genkey(directive: &Directive) -> Result<GenKey, String> {
    let kind = match directive.get(0) {
        None | Some("secret" | "tls-auth" | "tls-crypt") => KeyKind::Static,
        Some("tls-crypt-v2-server") => KeyKind::TlsCryptV2Server,
        Some("tls-crypt-v2-client") => KeyKind::TlsCryptV2Client,
        Some("auth-token") => KeyKind::AuthToken,
        Some(other) => return Err(one_of(other, &KINDS)),
    };
    let metadata = directive.get(2).map(|_| at(directive, 2).to_owned());
    if metadata.is_some() && kind != KeyKind::TlsCryptV2Client {
        return Err("only a tls-crypt-v2-client key has metadata".to_owned());
    }
    Ok(GenKey {
        kind,
        file: directive.get(1).map(PathBuf::from),
        metadata,
    })
}
