//! Directives about timers.

use super::Builder;
use super::value::{OK, Outcome, Remark, at, number, seconds};
use crate::openvpn::PingTimeout;
use crate::openvpn::directive::Directive;

/// Applies a directive of this group.
pub(super) fn apply(builder: &mut Builder, directive: &Directive) -> Option<Outcome> {
    let timers = &mut builder.timers;
    let value = at(directive, 0);
    let name = directive.name.as_str();
    let time = match name {
        "keepalive" => return Some(keepalive(builder, directive)),
        "tls-exit" => {
            timers.tls_exit = true;
            return Some(OK);
        }
        "inactive" => {
            return Some(inactive(directive).map(|limit| {
                timers.inactive = (limit.0 > 0).then_some(limit);
                Remark::Plain
            }));
        }
        "reneg-bytes" | "reneg-pkts" => {
            return Some(number(value, 0..=u64::MAX).map(|amount| {
                let amount = (amount > 0).then_some(amount);
                if name == "reneg-bytes" {
                    timers.renegotiation.bytes = amount;
                } else {
                    timers.renegotiation.packets = amount;
                }
                Remark::Plain
            }));
        }
        "ping" | "ping-restart" | "ping-exit" | "session-timeout" | "reneg-sec" | "hand-window"
        | "tran-window" | "tls-timeout" => match seconds(value) {
            Ok(time) => time,
            Err(reason) => return Some(Err(reason)),
        },
        _ => return None,
    };
    match (name, time) {
        ("ping", _) => timers.ping = time,
        ("ping-restart" | "ping-exit", 0) => timers.ping_timeout = PingTimeout::Off,
        ("ping-restart", _) => timers.ping_timeout = PingTimeout::Restart(time),
        ("ping-exit", _) => timers.ping_timeout = PingTimeout::Exit(time),
        ("session-timeout", _) => timers.session_timeout = (time > 0).then_some(time),
        ("reneg-sec", _) => {
            timers.renegotiation.seconds = time;
            timers.renegotiation.seconds_min = match directive.get(1).map(seconds).transpose() {
                Ok(least) if least.is_some_and(|least| least > time) => {
                    return Some(Err("the second time is the shorter one".to_owned()));
                }
                Ok(least) => least,
                Err(reason) => return Some(Err(reason)),
            };
        }
        (_, 0) => return Some(Err("must be at least 1".to_owned())),
        ("hand-window", _) => timers.hand_window = time,
        ("tran-window", _) => timers.tran_window = time,
        _ => timers.tls_timeout = time,
    }
    Some(OK)
}

/// Parses `inactive SECONDS [BYTES]`.
pub(crate) fn inactive(directive: &Directive) -> Result<(u32, u64), String> {
    let bytes = directive
        .get(1)
        .map_or(Ok(0), |text| number(text, 0..=u64::MAX))?;
    Ok((seconds(at(directive, 0))?, bytes))
}

fn keepalive(builder: &mut Builder, directive: &Directive) -> Outcome {
    let (ping, timeout) = (seconds(at(directive, 0))?, seconds(at(directive, 1))?);
    if ping == 0 || timeout == 0 {
        return Err("both times must be at least 1".to_owned());
    }
    // Halve instead of double, which could overflow.
    if ping > timeout / 2 {
        return Err(format!(
            "the restart time {timeout} must be at least twice the ping time {ping}; \
             `keepalive 10 60` is a good choice"
        ));
    }
    builder.keepalive = Some((ping, timeout));
    OK
}
