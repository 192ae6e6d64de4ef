//! The stock program, its files and its log.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const INNER: &str = "MILLRACE_TEST_IN_NAMESPACE";

/// Maximum time that any step may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test in a separate process with its own network namespace.
pub(crate) fn in_namespace(test: impl FnOnce()) {
    if std::env::var_os(INNER).is_some() {
        return test();
    }
    let name = std::thread::current().name().unwrap().to_owned();
    let can = Command::new("unshare")
        .args(["--net", "openvpn", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    // `--version` exits with 1; 126 and 127 mean that `unshare` could not start the program.
    let can = match can {
        Ok(status) if matches!(status.code(), Some(0 | 1)) => {
            let openvpn = Command::new("openvpn").arg("--version").output();
            openvpn.map_err(|error| format!("openvpn does not run: {error}: apt install openvpn"))
        }
        Ok(status) => Err(format!("unshare --net openvpn: {status}: run it as root")),
        Err(error) => Err(format!("unshare does not run: {error}")),
    };
    if lab::require(can).is_none() {
        return;
    }
    let status = Command::new("unshare")
        .args([
            "--net",
            "sh",
            "-c",
            "ip link set lo up && exec \"$@\"",
            "sh",
        ])
        .arg(std::env::current_exe().unwrap())
        .args([&*name, "--exact", "--nocapture", "--test-threads=1"])
        .env(INNER, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{name} failed in its namespace");
}

pub(crate) struct Stock {
    arguments: Vec<String>,
    directory: PathBuf,
    child: Option<Child>,
    port: u16,
}

/// A port that no other test of this process uses, below the kernel's ephemeral ports, in the process's own network
/// namespace.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Programs started so far, to give each its own directory.
static COUNT: AtomicU32 = AtomicU32::new(0);

impl Stock {
    fn new(role: &str, port: u16, options: &[&str]) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("millrace-stock-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let certs = format!("{}/tests/certs/p256", env!("CARGO_MANIFEST_DIR"));
        let fixed = format!(
            "--ca {certs}/ca.crt --cert {certs}/{role}.crt --key {certs}/{role}.key --verb 4 --disable-dco \
             --suppress-timestamps --log {}",
            directory.join("log").display()
        );
        let mut arguments: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
        arguments.extend(options.iter().map(|it| (*it).to_owned()));
        Self {
            arguments,
            directory,
            child: None,
            port,
        }
    }

    pub(crate) fn server(options: &[&str]) -> Self {
        let port = free_port();
        let mut stock = Self::new("server", port, options);
        stock.arguments.extend(
            format!(
                "--dev tun --server 10.{}.{}.0 255.255.255.0 --topology subnet --dh none --proto udp4 \
                 --local 127.0.0.1 --port {port}",
                port >> 8,
                port & 255,
            )
            .split(' ')
            .map(str::to_owned),
        );
        stock
    }

    pub(crate) fn client(port: u16, options: &[&str]) -> Self {
        let mut stock = Self::new("client", port, options);
        stock.arguments.extend(
            format!(
                "--client --dev null --ifconfig-noexec --route-noexec --nobind --proto udp4 \
                 --remote-cert-tls server --remote 127.0.0.1 {port}"
            )
            .split(' ')
            .map(str::to_owned),
        );
        stock
    }

    /// Adds options with a file argument, and writes the files. Text after the option's name is put behind the file's
    /// name.
    pub(crate) fn with_inline(mut self, files: &[(&str, String)]) -> Self {
        for (option, text) in files {
            self = self.with_file(option, text);
        }
        self
    }

    pub(crate) fn with_file(mut self, option: &str, text: &str) -> Self {
        let (name, rest) = option.split_once(' ').unwrap_or((option, ""));
        let path = self.directory.join(name);
        std::fs::write(&path, text).unwrap();
        self.arguments.push(format!("--{name}"));
        self.arguments.push(path.display().to_string());
        if !rest.is_empty() {
            self.arguments.push(rest.to_owned());
        }
        self
    }

    pub(crate) fn start(mut self) -> Self {
        let child = Command::new("openvpn")
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
        if self.arguments.iter().any(|it| it == "--server") {
            self.wait_for("Initialization Sequence Completed");
        }
        self
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    pub(crate) fn wait_for(&self, line: &str) {
        let start = Instant::now();
        while !self.log().contains(line) {
            assert!(
                start.elapsed() < PATIENCE,
                "no {line:?} in:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn terminate(&self) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        let killed = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(killed.success());
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // The program may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
