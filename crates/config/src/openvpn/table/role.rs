//! Directives that choose client or server, and a client's authentication.

use super::foreign;
use super::value::{OK, Outcome, prompted, put, set, word};
use super::{Entry, MANY, flag, skip, yes};
use crate::openvpn::directive::Directive;
use crate::openvpn::draft::Draft;
use crate::openvpn::{AuthRetry, FilterAction, PullFilter, Secret, StaticChallenge};

pub(super) const ROWS: &[Entry] = &[
    flag("client", |d| &mut d.client_helper),
    flag("tls-client", |d| &mut d.tls_client),
    flag("tls-server", |d| &mut d.tls_server),
    flag("pull", |d| &mut d.pull),
    yes("mode", 1, 1, |d, it| {
        let modes = [("p2p", false), ("server", true)];
        set(&mut d.mode_server, word(it.at(0), &modes))
    }),
    yes("pull-filter", 2, 2, pull_filter)
        .list()
        .idle_in_server(),
    flag("route-nopull", |d| &mut d.network.route_nopull).idle_in_server(),
    skip(
        "allow-pull-fqdn",
        "a pushed route with a name is passed over, and the log says so; write the `route` here",
    ),
    flag("push-peer-info", |d| &mut d.client.push_peer_info).idle_in_server(),
    yes("auth-user-pass", 0, 1, |d, it| {
        put(&mut d.client.auth_user_pass, prompted(it))
    })
    .inline()
    .secret()
    .foreign(foreign::credentials)
    .for_client("is for clients; a server has `auth-user-pass-verify`"),
    yes("auth-retry", 1, 1, |d, it| {
        let ways = [
            ("none", AuthRetry::None),
            ("nointeract", AuthRetry::NoInteract),
            ("interact", AuthRetry::Interact),
        ];
        set(&mut d.client.auth_retry, word(it.at(0), &ways))
    })
    .idle_in_server(),
    yes("static-challenge", 2, 3, static_challenge).idle_in_server(),
    yes("auth-token", 1, 1, |d, it| {
        let user = d.client.auth_token.take().and_then(|(user, _)| user);
        let token = Secret::new(it.at(0).to_owned());
        put(&mut d.client.auth_token, (user, token))
    })
    .idle_in_server(),
    yes("auth-token-user", 1, 1, |d, it| {
        let token = d.client.auth_token.take().map(|(_, token)| token);
        let user = Some(it.at(0).to_owned());
        put(&mut d.client.auth_token, (user, token.unwrap_or_default()))
    })
    .idle_in_server(),
    flag("auth-nocache", |d| &mut d.service.auth_nocache),
    // These two took effect while the files were read.
    yes("config", 1, 1, |_, _| OK)
        .list()
        .foreign(foreign::config),
    yes("cd", 1, 1, |_, _| OK).list(),
    yes("ignore-unknown-option", 1, MANY, |d, it| {
        let names = it.values.iter();
        let names = names.map(|name| name.strip_prefix("--").unwrap_or(name).to_owned());
        d.ignore_unknown.extend(names);
        OK
    })
    .list(),
];

fn pull_filter(draft: &mut Draft, directive: &Directive) -> Outcome {
    let actions = [
        ("accept", FilterAction::Accept),
        ("ignore", FilterAction::Ignore),
        ("reject", FilterAction::Reject),
    ];
    draft.client.pull_filters.push(PullFilter {
        action: word(directive.at(0), &actions)?,
        prefix: directive.at(1).to_owned(),
    });
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
