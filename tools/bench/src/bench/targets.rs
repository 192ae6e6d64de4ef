//! The project's targets, compared with the results of this run.

use super::contender::{Contender, pairs_against};
use super::openvpn::{Ends, Suite};
use super::records::Records;
use super::table::Table;
use super::test::{Metric, Test};
use crate::bench::table::{Spread, number};

/// A limit for a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

/// One target.
#[derive(Debug, Clone, Copy)]
struct Target {
    what: &'static str,
    contender: Contender,
    /// The contender to compare with; `None` for an absolute figure.
    baseline: Option<Contender>,
    test: Test,
    metric: Metric,
    limit: Limit,
}

/// A target relative to another implementation, by the median of the ratios.
fn ratio(what: &'static str, pair: Pair, figure: (Test, Metric), limit: Limit) -> Target {
    Target {
        what,
        contender: pair.0,
        baseline: Some(pair.1),
        test: figure.0,
        metric: figure.1,
        limit,
    }
}

/// A contender, and the one to compare it with.
type Pair = (Contender, Contender);

/// The targets for the rate of one TCP stream: there and back.
fn rates(pair: Pair, least: f64) -> [Target; 2] {
    [
        ("TCP, one stream", Test::Tcp1),
        ("TCP, one stream back", Test::Tcp1Back),
    ]
    .map(|(what, test)| ratio(what, pair, (test, Metric::Rate), Limit::AtLeast(least)))
}

/// The targets for the processor time of one TCP stream: there, then back.
fn processor(pair: Pair, most: f64) -> [Target; 4] {
    use Metric::{CpuReceive, CpuSend};
    use Test::{Tcp1, Tcp1Back};
    [
        ("CPU per GB, sending", (Tcp1, CpuSend)),
        ("CPU per GB, receiving", (Tcp1, CpuReceive)),
        ("CPU per GB, sending back", (Tcp1Back, CpuSend)),
        ("CPU per GB, receiving back", (Tcp1Back, CpuReceive)),
    ]
    .map(|(what, figure)| ratio(what, pair, figure, Limit::AtMost(most)))
}

/// The targets for WireGuard and for the memory of this program.
fn wireguard() -> Vec<Target> {
    let against = |other| (Contender::Millrace, other);
    let latency = |pair| {
        let figure = (Test::PingLoaded, Metric::P99);
        ratio("ping p99 under load", pair, figure, Limit::AtMost(1.0))
    };
    let go = against(Contender::WireguardGo);
    let datagrams = |what, test| ratio(what, go, (test, Metric::Packets), Limit::AtLeast(1.5));
    let boringtun = against(Contender::BoringTun);
    let plain = (Contender::MillracePlain, Contender::WireguardGoPackaged);
    let null = (Contender::MillraceNull, Contender::Forwarder);
    let mut targets = Vec::new();
    targets.extend(rates(go, 1.8));
    targets.extend(processor(go, 0.5));
    targets.push(latency(go));
    targets.push(datagrams("UDP 1300 B, loss-free", Test::Udp1300));
    targets.push(datagrams("UDP 64 B, loss-free", Test::Udp64));
    targets.extend(rates(boringtun, 4.0));
    targets.push(latency(boringtun));
    targets.extend(rates(against(Contender::GotaTun), 4.0));
    targets.extend(rates(plain, 1.2));
    targets.extend(rates(null, 0.85));
    targets.push(memory("RSS idle, MB", Test::Setup, Metric::Rss));
    targets.push(memory("RSS after load, MB", Test::Memory, Metric::Rss));
    targets.push(memory("RSS at most, MB", Test::Memory, Metric::RssPeak));
    targets
}

/// The targets for OpenVPN: suite, ratio of one TCP stream to that of stock at both ends, and optionally ratio of
/// processor time per gigabyte at each end.
const OPENVPN: [(Suite, f64, Option<f64>); 7] = [
    (Suite::None, 8.0, None),
    (Suite::Gcm, 6.0, Some(0.2)),
    (Suite::ChaCha, 6.0, None),
    (Suite::Cbc, 8.0, Some(0.15)),
    (Suite::Bf, 2.0, None),
    (Suite::NoneJumbo, 1.5, None),
    (Suite::GcmJumbo, 1.5, None),
];

/// Target with a stock program at the other end: our end's processor time relative to a stock end's. Jumbo packets
/// have their own target.
const MIXED: f64 = 0.25;

/// Target for the time from the start of the client's process to the first answer through the tunnel.
const SET_UP: f64 = 1.5;

fn openvpn() -> Vec<Target> {
    use Metric::{CpuReceive, CpuSend};
    use Test::{Tcp1, Tcp1Back};
    let mut targets = Vec::new();
    for (suite, faster, cpu) in OPENVPN {
        let against = |ends| {
            let stock = Contender::OpenVpn(Ends::Stock, suite);
            (Contender::OpenVpn(ends, suite), stock)
        };
        let both = against(Ends::Millrace);
        targets.extend(rates(both, faster));
        if let Some(most) = cpu {
            targets.extend(&processor(both, most)[..2]);
        }
        if matches!(suite, Suite::NoneJumbo | Suite::GcmJumbo) {
            continue;
        }
        // The client is end a. It sends in one test and receives in the reverse test; the server is end b.
        let client = against(Ends::Client);
        let server = against(Ends::Server);
        let mut add =
            |what, pair, figure, most| targets.push(ratio(what, pair, figure, Limit::AtMost(most)));
        // The cost of a set-up does not depend on the cipher.
        if suite == Suite::Gcm {
            for pair in [both, client, server] {
                add("set-up", pair, (Test::Setup, Metric::SetUp), SET_UP);
            }
        }
        let (sending, receiving) = ("own CPU per GB, sending", "own CPU per GB, receiving");
        add(sending, client, (Tcp1, CpuSend), MIXED);
        add(receiving, client, (Tcp1Back, CpuReceive), MIXED);
        add(receiving, server, (Tcp1, CpuReceive), MIXED);
        add(sending, server, (Tcp1Back, CpuSend), MIXED);
    }
    targets
}

/// A target for the memory of this program.
fn memory(what: &'static str, test: Test, metric: Metric) -> Target {
    Target {
        what,
        contender: Contender::Millrace,
        baseline: None,
        test,
        metric,
        limit: Limit::AtMost(8.0),
    }
}

impl Target {
    fn measured(&self, records: &Records) -> Option<Spread> {
        match self.baseline {
            Some(baseline) => records.ratio(self.contender, baseline, self.test, self.metric),
            None => records.spread(self.contender, self.test, self.metric),
        }
    }
}

/// Whether a value meets a limit; if not, by how many percent of the limit it misses.
fn verdict(value: f64, limit: Limit) -> String {
    let short = match limit {
        Limit::AtLeast(limit) => 1.0 - value / limit,
        Limit::AtMost(limit) => value / limit - 1.0,
    };
    if short <= 0.0 {
        "PASS".to_owned()
    } else {
        format!("short by {:.0} %", (short * 100.0).max(1.0))
    }
}

/// The targets for this program against another build: no slower and no larger, with a tolerance for the difference
/// between two runs.
fn against_another() -> impl Iterator<Item = Target> {
    pairs_against().flat_map(|pair| {
        let small = |what, metric| ratio(what, pair, (Test::Memory, metric), Limit::AtMost(1.0));
        let mut targets = rates(pair, 0.97).to_vec();
        targets.extend(processor(pair, 1.03));
        targets.push(small("RSS after load", Metric::Rss));
        targets.push(small("RSS at most", Metric::RssPeak));
        targets
    })
}

/// All targets for which this run has results.
pub(super) fn table(records: &Records) -> Table {
    judge(wireguard().into_iter().chain(openvpn()), records)
}

/// The comparison with another build of this program.
pub(super) fn against(records: &Records) -> Table {
    judge(against_another(), records)
}

fn judge(targets: impl Iterator<Item = Target>, records: &Records) -> Table {
    let mut table = Table::of_words(["target", "against", "wanted", "measured", "verdict"]);
    for target in targets {
        let Some(spread) = target.measured(records) else {
            continue;
        };
        let unit = if target.baseline.is_some() { "x" } else { "" };
        let wanted = match target.limit {
            Limit::AtLeast(limit) => format!(">= {}{unit}", number(limit)),
            Limit::AtMost(limit) => format!("<= {}{unit}", number(limit)),
        };
        table.row([
            format!("{}: {}", target.contender.name(), target.what),
            target.baseline.map_or("", Contender::name).to_owned(),
            wanted,
            spread.show(unit),
            verdict(spread.median, target.limit),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::records::tests::noisy;

    #[test]
    fn verdicts_go_both_ways() {
        assert_eq!(verdict(1.8, Limit::AtLeast(1.8)), "PASS");
        assert_eq!(verdict(1.6, Limit::AtLeast(2.0)), "short by 20 %");
        assert_eq!(verdict(0.5, Limit::AtMost(0.5)), "PASS");
        assert_eq!(verdict(0.6, Limit::AtMost(0.5)), "short by 20 %");
        assert_eq!(verdict(7.999, Limit::AtMost(8.0)), "PASS");
    }

    #[test]
    fn only_what_was_measured_is_judged() {
        let text = table(&noisy()).render();
        assert_eq!(text.lines().count(), 2 + 3, "{text}");
        assert!(text.contains("PASS") && text.contains(">= 1.80x"), "{text}");
        assert!(table(&Records::default()).is_empty());
    }
}
