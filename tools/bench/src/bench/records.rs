//! All results of a run.

use super::contender::Contender;
use super::test::{Metric, Test};
use crate::bench::table::{Series, Spread, ratios};

/// The values of one test of one implementation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    pub repetition: u32,
    pub test: Test,
    pub contender: Contender,
    pub values: Vec<(Metric, f64)>,
}

/// Why one test of one implementation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub repetition: u32,
    pub test: Test,
    pub contender: Contender,
    pub error: String,
}

/// All records and failures, in the order of measurement.
#[derive(Debug, Clone, Default)]
pub(super) struct Records {
    pub records: Vec<Record>,
    pub failures: Vec<Failure>,
}

impl Records {
    /// The values of one figure, by repetition.
    pub(super) fn series(&self, contender: Contender, test: Test, metric: Metric) -> Series {
        let of = |record: &&Record| record.contender == contender && record.test == test;
        self.records
            .iter()
            .filter(of)
            .filter_map(|record| {
                let found = record.values.iter().find(|(key, _)| *key == metric);
                found.map(|(_, value)| (record.repetition, *value))
            })
            .collect()
    }

    /// The spread of one figure over the repetitions.
    pub(super) fn spread(
        &self,
        contender: Contender,
        test: Test,
        metric: Metric,
    ) -> Option<Spread> {
        let series = self.series(contender, test, metric);
        Spread::of(series.into_iter().map(|(_, value)| value))
    }

    /// The spread of the ratio of one figure to that of `reference`, computed within each repetition.
    pub(super) fn ratio(
        &self,
        contender: Contender,
        reference: Contender,
        test: Test,
        metric: Metric,
    ) -> Option<Spread> {
        Spread::of(ratios(
            &self.series(contender, test, metric),
            &self.series(reference, test, metric),
        ))
    }

    /// The spread of one figure over all contenders.
    pub(super) fn everywhere(&self, metric: Metric) -> Option<Spread> {
        let values = self.records.iter().flat_map(|record| &record.values);
        Spread::of(
            values
                .filter(|(key, _)| *key == metric)
                .map(|(_, value)| *value),
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two repetitions: the machine is fast in one and slow in the other.
    pub(crate) fn noisy() -> Records {
        let mut records = Records::default();
        for (repetition, speed) in [(0, 1.0), (1, 0.5)] {
            for (contender, rate) in [
                (Contender::Millrace, 4000.0),
                (Contender::WireguardGo, 2000.0),
            ] {
                records.records.push(Record {
                    repetition,
                    test: Test::Tcp1,
                    contender,
                    values: vec![
                        (Metric::Rate, rate * speed),
                        (Metric::CpuSend, 6000.0 / rate / speed),
                        (Metric::CpuReceive, 6000.0 / rate / speed),
                        (Metric::Stolen, 0.1),
                    ],
                });
            }
        }
        records
    }

    #[test]
    fn noise_that_hits_both_cancels_out() {
        let records = noisy();
        let (ours, theirs) = (Contender::Millrace, Contender::WireguardGo);
        let rate = records.spread(ours, Test::Tcp1, Metric::Rate).unwrap();
        assert_eq!((rate.min, rate.max), (2000.0, 4000.0));
        let ratio = records
            .ratio(ours, theirs, Test::Tcp1, Metric::Rate)
            .unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (2.0, 2.0, 2.0));
        assert!(records.spread(ours, Test::Tcp4, Metric::Rate).is_none());
        assert_eq!(records.everywhere(Metric::Stolen).unwrap().max, 0.1);
    }
}
