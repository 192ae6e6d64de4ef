//! The report of `millrace doctor --report`: figures of a router that its owner sends in.
//!
//! # Privacy
//! A report holds numbers, words of fixed lists and [versions](Version). The compiler enforces it: every field must be a
//! `Part`, and no type of text is one. A name, an address, a key or a path cannot stand in a report.
//!
//! # The digest
//! [`Report::sealed`] puts a digest into the report; [`Report::is_whole`] checks it. It finds a report that was changed
//! or cut on its way. It does not prove who made the report.

#![forbid(unsafe_code)]

mod part;
mod version;
mod words;

pub use part::Digest;
pub use version::Version;
pub use words::{
    Architecture, Chip, Cipher, CoreName, Direction, Feature, Module, NoLoopback, Offload,
    Protocol, Side, Vendor,
};

use part::{Part as _, object};
use serde_json::{Value, json};

/// The number of this schema. Raise it with every change of the fields or of their meaning.
pub const SCHEMA: u16 = 1;

/// The largest report, in bytes. A real one has about 3,000.
pub const SIZE_MAX: usize = 32 << 10;

object! {
    /// A report.
    Report {
        /// The number of this schema
        schema: u16,
        /// Version of the program
        program: Option<Version>,
        /// The hardware
        machine: Machine,
        /// The kernel
        kernel: Kernel,
        /// OpenWrt's parts; null on another system
        openwrt: Option<OpenWrt>,
        /// Ciphers, measured
        ciphers: Vec<Measured>,
        /// Throughput between two tunnels on this machine; null if it was not measured
        loopback: Option<Loopback>,
        /// The reason that no throughput was measured
        no_loopback: Option<NoLoopback>,
        /// A running tunnel, measured by echoes of its peer; null unless the owner asked for it
        peer: Option<Peer>,
        /// BLAKE2s-256 of the report without white space, with 64 zeros in place of this digest
        digest: Digest,
    }
}

object! {
    /// The hardware.
    Machine {
        /// The program's instruction set
        architecture: Architecture,
        /// The chip, as its device tree calls it; null if it has none, or an unknown one
        chip: Option<Chip>,
        /// Processors that the program may use
        processors: u16,
        /// Kinds of processor cores
        cores: Vec<Core>,
        /// Features of the processor that matter for ciphers
        features: Vec<Feature>,
        /// The highest clock rate; null if the kernel does not tell it
        megahertz: Option<u32>,
        /// Memory in units of 1,000,000 bytes
        megabytes: u32,
    }
}

object! {
    /// One kind of processor core.
    Core {
        /// Cores of this kind
        count: u16,
        /// The designer of the core
        vendor: Option<Vendor>,
        /// The core's name
        name: Option<CoreName>,
        /// Family (x86) or version of the architecture (ARM)
        family: Option<u16>,
        /// Model (x86) or part number (ARM)
        model: Option<u16>,
    }
}

object! {
    /// The kernel.
    Kernel {
        /// The kernel's version
        version: Option<Version>,
        /// Modules that are loaded, of those that matter for tunnels
        modules: Vec<Module>,
    }
}

object! {
    /// OpenWrt's parts.
    OpenWrt {
        /// The release; null for a snapshot
        release: Option<Version>,
        /// The revision's number
        revision: Option<u32>,
        /// Version of netifd
        netifd: Option<Version>,
        /// Version of firewall4 (fw4)
        firewall4: Option<Version>,
        /// Version of LuCI; null without LuCI
        luci: Option<Version>,
        /// Flow offloading in the firewall's settings
        offload: Offload,
    }
}

object! {
    /// One cipher's time for a batch of packets.
    Measured {
        /// The cipher
        cipher: Cipher,
        /// Encryption or decryption
        direction: Direction,
        /// The processor or an accelerator
        side: Side,
        /// Packets of the batch
        packets: u16,
        /// Bytes of each packet
        bytes: u16,
        /// Nanoseconds from the batch's beginning to its end
        nanoseconds: u64,
        /// Nanoseconds of processor time
        processor_nanoseconds: u64,
    }
}

object! {
    /// Throughput of one TCP stream between two tunnels that share this machine.
    Loopback {
        /// The tunnels' protocol
        protocol: Protocol,
        /// Kilobits per second inside the tunnel
        kilobits_per_second: u32,
        /// Milliseconds of the measurement
        milliseconds: u32,
        /// Milliseconds of processor time that both tunnels used
        processor_milliseconds: Option<u32>,
    }
}

object! {
    /// A running tunnel, measured by echoes (ping) of its peer.
    Peer {
        /// The tunnel's protocol
        protocol: Protocol,
        /// Bytes of each packet inside the tunnel
        bytes: u16,
        /// Kilobits per second inside the tunnel, in each direction
        kilobits_per_second: u32,
        /// Milliseconds of the measurement
        milliseconds: u32,
        /// Echoes that came back
        echoes: u32,
        /// Echoes that did not come back within a second
        lost: u32,
        /// Mean round trip in microseconds, with 64 packets on their way
        microseconds: u32,
    }
}

impl Report {
    /// The report with its digest.
    #[must_use]
    pub fn sealed(self) -> Self {
        let digest = self.computed();
        Self { digest, ..self }
    }

    /// Whether the digest is the report's.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.digest == self.computed()
    }

    fn computed(&self) -> Digest {
        let blank = Self {
            digest: Digest::default(),
            ..self.clone()
        };
        let mut text = blank.text().into_bytes();
        // No part contains white space.
        text.retain(|it| !it.is_ascii_whitespace());
        Digest::of(&text)
    }

    /// The report as JSON, for people to read before they send it.
    #[must_use]
    pub fn text(&self) -> String {
        // Only maps with other keys than texts, and parts that fail, cannot be written; a report has neither.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// The JSON Schema of reports.
#[must_use]
pub fn schema() -> Value {
    let mut schema = Report::schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("millrace doctor --report");
    schema["properties"]["schema"] = json!({
        "const": SCHEMA,
        "description": "The number of this schema",
    });
    schema
}

#[cfg(test)]
mod tests;
