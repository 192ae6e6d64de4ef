//! The options that describe a line.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use lab::Impairment;

/// Adds `--delay`, `--jitter`, `--loss`, `--burst`, `--dup`, `--reorder` and `--rate`.
pub(crate) fn arguments(command: Command) -> Command {
    let time = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("MS")
            .value_parser(milliseconds)
            .help(help)
    };
    let share = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("PERCENT")
            .value_parser(percent)
            .help(help)
    };
    command
        .arg(time("delay", "Delay of the uplink, each way"))
        .arg(time("jitter", "Variation of the delay, up and down"))
        .arg(share("loss", "Packets lost, each way"))
        .arg(
            Arg::new("burst")
                .long("burst")
                .value_name("PACKETS")
                .requires("loss")
                .value_parser(packets)
                .help("Average number of consecutive lost packets [default: 1]; the loss is at most N/(N+1)"),
        )
        .arg(share("dup", "Packets that arrive twice"))
        .arg(share(
            "reorder",
            "Packets that overtake others; needs a delay",
        ))
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("MBIT")
                .value_parser(value_parser!(u64).range(1..=1_000_000))
                .help("Rate of the uplink in Mbit/s, each way"),
        )
}

/// The line that the options describe; `None` means a plain cable.
pub(crate) fn impairment(matches: &ArgMatches) -> Option<Impairment> {
    let time = |name| {
        matches
            .get_one::<Duration>(name)
            .copied()
            .unwrap_or_default()
    };
    let share = |name| matches.get_one::<f64>(name).copied().unwrap_or_default();
    let line = Impairment {
        delay: time("delay"),
        jitter: time("jitter"),
        loss: share("loss"),
        burst: matches.get_one::<f64>("burst").copied().unwrap_or(1.0),
        duplicate: share("dup"),
        reorder: share("reorder"),
        rate: matches.get_one::<u64>("rate").map(|mbit| mbit * 1_000_000),
        ..Impairment::NONE
    };
    (line != Impairment::NONE).then_some(line)
}

/// Parses milliseconds, with or without a fraction, up to a minute.
fn milliseconds(text: &str) -> Result<Duration, String> {
    match text
        .strip_suffix("ms")
        .unwrap_or(text)
        .trim()
        .parse::<f64>()
    {
        Ok(value) if (0.0..=60_000.0).contains(&value) => {
            Ok(Duration::from_secs_f64(value / 1000.0))
        }
        _ => Err("write milliseconds from 0 to 60000, such as 20 or 0.5".to_owned()),
    }
}

/// Parses a percentage into a fraction.
fn percent(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value / 100.0),
        _ => Err("write a percentage from 0 to 100, such as 1 or 0.1".to_owned()),
    }
}

/// Parses an average number of packets.
fn packets(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(value) if (1.0..=10_000.0).contains(&value) => Ok(value),
        _ => Err("write a number of packets from 1 to 10000, such as 4 or 2.5".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Impairment> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        let matches = arguments(Command::new("x")).try_get_matches_from(words);
        impairment(&matches.unwrap())
    }

    #[test]
    fn lines_are_in_the_units_that_people_use() {
        assert_eq!(parse(""), None);
        let line = parse("--delay 20 --jitter 0.5ms --loss 1% --rate 100").unwrap();
        assert_eq!(line.delay, Duration::from_millis(20));
        assert_eq!(line.jitter, Duration::from_micros(500));
        assert_eq!(line.rate, Some(100_000_000));
        assert!((line.loss - 0.01).abs() < 1e-12);
        assert!((line.burst - 1.0).abs() < 1e-12);
        let line = parse("--loss 1 --burst 2.5").unwrap();
        assert!((line.burst - 2.5).abs() < 1e-12);
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in ["-1", "x", "1e9", "NaN", "inf", ""] {
            assert!(milliseconds(wrong).is_err(), "{wrong}");
            assert!(percent(wrong).is_err(), "{wrong}");
            assert!(packets(wrong).is_err(), "{wrong}");
        }
    }
}
