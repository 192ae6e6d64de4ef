//! The machine that the program runs on.

use std::fs;
use std::thread;

use serde::Serialize;

/// Facts about the machine, which help to judge measured figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub processors: usize,
    /// The processor's name, or its part number.
    pub model: String,
    /// The kernel's release.
    pub kernel: String,
    /// Memory in MB (1e6 B).
    pub memory_mb: u64,
}

impl Machine {
    /// This machine; unknown values are "unknown".
    pub fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            processors: thread::available_parallelism().map_or(1, usize::from),
            model: model(&read("/proc/cpuinfo")),
            kernel: match read("/proc/sys/kernel/osrelease").trim() {
                "" => "unknown".to_owned(),
                release => release.to_owned(),
            },
            memory_mb: memory(&read("/proc/meminfo")),
        }
    }

    /// The facts as one line.
    pub fn show(&self) -> String {
        let Self {
            processors,
            model,
            kernel,
            memory_mb,
        } = self;
        format!("{processors} processors ({model}), {memory_mb} MB, Linux {kernel}")
    }
}

/// x86 says "model name", ARM "Model" or "Hardware" or only a part number.
fn model(cpuinfo: &str) -> String {
    let value = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    ["model name", "Model", "Hardware", "CPU part"]
        .into_iter()
        .find_map(value)
        .unwrap_or_else(|| "unknown".to_owned())
}

fn memory(meminfo: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next())
        .and_then(|kilobytes| kilobytes.parse::<u64>().ok())
        .map_or(0, |kilobytes| kilobytes * 1024 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_named_on_x86_and_arm() {
        assert_eq!(model("processor\t: 0\nmodel name\t: Xeon\n"), "Xeon");
        assert_eq!(model("processor : 0\nCPU part : 0xc0f\n"), "0xc0f");
        assert_eq!(model(""), "unknown");
        assert_eq!(memory("MemTotal:       1000000 kB\n"), 1024);
    }
}
