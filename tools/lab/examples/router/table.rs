//! Shows the counts side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::machine::{Facts, SEGMENTS};
use crate::traffic::Cost;

/// The kinds of traffic, in columns.
pub(crate) const TRAFFIC: [&str; 3] = ["tcp up", "tcp down", "udp 64 B"];

/// The programs that are compared, the first with the second.
const OTHERS: [(&str, &str); 9] = [
    ("millrace-amneziawg-2.0", "millrace-wireguard"),
    ("millrace-amneziawg-3.1", "millrace-wireguard"),
    ("millrace-wireguard", "wireguard-go"),
    ("millrace-wireguard", "kernel-wireguard"),
    ("millrace-aes-256-gcm", "openvpn-aes-256-gcm"),
    ("millrace-aes-256-cbc-sha1", "openvpn-aes-256-cbc-sha1"),
    ("millrace-chacha20-poly1305", "openvpn-chacha20-poly1305"),
    ("millrace-pptp", "kernel-pptp"),
    ("millrace-pptp", "pptp-linux"),
];

/// The result of one repetition of one kind of traffic.
struct Line {
    contender: &'static str,
    traffic: &'static str,
    /// Instructions per packet, acknowledgements per packet, packets per super-packet.
    figures: [f64; 3],
}

/// All repetitions of all contenders.
#[derive(Default)]
pub(crate) struct Table {
    lines: Vec<Line>,
    kernels: BTreeSet<String>,
    /// The back ends seen, by contender.
    backends: BTreeMap<&'static str, BTreeSet<String>>,
    /// Maximum memory that each contender held, before traffic and after it, in KiB.
    memory: BTreeMap<&'static str, [u64; 2]>,
}

impl Table {
    pub(crate) fn add(&mut self, contender: &'static str, traffic: &'static str, cost: &Cost) {
        self.lines.push(Line {
            contender,
            traffic,
            figures: [cost.each(), cost.acknowledgements(), cost.together()],
        });
    }

    /// Records the memory that a contender held in a repetition.
    pub(crate) fn memory(&mut self, contender: &'static str, held: [u64; 2]) {
        let most = self.memory.entry(contender).or_default();
        *most = [most[0].max(held[0]), most[1].max(held[1])];
    }

    /// Under which conditions a repetition was counted.
    pub(crate) fn conditions(&mut self, contender: &'static str, facts: Facts) {
        self.kernels.insert(facts.kernel);
        let backends = self.backends.entry(contender).or_default();
        backends.extend(facts.backend);
    }

    /// The repetitions' figures in order.
    fn figures(&self, contender: &str, traffic: &str, which: usize) -> Vec<f64> {
        let of = |line: &&Line| (line.contender, line.traffic) == (contender, traffic);
        let lines = self.lines.iter().filter(of);
        let mut figures: Vec<f64> = lines.map(|line| line.figures[which]).collect();
        figures.sort_by(f64::total_cmp);
        figures
    }

    fn median(&self, contender: &str, traffic: &str, which: usize) -> Option<f64> {
        let figures = self.figures(contender, traffic, which);
        figures.get(figures.len() / 2).copied()
    }

    /// Names of the contenders, in the order of the first repetition.
    fn names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for line in &self.lines {
            if !names.contains(&line.contender) {
                names.push(line.contender);
            }
        }
        names
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels: Vec<&str> = self.kernels.iter().map(String::as_str).collect();
        writeln!(
            f,
            "Kernel {}; at least {SEGMENTS} segments at once (tcp_min_tso_segs) at both ends; median (least–most) of \
             repetitions, contenders taking turns.\n",
            kernels.join(", ")
        )?;
        writeln!(
            f,
            "| instructions per packet | {} | back end |",
            TRAFFIC.join(" | ")
        )?;
        writeln!(f, "|---|{}---|", "---:|".repeat(TRAFFIC.len()))?;
        for name in self.names() {
            write!(f, "| {name} |")?;
            for traffic in TRAFFIC {
                match &self.figures(name, traffic, 0)[..] {
                    [] => write!(f, " – |")?,
                    [one] => write!(f, " {one:.0} |")?,
                    figures @ [least, .., most] => {
                        let median = figures[figures.len() / 2];
                        write!(f, " {median:.0} ({least:.0}–{most:.0}) |")?;
                    }
                }
            }
            let backends = self.backends.get(name).into_iter().flatten();
            let backends: Vec<&str> = backends.map(String::as_str).collect();
            writeln!(f, " {} |", backends.join(", "))?;
        }
        for (ours, theirs) in OTHERS {
            let ratios: Vec<String> = TRAFFIC
                .iter()
                .filter_map(|traffic| {
                    let ratio = self.median(ours, traffic, 0)? / self.median(theirs, traffic, 0)?;
                    Some(format!("{ratio:.2}x"))
                })
                .collect();
            if !ratios.is_empty() {
                writeln!(f, "| {ours} : {theirs} | {} | |", ratios.join(" | "))?;
            }
        }
        writeln!(
            f,
            "\n| acknowledgements per data packet, packets per super-packet | {} |",
            TRAFFIC.join(" | ")
        )?;
        writeln!(f, "|---|{}", "---:|".repeat(TRAFFIC.len()))?;
        for name in self.names() {
            write!(f, "| {name} |")?;
            for traffic in TRAFFIC {
                let median = |which| self.median(name, traffic, which).unwrap_or(0.0);
                write!(f, " {:.2}, {:.1} |", median(1), median(2))?;
            }
            writeln!(f)?;
        }
        writeln!(
            f,
            "\n| resident memory of the VPN's processes, MB, most of the repetitions | idle | after the traffic |"
        )?;
        writeln!(f, "|---|---:|---:|")?;
        for name in self.names() {
            let [idle, after] = self.memory.get(name).copied().unwrap_or_default();
            // The kernel's VPN has no process.
            if after != 0 {
                let mb = |kib: u64| kib as f64 * 1024.0 / 1e6;
                writeln!(f, "| {name} | {:.1} | {:.1} |", mb(idle), mb(after))?;
            }
        }
        Ok(())
    }
}
