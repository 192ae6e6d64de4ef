//! `/dev/crypto`: cryptodev-linux, an out-of-tree kernel module that vendors of routers ship.
//!
//! One call is one operation, on memory that the driver reads and writes in place. A session does one operation at a
//! time, hence one session in each driver thread. Facts from the module's `crypto/cryptodev.h`, `ioctl.c` and
//! `authenc.c`, release 1.14.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::Arc;

use super::drivers::is_software;
use super::job::{Accelerator, Fault, Job, Outcome, Session};
use super::task::{Direction, Task};

/// `CRYPTO_AES_CBC`.
const AES_CBC: u32 = 11;
/// `CRYPTO_AES_GCM`.
const AES_GCM: u32 = 50;

/// `struct session_op`.
#[repr(C)]
struct SessionOp {
    cipher: u32,
    mac: u32,
    keylen: u32,
    key: *const u8,
    mackeylen: u32,
    mackey: *const u8,
    ses: u32,
}

/// `struct alg_info`: the algorithm's name and its driver's.
#[repr(C)]
struct AlgInfo {
    name: [u8; 64],
    driver: [u8; 64],
}

/// `struct session_info_op`.
#[repr(C)]
struct SessionInfoOp {
    ses: u32,
    cipher: AlgInfo,
    hash: AlgInfo,
    alignmask: u16,
    flags: u32,
}

/// `struct crypt_op`.
#[repr(C)]
struct CryptOp {
    ses: u32,
    op: u16,
    flags: u16,
    len: u32,
    src: *const u8,
    dst: *mut u8,
    mac: *mut u8,
    iv: *const u8,
}

/// `struct crypt_auth_op`.
#[repr(C)]
struct CryptAuthOp {
    ses: u32,
    op: u16,
    flags: u16,
    len: u32,
    auth_len: u32,
    auth_src: *const u8,
    src: *const u8,
    dst: *mut u8,
    tag: *mut u8,
    tag_len: u32,
    iv: *const u8,
    iv_len: u32,
}

const CIOCGSESSION: libc::Ioctl = libc::_IOWR::<SessionOp>(b'c' as u32, 102);
const CIOCFSESSION: libc::Ioctl = libc::_IOW::<u32>(b'c' as u32, 103);
const CIOCCRYPT: libc::Ioctl = libc::_IOWR::<CryptOp>(b'c' as u32, 104);
const CIOCGSESSINFO: libc::Ioctl = libc::_IOWR::<SessionInfoOp>(b'c' as u32, 107);
const CIOCAUTHCRYPT: libc::Ioctl = libc::_IOWR::<CryptAuthOp>(b'c' as u32, 109);

/// The open `/dev/crypto` device.
pub(crate) struct DevCrypto {
    device: Arc<File>,
    /// Whether to use software drivers too: for tests.
    software: bool,
}

impl DevCrypto {
    /// Opens `/dev/crypto`, if it exists and this process may use it.
    pub(crate) fn open(software: bool) -> io::Result<Self> {
        // The standard library sets close-on-exec.
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/crypto")?;
        Ok(Self {
            device: Arc::new(device),
            software,
        })
    }
}

impl Accelerator for DevCrypto {
    fn name(&self) -> &'static str {
        "/dev/crypto"
    }

    fn open(&self, task: Task, key: &[u8]) -> Result<Box<dyn Session>, Fault> {
        let cipher = match task {
            Task::AesCbc => AES_CBC,
            Task::AesGcm => AES_GCM,
            Task::ChaCha20Poly1305 => return Err(Fault::Unsupported),
        };
        let mut op = SessionOp {
            cipher,
            mac: 0,
            keylen: key.len() as u32,
            key: key.as_ptr(),
            mackeylen: 0,
            mackey: null_mut(),
            ses: 0,
        };
        // SAFETY: `key` is as long as `keylen` says, and the driver copies it.
        unsafe { ioctl(&self.device, CIOCGSESSION, (&raw mut op).cast()) }.map_err(|why| {
            Fault::System {
                what: "CIOCGSESSION",
                why,
            }
        })?;
        let mut session = DevCryptoSession {
            device: Arc::clone(&self.device),
            ses: op.ses,
            driver: String::new(),
            aead: task != Task::AesCbc,
        };
        let driver = session.driver_name();
        let may_be_used = self.software || is_accelerator(driver.as_deref());
        session.driver = driver.unwrap_or_else(|| UNTOLD.to_owned());
        if !may_be_used {
            return Err(Fault::Software(core::mem::take(&mut session.driver)));
        }
        Ok(Box::new(session))
    }
}

/// Stands for a driver whose name the module does not tell.
const UNTOLD: &str = "a driver not told";

/// Whether a driver is one for an accelerator. A driver without a known name counts as software, as most are code for
/// the CPU.
fn is_accelerator(driver: Option<&str>) -> bool {
    driver.is_some_and(|driver| !is_software(driver))
}

struct DevCryptoSession {
    device: Arc<File>,
    ses: u32,
    driver: String,
    aead: bool,
}

impl DevCryptoSession {
    /// The driver's name, by `CIOCGSESSINFO`. Releases before 1.6 cannot tell it.
    fn driver_name(&self) -> Option<String> {
        let nothing = || AlgInfo {
            name: [0; 64],
            driver: [0; 64],
        };
        let mut info = SessionInfoOp {
            ses: self.ses,
            cipher: nothing(),
            hash: nothing(),
            alignmask: 0,
            flags: 0,
        };
        // SAFETY: the structure is the one of the call, and lives through it.
        let told = unsafe { ioctl(&self.device, CIOCGSESSINFO, (&raw mut info).cast()) };
        let name = info.cipher.driver.split(|&byte| byte == 0).next();
        match (told, name) {
            (Ok(()), Some(name)) if !name.is_empty() => {
                Some(String::from_utf8_lossy(name).into_owned())
            }
            _ => None,
        }
    }

    fn crypt(&self, memory: &mut [u8], job: &Job) -> io::Result<()> {
        let text = &mut memory[job.text()];
        let mut op = CryptOp {
            ses: self.ses,
            op: direction(job),
            flags: 0,
            len: text.len() as u32,
            src: text.as_ptr(),
            dst: text.as_mut_ptr(),
            mac: null_mut(),
            iv: job.nonce.as_ptr(),
        };
        // SAFETY: the driver reads and writes `len` bytes of the text, and reads an initialisation vector of 16.
        unsafe { ioctl_once(&self.device, CIOCCRYPT, (&raw mut op).cast()) }
    }

    fn auth_crypt(&self, memory: &mut [u8], job: &Job) -> io::Result<()> {
        let (front, body) = memory.split_at_mut(job.body().start);
        let aad = &front[job.aad()];
        let body = &mut body[..job.body().len()];
        let tag_len = body.len() - job.text().len();
        let len = match job.direction {
            Direction::Encrypt => job.text().len(),
            Direction::Decrypt => body.len(),
        };
        let mut op = CryptAuthOp {
            ses: self.ses,
            op: direction(job),
            flags: 0,
            len: len as u32,
            auth_len: aad.len() as u32,
            auth_src: aad.as_ptr(),
            src: body.as_ptr(),
            dst: body.as_mut_ptr(),
            tag: null_mut(),
            tag_len: tag_len as u32,
            iv: job.nonce.as_ptr(),
            iv_len: 12,
        };
        // SAFETY: the driver reads the associated data and the nonce, and reads and writes text and tag, which are
        // behind each other, as `len` and `tag_len` say.
        unsafe { ioctl_once(&self.device, CIOCAUTHCRYPT, (&raw mut op).cast()) }
    }
}

/// `COP_ENCRYPT`, `COP_DECRYPT`.
fn direction(job: &Job) -> u16 {
    match job.direction {
        Direction::Encrypt => 0,
        Direction::Decrypt => 1,
    }
}

impl Session for DevCryptoSession {
    fn driver(&self) -> &str {
        &self.driver
    }

    fn run(&mut self, memory: &mut [u8], jobs: &mut [Job]) -> Result<(), Fault> {
        for job in jobs {
            let result = if self.aead {
                self.auth_crypt(memory, job)
            } else {
                self.crypt(memory, job)
            };
            job.outcome = match result.map_err(|error| (error.raw_os_error(), error)) {
                Ok(()) => Outcome::Done(job.output().len()),
                Err((Some(libc::EBADMSG), _)) if self.aead => Outcome::Forged,
                Err((Some(libc::ENODEV | libc::ENXIO | libc::EBADF | libc::ENOTTY), why)) => {
                    return Err(Fault::System {
                        what: "/dev/crypto",
                        why,
                    });
                }
                Err((errno, _)) => Outcome::Failed(errno.unwrap_or(0)),
            };
            // The CPU does the remaining jobs.
            if matches!(job.outcome, Outcome::Failed(_)) {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for DevCryptoSession {
    fn drop(&mut self) {
        // SAFETY: a number by its address. The kernel erases the key.
        let _ = unsafe { ioctl(&self.device, CIOCFSESSION, (&raw mut self.ses).cast()) };
    }
}

/// Repeats a call until no signal interrupts it.
///
/// # Safety
/// `argument` has the type that the request is defined with, and so has everything it points to.
unsafe fn ioctl(
    device: &File,
    request: libc::Ioctl,
    argument: *mut libc::c_void,
) -> io::Result<()> {
    loop {
        // SAFETY: the caller's promise.
        match unsafe { ioctl_once(device, request, argument) } {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Makes a call that changes memory in place. Not repeated: after an interruption it may be half done, and would
/// encrypt twice.
///
/// # Safety
/// `argument` has the type that the request is defined with, and so has everything it points to.
unsafe fn ioctl_once(
    device: &File,
    request: libc::Ioctl,
    argument: *mut libc::c_void,
) -> io::Result<()> {
    // SAFETY: the caller's promise.
    if unsafe { libc::ioctl(device.as_raw_fd(), request, argument) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_is_not_told_is_taken_for_software() {
        assert!(is_accelerator(Some("mv-cbc-aes")));
        assert!(!is_accelerator(Some("cbc-aes-aesni")));
        assert!(!is_accelerator(None));
    }
}
