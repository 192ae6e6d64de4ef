//! Hosts: network namespaces without a name, held by a descriptor.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use netio::netlink::Netlink;
use netio::process::die_with_thread;
use nix::sched::{CloneFlags, setns, unshare};

use crate::mounts::Mounts;
use crate::process::{Exit, Process};
use crate::signals::{self, Network};
use crate::{LabError, tools};

/// A computer of the lab: a network namespace whose loopback interface is up. A private host also has its own
/// /var/run and /etc/resolv.conf.
///
/// A keeper thread stays inside and starts the host's programs, which die with it. Dropping the host kills everything
/// inside, daemons included; the namespace then goes too.
#[derive(Debug)]
pub struct Host {
    name: String,
    network: OwnedFd,
    /// The mount namespace; set only for a private host.
    mounts: Option<Mounts>,
    identity: Network,
    /// The keeper's queue; `None` only while the host is being dropped.
    jobs: Option<Sender<Job>>,
    keeper: Option<JoinHandle<()>>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Host {
    /// Makes a host. The name is only for messages.
    ///
    /// # Errors
    /// [`LabError::Host`] if the kernel refuses; see [`crate::enter()`].
    pub fn new(name: &str) -> Result<Self, LabError> {
        Self::make(name, false)
    }

    /// Makes a host with an empty /var/run and an /etc/resolv.conf of its own. Programs with control sockets in
    /// /var/run can then use the same interface name in several hosts.
    ///
    /// # Errors
    /// The errors of [`Host::new`].
    pub fn private(name: &str) -> Result<Self, LabError> {
        Self::make(name, true)
    }

    fn make(name: &str, private: bool) -> Result<Self, LabError> {
        let (ready, opened) = mpsc::channel();
        let (jobs, work) = mpsc::channel::<Job>();
        let keeper = thread::Builder::new()
            .name(format!("host {name}"))
            .spawn(move || {
                let made = make_namespaces(private);
                let failed = made.is_err();
                if ready.send(made).is_err() || failed {
                    return;
                }
                for job in work {
                    job();
                }
            })
            .map_err(|error| LabError::host(name, "start a thread", error))?;
        let (network, mounts, identity) = opened
            .recv()
            .unwrap_or_else(|_| Err(("make a namespace", io::ErrorKind::BrokenPipe.into())))
            .map_err(|(operation, error)| LabError::host(name, operation, error))?;
        signals::remember_network(identity);
        let host = Self {
            name: name.to_owned(),
            network,
            mounts,
            identity,
            jobs: Some(jobs),
            keeper: Some(keeper),
        };
        host.prepare()?;
        Ok(host)
    }

    /// Applies settings that every host should have, whatever the machine's defaults.
    fn prepare(&self) -> Result<(), LabError> {
        let mut netlink = self.netlink()?;
        let up = netlink
            .index_of("lo")
            .and_then(|index| netlink.set_up(index));
        up.map_err(LabError::netlink(&self.name))?;
        for (key, value) in [
            // No duplicate address detection: the lab assigns unique addresses, which are usable at once.
            ("net/ipv6/conf/default/accept_dad", "0"),
            ("net/ipv6/conf/all/accept_dad", "0"),
            // No router solicitations, which a test might count.
            ("net/ipv6/conf/default/router_solicitations", "0"),
            // Measurements must not depend on the machine's choice.
            ("net/ipv4/tcp_congestion_control", "cubic"),
        ] {
            // A kernel without IPv6 or cubic will do as well.
            let _ = self.sysctl(key, value);
        }
        Ok(())
    }

    /// The host's name, as given to [`Host::new`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The network namespace.
    pub fn network(&self) -> BorrowedFd<'_> {
        self.network.as_fd()
    }

    /// Runs `work` inside the host and waits for it. Sockets that `work` opens stay in this host.
    ///
    /// # Errors
    /// [`LabError::Host`] if the thread cannot enter the host.
    ///
    /// # Panics
    /// If `work` panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let inside = thread::scope(|scope| {
            thread::Builder::new()
                .name(format!("in {}", self.name))
                .spawn_scoped(scope, || {
                    enter_thread(self.network.as_fd(), self.mounts.as_ref())?;
                    Ok(work())
                })
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|why| panic::resume_unwind(why))
                })
        });
        inside
            .and_then(|result| result)
            .map_err(|error| LabError::host(&self.name, "enter", error))
    }

    /// Starts a thread inside the host. The thread may outlive the `Host` value.
    ///
    /// # Errors
    /// [`LabError::Host`] if the thread cannot be started or the descriptors cannot be copied. A thread that cannot
    /// enter the host ends with that error.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<JoinHandle<io::Result<T>>, LabError> {
        let start = || {
            let network = self.network.try_clone()?;
            let mounts = self.mounts.as_ref().map(Mounts::try_clone).transpose()?;
            thread::Builder::new().name(name.to_owned()).spawn(move || {
                enter_thread(network.as_fd(), mounts.as_ref())?;
                // Otherwise this thread's descriptors would keep the namespace alive.
                drop((network, mounts));
                work()
            })
        };
        start().map_err(|error| LabError::host(&self.name, format!("start thread {name}"), error))
    }

    /// Opens a netlink socket in the host, usable from any thread.
    ///
    /// # Errors
    /// [`LabError::Netlink`].
    pub fn netlink(&self) -> Result<Netlink, LabError> {
        self.run(Netlink::open)?
            .map_err(LabError::netlink(&self.name))
    }

    /// Writes a kernel setting, named by its path under /proc/sys.
    ///
    /// # Errors
    /// [`LabError::Host`], also if this kernel has no such setting.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), LabError> {
        let path = Path::new("/proc/sys").join(key);
        self.run(|| fs::write(path, value))?
            .map_err(|error| LabError::host(&self.name, format!("set {key} to {value}"), error))
    }

    /// Prepares a program to run inside the host, by name or path.
    pub fn command(&self, program: impl AsRef<OsStr>) -> HostCommand<'_> {
        let program = program.as_ref();
        // Look the name up here, where the directories of system programs are known.
        let path = program
            .to_str()
            .filter(|name| !name.contains('/'))
            .and_then(tools::in_path)
            .unwrap_or_else(|| PathBuf::from(program));
        let mut command = Command::new(path);
        command.stdin(Stdio::null());
        HostCommand {
            host: self,
            command,
        }
    }

    /// Runs a program to its end and returns what it wrote to its standard output.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the program's output if its status is not 0.
    pub fn output<I, S>(&self, program: impl AsRef<OsStr>, arguments: I) -> Result<String, LabError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.command(program).args(arguments).output()
    }

    /// Has the keeper thread start `command`, so that the child starts inside the host and dies with the keeper.
    fn start(&self, mut command: Command) -> io::Result<Child> {
        die_with_thread(&mut command);
        let (answer, child) = mpsc::channel();
        let job: Job = Box::new(move || {
            let _ = answer.send(command.spawn());
        });
        let gone = || io::Error::other("the host's thread has ended");
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(job).map_err(|_| gone())?;
        child.recv().map_err(|_| gone())?
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // When the queue closes, the keeper ends, and its children with it.
        self.jobs = None;
        if let Some(keeper) = self.keeper.take() {
            // The keeper runs only spawn(), which does not panic.
            let _ = keeper.join();
        }
        signals::clear_network(self.identity);
    }
}

/// A program to run inside a host.
#[derive(Debug)]
pub struct HostCommand<'a> {
    host: &'a Host,
    command: Command,
}

impl HostCommand<'_> {
    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I, S>(mut self, arguments: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.command.args(arguments);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Starts the program with captured output and empty standard input.
    ///
    /// # Errors
    /// [`LabError::Host`] if the program cannot be started.
    pub fn spawn(self) -> Result<Process, LabError> {
        self.spawn_with_input(Stdio::null())
    }

    /// Runs the program to its end and returns its standard output.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the program's output if its status is not 0.
    pub fn output(self) -> Result<String, LabError> {
        self.output_with_input("")
    }

    /// Runs as [`HostCommand::output`] does, with `input` as standard input.
    ///
    /// # Errors
    /// The errors of [`HostCommand::output`].
    pub fn output_with_input(self, input: &str) -> Result<String, LabError> {
        self.exit_with_input(input)?.success()
    }

    /// Runs the program to its end, whatever its status.
    ///
    /// # Errors
    /// [`LabError::Host`] if the program cannot be started.
    pub fn exit(self) -> Result<Exit, LabError> {
        self.exit_with_input("")
    }

    /// Runs the program to its end with this process's standard input and output, for a person to use.
    ///
    /// # Errors
    /// [`LabError::Host`] if the program cannot be started.
    pub fn run_here(mut self) -> Result<ExitStatus, LabError> {
        // In this process's group: only the foreground group may read the terminal.
        self.command
            .stdin(Stdio::inherit())
            .stdout(Stdio::inherit())
            .stderr(Stdio::inherit());
        let label = self.command.get_program().to_string_lossy().into_owned();
        self.host
            .start(self.command)
            .and_then(|mut child| child.wait())
            .map_err(|error| LabError::host(&self.host.name, format!("run {label}"), error))
    }

    fn exit_with_input(self, input: &str) -> Result<Exit, LabError> {
        if input.is_empty() {
            return self.spawn_with_input(Stdio::null())?.wait();
        }
        let mut process = self.spawn_with_input(Stdio::piped())?;
        process.write_input(input)?;
        process.wait()
    }

    fn spawn_with_input(mut self, stdin: Stdio) -> Result<Process, LabError> {
        self.command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // A group of its own, so that the program's children are killed along with it.
        std::os::unix::process::CommandExt::process_group(&mut self.command, 0);
        let words: Vec<OsString> = std::iter::once(self.command.get_program())
            .chain(self.command.get_args())
            .map(OsStr::to_owned)
            .collect();
        let label = words.join(OsStr::new(" ")).to_string_lossy().into_owned();
        let child = self
            .host
            .start(self.command)
            .map_err(|error| LabError::host(&self.host.name, format!("start {label}"), error))?;
        Ok(Process::adopt(child, label, self.host.name.clone()))
    }
}

type Made = Result<(OwnedFd, Option<Mounts>, Network), (&'static str, io::Error)>;

/// Moves the current thread into new namespaces and opens their descriptors.
fn make_namespaces(private: bool) -> Made {
    let step = |operation, result: nix::Result<()>| {
        result.map_err(|error| (operation, io::Error::from(error)))
    };
    let open = |kind: &'static str| -> Result<OwnedFd, (&'static str, io::Error)> {
        File::open(format!("/proc/thread-self/ns/{kind}"))
            .map(OwnedFd::from)
            .map_err(|error| ("open its namespace", error))
    };
    step(
        "make a network namespace",
        unshare(CloneFlags::CLONE_NEWNET),
    )?;
    let network = open("net")?;
    let identity =
        Network::of("/proc/thread-self/ns/net").map_err(|error| ("open its namespace", error))?;
    if !private {
        return Ok((network, None, identity));
    }
    step("make a mount namespace", unshare(CloneFlags::CLONE_NEWNS))?;
    let mounts = Mounts::make().map_err(|error| ("make private mounts", error))?;
    Ok((network, Some(mounts), identity))
}

/// Moves the current thread into a host.
fn enter_thread(network: BorrowedFd<'_>, mounts: Option<&Mounts>) -> io::Result<()> {
    setns(network, CloneFlags::CLONE_NEWNET)?;
    mounts.map_or(Ok(()), Mounts::enter)
}
