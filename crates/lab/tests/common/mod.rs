//! Shared code of the lab's tests.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use lab::Host;
use lab::load::{PingOptions, PingReport, ping};

/// How long answers may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(40);

/// Asserts that so many pings in a row are all answered. `ping` waits for the last ones no longer than twice
/// the longest of the others took, which a busy machine exceeds: then they are sent again.
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
