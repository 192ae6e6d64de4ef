//! Sends a single datagram that must not be fragmented, on a socket whose other datagrams may be.

use super::socket::{Family, UdpSocket, set_int};
use super::{Endpoint, SendReport, SendScratch, Train};

impl UdpSocket {
    /// Sends one datagram with DF, whatever the socket's [`MtuDiscovery`](super::MtuDiscovery), and whatever path MTU
    /// the kernel has learned (`IP_PMTUDISC_PROBE`). If it is too long for the device, the kernel refuses it with
    /// `EMSGSIZE`.
    ///
    /// The option belongs to the socket, not the message. Datagrams that other threads send in these microseconds have
    /// DF too; they fit the device, since they were made for it. Only one thread may call this at a time.
    pub fn send_whole(
        &self,
        scratch: &mut SendScratch,
        datagram: &[u8],
        endpoint: Endpoint,
    ) -> SendReport {
        if let Err(error) = self.discover(libc::IP_PMTUDISC_PROBE) {
            return SendReport {
                dropped: 1,
                errno: error.raw_os_error().unwrap_or(0),
                ..SendReport::default()
            };
        }
        let len = datagram.len() as u32;
        let train = Train::single(len, endpoint);
        scratch.begin_batch();
        let report = self.send_trains(scratch, datagram, &[train]);
        if let Err(error) = self.discover(self.discovery) {
            log::warn!("a UDP socket goes on sending with DF: {error}");
        }
        report
    }

    fn discover(&self, value: libc::c_int) -> std::io::Result<()> {
        let (level, name) = match self.family() {
            Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
        };
        set_int(&self.fd, level, name, value)
    }
}

impl SendReport {
    /// Whether this host itself has refused a datagram as too long.
    #[must_use]
    pub fn too_long(&self) -> bool {
        self.errno == libc::EMSGSIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::SocketOptions;
    use std::net::{SocketAddr, UdpSocket as StdSocket};

    fn option(socket: &UdpSocket, level: libc::c_int, name: libc::c_int) -> libc::c_int {
        let mut value: libc::c_int = -1;
        let mut len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes into `value`.
        let result = unsafe {
            libc::getsockopt(
                std::os::fd::AsRawFd::as_raw_fd(&socket.fd),
                level,
                name,
                (&raw mut value).cast(),
                &raw mut len,
            )
        };
        assert_eq!(result, 0);
        value
    }

    /// Loopback carries 65,536 bytes and a datagram has at most 65,507, so none is too long. This only tests the sent
    /// datagram and the socket's options afterwards.
    #[test]
    fn one_goes_whole_and_the_socket_is_as_it_was() {
        for (family, local) in [(Family::V4, "127.0.0.1:0"), (Family::V6, "[::1]:0")] {
            let Ok(receiver) = StdSocket::bind(local) else {
                continue;
            };
            let to: SocketAddr = receiver.local_addr().unwrap();
            let socket = UdpSocket::bind(family, &SocketOptions::default()).unwrap();
            let mut scratch = SendScratch::new();
            let report = socket.send_whole(&mut scratch, &[7; 1400], Endpoint::new(to));
            assert_eq!((report.sent, report.too_long()), (1, false));
            let mut bytes = [0; 2000];
            assert_eq!(receiver.recv(&mut bytes).unwrap(), 1400);
            let (level, name) = match family {
                Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
                Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
            };
            assert_eq!(option(&socket, level, name), libc::IP_PMTUDISC_DONT);
        }
    }
}
