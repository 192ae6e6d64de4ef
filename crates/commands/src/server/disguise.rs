//! The options of `millrace server init` for AmneziaWG. Builds without it make plain servers only.

#[cfg(feature = "amnezia")]
use crate::arguments::{option, text};
use clap::{ArgMatches, Command};
#[cfg(feature = "amnezia")]
use config::amnezia::draw::{Generation, Look, draw};
use zeroize::Zeroizing;

/// The values of AmneziaWG that a server gets.
#[cfg(feature = "amnezia")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disguise {
    generation: Generation,
    look: Option<Look>,
}

#[cfg(feature = "amnezia")]
impl Disguise {
    /// Adds the command-line options.
    pub(super) fn arguments(command: Command) -> Command {
        let amneziawg = option(
            "amneziawg",
            "GENERATION",
            "Draw values of AmneziaWG: of 2.0 (the default), or of 3.1, with a key that hides headers",
        );
        let look = option(
            "look",
            "PROTOCOL",
            "Have AmneziaWG's clients first send a packet that looks like this protocol's: dns, stun or quic",
        );
        command
            .arg(
                amneziawg
                    .num_args(0..=1)
                    .default_missing_value(Generation::ALL[0].0)
                    .value_parser(Generation::ALL.map(|(name, _)| name)),
            )
            .arg(
                look.value_parser(Look::ALL.map(|(name, _)| name))
                    .requires("amneziawg"),
            )
    }

    /// The values that the command line wants; `None` for plain WireGuard.
    pub(super) fn of(matches: &ArgMatches) -> Option<Self> {
        let generation = text(matches, "amneziawg")?;
        let mut generations = Generation::ALL.into_iter();
        let look = text(matches, "look");
        let mut looks = Look::ALL.into_iter();
        Some(Self {
            generation: generations.find(|(name, _)| *name == generation)?.1,
            look: looks
                .find(|(name, _)| Some(*name) == look)
                .map(|(_, it)| it),
        })
    }

    /// Draws the values. Returns the lines of a file, which may have a key.
    pub(super) fn lines(self) -> Zeroizing<String> {
        config::amnezia::lines(&draw(self.generation, self.look))
    }
}

/// No values.
#[cfg(not(feature = "amnezia"))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disguise {}

#[cfg(not(feature = "amnezia"))]
impl Disguise {
    /// Adds no option.
    pub(super) const fn arguments(command: Command) -> Command {
        command
    }

    pub(super) const fn of(_: &ArgMatches) -> Option<Self> {
        None
    }

    pub(super) fn lines(self) -> Zeroizing<String> {
        match self {}
    }
}

#[cfg(all(test, feature = "amnezia"))]
mod tests {
    use super::*;
    use crate::server;

    fn parsed(words: &[&str]) -> Result<Option<Disguise>, String> {
        let words = ["server", "init"].iter().chain(words);
        let matches = server::command().try_get_matches_from(words);
        let matches = matches.map_err(|error| error.to_string())?;
        Ok(matches.subcommand().and_then(|(_, it)| Disguise::of(it)))
    }

    #[test]
    fn the_generation_may_be_left_out() {
        assert!(parsed(&[]).unwrap().is_none());
        let plain = parsed(&["--amneziawg"]).unwrap().unwrap();
        assert_eq!((plain.generation, plain.look), (Generation::V20, None));
        let all = parsed(&["--amneziawg", "3.1", "--look", "quic"])
            .unwrap()
            .unwrap();
        assert_eq!(
            (all.generation, all.look),
            (Generation::V31, Some(Look::Quic))
        );
        assert!(all.lines().contains("\nHeaderProtectionKey = "));
        for wrong in [&["--look", "dns"][..], &["--amneziawg", "1.0"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
