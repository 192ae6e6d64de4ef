//! Preallocated message headers and room for control messages, for `sendmmsg` and `recvmmsg` alike.

/// Most messages of one system call.
pub(crate) const MESSAGES: usize = 64;

/// Room for the three control messages that we send or receive together, in bytes.
pub(crate) const CONTROL_LEN: usize = 128;

/// A control buffer with the alignment of `cmsghdr`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Control(pub(crate) [u8; CONTROL_LEN]);

impl Control {
    pub(crate) const EMPTY: Self = Self([0; CONTROL_LEN]);
}

/// Message headers and the buffers that they point to, about 22 KiB.
pub(crate) struct Headers {
    pub(crate) headers: Vec<libc::mmsghdr>,
    pub(crate) vectors: Vec<libc::iovec>,
    pub(crate) names: Vec<libc::sockaddr_storage>,
    pub(crate) controls: Vec<Control>,
}

// SAFETY: the raw pointers inside the headers are written anew before each system call and never
// read afterwards, so the headers carry no borrowed state between threads.
unsafe impl Send for Headers {}

impl Headers {
    pub(crate) fn new() -> Self {
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
