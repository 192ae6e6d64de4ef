//! Options that request an action instead of a tunnel, and options of other programs.

use std::path::PathBuf;

use super::value::{OK, Outcome, word};
use super::{Entry, PKCS11, PULLED, WINDOWS, no, skip, yes};
use crate::openvpn::directive::Directive;
use crate::openvpn::draft::Draft;
use crate::openvpn::{Action, GenKey, KeyKind};

pub(super) const ROWS: &[Entry] = &[
    no("peer-id", PULLED),
    no("push-continuation", PULLED),
    no("key-derivation", PULLED),
    no("protocol-flags", PULLED),
    skip(
        "disable-occ",
        "differing options of the two ends are only logged",
    ),
    skip("msg-channel", WINDOWS),
    skip("win-sys", WINDOWS),
    skip("pause-exit", WINDOWS),
    skip("service", WINDOWS),
    skip("allow-nonadmin", WINDOWS),
    skip("show-adapters", WINDOWS),
    skip("show-net", WINDOWS),
    skip("show-net-up", WINDOWS),
    skip("show-valid-subnets", WINDOWS),
    yes("help", 0, 0, |d, _| ask(d, Action::Help)),
    yes("version", 0, 0, |d, _| ask(d, Action::Version)),
    yes("genkey", 0, 3, |d, it| ask(d, Action::GenKey(genkey(it)?))),
    yes("mktun", 0, 0, |d, _| ask(d, Action::MakeTun)),
    yes("rmtun", 0, 0, |d, _| ask(d, Action::RemoveTun)),
    yes("show-ciphers", 0, 0, |d, _| ask(d, Action::ShowCiphers)),
    yes("show-digests", 0, 0, |d, _| ask(d, Action::ShowDigests)),
    yes("show-tls", 0, 0, |d, _| ask(d, Action::ShowTls)),
    yes("show-curves", 0, 0, |d, _| ask(d, Action::ShowGroups)),
    yes("show-groups", 0, 0, |d, _| ask(d, Action::ShowGroups)),
    yes("show-gateway", 0, 1, |d, _| ask(d, Action::ShowGateway)),
    yes("test-crypto", 0, 0, |_, _| {
        Err(
            "needs a static key, which is not supported; `millrace speed` measures the ciphers"
                .to_owned(),
        )
    }),
    no("show-engines", "Millrace has no OpenSSL engines to show"),
    no("show-pkcs11-ids", PKCS11),
];

fn ask(draft: &mut Draft, action: Action) -> Outcome {
    // The first action counts: stock runs it and exits.
    draft.action.get_or_insert(action);
    OK
}

fn genkey(directive: &Directive) -> Result<GenKey, String> {
    let kinds = [
        ("secret", KeyKind::Static),
        ("tls-auth", KeyKind::Static),
        ("tls-crypt", KeyKind::Static),
        ("tls-crypt-v2-server", KeyKind::TlsCryptV2Server),
        ("tls-crypt-v2-client", KeyKind::TlsCryptV2Client),
        ("auth-token", KeyKind::AuthToken),
    ];
    let kind = word(directive.get(0).unwrap_or("secret"), &kinds)?;
    let metadata = directive.get(2).map(str::to_owned);
    if metadata.is_some() && kind != KeyKind::TlsCryptV2Client {
        return Err("only tls-crypt-v2-client keys have metadata; remove it".to_owned());
    }
    Ok(GenKey {
        kind,
        file: directive.get(1).map(PathBuf::from),
        metadata,
    })
}
