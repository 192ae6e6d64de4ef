//! Shared code of the lab's tests.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use lab::Host;
use lab::load::{PingOptions, PingReport, ping};

/// How long a test waits for answers.
const PATIENCE: Duration = Duration::from_secs(40);

/// Asserts that `count` pings in a row are all answered. `ping` waits for the last ones at most twice the longest round
/// trip, which a busy machine exceeds; the pings are then repeated.
pub(crate) fn answered(host: &Host, target: IpAddr, count: u32) -> PingReport {
    let end = Instant::now() + PATIENCE;
    loop {
        let report = ping(host, target, &PingOptions::count(count)).unwrap();
        if report.is_perfect() {
            return report;
        }
        assert!(
            Instant::now() < end,
            "{} to {target}: {report:?}",
            host.name()
        );
    }
}
