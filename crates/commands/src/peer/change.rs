//! Changes of a client: the networks behind it, its note, and the server's keepalive packets to it.

use super::{PeerError, behind, from};
use crate::arguments::{self, list, option, parsed};
use clap::{Arg, ArgGroup, ArgMatches, Command};
use config::types::AllowedIp;

/// The command-line definition of `peer set`, but for the server.
pub(super) fn command(set: Command) -> Command {
    set.override_usage("millrace peer set <NAME> <--behind …|--note …|--keepalive …>")
        .about("Change the networks behind a client, its note or its keepalive packets")
        .arg(
            Arg::new("NAME")
                .required(true)
                .help("The client's name, or its public key (WireGuard)"),
        )
        .arg(list(
            "behind",
            "PREFIX|none",
            "The networks behind it, in place of others; may be given again",
        ))
        .arg(option(
            "note",
            "TEXT|none",
            "The note about it, in place of another",
        ))
        .arg(keepalive())
        .group(
            ArgGroup::new("change")
                .args(["behind", "note", "keepalive"])
                .required(true)
                .multiple(true),
        )
}

/// The option for the server's own keepalive packets to a client.
pub(super) fn keepalive() -> Arg {
    parsed(
        option(
            "keepalive",
            "SECONDS|none",
            "WireGuard: send it a packet this often, so that the server learns when it is gone; \
             `server set keepalive` is for the other direction",
        ),
        seconds,
        SECONDS,
    )
}

/// The remedy for other words than [`seconds`] reads.
pub(super) const SECONDS: &str = "write a number of seconds from 1 to 65535, or none";

/// Reads seconds between keepalive packets; 0 stands for `none`.
pub(crate) fn seconds(word: &str) -> Option<u16> {
    match word {
        "none" => Some(0),
        word => word.parse().ok().filter(|it| *it != 0),
    }
}

/// A change of a client; `None` leaves a part as it is.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// The networks behind it.
    pub(crate) behind: Option<Vec<AllowedIp>>,
    /// The note; `None` inside for none.
    pub(crate) note: Option<Option<String>>,
    /// Seconds between packets to an idle client (WireGuard); 0 for none.
    pub(crate) keepalive: Option<u16>,
}

impl Change {
    /// Puts these networks behind a client, instead of others.
    #[cfg(any(test, feature = "monitor", feature = "openwrt"))]
    pub(crate) fn behind(networks: Vec<AllowedIp>) -> Self {
        Self {
            behind: Some(networks),
            ..Self::default()
        }
    }

    pub(super) fn of(matches: &ArgMatches) -> Result<Self, PeerError> {
        let behind = matches.contains_id("behind").then(|| networks(matches));
        Ok(Self {
            behind: behind.transpose()?,
            note: note(matches)?,
            keepalive: matches.get_one::<u16>("keepalive").copied(),
        })
    }
}

/// The note of the command line.
pub(super) fn note(matches: &ArgMatches) -> Result<Option<Option<String>>, PeerError> {
    let note = arguments::text(matches, "note").map(|it| match it {
        "none" => Ok(None),
        text => from::note(text),
    });
    note.transpose()
}

/// The networks of the command line.
pub(super) fn networks(matches: &ArgMatches) -> Result<Vec<AllowedIp>, PeerError> {
    behind::read(&arguments::values(matches, "behind").unwrap_or_default())
}

/// Reads networks behind a client, separated by spaces or commas.
#[cfg(any(feature = "monitor", feature = "openwrt"))]
pub(crate) fn networks_of(text: &str) -> Result<Vec<AllowedIp>, PeerError> {
    let words = text.split([' ', ',']).filter(|it| !it.is_empty());
    behind::read(&words.map(str::to_owned).collect::<Vec<_>>())
}
