//! Warns of certificates and revocation lists that end soon, in words with the remedy.

use config::openvpn::{Crl, OpenVpn, Source};
use openvpn::expiry::{self, End, Ending};
use openvpn_host::timestamp::unix;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How long before the end a warning begins.
const AHEAD: Duration = Duration::from_secs(30 * DAY);

/// Seconds of a day.
const DAY: u64 = 86_400;

/// A certificate or a list that ends soon, or has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Expiring {
    /// The certificate or list, and its end.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

/// Returns what ends within 30 days, or has ended, among the files of a configuration. Nothing, if the clock is not set.
#[must_use]
pub fn of_files(config: &OpenVpn, file: &Path, now: SystemTime) -> Vec<Expiring> {
    let load = |source: Option<&Source>| {
        let loaded = source.map(|it| it.load(config.directory.as_deref()));
        loaded.and_then(Result::ok).unwrap_or_default()
    };
    let tls = &config.tls;
    let crl = match &tls.crl {
        Some(Crl::List(list)) => Some(list),
        _ => None,
    };
    let ends = expiry::read(&load(tls.cert.as_ref()), &load(tls.ca.as_ref()), &load(crl));
    expiring(&ends, config.server().is_some(), file.to_str(), now)
}

/// Returns what ends within 30 days, or has ended. `file` is the configuration's. Nothing, if the clock is not set.
pub(super) fn expiring(
    ends: &[End],
    server: bool,
    file: Option<&str>,
    now: SystemTime,
) -> Vec<Expiring> {
    let soon = in_use(ends, now).filter(|it| it.at <= now + AHEAD);
    let soon = soon.filter(|_| host::machine::clock_is_set(now));
    soon.map(|end| Expiring {
        what: what(end, server, now),
        remedy: remedy(end.of, server, file),
    })
    .collect()
}

/// Returns the certificate of a server's client if it ends within 30 days, or has ended. `at` counts seconds since 1970.
#[cfg(feature = "server")]
#[must_use]
pub fn of_client(name: &str, at: u64, now: SystemTime) -> Option<Expiring> {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(at))?;
    let is_soon = at <= now + AHEAD && host::machine::clock_is_set(now);
    let thing = format!("the certificate of client {}", config::shown(name));
    is_soon.then(|| Expiring {
        what: told(&thing, at, "this server refuses it", now),
        remedy: "give the client a new file: millrace peer reissue NAME".to_owned(),
    })
}

/// Returns the earliest end, in seconds since 1970.
pub(super) fn earliest(ends: &[End], now: SystemTime) -> Option<u64> {
    in_use(ends, now).map(|it| unix(it.at)).min()
}

/// Leaves out authorities of the past, which bundles keep beside those in use.
fn in_use(ends: &[End], now: SystemTime) -> impl Iterator<Item = &End> {
    let authorities = || ends.iter().filter(|it| it.of == Ending::Authority);
    let others = authorities().any(|it| it.at > now);
    let is_past = move |it: &End| it.of == Ending::Authority && it.at + AHEAD < now && others;
    ends.iter().filter(move |it| !is_past(it))
}

fn what(end: &End, server: bool, now: SystemTime) -> String {
    let name = &end.name;
    let (thing, then) = match (end.of, server) {
        (Ending::Authority, _) => (
            format!("the authority {name}"),
            "every certificate of it is refused",
        ),
        (Ending::Certificate, true) => (
            format!("the server's certificate {name}"),
            "clients refuse it",
        ),
        (Ending::Certificate, false) => (
            format!("this client's certificate {name}"),
            "the server refuses it",
        ),
        (Ending::List, true) => ("the revocation list".to_owned(), "no client comes in"),
        (Ending::List, false) => ("the revocation list".to_owned(), "no server is accepted"),
    };
    told(&thing, end.at, then, now)
}

/// The thing that ends, its end, and the consequence.
fn told(thing: &str, at: SystemTime, then: &str, now: SystemTime) -> String {
    let day = netio::time::utc(at).to_string();
    let day = day.get(..10).unwrap_or(&day);
    match at.duration_since(now) {
        Ok(left) => {
            let left = match left.as_secs() / DAY {
                0 => "in less than a day".to_owned(),
                1 => "in 1 day".to_owned(),
                days => format!("in {days} days"),
            };
            format!("{thing} ends on {day}, {left}; then {then}")
        }
        Err(_) => format!("{thing} ended on {day}: {then}"),
    }
}

fn remedy(of: Ending, server: bool, file: Option<&str>) -> String {
    let words = match (of, server) {
        (Ending::Authority, true) => {
            "make a new authority, and new files for the server and its clients"
        }
        (Ending::List, false) => "put a new list in its place",
        (_, false) => "ask the server's administrator for a new file",
        (_, true) => {
            let file = file.unwrap_or("NAME");
            return format!("millrace server renew --server {file}");
        }
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words at a day counted from the end, negative before it.
    fn warned(of: Ending, server: bool, days_left: i64) -> Option<String> {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000);
        let days = Duration::from_secs(days_left.unsigned_abs() * DAY);
        let now = if days_left < 0 { at + days } else { at - days };
        let name = "CN=x".to_owned();
        let found = expiring(&[End { of, name, at }], server, Some("/etc/o.conf"), now);
        let found = found.into_iter().next()?;
        Some(format!("{}: {}", found.what, found.remedy))
    }

    #[test]
    fn warnings_begin_thirty_days_ahead_and_tell_the_remedy() {
        let renew = "millrace server renew --server /etc/o.conf";
        let ask = "ask the server's administrator for a new file";
        for (of, server, days, wanted) in [
            (Ending::Certificate, true, 31, None),
            (
                Ending::Certificate,
                true,
                30,
                Some(format!(
                    "the server's certificate CN=x ends on 2030-03-17, in 30 days; then clients refuse it: {renew}"
                )),
            ),
            (
                Ending::List,
                true,
                1,
                Some(format!(
                    "the revocation list ends on 2030-03-17, in 1 day; then no client comes in: {renew}"
                )),
            ),
            (
                Ending::List,
                true,
                0,
                Some(format!(
                    "the revocation list ends on 2030-03-17, in less than a day; then no client comes in: {renew}"
                )),
            ),
            (
                Ending::List,
                true,
                -1,
                Some(format!(
                    "the revocation list ended on 2030-03-17: no client comes in: {renew}"
                )),
            ),
            (
                Ending::Certificate,
                false,
                -1,
                Some(format!(
                    "this client's certificate CN=x ended on 2030-03-17: the server refuses it: {ask}"
                )),
            ),
            (
                Ending::Authority,
                false,
                2,
                Some(format!(
                    "the authority CN=x ends on 2030-03-17, in 2 days; then every certificate of it is refused: {ask}"
                )),
            ),
            (Ending::Authority, true, 31, None),
        ] {
            assert_eq!(warned(of, server, days), wanted);
        }
        let list = warned(Ending::List, false, 3).unwrap();
        assert!(list.ends_with("put a new list in its place"), "{list}");
        let authority = warned(Ending::Authority, true, 3).unwrap();
        assert!(authority.contains("new authority"), "{authority}");
    }

    #[test]
    fn an_authority_of_the_past_beside_another_is_no_matter() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000);
        let authority = |at| End {
            of: Ending::Authority,
            name: String::new(),
            at,
        };
        let (past, lately) = (authority(now - 3 * AHEAD), authority(now - AHEAD / 2));
        let count = |ends: &[End]| expiring(ends, false, None, now).len();
        assert_eq!(count(std::slice::from_ref(&past)), 1);
        let valid = authority(now + 3 * AHEAD);
        let of = |it: &End| Some(unix(it.at));
        assert_eq!(earliest(std::slice::from_ref(&past), now), of(&past));
        let wanted = of(&lately);
        let bundle = [past, valid, lately];
        assert_eq!(count(&bundle), 1);
        assert_eq!(earliest(&bundle, now), wanted);
        assert_eq!(earliest(&[], now), None);
    }

    #[test]
    fn a_clock_that_is_not_set_says_nothing_of_ends() {
        let end = End {
            of: Ending::List,
            name: String::new(),
            at: SystemTime::UNIX_EPOCH,
        };
        assert!(expiring(&[end], true, None, SystemTime::UNIX_EPOCH + AHEAD).is_empty());
    }
}
