//! Identifies the thread's network namespace.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Inode number of the calling thread's network namespace. The kernel reuses the numbers of namespaces that are gone.
///
/// # Errors
/// `/proc` is missing.
pub fn inode() -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// The number of the calling thread's network namespace. The kernel gives it to no other namespace until the next boot.
///
/// # Errors
/// The kernel gives no socket, or is older than 5.14.
pub fn cookie() -> io::Result<u64> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("0.0.0.0", 0)))?;
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the option is a number of eight bytes, which is how much room there is and is said
    // to be.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    match got {
        0 => Ok(cookie),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_always_the_same() {
        assert_eq!(inode().unwrap(), inode().unwrap());
        if let Ok(first) = cookie() {
            assert_eq!(cookie().unwrap(), first);
        }
    }
}
