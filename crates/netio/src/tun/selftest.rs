//! The start-up self-test of the TUN's super-packets: the kernel must receive written packets, and deliver sent ones,
//! byte for byte.
//!
//! A kernel that accepts `TUNSETOFFLOAD` may still fail with super-packets: vendor kernels refuse every one, and some
//! stable kernels did too. The test runs in its own network namespace with its own TUN, which vanish with their thread.
//! So no route, rule, counter or program of the host notices.
//!
//! Every step sends a super-packet and then an ordinary packet of the same flow. Every kernel keeps the order within a
//! flow, so a step that receives the second without the first has found damage. A step that receives neither has only
//! found a busy machine, and concludes nothing. No verdict depends on speed.

use super::sample::{ACK, CONTROL, Headers, LENGTH, Ledger, PSH, RST, SEGMENT, Transport, payload};
use super::{Tun, TunError, TunOptions};
use crate::netlink::Netlink;
use crate::poll::{Poller, check};
use crate::rung::Rung;
use crate::tun::{GsoKind, VNET_HDR_LEN, VnetHdr};
use crate::udp::{self, Ecn, Endpoint, Family, SelfTest, SendScratch, SocketOptions, Train};
use std::fs;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// The TUN's own address. All three are in TEST-NET-1 (RFC 5737).
const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The address of the peer, whose part the test plays.
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// A host behind the TUN; the kernel forwards packets to it.
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);
/// A closed port: nothing listens in a new namespace.
const PORT: u16 = 9;
const SEQ: u32 = 0x1000_0000;

/// The interface's name, which no host uses: a path below `/proc/sys` with this name cannot concern another interface.
const NAME: &str = "mr-selftest";

/// Time limit for a step's expected packets. Usually they have arrived before the write returns.
const WAIT: Duration = Duration::from_millis(50);

/// Verdicts of [`self_test`], one for each feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunVerdict {
    /// Reading TCP super-packets.
    pub tso: SelfTest,
    /// Writing TCP super-packets.
    pub gro: SelfTest,
    /// Reading and writing UDP super-packets.
    pub uso: SelfTest,
}

impl TunVerdict {
    /// Verdicts for a test that did not run, with the reason.
    #[must_use]
    pub fn not_run(why: &str) -> Self {
        let verdict = || SelfTest::NotRun(why.to_owned());
        Self {
            tso: verdict(),
            gro: verdict(),
            uso: verdict(),
        }
    }

    /// [`Tun::create`] without the features that failed, with one warning for each.
    ///
    /// # Errors
    /// See [`TunError`].
    pub fn create(&self, name: &str, options: TunOptions) -> Result<Tun, TunError> {
        let passed = |verdict: &SelfTest| !matches!(verdict, SelfTest::Failed(_));
        let mut tun = Tun::create(
            name,
            TunOptions {
                tso: options.tso && passed(&self.tso),
                uso: options.uso && passed(&self.uso),
                gro: options.gro && passed(&self.gro),
            },
        )?;
        for (rung, wanted, verdict) in [
            (&mut tun.tso, options.tso, &self.tso),
            (&mut tun.uso, options.uso, &self.uso),
            (&mut tun.gro, options.gro, &self.gro),
        ] {
            if wanted && let SelfTest::Failed(why) = verdict {
                log::warn!("{}: off: it failed the self-test: {why}", rung.name());
                *rung = Rung::new_off(rung.name(), format!("self-test: {why}"));
            }
        }
        Ok(tun)
    }
}

/// A self-test on another thread.
#[derive(Debug)]
pub struct TunProbe(Result<thread::JoinHandle<TunVerdict>, TunVerdict>);

impl TunProbe {
    /// Waits for the end of the test and returns its verdict.
    #[must_use]
    pub fn verdict(self) -> TunVerdict {
        match self.0.map(thread::JoinHandle::join) {
            Ok(Ok(verdict)) | Err(verdict) => verdict,
            Ok(Err(_)) => TunVerdict::not_run("the test panicked"),
        }
    }
}

/// Tests the requested features with a TUN in a temporary network namespace, and waits for the verdict.
#[must_use]
pub fn self_test(options: TunOptions) -> TunVerdict {
    start_self_test(options).verdict()
}

/// Tests the requested features with a TUN in a temporary network namespace, on a separate thread.
///
/// IPv4 only: the kernel's IPv6 path has other headers, but shares the parts that were seen to break. Making a
/// namespace needs `CAP_SYS_ADMIN`; without it, or without `/dev/net/tun`, there is no verdict. Call it before other
/// threads inherit privileges that must be given up.
///
/// Takes 1 to 2 ms on a virtual machine with Linux 6.18, and up to 16 ms on a busy one or while the kernel removes an
/// earlier test's namespace. Takes 0.2 s on a kernel that answers nothing, and no time if every feature is off.
#[must_use]
pub fn start_self_test(options: TunOptions) -> TunProbe {
    if !(options.tso || options.uso || options.gro) {
        return TunProbe(Err(TunVerdict::not_run("setting")));
    }
    // A namespace made by a thread is its own, and ends with it unless a descriptor keeps it.
    let thread = thread::Builder::new()
        .name("tun-selftest".to_owned())
        .spawn(move || match Stand::build(options) {
            Ok(stand) => stand.test(options),
            Err(why) => TunVerdict::not_run(&why),
        });
    TunProbe(thread.map_err(|e| TunVerdict::not_run(&format!("no thread: {e}"))))
}

/// A TUN with an address, in an otherwise empty namespace.
struct Stand {
    tun: Tun,
    poller: Poller,
    memory: Vec<u8>,
}

impl Stand {
    fn build(options: TunOptions) -> Result<Self, String> {
        // SAFETY: no pointers are passed; only this thread leaves its network namespace.
        check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
            .map_err(|e| format!("no network namespace: {e}"))?;
        let tun = Tun::create(NAME, options).map_err(|e| e.to_string())?;
        if !tun.vnet_hdr() {
            return Err("kernel: no vnet_hdr".to_owned());
        }
        // Otherwise closing the descriptor waits for the kernel to remove the interface, ten times as long as the tests
        // take. The end of the namespace removes the interface later.
        if let Err(e) = tun.outlive_descriptor() {
            log::debug!("tun-selftest: {e}");
        }
        let address = || {
            let mut netlink = Netlink::open()?;
            let index = netlink.index_of(NAME)?;
            netlink.add_address(index, IpAddr::V4(HOST), 24, None)?;
            netlink.set_up(index)
        };
        address().map_err(|e| e.to_string())?;
        let poller = Poller::new().map_err(|e| e.to_string())?;
        poller.add(&tun, 0).map_err(|e| e.to_string())?;
        Ok(Self {
            tun,
            poller,
            memory: vec![0; VNET_HDR_LEN + usize::from(u16::MAX)],
        })
    }

    fn test(mut self, options: TunOptions) -> TunVerdict {
        let unused = |rung: &Rung, wanted: bool| {
            (!wanted || !rung.on()).then(|| SelfTest::NotRun(rung.to_string()))
        };
        let gro = unused(&self.tun.gro, options.gro).unwrap_or_else(|| self.answer());
        let tso = unused(&self.tun.tso, options.tso).unwrap_or_else(|| self.forward());
        let uso = unused(&self.tun.uso, options.uso).unwrap_or_else(|| {
            // One feature covers both directions.
            match (self.deliver(), self.segment()) {
                (SelfTest::Failed(why), _) => SelfTest::Failed(format!("written: {why}")),
                (_, SelfTest::Failed(why)) => SelfTest::Failed(format!("read: {why}")),
                (SelfTest::Passed, other) | (other, _) => other,
            }
        });
        TunVerdict { tso, gro, uso }
    }

    /// `tun-gro`: the kernel accepts a written TCP super-packet whole. The closed port refuses it. The refusal
    /// acknowledges the received bytes (RFC 9293, section 3.5.2), because the super-packet itself has no `ACK`.
    fn answer(&mut self) -> SelfTest {
        let headers = |seq| Headers {
            src: (PEER, PORT),
            dst: (HOST, PORT),
            transport: Transport::Tcp(seq, 0, PSH),
        };
        let last = SEQ + 2 * LENGTH as u32;
        if let Some(verdict) = self.write_both(&headers(SEQ), &headers(last)) {
            return verdict;
        }
        let acknowledged = self.read(|_, headers, _, _| match headers.transport {
            Transport::Tcp(_, ack, flags) if headers.dst == (PEER, PORT) && flags & RST != 0 => {
                Some(ack)
            }
            _ => None,
        });
        match acknowledged.map(|ack| ack.wrapping_sub(SEQ) as usize) {
            Ok(LENGTH) => SelfTest::Passed,
            Ok(bytes) if bytes < LENGTH => {
                SelfTest::Failed(format!("{bytes} of {LENGTH} bytes were acknowledged"))
            }
            Ok(_) => SelfTest::Failed("a written super-packet was lost".to_owned()),
            Err(why) => SelfTest::NotRun(why),
        }
    }

    /// `tun-gso`: the kernel forwards a TCP super-packet back out of its incoming interface. The test reads it as it
    /// was written, or in segments.
    fn forward(&mut self) -> SelfTest {
        let setting = format!("/proc/sys/net/ipv4/conf/{NAME}/forwarding");
        if let Err(e) = fs::write(&setting, "1") {
            return SelfTest::NotRun(format!("{setting}: {e}"));
        }
        let headers = |seq| Headers {
            src: (PEER, PORT),
            dst: (OTHER, PORT),
            transport: Transport::Tcp(seq, 1, PSH | ACK),
        };
        if let Some(verdict) = self.write_both(&headers(SEQ), &headers(SEQ + LENGTH as u32)) {
            return verdict;
        }
        let mut ledger = Ledger::new();
        let end = self.read(|hdr, headers, payload, intact| {
            let Transport::Tcp(seq, ..) = headers.transport else {
                return None;
            };
            if headers.dst != (OTHER, PORT) {
                return None;
            }
            if payload == CONTROL {
                return Some(());
            }
            if seq.wrapping_sub(SEQ) as usize != ledger.came() {
                ledger.blame(format!("sequence number {seq:#x} arrived out of order"));
            }
            enter(&mut ledger, hdr, payload, intact);
            None
        });
        end.map_or_else(SelfTest::NotRun, |()| ledger.close())
    }

    /// `tun-uso`, writing: a socket receives the datagrams of a UDP super-packet.
    fn deliver(&mut self) -> SelfTest {
        let open = || -> io::Result<(UdpSocket, SocketAddr)> {
            let socket = UdpSocket::bind((HOST, 0))?;
            socket.set_read_timeout(Some(WAIT))?;
            let address = socket.local_addr()?;
            Ok((socket, address))
        };
        let (socket, address) = match open() {
            Ok(opened) => opened,
            Err(e) => return SelfTest::NotRun(format!("no socket: {e}")),
        };
        let headers = Headers {
            src: (PEER, PORT),
            dst: (HOST, address.port()),
            transport: Transport::Udp,
        };
        if let Some(verdict) = self.write_both(&headers, &headers) {
            return verdict;
        }
        let mut ledger = Ledger::new();
        let mut datagram = [0; 2 * SEGMENT];
        loop {
            match socket.recv(&mut datagram) {
                Ok(n) if &datagram[..n] == CONTROL => return ledger.close(),
                Ok(n) => ledger.enter(&datagram[..n], None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return SelfTest::NotRun(format!("nothing came: {e}")),
            }
        }
    }

    /// `tun-uso`, reading: a socket sends a train with `UDP_SEGMENT`. The test reads one super-packet, or segments.
    fn segment(&mut self) -> SelfTest {
        let options = SocketOptions {
            gso: true,
            ..SocketOptions::default()
        };
        let socket = match udp::UdpSocket::bind(Family::V4, &options) {
            Ok(socket) => socket,
            Err(e) => return SelfTest::NotRun(e.to_string()),
        };
        if !socket.gso.on() {
            return SelfTest::NotRun(format!("UDP_SEGMENT is {}", socket.gso));
        }
        let mut bytes = payload();
        bytes.extend(CONTROL);
        let train = |start: usize, len: usize, segment: usize| Train {
            start: start as u32,
            len: len as u32,
            segment: segment as u32,
            endpoint: Endpoint::new(SocketAddr::from((PEER, PORT))),
            ecn: Ecn::NotEct,
        };
        let trains = [
            train(0, LENGTH, SEGMENT),
            train(LENGTH, CONTROL.len(), CONTROL.len()),
        ];
        let report = socket.send_trains(&mut SendScratch::new(), &bytes, &trains);
        if report.dropped != 0 || !socket.gso.on() {
            return SelfTest::NotRun(format!("sending: errno {}", report.errno));
        }
        let mut ledger = Ledger::new();
        let end = self.read(|hdr, headers, payload, intact| {
            if headers.transport != Transport::Udp || headers.dst != (PEER, PORT) {
                return None;
            }
            if payload == CONTROL {
                return Some(());
            }
            enter(&mut ledger, hdr, payload, intact);
            None
        });
        end.map_or_else(SelfTest::NotRun, |()| ledger.close())
    }

    /// Writes the super-packet and then the ordinary packet. Returns a verdict if there is nothing to wait for.
    fn write_both(&self, first: &Headers, last: &Headers) -> Option<SelfTest> {
        let write = |(hdr, packet): (VnetHdr, Vec<u8>)| {
            self.tun
                .write(&[IoSlice::new(&hdr.emit()), IoSlice::new(&packet)])
        };
        let first = write(first.packet(&payload(), true));
        match (first, write(last.packet(CONTROL, false))) {
            (_, Err(e)) => Some(SelfTest::NotRun(format!("cannot write any packet: {e}"))),
            (Err(e), _) => Some(SelfTest::Failed(format!(
                "cannot write a super-packet: {e}"
            ))),
            _ => None,
        }
    }

    /// Shows packets to `each` until it returns a value, or for at most [`WAIT`]. Its arguments are the preceding
    /// header, the packet's headers, the payload, and whether the checksum is correct.
    fn read<T>(
        &mut self,
        mut each: impl FnMut(&VnetHdr, &Headers, &[u8], bool) -> Option<T>,
    ) -> Result<T, String> {
        let deadline = Instant::now() + WAIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.tun.read(&mut self.memory) {
                Ok(n) => {
                    let (hdr, packet) = self.memory[..n].split_at(n.min(VNET_HDR_LEN));
                    // Ignores other packets, such as the kernel's first IPv6 messages on a new link.
                    let (Some(hdr), Some((headers, payload, intact))) =
                        (VnetHdr::parse(hdr), Headers::parse(packet))
                    else {
                        continue;
                    };
                    if let Some(enough) = each(&hdr, &headers, payload, intact) {
                        return Ok(enough);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !left.is_zero() => {
                    self.poller.wait(Some(left)).map_err(|e| e.to_string())?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Err(format!("no packet arrived in {} ms", WAIT.as_millis()));
                }
                Err(e) => return Err(format!("reading: {e}")),
            }
        }
    }
}

fn enter(ledger: &mut Ledger, hdr: &VnetHdr, payload: &[u8], intact: bool) {
    if !hdr.needs_csum && !intact {
        ledger.blame("a packet with a wrong checksum arrived".to_owned());
    }
    let segment = (hdr.gso != GsoKind::None).then_some(hdr.gso_size);
    ledger.enter(payload, segment);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_passes_or_cannot_tell() {
        let verdict = self_test(TunOptions::ALL);
        for rung in [&verdict.tso, &verdict.gro, &verdict.uso] {
            assert!(!matches!(rung, SelfTest::Failed(_)), "{verdict:?}");
        }
    }

    #[test]
    fn what_is_off_is_not_tested() {
        let setting = SelfTest::NotRun("setting".to_owned());
        assert_eq!(self_test(TunOptions::PLAIN).gro, setting);
        let verdict = self_test(TunOptions {
            gro: true,
            ..TunOptions::PLAIN
        });
        assert_ne!(verdict.tso, SelfTest::Passed);
        assert_ne!(verdict.uso, SelfTest::Passed);
    }

    #[test]
    fn a_rung_that_failed_is_off_and_says_why() {
        let verdict = TunVerdict {
            gro: SelfTest::Failed("0 of 6900 bytes arrived".to_owned()),
            ..TunVerdict::not_run("a test")
        };
        let made = thread::spawn(move || {
            // SAFETY: no pointers are passed; only this thread leaves its network namespace.
            let private = check(unsafe { libc::unshare(libc::CLONE_NEWNET) });
            lab::require(private.map_err(|error| format!("a private network: {error}")))?;
            Some(verdict.create(NAME, TunOptions::ALL).unwrap())
        });
        let Some(tun) = made.join().unwrap() else {
            return;
        };
        assert!(!tun.gro.on());
        assert_eq!(
            tun.gro.to_string(),
            "off (self-test: 0 of 6900 bytes arrived)"
        );
        assert_ne!(tun.tso.to_string(), "off (setting)");
    }
}
