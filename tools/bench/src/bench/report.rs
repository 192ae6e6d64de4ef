//! The report in Markdown, also readable in a terminal; and the results as JSON: every value of every repetition.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use host::machine::Machine;
use serde::Serialize;

use crate::bench::contender::Contender;
use crate::bench::openvpn::Ends;
use crate::bench::records::Records;
use crate::bench::table::Table;
use crate::bench::targets;
use crate::bench::test::{Metric, Test};

/// The settings of the run, and facts about the machine.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub machine: Machine,
    pub repetitions: u32,
    pub seconds: u32,
    pub segmentation: bool,
    /// The reference for ratios of tunnels without OpenVPN.
    pub reference: Contender,
    /// Whether another build of this program is the reference.
    pub against: bool,
    pub contenders: Vec<Contender>,
    /// The requested contenders that are not installed, with installation advice.
    pub missing: Vec<(Contender, String)>,
    /// The versions that the programs and tools print.
    pub versions: Vec<(String, String)>,
}

impl Run {
    /// The reference for ratios of `contender`: the other build of this program if there is one, else for OpenVPN the
    /// stock program with the same cipher.
    pub(super) fn reference_of(&self, contender: Contender) -> Contender {
        match contender {
            Contender::OpenVpn(_, suite) if self.against => Contender::OpenVpn(Ends::Other, suite),
            _ if self.against => Contender::Other,
            Contender::OpenVpn(_, suite) => Contender::OpenVpn(Ends::Stock, suite),
            Contender::AmneziaWg { of, .. } => Contender::AmneziaWg { ours: false, of },
            _ => self.reference,
        }
    }
}

struct Column(&'static str, Test, Metric);

/// The tables: title, explanation, columns.
const TABLES: [(&str, &str, &[Column]); 5] = [
    (
        "Throughput",
        "TCP in Mbit/s of payload, all streams together; UDP at the highest loss-free rate",
        &[
            Column("TCP 1", Test::Tcp1, Metric::Rate),
            Column("TCP 1 back", Test::Tcp1Back, Metric::Rate),
            Column("TCP 4", Test::Tcp4, Metric::Rate),
            Column("TCP 4 both ways", Test::Tcp4Both, Metric::Rate),
            Column("UDP 1300 B, Mbit/s", Test::Udp1300, Metric::Rate),
            Column("UDP 64 B, kpackets/s", Test::Udp64, Metric::Packets),
        ],
    ),
    (
        "Processor time",
        "CPU seconds (user and system) of each end's process per gigabyte (1e9 B) of payload; smaller is better",
        &[
            Column("TCP 1 send", Test::Tcp1, Metric::CpuSend),
            Column("receive", Test::Tcp1, Metric::CpuReceive),
            Column("back send", Test::Tcp1Back, Metric::CpuSend),
            Column("receive", Test::Tcp1Back, Metric::CpuReceive),
            Column("TCP 4 send", Test::Tcp4, Metric::CpuSend),
            Column("receive", Test::Tcp4, Metric::CpuReceive),
            Column("UDP 1300 send", Test::Udp1300, Metric::CpuSend),
            Column("receive", Test::Udp1300, Metric::CpuReceive),
        ],
    ),
    (
        "Time",
        "round trips in µs, set-up in ms from the caller's configuration to the first answer; smaller is better",
        &[
            Column("ping mean", Test::Ping, Metric::Mean),
            Column("ping p99", Test::Ping, Metric::P99),
            Column("mean under load", Test::PingLoaded, Metric::Mean),
            Column("p99 under load", Test::PingLoaded, Metric::P99),
            Column("lost under load, %", Test::PingLoaded, Metric::Loss),
            Column("set-up", Test::Setup, Metric::SetUp),
        ],
    ),
    (
        "Files over HTTP",
        "as `ab -k -c 8 -n 500` measures it: 500 files of 1 MB on eight connections from b to a; Kbyte of 1024 bytes",
        &[
            Column("Kbyte/s", Test::Http, Metric::Kbytes),
            Column("requests/s", Test::Http, Metric::Requests),
            Column("CPU s/GB send", Test::Http, Metric::CpuSend),
            Column("receive", Test::Http, Metric::CpuReceive),
        ],
    ),
    (
        "Memory",
        "MB (1e6 B) in RAM of the bigger end; smaller is better",
        &[
            Column("idle", Test::Setup, Metric::Rss),
            Column("after all loads", Test::Memory, Metric::Rss),
            Column("at most", Test::Memory, Metric::RssPeak),
        ],
    ),
];

/// Formats the whole report.
pub(super) fn markdown(run: &Run, records: &Records) -> String {
    let mut text = String::from("# millrace bench\n\n");
    let _ = head(&mut text, run, records);
    for (title, unit, columns) in TABLES {
        let absolute = table(run, columns, |contender, test, metric| {
            Some(records.spread(contender, test, metric)?.show(""))
        });
        if absolute.is_empty() {
            continue;
        }
        let _ = write!(text, "\n## {title}\n\n{unit}.\n\n{}", absolute.render());
        let ratios = table(run, columns, |contender, test, metric| {
            let ratio = records.ratio(contender, run.reference_of(contender), test, metric)?;
            Some(ratio.show("x"))
        });
        if !ratios.is_empty() {
            let of_openvpn = |one: &Contender| matches!(one, Contender::OpenVpn(..));
            let of_amneziawg = |one: &Contender| matches!(one, Contender::AmneziaWg { .. });
            let reference = if run.against {
                "the other program"
            } else if run.contenders.iter().all(of_openvpn) {
                "the stock OpenVPN at both ends with the same cipher"
            } else {
                run.reference.name()
            };
            let of_its_own = match run.contenders.iter().any(of_amneziawg) {
                true => "; of AmneziaWG to the authors' program",
                false => "",
            };
            let _ = write!(
                text,
                "\nRatio to {reference}{of_its_own}, taken in each repetition: median (min–max).\n\n{}",
                ratios.render()
            );
        }
    }
    let targets = if run.against {
        targets::against(records)
    } else {
        targets::table(records)
    };
    if !targets.is_empty() {
        let _ = write!(
            text,
            "\n## Targets of the project\n\nBy the median of the ratios.\n\n{}",
            targets.render()
        );
    }
    if !records.failures.is_empty() {
        text += "\n## Failed\n\n";
        for failure in &records.failures {
            let (test, name) = (failure.test.name(), failure.contender.name());
            let number = failure.repetition + 1;
            let _ = writeln!(
                text,
                "- {name}, {test}, repetition {number}: {}",
                failure.error
            );
        }
    }
    text
}

fn head(text: &mut String, run: &Run, records: &Records) -> std::fmt::Result {
    let cable = if run.segmentation {
        "a veth pair with all offloads, which favours programs that send super-packets"
    } else {
        "a veth pair without segmentation offloads, like a card without TSO and USO"
    };
    writeln!(text, "{}.\n", run.machine.show())?;
    writeln!(
        text,
        "Both ends of each tunnel, the load and its sink share this one machine, over {cable}; only the ratios apply \
         to other machines. {} repetitions, {} s each; every repetition runs each test with all implementations, one \
         after the other. UDP counts as loss-free up to 0.1 % lost in trials of {:.1} s: a rate that loses more twice \
         is too high, found by bisection.",
        run.repetitions,
        run.seconds,
        f64::from(run.seconds) / 6.0,
    )?;
    if let (Some(busy), Some(stolen)) = (
        records.everywhere(Metric::Busy),
        records.everywhere(Metric::Stolen),
    ) {
        writeln!(
            text,
            "Processors busy during loads: {}; stolen by the hypervisor: {}.",
            busy.show(""),
            stolen.show("")
        )?;
    }
    if cfg!(debug_assertions) {
        writeln!(
            text,
            "THIS IS A DEBUG BUILD: the figures of millrace and of the forwarder are meaningless."
        )?;
    }
    text.push('\n');
    for contender in &run.contenders {
        writeln!(text, "- {}: {}", contender.name(), contender.what())?;
    }
    for (contender, why) in &run.missing {
        writeln!(text, "- {} is missing: {why}", contender.name())?;
    }
    for (name, version) in &run.versions {
        writeln!(text, "- version of {name}: {version}")?;
    }
    Ok(())
}

/// A table with a row for each implementation and a column for each figure that any of them has.
fn table(
    run: &Run,
    columns: &[Column],
    figure: impl Fn(Contender, Test, Metric) -> Option<String>,
) -> Table {
    let has = |Column(_, test, metric): &&Column| {
        let mut all = run.contenders.iter();
        all.any(|contender| figure(*contender, *test, *metric).is_some())
    };
    let columns: Vec<&Column> = columns.iter().filter(has).collect();
    let headings = columns.iter().map(|Column(heading, ..)| *heading);
    let mut table = Table::new(std::iter::once("").chain(headings));
    if columns.is_empty() {
        return table;
    }
    for contender in &run.contenders {
        let cells = columns.iter().map(|Column(_, test, metric)| {
            figure(*contender, *test, *metric).unwrap_or_else(|| "–".to_owned())
        });
        table.row(std::iter::once(contender.name().to_owned()).chain(cells));
    }
    table
}

#[derive(Serialize)]
struct Document<'a> {
    machine: &'a Machine,
    repetitions: u32,
    seconds: u32,
    segmentation_offload_of_the_cable: bool,
    versions: BTreeMap<&'a str, &'a str>,
    missing: BTreeMap<&'static str, &'a str>,
    records: Vec<Value<'a>>,
    failures: Vec<Value<'a>>,
}

#[derive(Serialize)]
struct Value<'a> {
    repetition: u32,
    test: &'static str,
    implementation: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<&'static str, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Writes the results as one JSON document.
///
/// # Errors
/// If a value cannot be serialized, which does not happen.
pub(super) fn json(run: &Run, records: &Records) -> serde_json::Result<String> {
    let values = records.records.iter().map(|record| Value {
        repetition: record.repetition,
        test: record.test.name(),
        implementation: record.contender.name(),
        values: record
            .values
            .iter()
            .map(|(metric, value)| (metric.key(), *value))
            .collect(),
        error: None,
    });
    let failures = records.failures.iter().map(|failure| Value {
        repetition: failure.repetition,
        test: failure.test.name(),
        implementation: failure.contender.name(),
        values: BTreeMap::new(),
        error: Some(&failure.error),
    });
    let missing = run.missing.iter();
    let versions = run.versions.iter();
    let document = Document {
        machine: &run.machine,
        repetitions: run.repetitions,
        seconds: run.seconds,
        segmentation_offload_of_the_cable: run.segmentation,
        versions: versions.map(|(k, v)| (k.as_str(), v.as_str())).collect(),
        missing: missing.map(|(k, v)| (k.name(), v.as_str())).collect(),
        records: values.collect(),
        failures: failures.collect(),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::records::tests::noisy;

    pub(crate) fn run() -> Run {
        Run {
            machine: Machine {
                processors: 2,
                model: "Xeon".to_owned(),
                kernel: "6.1".to_owned(),
                memory_mb: 1000,
            },
            repetitions: 2,
            seconds: 3,
            segmentation: true,
            reference: Contender::WireguardGo,
            against: false,
            contenders: vec![Contender::Millrace, Contender::WireguardGo],
            missing: vec![(Contender::GotaTun, "run `make peers`".to_owned())],
            versions: Vec::new(),
        }
    }

    #[test]
    fn another_build_is_the_reference_and_is_judged() {
        let run = Run {
            against: true,
            contenders: vec![Contender::Millrace, Contender::Other],
            ..run()
        };
        let mut records = noisy();
        for record in &mut records.records {
            if record.contender == Contender::WireguardGo {
                record.contender = Contender::Other;
            }
        }
        let text = markdown(&run, &records);
        assert!(text.contains("Ratio to the other program"), "{text}");
        let row = "| millrace: TCP, one stream       | other   | >= 0.97x |";
        assert!(text.contains(row), "{text}");
        assert!(!text.contains("wireguard-go"), "{text}");
        let suite = crate::bench::openvpn::Suite::GcmTcp;
        let reference = run.reference_of(Contender::OpenVpn(Ends::Millrace, suite));
        assert_eq!(reference.name(), "other-gcm-tcp");
    }

    #[test]
    fn tables_have_what_was_measured_and_no_more() {
        let text = markdown(&run(), &noisy());
        assert!(
            text.contains("| millrace     | 3000 (2000–4000) |"),
            "{text}"
        );
        assert!(text.contains("2.00x"), "{text}");
        assert!(text.contains("gotatun is missing: run `make peers`"));
        for absent in ["TCP 4", "## Memory", "## Failed"] {
            assert!(!text.contains(absent), "{text}");
        }
    }

    #[test]
    fn every_value_has_its_place_and_unit() {
        let document = json(&run(), &noisy()).unwrap();
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let page = include_str!("../../../../docs/json.md");
        for name in document.as_object().unwrap().keys() {
            assert!(page.contains(&format!("- `{name}`: ")), "{name}");
        }
        let first = &document["records"][0];
        assert_eq!(first["implementation"], "millrace");
        assert_eq!(first["test"], "tcp1");
        assert_eq!(first["values"]["mbit_per_s"], 4000.0);
        assert_eq!(document["machine"]["processors"], 2);
    }
}
