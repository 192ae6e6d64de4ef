//! The self-test of the TUN, once for each boot.
//!
//! The result is the kernel's, and does not change until another kernel runs. The test needs a network namespace, whose
//! making and end take the kernel's one lock of networking for milliseconds; a start that finds it passed does without.

use config::settings::DataplaneSettings;
use host::written_file;
use netio::tun::{self, TunOptions, TunVerdict};
use netio::udp::SelfTest;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Which rungs have passed.
const PASSED: &str = "/run/millrace/tun-selftest";

/// A number that the kernel makes anew at each boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Most bytes of the file that are looked at.
const SIZE_MAX: u64 = 256;

/// The rungs, as the file calls them.
const RUNGS: [&str; 3] = ["tso", "uso", "gro"];

/// A self-test that runs beside the caller, or has passed since the boot.
#[derive(Debug)]
pub struct TunTest {
    test: Result<tun::TunTest, TunVerdict>,
    wanted: TunOptions,
    path: PathBuf,
}

impl TunTest {
    /// Starts the test of the rungs that the settings want, where they have not passed since the boot.
    ///
    /// Before privileges are dropped: it needs a network namespace of its own.
    #[must_use]
    pub fn start(settings: &DataplaneSettings) -> Self {
        Self::of(tun_options(settings))
    }

    /// Starts the test of these rungs.
    pub(crate) fn of(wanted: TunOptions) -> Self {
        Self::start_at(Path::new(PASSED), wanted)
    }

    fn start_at(path: &Path, wanted: TunOptions) -> Self {
        let passed = passed(path);
        let known = RUNGS
            .iter()
            .zip(flags(wanted))
            .all(|(name, wanted)| !wanted || passed.iter().any(|it| it == name));
        let verdict = || SelfTest::Passed;
        let test = match known {
            true => Err(TunVerdict {
                tso: verdict(),
                gro: verdict(),
                uso: verdict(),
            }),
            false => Ok(tun::start_self_test(wanted)),
        };
        Self {
            test,
            wanted,
            path: path.to_owned(),
        }
    }

    /// The outcome; waits for its end.
    #[must_use]
    pub fn verdict(self) -> TunVerdict {
        let verdict = match self.test {
            Ok(test) => {
                let verdict = test.verdict();
                keep(&self.path, self.wanted, &verdict);
                verdict
            }
            Err(known) => known,
        };
        log::debug!("self-test of the TUN: {verdict:?}");
        verdict
    }
}

/// The rungs that the settings want.
pub(crate) fn tun_options(settings: &DataplaneSettings) -> TunOptions {
    TunOptions {
        tso: settings.tun_gso.wanted(),
        uso: settings.tun_uso.wanted(),
        gro: settings.tun_gro.wanted(),
    }
}

/// In the order of [`RUNGS`].
fn flags(options: TunOptions) -> [bool; 3] {
    [options.tso, options.uso, options.gro]
}

/// The words that make a file one of this boot and of this program's test.
fn head() -> Option<String> {
    let boot = fs::read_to_string(BOOT).ok()?;
    Some(format!("{} {}", boot.trim(), env!("CARGO_PKG_VERSION")))
}

fn passed(path: &Path) -> Vec<String> {
    let text = || {
        let mut text = String::new();
        let file = fs::File::open(path).ok()?;
        file.take(SIZE_MAX).read_to_string(&mut text).ok()?;
        let rungs = text.strip_prefix(&head()?)?.strip_suffix('\n')?;
        Some(rungs.split_whitespace().map(str::to_owned).collect())
    };
    text().unwrap_or_default()
}

/// Keeps what passed, if nothing that was wanted did otherwise: a rung that fails is tried, and warned of, at each start.
fn keep(path: &Path, wanted: TunOptions, verdict: &TunVerdict) {
    let verdicts = [&verdict.tso, &verdict.uso, &verdict.gro];
    let passed = |(wanted, verdict): (bool, &&SelfTest)| !wanted || **verdict == SelfTest::Passed;
    let (true, Some(mut text)) = (flags(wanted).into_iter().zip(&verdicts).all(passed), head())
    else {
        return;
    };
    for (name, _) in RUNGS.iter().zip(flags(wanted)).filter(|(_, it)| *it) {
        text += &format!(" {name}");
    }
    text.push('\n');
    // Where it cannot be kept, the next start tests again.
    let kept = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| written_file::replace_for_now(path, text.as_bytes(), 0o644));
    if let Err(error) = kept {
        log::debug!("{}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: TunOptions = TunOptions::ALL;

    fn verdict(uso: SelfTest) -> TunVerdict {
        TunVerdict {
            tso: SelfTest::Passed,
            gro: SelfTest::Passed,
            uso,
        }
    }

    fn is_known(path: &Path, wanted: TunOptions) -> bool {
        TunTest::start_at(path, wanted).test.is_err()
    }

    #[test]
    fn what_has_passed_is_not_tried_again_until_the_next_boot() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/tun-selftest");
        assert!(!is_known(&path, ALL));
        keep(&path, ALL, &verdict(SelfTest::Passed));
        assert!(is_known(&path, ALL));
        let text = fs::read_to_string(&path).unwrap();
        let boot = fs::read_to_string(BOOT).unwrap();
        let other = "0".repeat(boot.trim().len());
        fs::write(&path, text.replace(boot.trim(), &other)).unwrap();
        assert!(!is_known(&path, ALL));
        // The end of a line that was not written whole.
        fs::write(&path, &text[..text.len() - 1]).unwrap();
        assert!(!is_known(&path, ALL));
    }

    #[test]
    fn what_was_not_tried_or_did_not_pass_is_tried() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tun-selftest");
        for other in [
            SelfTest::Failed("damage".to_owned()),
            SelfTest::NotRun("busy".to_owned()),
        ] {
            keep(&path, ALL, &verdict(other));
            assert!(!path.exists());
        }
        let some = TunOptions { uso: false, ..ALL };
        keep(
            &path,
            some,
            &verdict(SelfTest::NotRun("setting".to_owned())),
        );
        assert!(is_known(&path, some) && !is_known(&path, ALL));
    }
}
