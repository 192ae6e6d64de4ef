//! Runs the TUN self-test, once for each boot.
//!
//! The result depends on the kernel, and holds until another kernel runs. The test needs a network namespace, and
//! making or removing one takes the kernel's single networking lock for milliseconds. So a start after a passed test
//! skips it.

use config::settings::DataplaneSettings;
use host::written_file;
use netio::tun::{self, TunOptions, TunVerdict};
use netio::udp::SelfTest;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// File with the features that have passed.
const PASSED: &str = "/run/millrace/tun-selftest";

/// A number that the kernel chooses at each boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Maximum number of bytes of the file that are read.
const SIZE_MAX: u64 = 256;

/// Names of the features in the file.
const RUNGS: [&str; 3] = ["tso", "uso", "gro"];

/// A self-test that runs in the background, or has passed since the boot.
#[derive(Debug)]
pub struct TunProbe {
    test: Result<tun::TunProbe, TunVerdict>,
    wanted: TunOptions,
    path: PathBuf,
}

impl TunProbe {
    /// Starts the test of the features that the settings request, unless they have passed since the boot.
    ///
    /// Call it before privileges are dropped: the test needs a network namespace of its own.
    #[must_use]
    pub fn start(settings: &DataplaneSettings) -> Self {
        Self::of(tun_options(settings))
    }

    /// Starts the test of these features.
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

    /// Waits for the end of the test, and returns the result.
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

/// The features that the settings request.
pub(crate) fn tun_options(settings: &DataplaneSettings) -> TunOptions {
    TunOptions {
        tso: settings.tun_gso.wanted(),
        uso: settings.tun_uso.wanted(),
        gro: settings.tun_gro.wanted(),
    }
}

/// The options in the order of [`RUNGS`].
fn flags(options: TunOptions) -> [bool; 3] {
    [options.tso, options.uso, options.gro]
}

/// The first words of a file that this boot and this version of the test have written.
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

/// Saves the result if all requested features passed: a failed feature is tested, and warned about, at each start.
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
    // If the file cannot be written, the next start tests again.
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
        TunProbe::start_at(path, wanted).test.is_err()
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
        // The end of a line that was cut off.
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
