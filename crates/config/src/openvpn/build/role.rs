//! Directives that choose client or server, and a client's authentication.

use super::Builder;
use super::value::{OK, Outcome, Remark, at, one_of, prompted};
use crate::openvpn::directive::Directive;
use crate::openvpn::{AuthRetry, FilterAction, PullFilter, Secret, StaticChallenge};

/// Applies a directive of this group.
pub(super) fn apply(builder: &mut Builder, directive: &Directive) -> Option<Outcome> {
    let value = at(directive, 0);
    match directive.name.as_str() {
        "client" => builder.client_helper = true,
        "tls-client" => builder.tls_client = true,
        "tls-server" => builder.tls_server = true,
        "pull" => builder.pull = true,
        "mode" => match value {
            "server" => builder.mode_server = true,
            "p2p" => builder.mode_server = false,
            other => return Some(Err(one_of(other, &["p2p", "server"]))),
        },
        "pull-filter" => return Some(pull_filter(builder, directive)),
        "route-nopull" => builder.network.route_nopull = true,
        "push-peer-info" => builder.client.push_peer_info = true,
        "auth-user-pass" => builder.client.auth_user_pass = Some(prompted(directive)),
        "auth-retry" => match value {
            "none" => builder.client.auth_retry = AuthRetry::None,
            "nointeract" => builder.client.auth_retry = AuthRetry::NoInteract,
            "interact" => builder.client.auth_retry = AuthRetry::Interact,
            other => return Some(Err(one_of(other, &["none", "nointeract", "interact"]))),
        },
        "static-challenge" => return Some(static_challenge(builder, directive)),
        "auth-token" => {
            let user = builder.client.auth_token.take().and_then(|(user, _)| user);
            builder.client.auth_token = Some((user, Secret::new(value.to_owned())));
        }
        "auth-token-user" => {
            let token = builder.client.auth_token.take().map(|(_, token)| token);
            builder.client.auth_token = Some((Some(value.to_owned()), token.unwrap_or_default()));
        }
        "auth-nocache" => builder.service.auth_nocache = true,
        // These three took effect while the files were read.
        "config" | "cd" | "ignore-unknown-option" => {}
        _ => return None,
    }
    Some(OK)
}

fn pull_filter(builder: &mut Builder, directive: &Directive) -> Outcome {
    let action = match at(directive, 0) {
        "accept" => FilterAction::Accept,
        "ignore" => FilterAction::Ignore,
        "reject" => FilterAction::Reject,
        other => return Err(one_of(other, &["accept", "ignore", "reject"])),
    };
    builder.client.pull_filters.push(PullFilter {
        action,
        prefix: at(directive, 1).to_owned(),
    });
    OK
}

fn static_challenge(builder: &mut Builder, directive: &Directive) -> Outcome {
    let echo = match at(directive, 1) {
        "0" => false,
        "1" => true,
        other => return Err(one_of(other, &["0", "1"])),
    };
    let concat = match directive.get(2) {
        None | Some("scrv1") => false,
        Some("concat") => true,
        Some(other) => return Err(one_of(other, &["scrv1", "concat"])),
    };
    builder.client.static_challenge = Some(StaticChallenge {
        text: at(directive, 0).to_owned(),
        echo,
        concat,
    });
    Ok(Remark::Plain)
}
