//! AF_ALG: the kernel's own interface to its ciphers. For vendors' kernels that have no `/dev/crypto`.
//!
//! Linux 7.2 deprecates it, and no longer lets it reach accelerators. Nothing depends on it: without it the CPU
//! encrypts. One socket names an algorithm and has its key. A second one, accepted from it, is written to and read
//! from, one operation at a time. Reading makes the driver work. Facts from the kernel's
//! `Documentation/crypto/userspace-if.rst`, `include/uapi/linux/if_alg.h` and `crypto/algif_*.c`.

// Lengths of messages differ in width between C libraries: a cast that is trivial here is needed elsewhere.
#![allow(trivial_numeric_casts)]

use core::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

use super::drivers::{self, Driver};
use super::job::{Accelerator, Fault, Job, Outcome, Session};
use super::task::{Direction, Task};

/// `ALG_OP_DECRYPT`, `ALG_OP_ENCRYPT`.
const DECRYPT: u32 = 0;
const ENCRYPT: u32 = 1;

/// Bytes of control messages: the operation, the nonce behind its length, bytes of associated data.
const CONTROL: usize = 128;

/// Ciphers of the kernel, through AF_ALG sockets.
pub(crate) struct AfAlg {
    drivers: Vec<Driver>,
    /// Whether to use the kernel's first choice, which mostly is code for the CPU: for tests.
    software: bool,
}

impl AfAlg {
    /// Looks for accelerators; `None` if the kernel has none or hides them. Loads no modules.
    pub(crate) fn find() -> Option<Self> {
        let drivers = drivers::parse(&std::fs::read_to_string("/proc/crypto").ok()?);
        let found = [Task::AesCbc, Task::AesGcm, Task::ChaCha20Poly1305]
            .into_iter()
            .any(|task| {
                let (kind, name) = kind_and_name(task);
                drivers::accelerator(&drivers, name, kind).is_some()
            });
        found.then_some(Self {
            drivers,
            software: false,
        })
    }

    /// Uses the driver that the kernel chooses.
    #[cfg(test)]
    pub(crate) fn software() -> Self {
        Self {
            drivers: Vec::new(),
            software: true,
        }
    }
}

/// The kernel's type and name of an algorithm.
fn kind_and_name(task: Task) -> (&'static str, &'static str) {
    match task {
        Task::AesCbc => ("skcipher", "cbc(aes)"),
        Task::AesGcm => ("aead", "gcm(aes)"),
        Task::ChaCha20Poly1305 => ("aead", "rfc7539(chacha20,poly1305)"),
    }
}

impl Accelerator for AfAlg {
    fn name(&self) -> &'static str {
        "AF_ALG"
    }

    fn open(&self, task: Task, key: &[u8]) -> Result<Box<dyn Session>, Fault> {
        let (kind, name) = kind_and_name(task);
        // Use the driver's own name, or the kernel would choose by its priorities.
        let driver = if self.software {
            name
        } else {
            match drivers::accelerator(&self.drivers, name, kind) {
                Some(driver) => &driver.driver,
                None => return Err(Fault::Unsupported),
            }
        };
        let algorithm = algorithm_socket(kind, driver)?;
        set(&algorithm, libc::ALG_SET_KEY, key.as_ptr(), key.len())?;
        if task.tag_len() > 0 {
            // The size is passed in place of the length.
            let no = core::ptr::null();
            set(&algorithm, libc::ALG_SET_AEAD_AUTHSIZE, no, task.tag_len())?;
        }
        // SAFETY: no address is requested; the result is checked before it is owned.
        let operations = unsafe {
            libc::accept4(
                algorithm.as_raw_fd(),
                null_mut(),
                null_mut(),
                libc::SOCK_CLOEXEC,
            )
        };
        // The kernel keeps the first socket, with the key, as long as the second exists.
        Ok(Box::new(AfAlgSession {
            operations: owned(operations, "accept")?,
            driver: driver.to_owned(),
            task,
        }))
    }
}

/// A socket bound to an algorithm.
fn algorithm_socket(kind: &str, name: &str) -> Result<OwnedFd, Fault> {
    // SAFETY: no pointers are passed; the result is checked before it is owned.
    let socket =
        unsafe { libc::socket(libc::AF_ALG, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    let socket = owned(socket, "socket")?;
    // SAFETY: zeros are valid for plain integers.
    let mut address: libc::sockaddr_alg = unsafe { core::mem::zeroed() };
    address.salg_family = libc::AF_ALG as libc::sa_family_t;
    // Type and name both end with a zero, so the last byte is never written.
    if kind.len() >= address.salg_type.len() || name.len() >= address.salg_name.len() {
        return Err(Fault::Unsupported);
    }
    address.salg_type[..kind.len()].copy_from_slice(kind.as_bytes());
    address.salg_name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: an address with its length.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if bound < 0 {
        let why = io::Error::last_os_error();
        return Err(match why.raw_os_error() {
            Some(libc::ENOENT) => Fault::Unsupported,
            _ => Fault::System { what: "bind", why },
        });
    }
    Ok(socket)
}

fn set(socket: &OwnedFd, option: libc::c_int, value: *const u8, len: usize) -> Result<(), Fault> {
    // SAFETY: the value has `len` bytes, or there is none and the kernel looks only at the length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_ALG,
            option,
            value.cast(),
            len as libc::socklen_t,
        )
    };
    if result < 0 {
        let why = io::Error::last_os_error();
        return Err(Fault::System {
            what: "setsockopt",
            why,
        });
    }
    Ok(())
}

fn owned(fd: libc::c_int, what: &'static str) -> Result<OwnedFd, Fault> {
    if fd < 0 {
        let why = io::Error::last_os_error();
        return Err(Fault::System { what, why });
    }
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

struct AfAlgSession {
    operations: OwnedFd,
    driver: String,
    task: Task,
}

impl AfAlgSession {
    /// Writes a job's input to the socket.
    fn send(&self, memory: &[u8], job: &Job) -> io::Result<()> {
        let input = &memory[job.input()];
        let mut bytes = libc::iovec {
            iov_base: input.as_ptr().cast_mut().cast::<c_void>(),
            iov_len: input.len(),
        };
        let mut control = Control::new();
        let operation = match job.direction {
            Direction::Encrypt => ENCRYPT,
            Direction::Decrypt => DECRYPT,
        };
        control.push(libc::ALG_SET_OP, &operation.to_ne_bytes());
        let nonce_len = self.task.nonce_len();
        let mut nonce = [0; 4 + 16];
        nonce[..4].copy_from_slice(&(nonce_len as u32).to_ne_bytes());
        nonce[4..4 + nonce_len].copy_from_slice(&job.nonce[..nonce_len]);
        control.push(libc::ALG_SET_IV, &nonce[..4 + nonce_len]);
        if self.task.tag_len() > 0 {
            let aad_len = job.aad().len() as u32;
            control.push(libc::ALG_SET_AEAD_ASSOCLEN, &aad_len.to_ne_bytes());
        }
        // SAFETY: zeros are valid: no address, no flags.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = &raw mut bytes;
        message.msg_iovlen = 1;
        message.msg_control = control.bytes.as_mut_ptr().cast();
        message.msg_controllen = control.used as _;
        let sent = retried(|| {
            // SAFETY: everything that the message points to lives through the call, and is as long as it says.
            unsafe { libc::sendmsg(self.operations.as_raw_fd(), &raw const message, 0) }
        })?;
        if sent == input.len() {
            Ok(())
        } else {
            // The input is more than the socket holds.
            Err(io::Error::from_raw_os_error(libc::EMSGSIZE))
        }
    }

    /// Has the driver work, and reads its output, which begins with the associated data.
    ///
    /// A call interrupted by a signal is not repeated: the socket may already have consumed its input, and a second
    /// read would wait for more. The threads block signals, so that none comes.
    fn receive(&self, memory: &mut [u8], job: &Job) -> io::Result<usize> {
        let start = job.aad().start;
        let output = &mut memory[start..job.output().end];
        // SAFETY: a slice with its length.
        let read = unsafe {
            libc::read(
                self.operations.as_raw_fd(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        usize::try_from(read)
            .map(|read| read.saturating_sub(job.aad().len()))
            .map_err(|_| io::Error::last_os_error())
    }
}

impl Session for AfAlgSession {
    fn driver(&self) -> &str {
        &self.driver
    }

    fn run(&mut self, memory: &mut [u8], jobs: &mut [Job]) -> Result<(), Fault> {
        for job in jobs {
            let result = self
                .send(memory, job)
                .and_then(|()| self.receive(memory, job));
            job.outcome = match result.map_err(|error| (error.raw_os_error(), error)) {
                Ok(len) => Outcome::Done(len),
                Err((Some(libc::EBADMSG), _)) if self.task.tag_len() > 0 => Outcome::Forged,
                Err((Some(libc::ENODEV | libc::ENXIO), why)) => {
                    return Err(Fault::System {
                        what: "AF_ALG",
                        why,
                    });
                }
                Err((errno, _)) => Outcome::Failed(errno.unwrap_or(0)),
            };
            // The socket may still hold bytes, which would go into the next operation. The CPU does the remaining jobs.
            if matches!(job.outcome, Outcome::Failed(_)) {
                break;
            }
        }
        Ok(())
    }
}

/// Control messages, one after the other.
struct Control {
    /// Aligned as the kernel's headers are.
    bytes: [u64; CONTROL / 8],
    used: usize,
}

impl Control {
    fn new() -> Self {
        Self {
            bytes: [0; CONTROL / 8],
            used: 0,
        }
    }

    /// # Panics
    /// If there is no room; three messages of these lengths always fit.
    fn push(&mut self, kind: libc::c_int, data: &[u8]) {
        // SAFETY: arithmetic.
        let space = unsafe { libc::CMSG_SPACE(data.len() as u32) } as usize;
        assert!(self.used + space <= CONTROL);
        // SAFETY: header and data lie within `bytes`, as has just been found, aligned because each message's space is a
        // multiple of the header's alignment.
        unsafe {
            let header = self
                .bytes
                .as_mut_ptr()
                .cast::<u8>()
                .add(self.used)
                .cast::<libc::cmsghdr>();
            (*header).cmsg_level = libc::SOL_ALG;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = libc::CMSG_LEN(data.len() as u32) as _;
            core::ptr::copy_nonoverlapping(data.as_ptr(), libc::CMSG_DATA(header), data.len());
        }
        self.used += space;
    }
}

/// Repeats a call until no signal interrupts it; an interrupted call has done nothing yet.
fn retried(mut call: impl FnMut() -> libc::ssize_t) -> io::Result<usize> {
    loop {
        if let Ok(len) = usize::try_from(call()) {
            return Ok(len);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::accelerator::job::Work;
    use crate::accelerator::task::{Piece, Span};

    extern "C" fn nothing(_: libc::c_int) {}

    /// Two ends of a socket, which ignores the control messages of AF_ALG.
    fn ends() -> (OwnedFd, OwnedFd) {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors, which nothing else owns.
        unsafe {
            let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
            assert_eq!(
                libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()),
                0
            );
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        }
    }

    #[test]
    fn an_operation_that_a_signal_breaks_off_has_failed_and_is_done_once() {
        // SAFETY: a handler that does nothing, for a signal that is otherwise ignored. Calls are not restarted.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            let handler: extern "C" fn(libc::c_int) = nothing;
            action.sa_sigaction = handler as libc::sighandler_t;
            assert_eq!(
                libc::sigaction(libc::SIGURG, &raw const action, null_mut()),
                0
            );
        }
        let (operations, driver) = ends();
        let mut session = AfAlgSession {
            operations,
            driver: "fake".to_owned(),
            task: Task::AesCbc,
        };
        let mut work = Work::new();
        let text = Span { start: 0, len: 64 };
        let piece = Piece {
            text,
            ..Piece::default()
        };
        for index in 0..2 {
            assert!(work.push(index, Direction::Encrypt, &piece, &[7; 64]));
        }
        let outcomes = std::thread::scope(|scope| {
            let (say, hear) = std::sync::mpsc::channel();
            let reader = scope.spawn(move || {
                // SAFETY: the call takes no arguments. Sent as a number, since some C libraries return a pointer, which
                // is not `Send`.
                say.send(unsafe { libc::pthread_self() } as usize).unwrap();
                let (memory, jobs) = work.parts();
                session.run(memory, jobs).unwrap();
                jobs.iter().map(|job| job.outcome).collect::<Vec<_>>()
            });
            let thread = hear.recv().unwrap() as libc::pthread_t;
            // The thread may not be waiting yet.
            let deadline = Instant::now() + Duration::from_secs(60);
            while !reader.is_finished() && Instant::now() < deadline {
                // SAFETY: the thread has not been joined.
                unsafe { libc::pthread_kill(thread, libc::SIGURG) };
                std::thread::yield_now();
            }
            let mut operation = [0_u8; 200];
            let mut received = 0;
            // SAFETY: a slice with its length; and an end that is shut once, so that a reader sees the end.
            unsafe {
                let fd = driver.as_raw_fd();
                while libc::recv(
                    fd,
                    operation.as_mut_ptr().cast(),
                    operation.len(),
                    libc::MSG_DONTWAIT,
                ) > 0
                {
                    received += 1;
                }
                libc::shutdown(fd, libc::SHUT_RDWR);
            }
            assert_eq!(received, 1);
            reader.join().unwrap()
        });
        assert_eq!(outcomes, [Outcome::Failed(libc::EINTR), Outcome::Pending]);
    }
}
