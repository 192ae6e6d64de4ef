//! Ciphers and framing of the data channel.

use super::Builder;
use super::value::{OK, Outcome, Remark, at, number, one_of};
use crate::openvpn::directive::Directive;
use crate::openvpn::lexer::shown;
use crate::openvpn::{Digest, Framing};

/// Applies a directive of this group.
pub(super) fn apply(builder: &mut Builder, directive: &Directive) -> Option<Outcome> {
    let value = at(directive, 0);
    Some(match directive.name.as_str() {
        name @ ("data-ciphers" | "ncp-ciphers") => {
            builder.ciphers.list = Some(value.to_owned());
            match name {
                "ncp-ciphers" => Ok(Remark::Note("the old name of `data-ciphers`".to_owned())),
                _ => OK,
            }
        }
        "data-ciphers-fallback" => {
            builder.ciphers.fallback = Some(value.to_owned());
            OK
        }
        "cipher" => {
            builder.ciphers.cipher = Some(value.to_owned());
            OK
        }
        "auth" => digest(builder, value),
        "allow-insecure-ciphers" => {
            builder.data.allow_insecure = true;
            OK
        }
        "ncp-disable" => Ok(Remark::Ignored(
            "ciphers are negotiated all the same; `cipher` is used with a server that does not"
                .to_owned(),
        )),
        "keysize" => number(value, 1..=4096).map(|bits| {
            builder.ciphers.keysize = Some(bits);
            Remark::Plain
        }),
        "compat-mode" => compat_mode(value).map(|version| {
            builder.ciphers.compat = Some(version);
            Remark::Plain
        }),
        "comp-lzo" => comp_lzo(builder, directive),
        "compress" => compress(builder, directive),
        "allow-compression" => allow_compression(builder, value),
        "replay-window" => replay_window(directive),
        "reorder" => {
            builder.data.reorder = true;
            OK
        }
        _ => return None,
    })
}

fn digest(builder: &mut Builder, name: &str) -> Outcome {
    let Some(digest) = Digest::from_name(name) else {
        let known: Vec<&str> = Digest::ALL.iter().map(|digest| digest.name()).collect();
        return Err(one_of(name, &known));
    };
    builder.data.auth = digest;
    OK
}

/// `MAJOR.MINOR.PATCH`.
fn compat_mode(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{}` is no version such as 2.4.0", shown(text));
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
const UNPACKED: &str = "nothing is compressed here, and what the peer compresses is unpacked; its \
    lengths tell who listens something of what is inside (VORACLE): better have `comp-lzo no`, or \
    neither line, at the other end";

fn comp_lzo(builder: &mut Builder, directive: &Directive) -> Outcome {
    builder.data.framing = Framing::Lzo;
    match directive.get(0) {
        Some("no") => OK,
        None | Some("yes" | "adaptive") => Ok(Remark::Note(UNPACKED.to_owned())),
        Some(other) => Err(one_of(other, &["yes", "no", "adaptive"])),
    }
}

/// The framing of a `compress` value; `None` for `migrate`.
pub(crate) fn framing(value: Option<&str>) -> Result<Option<Framing>, String> {
    Ok(Some(match value {
        None | Some("stub") => Framing::Stub,
        Some("stub-v2") => Framing::StubV2,
        Some("lzo") => Framing::Lzo,
        Some("lz4") => Framing::Lz4,
        Some("lz4-v2") => Framing::Lz4V2,
        Some("migrate") => return Ok(None),
        Some(other) => {
            let known = ["stub", "stub-v2", "lzo", "lz4", "lz4-v2", "migrate"];
            return Err(one_of(other, &known));
        }
    }))
}

fn compress(builder: &mut Builder, directive: &Directive) -> Outcome {
    let framing = framing(directive.get(0))?;
    builder.data.migrate = framing.is_none();
    builder.data.framing = framing.unwrap_or_default();
    match framing {
        Some(Framing::Lzo | Framing::Lz4 | Framing::Lz4V2) => Ok(Remark::Note(UNPACKED.to_owned())),
        _ => OK,
    }
}

fn allow_compression(builder: &mut Builder, value: &str) -> Outcome {
    builder.data.unpack = value != "no";
    match value {
        "no" => Ok(Remark::Note(
            "packets that the peer compresses are dropped, whatever other lines say".to_owned(),
        )),
        "asym" => OK,
        "yes" => Ok(Remark::Note(
            "as `asym`: what the peer compresses is unpacked, and nothing is compressed here"
                .to_owned(),
        )),
        other => Err(one_of(other, &["no", "asym", "yes"])),
    }
}

fn replay_window(directive: &Directive) -> Outcome {
    // 0 to 65536 packets and 0 to 600 seconds are stock's own limits.
    number(at(directive, 0), 0..=65_536_u32)?;
    directive
        .get(1)
        .map(|text| number(text, 0..=600_u32))
        .transpose()?;
    Ok(Remark::Ignored(
        "the window is always 8128 packets, however late they are".to_owned(),
    ))
}
