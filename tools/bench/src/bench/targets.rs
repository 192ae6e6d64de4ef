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
const fn ratio(
    what: &'static str,
    pair: (Contender, Contender),
    figure: (Test, Metric),
    limit: Limit,
) -> Target {
    Target {
        what,
        contender: pair.0,
        baseline: Some(pair.1),
        test: figure.0,
        metric: figure.1,
        limit,
    }
}

const WIREGUARD_GO: (Contender, Contender) = (Contender::Millrace, Contender::WireguardGo);
const BORINGTUN: (Contender, Contender) = (Contender::Millrace, Contender::BoringTun);
const GOTATUN: (Contender, Contender) = (Contender::Millrace, Contender::GotaTun);
const PLAIN: (Contender, Contender) = (Contender::MillracePlain, Contender::WireguardGoPackaged);
const NULL: (Contender, Contender) = (Contender::MillraceNull, Contender::Forwarder);

const TARGETS: [Target; 21] = {
    use Limit::{AtLeast, AtMost};
    use Metric::{CpuReceive, CpuSend, P99, Packets, Rate};
    use Test::{PingLoaded, Tcp1, Tcp1Back, Udp64, Udp1300};
    [
        ratio("TCP, one stream", WIREGUARD_GO, (Tcp1, Rate), AtLeast(1.8)),
        ratio(
            "TCP, one stream back",
            WIREGUARD_GO,
            (Tcp1Back, Rate),
            AtLeast(1.8),
        ),
        ratio(
            "CPU per GB, sending",
            WIREGUARD_GO,
            (Tcp1, CpuSend),
            AtMost(0.5),
        ),
        ratio(
            "CPU per GB, receiving",
            WIREGUARD_GO,
            (Tcp1, CpuReceive),
            AtMost(0.5),
        ),
        ratio(
            "CPU per GB, sending back",
            WIREGUARD_GO,
            (Tcp1Back, CpuSend),
            AtMost(0.5),
        ),
        ratio(
            "CPU per GB, receiving back",
            WIREGUARD_GO,
            (Tcp1Back, CpuReceive),
            AtMost(0.5),
        ),
        ratio(
            "ping p99 under load",
            WIREGUARD_GO,
            (PingLoaded, P99),
            AtMost(1.0),
        ),
        ratio(
            "UDP 1300 B, loss-free",
            WIREGUARD_GO,
            (Udp1300, Packets),
            AtLeast(1.5),
        ),
        ratio(
            "UDP 64 B, loss-free",
            WIREGUARD_GO,
            (Udp64, Packets),
            AtLeast(1.5),
        ),
        ratio("TCP, one stream", BORINGTUN, (Tcp1, Rate), AtLeast(4.0)),
        ratio(
            "TCP, one stream back",
            BORINGTUN,
            (Tcp1Back, Rate),
            AtLeast(4.0),
        ),
        ratio(
            "ping p99 under load",
            BORINGTUN,
            (PingLoaded, P99),
            AtMost(1.0),
        ),
        ratio("TCP, one stream", GOTATUN, (Tcp1, Rate), AtLeast(4.0)),
        ratio(
            "TCP, one stream back",
            GOTATUN,
            (Tcp1Back, Rate),
            AtLeast(4.0),
        ),
        ratio("TCP, one stream", PLAIN, (Tcp1, Rate), AtLeast(1.2)),
        ratio(
            "TCP, one stream back",
            PLAIN,
            (Tcp1Back, Rate),
            AtLeast(1.2),
        ),
        ratio("TCP, one stream", NULL, (Tcp1, Rate), AtLeast(0.85)),
        ratio(
            "TCP, one stream back",
            NULL,
            (Tcp1Back, Rate),
            AtLeast(0.85),
        ),
        memory("RSS idle, MB", Test::Setup, Metric::Rss),
        memory("RSS after load, MB", Test::Memory, Metric::Rss),
        memory("RSS at most, MB", Test::Memory, Metric::RssPeak),
    ]
};

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
    use Limit::{AtLeast, AtMost};
    use Metric::{CpuReceive, CpuSend, Rate};
    use Test::{Tcp1, Tcp1Back};
    let mut targets = Vec::new();
    for (suite, faster, cpu) in OPENVPN {
        let against = |ends| {
            let stock = Contender::OpenVpn(Ends::Stock, suite);
            (Contender::OpenVpn(ends, suite), stock)
        };
        let both = against(Ends::Millrace);
        let mut add = |what, pair, figure, limit| targets.push(ratio(what, pair, figure, limit));
        add("TCP, one stream", both, (Tcp1, Rate), AtLeast(faster));
        add(
            "TCP, one stream back",
            both,
            (Tcp1Back, Rate),
            AtLeast(faster),
        );
        if let Some(most) = cpu {
            add("CPU per GB, sending", both, (Tcp1, CpuSend), AtMost(most));
            add(
                "CPU per GB, receiving",
                both,
                (Tcp1, CpuReceive),
                AtMost(most),
            );
        }
        if matches!(suite, Suite::NoneJumbo | Suite::GcmJumbo) {
            continue;
        }
        // The client is end a. It sends in one test and receives in the reverse test; the server is end b.
        let client = against(Ends::Client);
        let server = against(Ends::Server);
        // The cost of a set-up does not depend on the cipher.
        if suite == Suite::Gcm {
            for pair in [both, client, server] {
                add("set-up", pair, (Test::Setup, Metric::SetUp), AtMost(SET_UP));
            }
        }
        let most = AtMost(MIXED);
        add("own CPU per GB, sending", client, (Tcp1, CpuSend), most);
        add(
            "own CPU per GB, receiving",
            client,
            (Tcp1Back, CpuReceive),
            most,
        );
        add(
            "own CPU per GB, receiving",
            server,
            (Tcp1, CpuReceive),
            most,
        );
        add("own CPU per GB, sending", server, (Tcp1Back, CpuSend), most);
    }
    targets
}

/// A target for the memory of this program.
const fn memory(what: &'static str, test: Test, metric: Metric) -> Target {
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
    use Metric::{CpuReceive, CpuSend, Rate, Rss, RssPeak};
    use Test::{Memory, Tcp1, Tcp1Back};
    let (fast, cheap, small) = (
        Limit::AtLeast(0.97),
        Limit::AtMost(1.03),
        Limit::AtMost(1.0),
    );
    let figures = [
        ("TCP, one stream", (Tcp1, Rate), fast),
        ("TCP, one stream back", (Tcp1Back, Rate), fast),
        ("CPU per GB, sending", (Tcp1, CpuSend), cheap),
        ("CPU per GB, receiving", (Tcp1, CpuReceive), cheap),
        ("CPU per GB, sending back", (Tcp1Back, CpuSend), cheap),
        ("CPU per GB, receiving back", (Tcp1Back, CpuReceive), cheap),
        ("RSS after load", (Memory, Rss), small),
        ("RSS at most", (Memory, RssPeak), small),
    ];
    pairs_against()
        .flat_map(move |pair| figures.map(|(what, figure, limit)| ratio(what, pair, figure, limit)))
}

/// All targets for which this run has results.
pub(super) fn table(records: &Records) -> Table {
    judge(TARGETS.into_iter().chain(openvpn()), records)
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
