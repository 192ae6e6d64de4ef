//! Takes away a process's unused file descriptors.

use std::fs;

use crate::Host;

/// A process limited to the file descriptor numbers that are already in use and a few free ones, until the value is
/// dropped.
pub struct NoDescriptors<'h> {
    host: &'h Host,
    process: u32,
    /// How many files the process can still open.
    pub free: usize,
}

impl<'h> NoDescriptors<'h> {
    /// Lowers the limit of a process in `host` to its highest open descriptor.
    pub fn of(host: &'h Host, process: u32) -> Self {
        let all = fs::read_dir(format!("/proc/{process}/fd"))
            .unwrap()
            .flatten();
        let numbers: Vec<usize> = all
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        let end = numbers.iter().max().unwrap() + 1;
        let limited = Self {
            host,
            process,
            free: end - numbers.len(),
        };
        limited.limit(end);
        limited
    }

    fn limit(&self, soft: usize) {
        let process = self.process.to_string();
        let limit = format!("--nofile={soft}:4096");
        self.host
            .output("prlimit", ["--pid", &process, &limit])
            .unwrap();
    }
}

impl Drop for NoDescriptors<'_> {
    fn drop(&mut self) {
        self.limit(4096);
    }
}
