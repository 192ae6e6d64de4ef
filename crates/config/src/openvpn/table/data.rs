//! Ciphers and framing of the data channel.

use super::value::{OK, Outcome, ignored, note, number, one_of, some, word};
use super::{Entry, WEAKENING, flag, no, one, same_for_all, skip, text, yes};
use crate::openvpn::directive::Directive;
use crate::openvpn::draft::Draft;
use crate::openvpn::lexer::shown;
use crate::openvpn::{Digest, Framing};

pub(super) const ROWS: &[Entry] = &[
    text("data-ciphers", |d| &mut d.ciphers.list).client(same_for_all),
    one("ncp-ciphers", |d, v| {
        d.ciphers.list = Some(v.to_owned());
        note("the old name of `data-ciphers`")
    })
    .client(same_for_all),
    text("data-ciphers-fallback", |d| &mut d.ciphers.fallback).client(same_for_all),
    text("cipher", |d| &mut d.ciphers.cipher).client(same_for_all),
    one("auth", |d, v| {
        d.data.auth = Digest::from_name(v).ok_or_else(|| {
            let known: Vec<&str> = Digest::ALL.iter().map(|digest| digest.name()).collect();
            one_of(v, &known)
        })?;
        OK
    }),
    flag("allow-insecure-ciphers", |d| &mut d.data.allow_insecure).is(WEAKENING),
    yes("ncp-disable", 0, 0, |_, _| {
        ignored(
            "ciphers are negotiated anyway; `cipher` is used with servers that do not negotiate",
        )
    })
    .is(WEAKENING),
    one("keysize", |d, v| {
        some(&mut d.ciphers.keysize, number(v, 1..=4096))
    }),
    one("compat-mode", |d, v| {
        some(&mut d.ciphers.compat, compat_mode(v))
    }),
    yes("comp-lzo", 0, 1, |d, it| {
        d.data.framing = Framing::Lzo;
        match it.get(0) {
            Some("no") => OK,
            None | Some("yes" | "adaptive") => note(UNPACKED),
            Some(other) => Err(one_of(other, &["yes", "no", "adaptive"])),
        }
    })
    .client(same_for_all),
    yes("compress", 0, 1, compress).client(same_for_all),
    yes("allow-compression", 1, 1, allow_compression).is(WEAKENING),
    skip("comp-noadapt", "Millrace does not compress packets").client(same_for_all),
    yes("replay-window", 1, 2, replay_window),
    flag("reorder", |d| &mut d.data.reorder),
    skip(
        "mute-replay-warnings",
        "replays are counted, but not logged one by one",
    ),
    skip(
        "replay-persist",
        "not needed: keys and packet numbers do not outlive the process",
    ),
    no(
        "no-replay",
        "duplicated packets would be accepted twice; remove the line",
    ),
    no(
        "no-iv",
        "removed from OpenVPN 2.5; remove the line at both ends",
    ),
    skip(
        "force-tls-key-material-export",
        "used whenever the client supports it",
    ),
];

/// `MAJOR.MINOR.PATCH`.
fn compat_mode(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{}` is not a version such as 2.4.0", shown(text));
    let parts: Vec<u32> = text
        .split('.')
        .map(|part| number(part, 0..=99))
        .collect::<Result<_, _>>()
        .map_err(|_| wrong())?;
    match parts[..] {
        [major, minor, patch] => Ok(major * 10_000 + minor * 100 + patch),
        _ => Err(wrong()),
    }
}

/// The warning about framings that could carry compressed packets.
const UNPACKED: &str = "Millrace sends uncompressed packets, but accepts compressed ones, whose lengths reveal parts \
                        of their content to eavesdroppers (VORACLE); set `comp-lzo no`, or neither line, at the other \
                        end";

fn compress(draft: &mut Draft, directive: &Directive) -> Outcome {
    let framings = [
        ("stub", Some(Framing::Swap)),
        ("stub-v2", Some(Framing::V2)),
        ("lzo", Some(Framing::Lzo)),
        ("lz4", Some(Framing::Swap)),
        ("lz4-v2", Some(Framing::V2)),
        ("migrate", None),
    ];
    let framing = word(directive.get(0).unwrap_or("stub"), &framings)?;
    draft.data.migrate = framing.is_none();
    draft.data.framing = framing.unwrap_or_default();
    match directive.get(0) {
        Some("lzo" | "lz4" | "lz4-v2") => note(UNPACKED),
        _ => OK,
    }
}

fn allow_compression(draft: &mut Draft, directive: &Directive) -> Outcome {
    let value = directive.at(0);
    draft.data.unpack = value != "no";
    match value {
        "no" => note("compressed packets from the peer are dropped, whatever other lines say"),
        "asym" => OK,
        "yes" => note("treated as `asym`: Millrace accepts compressed packets, but sends none"),
        other => Err(one_of(other, &["no", "asym", "yes"])),
    }
}

fn replay_window(_: &mut Draft, directive: &Directive) -> Outcome {
    // 0 to 65536 packets and 0 to 600 seconds are stock's own limits.
    number(directive.at(0), 0..=65_536_u32)?;
    directive
        .get(1)
        .map(|text| number(text, 0..=600_u32))
        .transpose()?;
    ignored("the window is always 8128 packets, without a time limit")
}
