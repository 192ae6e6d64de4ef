//! Loads: they send traffic and measure how well the network carries it.

mod echo;
mod handshakes;
mod http;
mod iperf;
mod ping;
mod udp;

pub use echo::EchoServer;
pub use handshakes::WgClients;
pub use http::{HttpLoad, HttpReport, HttpServer, HttpWatch};
pub use iperf::{Direction, Flow, Iperf, IperfReport, IperfServer, Transport};
pub use ping::{PingOptions, PingReport, ping};
pub use udp::{LossFree, UDP_QUIET, UdpLoad, UdpReport, highest_loss_free, udp_load};

use std::time::Duration;

/// Sorted durations and their statistics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Sorts the measured durations.
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The number of durations.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no durations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The mean, or zero if there are no durations.
    pub fn mean(&self) -> Duration {
        let count = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0
            .iter()
            .sum::<Duration>()
            .checked_div(count)
            .unwrap_or_default()
    }

    /// The time that a fraction of the durations (0 to 1) does not exceed, or zero if there are none.
    pub fn quantile(&self, fraction: f64) -> Duration {
        let last = self.0.len().saturating_sub(1);
        let rank = (self.0.len() as f64 * fraction).ceil() as usize;
        self.0
            .get(rank.saturating_sub(1).min(last))
            .copied()
            .unwrap_or_default()
    }

    /// Returns the median duration.
    pub fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    /// Returns the shortest duration.
    pub fn min(&self) -> Duration {
        self.0.first().copied().unwrap_or_default()
    }

    /// Returns the longest duration.
    pub fn max(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_values() {
        let ms = Duration::from_millis;
        let times = Times::new((1..=100).rev().map(ms).collect());
        assert_eq!(times.quantile(0.99), ms(99));
        assert_eq!(times.median(), ms(50));
        assert_eq!((times.min(), times.max()), (ms(1), ms(100)));
        assert_eq!(times.mean(), Duration::from_micros(50_500));
        let none = Times::default();
        assert_eq!(
            (none.mean(), none.quantile(0.5)),
            (Duration::ZERO, Duration::ZERO)
        );
    }
}
