//! A host with a tunnel's configuration file, and the peer at the other end.

use std::path::PathBuf;

use crate::peer::{Keys, PeerOptions, RunningPeer, WgPeer, WireGuardPeer};

use super::{A4, B4, B6, Directory, Net, PORT_B, WG, interface, ip, millrace};

/// Host A, for which the test writes a file, and host B, which runs already.
pub struct Site {
    /// Hosts and cables.
    pub net: Net,
    /// Keys of A.
    pub keys_a: Keys,
    /// Keys of B.
    pub keys_b: Keys,
    /// The directory of A's file.
    pub directory: Directory,
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Site {
    /// Makes hosts and keys, without running programs.
    pub fn new() -> Self {
        let net = Net::new();
        let (keys_a, keys_b) = (
            Keys::generate(&net.a).unwrap(),
            Keys::generate(&net.b).unwrap(),
        );
        Self {
            net,
            keys_a,
            keys_b,
            directory: Directory::new(),
        }
    }

    /// Starts B with its interface. B allows A [`A4`] and these ranges, and has `behind` on its loopback interface.
    pub fn server(&self, ranges: &[(&str, u8)], behind: &[(&str, u8)]) -> RunningPeer<'_> {
        self.server_by(&millrace(), ranges, behind)
    }

    /// Starts another program as B's server.
    pub fn server_by(
        &self,
        program: &dyn WireGuardPeer,
        ranges: &[(&str, u8)],
        behind: &[(&str, u8)],
    ) -> RunningPeer<'_> {
        let b = program
            .start(&self.net.b, WG, &PeerOptions::default())
            .unwrap();
        let mut a_of_b = WgPeer::new(&self.keys_a.public).allow(ip(A4), 32);
        for (address, bits) in ranges {
            a_of_b = a_of_b.allow(ip(address), *bits);
        }
        b.configure(&interface(&self.keys_b, PORT_B, vec![a_of_b]))
            .unwrap();
        b.bring_up(&[(ip(B4), 24), (ip(B6), 64)], 1420).unwrap();
        for (address, bits) in behind {
            self.net.b.add_address("lo", ip(address), *bits).unwrap();
        }
        b
    }

    /// Writes A's file for an interface of this name: the interface section with these lines, the peer B at
    /// `endpoint` with these ranges, and further text.
    pub fn file(
        &self,
        interface: &str,
        lines: &str,
        endpoint: &str,
        ranges: &str,
        more: &str,
    ) -> PathBuf {
        let text = format!(
            "[Interface]\nPrivateKey = {}\n{lines}\n\
             [Peer]\nPublicKey = {}\nEndpoint = {endpoint}:{PORT_B}\nAllowedIPs = {ranges}\n{more}\n",
            self.keys_a.private, self.keys_b.public,
        );
        self.directory.file(&format!("{interface}.conf"), &text)
    }
}
