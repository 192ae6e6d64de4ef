//! Directives about timers.

use super::value::{OK, Outcome, number, seconds, set, time};
use super::{End, Entry, flag, one, same_for_all, skip, yes};
use crate::openvpn::PingTimeout;
use crate::openvpn::directive::Directive;
use crate::openvpn::draft::Draft;
use std::time::Duration;

pub(super) const ROWS: &[Entry] = &[
    yes("keepalive", 2, 2, keepalive),
    one("ping", |d, v| set(&mut d.timers.ping, seconds(v))).client(same_for_all),
    yes("ping-restart", 1, 1, |d, it| {
        timeout(d, it, PingTimeout::Restart)
    })
    .client(same_for_all),
    yes("ping-exit", 1, 1, |d, it| timeout(d, it, PingTimeout::Exit)).client(same_for_all),
    skip(
        "ping-timer-rem",
        "always the case: timeouts run only while there is a peer",
    )
    .client(same_for_all),
    yes("inactive", 1, 2, |d, it| {
        d.timers.inactive = Some(inactive(it)?).filter(|limit| limit.0 > 0);
        OK
    })
    .client(|settings, it| set(&mut settings.inactive, inactive(it).map(Some))),
    one("session-timeout", |d, v| {
        d.timers.session_timeout = Some(seconds(v)?).filter(|time| *time > 0);
        OK
    })
    .client(|settings, it| set(&mut settings.session_timeout, seconds(it.at(0)).map(Some))),
    yes("reneg-sec", 1, 2, renegotiation),
    one("reneg-bytes", |d, v| {
        set(&mut d.timers.keys.renegotiation.bytes, amount(v))
    }),
    one("reneg-pkts", |d, v| {
        set(&mut d.timers.keys.renegotiation.packets, amount(v))
    }),
    one("hand-window", |d, v| {
        set(&mut d.timers.keys.hand_window, positive(v))
    }),
    one("tran-window", |d, v| {
        set(&mut d.timers.keys.tran_window, positive(v))
    }),
    one("tls-timeout", |d, v| {
        set(&mut d.timers.keys.tls_timeout, positive(v))
    }),
    flag("tls-exit", |d| &mut d.timers.tls_exit).end(End::IdleInServer),
];

fn positive(value: &str) -> Result<Duration, String> {
    let time = time(value)?;
    time.ok_or_else(|| "must be at least 1".to_owned())
}

/// Parses a number of bytes or packets; `None` for no limit, which stock writes as 0.
fn amount(value: &str) -> Result<Option<u64>, String> {
    let amount = number(value, 0..=u64::MAX)?;
    Ok((amount > 0).then_some(amount))
}

fn timeout(draft: &mut Draft, directive: &Directive, then: fn(u32) -> PingTimeout) -> Outcome {
    draft.timers.ping_timeout = match seconds(directive.at(0))? {
        0 => PingTimeout::Off,
        time => then(time),
    };
    OK
}

fn renegotiation(draft: &mut Draft, directive: &Directive) -> Outcome {
    let most = time(directive.at(0))?;
    let least = directive.get(1).map(time).transpose()?;
    let least = least.map(Option::unwrap_or_default);
    if least.is_some_and(|least| least > most.unwrap_or_default()) {
        return Err("the second time must not exceed the first".to_owned());
    }
    let renegotiation = &mut draft.timers.keys.renegotiation;
    (renegotiation.time, renegotiation.least) = (most, least);
    OK
}

/// Parses `inactive SECONDS [BYTES]`.
fn inactive(directive: &Directive) -> Result<(u32, u64), String> {
    let bytes = directive
        .get(1)
        .map_or(Ok(0), |text| number(text, 0..=u64::MAX))?;
    Ok((seconds(directive.at(0))?, bytes))
}

fn keepalive(draft: &mut Draft, directive: &Directive) -> Outcome {
    let (ping, timeout) = (seconds(directive.at(0))?, seconds(directive.at(1))?);
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
    draft.keepalive = Some((ping, timeout));
    OK
}
