//! Directives that choose client or server, and a client's authentication.

use super::foreign;
use super::value::{OK, Outcome, prompted, put, set, word};
use super::{End, Entry, INLINE, LIST, MANY, SECRET, flag, one, skip, yes};
use crate::openvpn::directive::Directive;
use crate::openvpn::draft::Draft;
use crate::openvpn::{AuthRetry, FilterAction, Secret, StaticChallenge};

pub(super) const ROWS: &[Entry] = &[
    flag("client", |d| &mut d.client_helper),
    flag("tls-client", |d| &mut d.tls_client),
    flag("tls-server", |d| &mut d.tls_server),
    flag("pull", |d| &mut d.pull),
    one("mode", |d, v| {
        let modes = [("p2p", false), ("server", true)];
        set(&mut d.mode_server, word(v, &modes))
    }),
    yes("pull-filter", 2, 2, pull_filter)
        .is(LIST)
        .end(End::IdleInServer),
    flag("route-nopull", |d| &mut d.network.route_nopull).end(End::IdleInServer),
    skip(
        "allow-pull-fqdn",
        "pushed routes with host names are skipped, with a log line; write the `route` here",
    ),
    flag("push-peer-info", |d| &mut d.client.push_peer_info).end(End::IdleInServer),
    yes("auth-user-pass", 0, 1, |d, it| {
        put(&mut d.client.auth_user_pass, prompted(it))
    })
    .is(INLINE | SECRET)
    .foreign(foreign::credentials)
    .end(End::Client(
        "is for clients; a server has `auth-user-pass-verify`",
    )),
    one("auth-retry", |d, v| {
        let ways = [
            ("none", AuthRetry::None),
            ("nointeract", AuthRetry::NoInteract),
            ("interact", AuthRetry::Interact),
        ];
        set(&mut d.client.auth_retry, word(v, &ways))
    })
    .end(End::IdleInServer),
    yes("static-challenge", 2, 3, static_challenge).end(End::IdleInServer),
    one("auth-token", |d, v| {
        let user = d.client.auth_token.take().and_then(|(user, _)| user);
        let token = Secret::new(v.to_owned());
        put(&mut d.client.auth_token, (user, token))
    })
    .end(End::IdleInServer),
    one("auth-token-user", |d, v| {
        let token = d.client.auth_token.take().map(|(_, token)| token);
        let user = Some(v.to_owned());
        put(&mut d.client.auth_token, (user, token.unwrap_or_default()))
    })
    .end(End::IdleInServer),
    flag("auth-nocache", |d| &mut d.service.auth_nocache),
    // `config` and the next directive took effect while the files were read.
    yes("config", 1, 1, |_, _| OK)
        .is(LIST)
        .foreign(foreign::config),
    yes("cd", 1, 1, |_, _| OK).is(LIST),
    yes("ignore-unknown-option", 1, MANY, |d, it| {
        let names = it.values.iter();
        let names = names.map(|name| name.strip_prefix("--").unwrap_or(name).to_owned());
        d.ignore_unknown.extend(names);
        OK
    })
    .is(LIST),
];

fn pull_filter(draft: &mut Draft, directive: &Directive) -> Outcome {
    let actions = [
        ("accept", FilterAction::Accept),
        ("ignore", FilterAction::Ignore),
        ("reject", FilterAction::Reject),
    ];
    let action = word(directive.at(0), &actions)?;
    let filters = &mut draft.client.pull_filters;
    filters.push((action, directive.at(1).to_owned()));
    OK
}

fn static_challenge(draft: &mut Draft, directive: &Directive) -> Outcome {
    let echo = word(directive.at(1), &[("0", false), ("1", true)])?;
    let concat = word(
        directive.get(2).unwrap_or("scrv1"),
        &[("scrv1", false), ("concat", true)],
    )?;
    let text = directive.at(0).to_owned();
    let challenge = StaticChallenge { text, echo, concat };
    put(&mut draft.client.static_challenge, challenge)
}
