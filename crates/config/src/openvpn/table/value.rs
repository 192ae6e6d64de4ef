//! Parses values of directives: numbers, addresses, hosts.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use crate::openvpn::directive::Directive;
use crate::openvpn::lexer::{shown, split_command};
use crate::openvpn::{Command, Place, Prompted, Source};
use crate::types::decimal;

/// The report's remark on a directive that was understood.
#[derive(Debug)]
pub(crate) enum Remark {
    /// No remark.
    Plain,
    /// The directive is honoured, with a note.
    Note(String),
    /// The directive has no effect, for this reason.
    Ignored(String),
    /// The directive is refused; the other directives can be used without it.
    Denied(String),
}

/// A remark, or why the directive is refused.
pub(crate) type Outcome = Result<Remark, String>;

/// Accepted, without a remark.
pub(crate) const OK: Outcome = Ok(Remark::Plain);

/// The outcome of a directive that is honoured with a note.
pub(crate) fn note(words: &str) -> Outcome {
    Ok(Remark::Note(words.to_owned()))
}

/// The outcome of a directive that has no effect, for this reason.
pub(crate) fn ignored(reason: &str) -> Outcome {
    Ok(Remark::Ignored(reason.to_owned()))
}

/// Switches a flag on.
pub(crate) const fn on(flag: &mut bool) -> Outcome {
    *flag = true;
    OK
}

/// Stores a value.
pub(crate) fn put<T>(slot: &mut Option<T>, value: T) -> Outcome {
    *slot = Some(value);
    OK
}

/// Stores a value that was understood.
pub(crate) fn some<T>(slot: &mut Option<T>, value: Result<T, String>) -> Outcome {
    *slot = Some(value?);
    OK
}

/// Stores a value that was understood.
pub(crate) fn set<T>(slot: &mut T, value: Result<T, String>) -> Outcome {
    *slot = value?;
    OK
}

/// Maps `found` to its meaning in `known`; an error lists the known words.
pub(crate) fn word<T: Copy>(found: &str, known: &[(&str, T)]) -> Result<T, String> {
    let meant = known.iter().find(|(name, _)| *name == found);
    meant.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        one_of(found, &known)
    })
}

/// A number in decimal within a range.
pub(crate) fn number<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: TryFrom<u64> + PartialOrd + std::fmt::Display,
{
    decimal(text)
        .and_then(|number| T::try_from(number).ok())
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            format!("`{}` is no number from {low} to {high}", shown(text))
        })
}

/// Parses a decimal number; one above the range becomes its maximum, as stock does with levels and pauses.
pub(crate) fn capped<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: TryFrom<u64> + Into<u64> + PartialOrd + std::fmt::Display + Copy,
{
    let end = *range.end();
    let digits = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    match decimal(text) {
        Some(number) if number > end.into() => Ok(end),
        None if digits => Ok(end),
        _ => number(text, range),
    }
}

/// A time in seconds.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    number(text, 0..=i32::MAX.unsigned_abs())
}

/// A port from 1 to 65535.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    number(text, 1..=u16::MAX)
}

/// An IPv4 address.
pub(crate) fn ipv4(text: &str) -> Result<Ipv4Addr, String> {
    address(text, "IPv4")
}

/// Parses an IPv6 address; `/BITS` is dropped, as stock accepts it in places.
pub(crate) fn ipv6(text: &str) -> Result<Ipv6Addr, String> {
    address(text.split('/').next().unwrap_or_default(), "IPv6")
}

fn address<T: FromStr>(text: &str, family: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("`{}` is no {family} address", shown(text)))
}

/// `ADDRESS/BITS`.
pub(crate) fn ipv6_network(text: &str) -> Result<(Ipv6Addr, u8), String> {
    let (addr, bits) = text
        .split_once('/')
        .ok_or_else(|| format!("`{}` has no prefix length; write ADDRESS/BITS", shown(text)))?;
    Ok((ipv6(addr)?, number(bits, 0..=128)?))
}

/// Parses `ADDRESS/BITS`, or `ADDRESS` as a network of one address.
pub(crate) fn ipv6_network_or_host(text: &str) -> Result<(Ipv6Addr, u8), String> {
    if text.contains('/') {
        return ipv6_network(text);
    }
    Ok((ipv6(text)?, 128))
}

/// The prefix length of a netmask.
pub(crate) fn netmask_bits(mask: Ipv4Addr) -> Result<u8, String> {
    let bits = mask.to_bits();
    let ones = bits.leading_ones();
    if bits.count_ones() != ones {
        return Err(format!(
            "{mask} is no netmask; write for example 255.255.255.0"
        ));
    }
    Ok(u8::try_from(ones).unwrap_or(32))
}

/// Parses a network; host bits are an error, as in stock.
pub(crate) fn ipv4_network(network: &str, mask: Option<&str>) -> Result<(Ipv4Addr, u8), String> {
    let network = ipv4(network)?;
    let mask = mask.map_or(Ok(Ipv4Addr::BROADCAST), ipv4)?;
    let bits = netmask_bits(mask)?;
    let cleared = Ipv4Addr::from_bits(network.to_bits() & mask.to_bits());
    if cleared != network {
        return Err(format!(
            "{network} is not the first address of a network with netmask {mask}; \
             write {cleared} {mask}"
        ));
    }
    Ok((network, bits))
}

/// Parses a host: a name or an address, at most 253 valid characters. Only an IPv6 address may have colons.
pub(crate) fn host(text: &str) -> Result<String, String> {
    if text.contains(':') && text.split('%').next().is_none_or(|it| ipv6(it).is_err()) {
        return Err(match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') && self::port(port).is_ok() => format!(
                "`{}` is no host name or address; the port is a word of its own: write `{host} {port}`",
                shown(text)
            ),
            _ => format!("`{}` is no host name or address", shown(text)),
        });
    }
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':' | b'%');
    // A leading `-` would make it an option of a program that gets it.
    let option = text.starts_with('-');
    if text.is_empty() || text.len() > 253 || option || !text.bytes().all(good) {
        return Err(format!("`{}` is no host name or address", shown(text)));
    }
    Ok(text.to_owned())
}

/// A place in a route.
pub(crate) fn place(text: &str) -> Result<Place, String> {
    Ok(match text {
        "vpn_gateway" => Place::VpnGateway,
        "net_gateway" => Place::NetGateway,
        "remote_host" => Place::RemoteHost,
        _ => match text.parse() {
            Ok(address) => Place::Address(address),
            Err(_) => Place::Name(host(text)?),
        },
    })
}

/// The words of a command.
pub(crate) fn command(text: &str) -> Result<Command, String> {
    let words = split_command(text).map_err(|error| error.to_string())?;
    if words.first().is_none_or(String::is_empty) {
        return Err("names no program".to_owned());
    }
    Ok(Command { words })
}

/// The inline block, or the file of the first value.
pub(crate) fn source(directive: &Directive) -> Source {
    match &directive.inline {
        Some(text) => Source::Inline(text.clone()),
        None => Source::File(PathBuf::from(directive.at(0))),
    }
}

/// The source as in [`source`]; without a value, or with `stdin`, the user is asked.
pub(crate) fn prompted(directive: &Directive) -> Prompted {
    if directive.inline.is_none() && matches!(directive.get(0), None | Some("stdin")) {
        return Prompted::Ask;
    }
    Prompted::From(source(directive))
}

/// A credentials file given as a value.
pub(crate) fn credentials(text: &str) -> Prompted {
    match text {
        "stdin" => Prompted::Ask,
        _ => Prompted::From(Source::File(PathBuf::from(text))),
    }
}

/// The refusal of an unknown word.
pub(crate) fn one_of(found: &str, known: &[&str]) -> String {
    format!(
        "`{}` is not known here; {}",
        shown(found),
        crate::text::suggest(found, known)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ports() {
        assert_eq!(number("0", 0..=5u8), Ok(0));
        for text in ["", "-1", "+1", "6", "256", "1x", "99999999999999999999"] {
            assert!(number(text, 0..=5u8).is_err(), "{text}");
        }
        assert!(port("0").is_err() && port("65536").is_err());
        for (text, taken) in [("2", Some(2)), ("9", Some(9)), ("10", Some(9)), ("1", None)] {
            assert_eq!(capped(text, 2..=9u8).ok(), taken, "{text}");
        }
        for text in ["256", "99999999999999999999"] {
            assert_eq!(capped(text, 2..=9u8), Ok(9), "{text}");
        }
        assert!(
            ["", "-1", "+1", "1x"]
                .iter()
                .all(|it| capped(it, 0..=9u8).is_err())
        );
    }

    #[test]
    fn networks() {
        assert_eq!(
            ipv4_network("10.8.0.0", Some("255.255.255.0")).unwrap().1,
            24
        );
        assert_eq!(ipv4_network("10.8.0.1", None).unwrap().1, 32);
        assert!(
            ipv4_network("10.8.0.1", Some("255.255.255.0"))
                .unwrap_err()
                .contains("10.8.0.0")
        );
        assert!(ipv4_network("10.8.0.0", Some("255.0.255.0")).is_err());
        assert_eq!(netmask_bits(Ipv4Addr::UNSPECIFIED), Ok(0));
        assert_eq!(ipv6_network("fd00::/64").unwrap().1, 64);
        assert!(ipv6_network("fd00::").is_err() && ipv6_network("fd00::/129").is_err());
    }

    #[test]
    fn hosts_and_places() {
        assert!(host("vpn.example.org").is_ok() && host("fe80::1%eth0").is_ok());
        assert!(host("a b").is_err() && host("").is_err() && host("a;b").is_err());
        assert!(host("-x").is_err());
        assert!(host("2001:db8::1").is_ok() && host("::ffff:192.0.2.1").is_ok());
        for text in ["203.0.113.1:1194", "vpn.example:1194"] {
            let (name, port) = text.split_once(':').unwrap();
            let wanted = format!("write `{name} {port}`");
            assert!(host(text).unwrap_err().ends_with(&wanted), "{text}");
        }
        for text in ["a:b", "2001:db8::1:x", ":", "%eth0:1", "2001:db8::/64"] {
            assert!(host(text).is_err(), "{text}");
        }
        assert_eq!(place("net_gateway"), Ok(Place::NetGateway));
        assert!(matches!(place("10.0.0.1"), Ok(Place::Address(_))));
    }

    #[test]
    fn commands_have_words() {
        assert_eq!(
            command("/bin/up 'a b' c").unwrap().words,
            ["/bin/up", "a b", "c"]
        );
        assert!(command("").is_err() && command("\"\" x").is_err() && command("'x").is_err());
    }
}
