//! The report for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::examine::Audit;
use crate::role::Role;
use crate::soc::{Soc, Vfp};
use crate::verdict::{Finding, Gain, Verdict};

/// How much the text report shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// Lists each file separately, including files without faults and files that handle no packets.
    pub all: bool,
}

/// Maximum number of groups of findings that get a paragraph each.
const TOLD: usize = 12;
/// Maximum number of file names that the report lists for a group.
const NAMES: usize = 4;

/// A report for people.
#[must_use]
pub fn text(audit: &Audit<'_>, options: TextOptions) -> String {
    let mut out = String::new();
    head(&mut out, audit);
    let worth = |finding: &&Finding| finding.is_worth_fixing();
    let faulty: Vec<&Finding> = audit.findings.iter().filter(worth).collect();
    // Files that handle packets get a paragraph each; the others are grouped by their faults.
    let hot = |group: &Vec<&Finding>| options.all || group[0].role.heat() > Role::Module.heat();
    let told = if options.all { usize::MAX } else { TOLD };
    let groups = alike(&faulty, options);
    let (first, cold): (Vec<_>, Vec<_>) = if groups.iter().any(&hot) {
        groups.into_iter().partition(hot)
    } else {
        (groups, Vec::new())
    };
    let (first, more) = first.split_at(first.len().min(told));
    paragraphs(&mut out, first);
    summaries(&mut out, &[more, &cold].concat());
    rest(&mut out, audit, options);
    conclusion(&mut out, audit, &faulty);
    out
}

fn head(out: &mut String, audit: &Audit<'_>) {
    let soc = audit.chip.soc;
    wrapped(
        out,
        String::new(),
        2,
        &format!("Judged for {}", describe(soc)),
    );
    wrapped(out, "  chip:  ".to_owned(), 9, &audit.chip.because);
    let origins: Vec<&str> = audit
        .origins
        .iter()
        .map(String::as_str)
        .filter(|o| !o.is_empty())
        .collect();
    let places = if origins.is_empty() {
        String::new()
    } else {
        format!(" in {}", origins.join("; "))
    };
    let read = format!(
        "{} file{}, {} judged{places}",
        audit.files,
        if audit.files == 1 { "" } else { "s" },
        audit.findings.len()
    );
    wrapped(out, "  read:  ".to_owned(), 9, &read);
}

/// A chip in one line.
#[must_use]
pub fn describe(soc: &Soc) -> String {
    let mut has = Vec::new();
    let mut lacks = Vec::new();
    if soc.core.isa.is_arm() {
        let mut sort = |is: bool, fact: &str, name: &'static str| {
            if !soc.is_sure(fact) {
            } else if is {
                has.push(name);
            } else {
                lacks.push(name);
            }
        };
        sort(soc.core.neon, "neon", "NEON");
        match soc.core.vfp {
            Vfp::None => sort(false, "vfp", "floating-point unit"),
            Vfp::V3D16 => sort(true, "vfp", "VFPv3-D16"),
            Vfp::V3 => sort(true, "vfp", "VFPv3"),
            Vfp::V4 => sort(true, "vfp", "VFPv4"),
            Vfp::V8 => {}
        }
        sort(soc.core.divide, "divide", "division");
        sort(soc.core.aes, "aes", "AES instructions");
    }
    let mut text = format!("{} ({} x {}", soc.name, soc.cores, soc.core.name);
    let (low, high) = soc.ghz;
    match low < high {
        true => write!(text, ", {low} to {high} GHz)"),
        false => write!(text, ", {high} GHz)"),
    }
    .unwrap_or_default();
    if !has.is_empty() {
        text += &format!(": {}", has.join(", "));
    }
    if !lacks.is_empty() {
        text += &format!(
            "{} no {}",
            if has.is_empty() { ":" } else { ";" },
            lacks.join(", no ")
        );
    }
    text
}

/// Groups files of one role with the same faults and the same repair, such as a kernel's modules.
fn alike<'f>(findings: &[&'f Finding], options: TextOptions) -> Vec<Vec<&'f Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for finding in findings {
        let same = |group: &&mut Vec<&Finding>| {
            let (a, b) = (group[0], finding);
            (a.role, &a.verdicts, &a.steps) == (b.role, &b.verdicts, &b.steps)
        };
        match groups.iter_mut().find(same).filter(|_| !options.all) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

fn paragraphs(out: &mut String, groups: &[Vec<&Finding>]) {
    for (number, group) in groups.iter().enumerate() {
        let (finding, others) = (group[0], &group[1..]);
        line(out, "");
        let verdicts = words(&finding.verdicts);
        let and = match others.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (path, role) = (&finding.path, finding.role.word());
        line(
            out,
            &format!("{:>2}. {path} ({role}){and}: {verdicts}", number + 1),
        );
        for (at, text) in finding.evidence.iter().enumerate() {
            labelled(out, if at == 0 { "why" } else { "" }, text);
        }
        if !others.is_empty() {
            labelled(out, "also", &names(others));
        }
        let before = groups[..number]
            .iter()
            .position(|before| before[0].steps == finding.steps);
        match before {
            Some(before) => labelled(out, "do", &format!("as for {}", before + 1)),
            None => {
                for (at, text) in finding.steps.iter().enumerate() {
                    labelled(out, if at == 0 { "do" } else { "" }, text);
                }
            }
        }
        match &finding.gain {
            Some(gain) => labelled(
                out,
                "gain",
                &format!(
                    "{}: {} times as fast ({})",
                    gain.what,
                    range(gain),
                    gain.source
                ),
            ),
            None if finding.verdicts.contains(&Verdict::WrongAbi) => {
                labelled(
                    out,
                    "gain",
                    "it runs, and without the kernel in the place of missing instructions",
                );
            }
            None => labelled(out, "gain", "not measured"),
        }
    }
}

/// First file names of a group (last path component), and the number of the others.
fn names(findings: &[&Finding]) -> String {
    let last = |finding: &&Finding| {
        let path = finding.path.as_str();
        path.rsplit('/').next().unwrap_or(path).to_owned()
    };
    let mut names: Vec<String> = findings.iter().take(NAMES).map(last).collect();
    if findings.len() > NAMES {
        names.push(format!("{} more", findings.len() - NAMES));
    }
    names.join(", ")
}

/// Writes a line or two for each set of files with the same verdicts.
fn summaries(out: &mut String, groups: &[Vec<&Finding>]) {
    let mut by_verdicts: BTreeMap<&[Verdict], Vec<&Finding>> = BTreeMap::new();
    for finding in groups.iter().flatten() {
        by_verdicts
            .entry(&finding.verdicts)
            .or_default()
            .push(finding);
    }
    if by_verdicts.is_empty() {
        return;
    }
    line(out, "");
    line(out, "Less often passed by packets (--all tells each):");
    for (verdicts, files) in by_verdicts {
        line(out, &format!("  {} x {}", files.len(), words(verdicts)));
        labelled(out, "", &names(&files));
        if let Some(reason) = files[0].evidence.first() {
            labelled(out, "", &format!("of the first: {reason}"));
        }
    }
}

fn rest(out: &mut String, audit: &Audit<'_>, options: TextOptions) {
    let with = |verdict| {
        audit
            .findings
            .iter()
            .filter(move |f| f.verdicts == [verdict])
    };
    let most = |few: usize| if options.all { usize::MAX } else { few };
    let fine: Vec<&Finding> = with(Verdict::Fine).collect();
    if !fine.is_empty() {
        line(out, "");
        line(out, &format!("Fine: {}", count(fine.len(), "file")));
        let (modules, files): (Vec<&Finding>, Vec<&Finding>) = fine
            .into_iter()
            .partition(|finding| !options.all && finding.path.ends_with(".ko"));
        list(out, &files, most(2 * NAMES), |finding| {
            let what = format!("{} ({})", finding.path, finding.role.word());
            let tell = options.all || finding.role.heat() > Role::Libssl.heat();
            match finding.evidence.as_slice() {
                why @ [_, ..] if tell => format!("{what}: {}", why.join("; ")),
                _ => what,
            }
        });
        if !modules.is_empty() {
            labelled(
                out,
                "",
                &format!("and {}", count(modules.len(), "kernel module")),
            );
        }
    }
    let unknown: Vec<&Finding> = with(Verdict::CannotTell).collect();
    if !unknown.is_empty() {
        line(out, "");
        line(
            out,
            &format!("Cannot tell: {}", count(unknown.len(), "file")),
        );
        list(out, &unknown, most(NAMES), |finding| {
            format!("{}: {}", finding.path, finding.evidence.join("; "))
        });
    }
    if !audit.skipped.is_empty() {
        line(out, "");
        line(out, "Not looked into:");
        list(out, &audit.skipped, most(2 * NAMES), |skipped| {
            let place = if skipped.origin.is_empty() {
                String::new()
            } else {
                format!(" ({})", skipped.origin)
            };
            format!("{}{place}: {}", skipped.what, skipped.why)
        });
    }
}

/// Writes a line for each of the first `most` items, and the number of the others.
fn list<T>(out: &mut String, items: &[T], most: usize, words: impl Fn(&T) -> String) {
    for item in items.iter().take(most) {
        labelled(out, "", &words(item));
    }
    if items.len() > most {
        labelled(out, "", &format!("and {} more", items.len() - most));
    }
}

fn conclusion(out: &mut String, audit: &Audit<'_>, faulty: &[&Finding]) {
    line(out, "");
    match faulty.first() {
        None => line(out, "Nothing to fix."),
        Some(first) => wrapped(
            out,
            String::new(),
            2,
            &format!(
                "Worth fixing: {} of {}. Begin with {}.",
                faulty.len(),
                count(audit.findings.len(), "file"),
                first.path
            ),
        ),
    }
}

fn range(gain: &Gain) -> String {
    if gain.low < gain.high {
        format!("{} to {}", gain.low, gain.high)
    } else {
        gain.high.to_string()
    }
}

fn words(verdicts: &[Verdict]) -> String {
    verdicts
        .iter()
        .map(|verdict| verdict.word())
        .collect::<Vec<_>>()
        .join(", ")
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Width of the report, in columns.
const WIDTH: usize = 100;
const INDENT: usize = 10;

/// Writes a labelled line, wrapped.
fn labelled(out: &mut String, label: &str, text: &str) {
    let label = if label.is_empty() {
        String::new()
    } else {
        format!("{label}:")
    };
    wrapped(out, format!("    {label:<6}"), INDENT + 2, text);
}

/// Wraps `text` after `beginning` into lines of [`WIDTH`] columns; later lines are indented.
fn wrapped(out: &mut String, beginning: String, indent: usize, text: &str) {
    let mut current = beginning;
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && current.len() + 1 + word.len() > WIDTH {
            line(out, &current);
            current = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            current.push(' ');
        }
        current += word;
        empty = false;
    }
    line(out, &current);
}

/// Writes one line. File names and strings come from strangers, so control characters are replaced by U+FFFD.
fn line(out: &mut String, text: &str) {
    out.extend(
        text.trim_end()
            .chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c }),
    );
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examine::Chosen;
    use crate::soc::Table;

    fn finding(path: &str, role: Role, verdict: Verdict, evidence: &str, step: &str) -> Finding {
        Finding {
            path: path.to_owned(),
            origin: String::new(),
            role,
            verdicts: vec![verdict],
            evidence: vec![evidence.to_owned()],
            flags: String::new(),
            steps: vec![step.to_owned()],
            gain: None,
        }
    }

    #[test]
    fn what_is_alike_is_told_once_and_all_of_it_on_demand() {
        let module = |name: &str| {
            finding(
                name,
                Role::CryptoModule,
                Verdict::SizeOptimised,
                "-Os",
                "Kernel.",
            )
        };
        let audit = Audit {
            chip: Chosen {
                soc: Table::builtin().soc("ipq8065").unwrap(),
                because: "--soc ipq8065".to_owned(),
            },
            findings: vec![
                finding(
                    "/lib/libcrypto.so.3",
                    Role::Libcrypto,
                    Verdict::NoAsmCrypto,
                    "no-asm",
                    "Asm.",
                ),
                module("/m/aes.ko"),
                module("/m/ghash.ko"),
                finding(
                    "/bin/a\u{1b}[2J",
                    Role::OpenVpn,
                    Verdict::NoSimd,
                    "no NEON",
                    "Asm.",
                ),
                finding("/bin/ls", Role::Other, Verdict::NoSimd, "none", "Asm."),
                finding("/m/tun.ko", Role::Module, Verdict::Fine, "", ""),
            ],
            skipped: vec![],
            files: 6,
            origins: vec![],
        };
        let lines = crate::report::json(&audit).unwrap();
        let line: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        let page = include_str!("../../../../docs/json.md");
        for name in line.as_object().unwrap().keys() {
            assert!(page.contains(&format!("- `{name}`: ")), "{name}");
        }
        let short = text(&audit, TextOptions::default());
        for said in [
            " 1. /lib/libcrypto.so.3 (libcrypto): no-asm-crypto\n",
            " 2. /m/aes.ko (crypto-module) and 1 more: size-optimised\n",
            "    also: ghash.ko\n",
            " 3. /bin/a\u{fffd}[2J (openvpn): no-simd\n",
            "    do:   as for 1\n",
            "  1 x no-simd\n",
            "and 1 kernel module\n",
            "Worth fixing: 5 of 6 files. Begin with /lib/libcrypto.so.3.\n",
        ] {
            assert!(short.contains(said), "{said:?} in\n{short}");
        }
        assert_eq!(short.matches("ghash").count(), 1);
        let all = text(&audit, TextOptions { all: true });
        for path in [" 3. /m/ghash.ko", " 5. /bin/ls", "/m/tun.ko (module)"] {
            assert!(all.contains(path), "{path} in\n{all}");
        }
    }
}
