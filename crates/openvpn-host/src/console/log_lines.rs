//! Log lines: their `verb`, their severity, and their kind, by which `mute` counts repetitions.

use std::net::SocketAddr;

use crate::management::LogFlag;

/// A log line without time and prefix.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Line {
    /// Lowest `verb` at which the line is written.
    pub verb: u8,
    /// Kind of the line for `mute`; kind 0 is never muted.
    pub kind: u32,
    /// Severity of the line.
    pub flag: LogFlag,
    /// Text of the line.
    pub text: String,
}

impl Line {
    /// Line for `verb 1` and above; never muted, as in stock OpenVPN.
    pub(crate) fn info(text: impl Into<String>) -> Self {
        Self {
            kind: 0,
            ..Self::of(1, LogFlag::Info, text)
        }
    }

    /// Warning, written at every `verb`.
    pub(crate) fn warning(text: impl Into<String>) -> Self {
        Self::of(0, LogFlag::Warning, text)
    }

    /// Error after which the daemon continues, written at every `verb`.
    pub(crate) fn fault(text: impl Into<String>) -> Self {
        Self::of(0, LogFlag::NonFatal, text)
    }

    /// Error that ends the daemon, written at every `verb`.
    pub(crate) fn fatal(text: impl Into<String>) -> Self {
        Self::of(0, LogFlag::Fatal, text)
    }

    /// Line written from this `verb` on: 2 or more.
    pub(crate) fn detail(verb: u8, text: impl Into<String>) -> Self {
        let flag = if verb > 5 {
            LogFlag::Debug
        } else {
            LogFlag::Detail
        };
        Self::of(verb, flag, text)
    }

    fn of(verb: u8, flag: LogFlag, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            verb,
            kind: kind_of(&text),
            flag,
            text,
        }
    }

    /// Returns the flag bits that `machine-readable-output` puts in front.
    pub(crate) const fn bits(&self) -> u32 {
        let flag = match self.flag {
            LogFlag::Info | LogFlag::Detail => 0,
            LogFlag::Fatal => 1 << 4,
            LogFlag::NonFatal => 1 << 5,
            LogFlag::Warning => 1 << 6,
            LogFlag::Debug => 1 << 7,
        };
        (self.verb & 15) as u32 | flag
    }
}

/// Formats an outer address: `[AF_INET]192.0.2.1:1194`, `[AF_INET6]2001:db8::1:1194`.
pub fn outer(addr: SocketAddr) -> String {
    let family = if addr.is_ipv4() {
        "AF_INET"
    } else {
        "AF_INET6"
    };
    format!("[{family}]{}:{}", addr.ip(), addr.port())
}

/// Returns a line's kind: an FNV-1a hash without digits, so that addresses, ports and counts do not matter.
fn kind_of(text: &str) -> u32 {
    text.bytes()
        .filter(|byte| !byte.is_ascii_digit())
        .fold(0x811c_9dc5, |hash: u32, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_make_no_other_kind() {
        let kind = |text: &str| Line::warning(text).kind;
        assert_eq!(
            kind("[AF_INET]192.0.2.1:1194 sent rubbish"),
            kind("[AF_INET]198.51.100.77:5 sent rubbish")
        );
        assert_ne!(kind("sent rubbish"), kind("sent nothing"));
        assert_ne!(kind("7"), 0);
        assert_eq!(Line::info("x").kind, 0);
    }

    #[test]
    fn bits_are_those_of_stock() {
        assert_eq!(Line::info("x").bits(), 1);
        assert_eq!(Line::warning("x").bits(), 0x40);
        assert_eq!(Line::fault("x").bits(), 0x20);
        assert_eq!(Line::fatal("x").bits(), 0x10);
        assert_eq!(Line::detail(7, "x").bits(), 0x87);
    }
}
