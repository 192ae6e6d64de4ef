//! The times in certificates and revocation lists, and how they are shown.

use crate::der::{self, BadDer, Reader};
use rustls::pki_types::UnixTime;
use std::time::{Duration, SystemTime};

/// Seconds since 1970, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) i64);

impl Time {
    /// The time of a clock.
    pub(crate) fn of(clock: UnixTime) -> Self {
        Self(clock.as_secs() as i64)
    }

    /// Reads a UTCTime or a GeneralizedTime, both with seconds and `Z`, as RFC 5280 §4.1.2.5 has it.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, BadDer> {
        let time = reader.any()?;
        let (year, rest) = match time.tag {
            der::UTC_TIME => {
                let (year, rest) = digits(time.content)?;
                (if year < 50 { 2000 + year } else { 1900 + year }, rest)
            }
            der::GENERALIZED_TIME => {
                let (century, rest) = digits(time.content)?;
                let (year, rest) = digits(rest)?;
                (100 * century + year, rest)
            }
            _ => return Err(BadDer),
        };
        let (month, rest) = digits(rest)?;
        let (day, rest) = digits(rest)?;
        let (hour, rest) = digits(rest)?;
        let (minute, rest) = digits(rest)?;
        let (second, rest) = digits(rest)?;
        if rest != b"Z"
            || !(1..=12).contains(&month)
            || !(1..=31).contains(&day)
            || hour > 23
            || minute > 59
            || second > 60
        {
            return Err(BadDer);
        }
        Ok(Self(
            days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second,
        ))
    }

    /// The tag and content of an element with this time: UTCTime up to 2049, as RFC 5280 §4.1.2.5 demands.
    #[cfg(feature = "server")]
    pub(crate) fn encode(self) -> (u8, String) {
        let (year, month, day) = date(self.0.div_euclid(86_400));
        let of_day = self.0.rem_euclid(86_400);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        let rest = format!("{month:02}{day:02}{hour:02}{minute:02}{second:02}Z");
        match year {
            ..2050 => (der::UTC_TIME, format!("{:02}{rest}", year % 100)),
            _ => (der::GENERALIZED_TIME, format!("{year:04}{rest}")),
        }
    }

    /// The time for the host; times before 1970 count as 1970.
    pub(crate) fn system(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.0.max(0) as u64)
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (year, month, day) = date(self.0.div_euclid(86_400));
        let minutes = self.0.rem_euclid(86_400) / 60;
        write!(
            f,
            "{year:04}-{month:02}-{day:02} {:02}:{:02} UTC",
            minutes / 60,
            minutes % 60
        )
    }
}

/// Two decimal digits from the front.
fn digits(bytes: &[u8]) -> Result<(i64, &[u8]), BadDer> {
    match bytes {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9', rest @ ..] => {
            Ok((i64::from(tens - b'0') * 10 + i64::from(ones - b'0'), rest))
        }
        _ => Err(BadDer),
    }
}

/// Days from 1970-01-01. Years are counted from March, so that a leap day is a year's last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The year, month and day of a day counted from 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tag: u8, text: &str) -> Result<Time, BadDer> {
        let mut bytes = vec![tag, text.len() as u8];
        bytes.extend_from_slice(text.as_bytes());
        Time::read(&mut Reader::new(&bytes))
    }

    #[test]
    fn times_are_read_and_shown() {
        for (tag, text, seconds, shown) in [
            (der::UTC_TIME, "700101000000Z", 0, "1970-01-01 00:00 UTC"),
            (
                der::UTC_TIME,
                "000229235960Z",
                951_868_800,
                "2000-03-01 00:00 UTC",
            ),
            (
                der::UTC_TIME,
                "491231235959Z",
                2_524_607_999,
                "2049-12-31 23:59 UTC",
            ),
            (
                der::UTC_TIME,
                "500101000000Z",
                -631_152_000,
                "1950-01-01 00:00 UTC",
            ),
            (
                der::GENERALIZED_TIME,
                "21240229120000Z",
                4_864_881_600,
                "2124-02-29 12:00 UTC",
            ),
        ] {
            let time = read(tag, text);
            assert_eq!(time, Ok(Time(seconds)), "{text}");
            assert_eq!(Time(seconds).to_string(), shown);
        }
        for bad in [
            "700101000000",
            "701301000000Z",
            "7001010000Z",
            "70010100000xZ",
            "",
        ] {
            assert_eq!(read(der::UTC_TIME, bad), Err(BadDer), "{bad}");
        }
    }

    #[test]
    fn every_day_comes_back() {
        for day in -30_000..80_000 {
            let (year, month, of_month) = date(day);
            assert_eq!(days(year, month, of_month), day);
        }
    }
}
