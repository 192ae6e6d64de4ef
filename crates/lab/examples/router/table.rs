//! What was counted, side by side.

use std::fmt;

use crate::traffic::Cost;

/// The kinds of traffic, in columns.
pub(crate) const TRAFFIC: [&str; 3] = ["tcp up", "tcp down", "udp 64 B"];

/// Whom Millrace is compared with.
const OTHERS: [(&str, &str); 5] = [
    ("millrace-wireguard", "wireguard-go"),
    ("millrace-wireguard", "kernel-wireguard"),
    ("millrace-aes-256-gcm", "openvpn-aes-256-gcm"),
    ("millrace-aes-256-cbc-sha1", "openvpn-aes-256-cbc-sha1"),
    ("millrace-chacha20-poly1305", "openvpn-chacha20-poly1305"),
];

/// Instructions per packet: contender, traffic, figure of one repetition.
#[derive(Default)]
pub(crate) struct Table(Vec<(&'static str, &'static str, f64)>);

impl Table {
    pub(crate) fn add(&mut self, contender: &'static str, traffic: &'static str, cost: &Cost) {
        self.0.push((contender, traffic, cost.each()));
    }

    /// The repetitions' figures in order.
    fn figures(&self, contender: &str, traffic: &str) -> Vec<f64> {
        let of = |&&(name, what, _): &&(_, _, f64)| (name, what) == (contender, traffic);
        let mut figures: Vec<f64> = self.0.iter().filter(of).map(|found| found.2).collect();
        figures.sort_by(f64::total_cmp);
        figures
    }

    fn median(&self, contender: &str, traffic: &str) -> Option<f64> {
        let figures = self.figures(contender, traffic);
        figures.get(figures.len() / 2).copied()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| instructions per packet | {} |", TRAFFIC.join(" | "))?;
        writeln!(f, "|---|{}", "---:|".repeat(TRAFFIC.len()))?;
        let mut names: Vec<&str> = self.0.iter().map(|line| line.0).collect();
        names.dedup();
        for name in names {
            write!(f, "| {name} |")?;
            for traffic in TRAFFIC {
                match &self.figures(name, traffic)[..] {
                    [] => write!(f, " – |")?,
                    [one] => write!(f, " {one:.0} |")?,
                    figures @ [least, .., most] => {
                        let median = figures[figures.len() / 2];
                        write!(f, " {median:.0} ({least:.0}–{most:.0}) |")?;
                    }
                }
            }
            writeln!(f)?;
        }
        for (ours, theirs) in OTHERS {
            let ratios: Vec<String> = TRAFFIC
                .iter()
                .filter_map(|traffic| {
                    let ratio = self.median(ours, traffic)? / self.median(theirs, traffic)?;
                    Some(format!("{ratio:.2}x"))
                })
                .collect();
            if !ratios.is_empty() {
                writeln!(f, "| {ours} : {theirs} | {} |", ratios.join(" | "))?;
            }
        }
        Ok(())
    }
}
