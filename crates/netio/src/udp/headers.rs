//! Preallocated message headers, for `sendmmsg` and `recvmmsg` alike.

use super::cmsg::Control;

/// Messages of one system call at most.
pub(super) const MESSAGES: usize = 64;

/// Headers and what they point to, about 22 KiB.
pub(super) struct Headers {
    pub(super) headers: Vec<libc::mmsghdr>,
    pub(super) vectors: Vec<libc::iovec>,
    pub(super) names: Vec<libc::sockaddr_storage>,
    pub(super) controls: Vec<Control>,
}

// SAFETY: the raw pointers inside the headers are written anew before each system call and never
// read afterwards, so the headers carry no borrowed state between threads.
unsafe impl Send for Headers {}

impl Headers {
    pub(super) fn new() -> Self {
        // SAFETY: all-zero bytes are valid values of these C structures.
        let (header, vector, name) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
        Self {
            headers: vec![header; MESSAGES],
            vectors: vec![vector; MESSAGES],
            names: vec![name; MESSAGES],
            controls: vec![Control::EMPTY; MESSAGES],
        }
    }
}
