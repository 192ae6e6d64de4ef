//! Measures the processor time of a program or the whole machine.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use nix::unistd::{SysconfVar, sysconf};

/// The usage of a process since it started, with all its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Time in user space.
    pub user: Duration,
    /// Kernel time: system calls of the process, and interrupts that arrived while it ran.
    pub system: Duration,
    /// Current memory in RAM, in bytes.
    pub rss: u64,
    /// Highest memory in RAM so far, in bytes.
    pub rss_peak: u64,
    /// Times that a thread gave up the processor by itself, summed over the threads that still live.
    pub voluntary_switches: u64,
    /// Times that the kernel took the processor from one of those threads.
    pub involuntary_switches: u64,
    /// Threads alive.
    pub threads: u64,
}

impl Usage {
    /// User and system time.
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }
}

/// The machine's processor time since boot, in seconds of one processor.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Machine {
    /// Seconds that processors were busy.
    pub busy: f64,
    /// Seconds that processors were idle.
    pub idle: f64,
    /// Seconds that a hypervisor gave to others while this machine wanted to run.
    pub steal: f64,
}

impl Machine {
    /// Reads /proc/stat.
    ///
    /// # Errors
    /// If /proc/stat cannot be read or has an unknown format.
    pub fn now() -> io::Result<Self> {
        parse_machine(&fs::read_to_string("/proc/stat")?).ok_or_else(|| malformed("/proc/stat"))
    }
}

/// Measures what a list of processes uses between two moments.
#[derive(Debug)]
pub struct CpuMeter {
    start: Instant,
    machine: Machine,
    processes: Vec<(u32, Usage)>,
}

/// The usage between two moments.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuReport {
    /// Time that passed.
    pub elapsed: Duration,
    /// Processor time of each process, in the order of the list; zero for a process that has ended.
    pub processes: Vec<Duration>,
    /// The usage of each process at the end.
    pub usage: Vec<Usage>,
    /// Processors busy on average.
    pub busy: f64,
    /// Processors stolen on average.
    pub steal: f64,
}

impl CpuReport {
    /// Processor seconds of the process `number` per gigabyte (1e9 bytes).
    pub fn seconds_per_gigabyte(&self, number: usize, bytes: u64) -> f64 {
        let used = self.processes.get(number).copied().unwrap_or_default();
        used.as_secs_f64() * 1e9 / (bytes.max(1) as f64)
    }
}

impl CpuMeter {
    /// Starts to measure these processes.
    ///
    /// # Errors
    /// If one of the processes does not exist.
    pub fn start(processes: &[u32]) -> io::Result<Self> {
        let usages = processes
            .iter()
            .map(|&process| Ok((process, usage(process)?)))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            start: Instant::now(),
            machine: Machine::now()?,
            processes: usages,
        })
    }

    /// Returns the usage since the start.
    ///
    /// # Errors
    /// If the machine's own figures cannot be read.
    pub fn read(&self) -> io::Result<CpuReport> {
        let elapsed = self.start.elapsed();
        let machine = Machine::now()?;
        let mut report = CpuReport {
            elapsed,
            processes: Vec::new(),
            usage: Vec::new(),
            busy: (machine.busy - self.machine.busy) / elapsed.as_secs_f64(),
            steal: (machine.steal - self.machine.steal) / elapsed.as_secs_f64(),
        };
        for (process, before) in &self.processes {
            let after = usage(*process).unwrap_or(*before);
            report
                .processes
                .push(after.cpu().saturating_sub(before.cpu()));
            report.usage.push(after);
        }
        Ok(report)
    }
}

/// Returns the usage of a process since it started.
///
/// # Errors
/// NotFound if there is no such process.
pub fn usage(process: u32) -> io::Result<Usage> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let mut usage = parse_stat(&stat).ok_or_else(|| malformed("/proc/PID/stat"))?;
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let field = |text: &str, name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or(0)
    };
    usage.rss = field(&status, "VmRSS") * 1024;
    usage.rss_peak = field(&status, "VmHWM") * 1024;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        // Threads come and go while we read.
        let Ok(status) = fs::read_to_string(thread?.path().join("status")) else {
            continue;
        };
        usage.threads += 1;
        usage.voluntary_switches += field(&status, "voluntary_ctxt_switches");
        usage.involuntary_switches += field(&status, "nonvoluntary_ctxt_switches");
    }
    Ok(usage)
}

fn malformed(file: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{file} has an unknown shape"),
    )
}

/// Clock ticks per second of /proc, 100 on every Linux that we know.
fn ticks() -> f64 {
    match sysconf(SysconfVar::CLK_TCK) {
        Ok(Some(ticks)) if ticks > 0 => ticks as f64,
        _ => 100.0,
    }
}

/// Reads the times in /proc/PID/stat. The second field is the program's name in parentheses; the name itself may
/// contain blanks and parentheses.
fn parse_stat(text: &str) -> Option<Usage> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut time = || {
        let ticks_used: f64 = fields.next()?.parse().ok()?;
        Duration::try_from_secs_f64(ticks_used / ticks()).ok()
    };
    Some(Usage {
        user: time()?,
        system: time()?,
        ..Usage::default()
    })
}

/// Reads the line of /proc/stat for all processors: user, nice, system, idle, iowait, irq, softirq, steal.
fn parse_machine(text: &str) -> Option<Machine> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<f64> = line
        .split_whitespace()
        .map(|field| field.parse::<f64>().ok().map(|value| value / ticks()))
        .collect::<Option<_>>()?;
    let &[user, nice, system, idle, iowait, irq, softirq, steal, ..] = times.as_slice() else {
        return None;
    };
    Some(Machine {
        busy: user + nice + system + irq + softirq,
        idle: idle + iowait,
        steal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_blanks_and_parentheses_do_not_shift_the_fields() {
        let line = "42 (a) b (c) S 1 1 1 0 -1 4194304 10 0 0 0 150 250 0 0 20 0 1 0 5 6 7";
        let usage = parse_stat(line).unwrap();
        assert_eq!(usage.cpu(), Duration::from_secs_f64(400.0 / ticks()));
        assert!(parse_stat("42 (x) S 1").is_none());
    }

    #[test]
    fn machine_counts_steal_apart() {
        let machine = parse_machine("cpu  100 0 100 300 100 0 0 200 0 0\ncpu0 1").unwrap();
        let second = 100.0 / ticks();
        assert!((machine.busy - 2.0 * second).abs() < 1e-9);
        assert!((machine.idle - 4.0 * second).abs() < 1e-9);
        assert!((machine.steal - 2.0 * second).abs() < 1e-9);
        assert!(parse_machine("cpu 1 2").is_none());
    }

    #[test]
    fn this_process_is_readable() {
        let usage = usage(std::process::id()).unwrap();
        assert!(usage.rss > 0 && usage.rss_peak >= usage.rss && usage.threads >= 1);
        let meter = CpuMeter::start(&[std::process::id()]).unwrap();
        assert_eq!(meter.read().unwrap().processes.len(), 1);
        assert!(super::usage(u32::MAX).is_err());
    }
}
