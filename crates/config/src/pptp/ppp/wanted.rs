//! The settings that options of pppd make, and what each option is taken for.

use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::path::Path;

use zeroize::Zeroizing;

use super::words::words;
use crate::pptp::{Auth, Mppe, MppeMode, values};
use crate::report::{Report, Verdict};
use crate::types::{decimal, is_ifname};

/// A verdict, and the reason.
pub(super) type Judged = (Verdict, Cow<'static, str>);

pub(super) const HONOURED: Judged = honoured("");

pub(super) const fn honoured(remark: &'static str) -> Judged {
    (Verdict::Honoured, Cow::Borrowed(remark))
}

pub(super) const fn ignored(reason: &'static str) -> Judged {
    (Verdict::Ignored, Cow::Borrowed(reason))
}

pub(super) const fn refused(reason: &'static str) -> Judged {
    (Verdict::Refused, Cow::Borrowed(reason))
}

/// Stores a value that was understood.
pub(super) fn put<T>(slot: &mut T, value: Result<T, impl Into<Cow<'static, str>>>) -> Judged {
    match value {
        Ok(value) => {
            *slot = value;
            HONOURED
        }
        Err(reason) => (Verdict::Refused, reason.into()),
    }
}

/// Options that both clients and servers have.
#[derive(Default)]
pub(super) struct Common {
    /// Lengths of required keys, in bits.
    pub(super) bits: Vec<u8>,
    pub(super) required: bool,
    pub(super) none: bool,
    pub(super) stateful: bool,
    pub(super) no_ccp: bool,
    pub(super) refused: Vec<Auth>,
    /// Whether clients log in to this host.
    pub(super) server: bool,
    pub(super) interface: Option<String>,
    pub(super) mtu: Option<u16>,
}

/// A client's options.
#[derive(Default)]
pub(super) struct OfClient {
    pub(super) host: Option<(String, u16)>,
    pub(super) name: Option<String>,
    pub(super) user: Option<String>,
    pub(super) remote: Option<String>,
    pub(super) password: Option<Zeroizing<String>>,
    pub(super) default_route: bool,
    pub(super) dns: bool,
}

/// A server's options.
#[derive(Default)]
pub(super) struct OfServer {
    pub(super) name: Option<String>,
    pub(super) dns: Vec<Ipv4Addr>,
}

impl Common {
    pub(super) fn set_mtu(&mut self, value: &str) -> Judged {
        match decimal(value) {
            Some(bytes @ 576..=1456) => {
                // Both directions get the smaller value.
                let bytes = u16::try_from(bytes).unwrap_or(576);
                self.mtu = Some(self.mtu.map_or(bytes, |mtu| mtu.min(bytes)));
                HONOURED
            }
            Some(1457..) => ignored("too large for the tunnel; both ends negotiate the size"),
            _ => refused("write a number of bytes from 576"),
        }
    }

    pub(super) fn set_interface(&mut self, name: Option<String>) -> Judged {
        put(
            &mut self.interface,
            name.map(Some).ok_or("names no valid interface"),
        )
    }

    /// Takes OpenWrt's encryption option: words separated by commas.
    pub(super) fn set_mppe(&mut self, value: &str) -> Judged {
        let mut bits = vec![128, 56, 40];
        for word in value.split(',').map(str::trim) {
            match word {
                // Encryption is always required; there is no "if possible" here.
                "required" | "optional" | "" => {}
                "stateless" => self.stateful = false,
                "stateful" => self.stateful = true,
                "no128" => bits.retain(|it| *it != 128),
                "no56" => bits.retain(|it| *it != 56),
                "no40" => bits.retain(|it| *it != 40),
                _ => return refused("write required,no40,no56,stateless"),
            }
        }
        if bits.contains(&128) {
            self.bits.push(128);
            return honoured("required, with 128-bit keys");
        }
        let none_left = bits.is_empty();
        self.bits.append(&mut bits);
        match none_left {
            true => refused("no key length is left; remove no128"),
            false => honoured("required; remove no128 for longer keys"),
        }
    }

    /// The encryption and the login methods. `None` if they are not given, or contradict each other.
    pub(super) fn protection(&mut self, report: &mut Report) -> (Option<Mppe>, Vec<Auth>) {
        let wanted = self.required || !self.bits.is_empty();
        let mut refuse = |reason: &str| report.push(0, "require-mppe", Verdict::Refused, reason);
        let mppe = match (wanted, self.none) {
            (true, true) => {
                refuse("nomppe is set, too; remove one of the two");
                None
            }
            (false, false) => {
                refuse("the file does not require encryption; write require-mppe-128");
                None
            }
            (false, true) => Some(Mppe::None),
            (true, false) => {
                if self.no_ccp {
                    refuse("noccp prevents negotiating encryption; remove it");
                }
                if self.required {
                    self.bits.push(128);
                }
                self.bits.sort_unstable_by(|a, b| b.cmp(a));
                self.bits.dedup();
                Some(Mppe::Required {
                    bits: self.bits.clone(),
                    mode: match self.stateful {
                        true => MppeMode::Either,
                        false => MppeMode::Stateless,
                    },
                })
            }
        };
        let mut auth = vec![Auth::MsChapV2, Auth::Chap, Auth::Pap];
        if self.server || mppe != Some(Mppe::None) {
            // Only MS-CHAPv2 gives keys. A server takes nothing else even without keys, so that no client sends it a
            // readable password.
            auth.truncate(1);
        }
        auth.retain(|auth| !self.refused.contains(auth));
        if auth.is_empty() {
            let reason = match self.server {
                true => "clients can log in only with MS-CHAPv2; remove the line",
                false => "no login method is left, as encryption needs MS-CHAPv2; remove the line",
            };
            report.push(0, "refuse-mschap-v2", Verdict::Refused, reason);
        }
        (mppe, auth)
    }

    /// The interface's name: from an option, or the file's name.
    pub(super) fn interface(&mut self, path: &Path, report: &mut Report) -> Option<String> {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let stem = stem.filter(|stem| is_ifname(stem)).map(str::to_owned);
        let interface = self.interface.take().or(stem);
        if interface.is_none() {
            let reason = "the file's name is not a valid interface name; write ifname and a name of 1 to 15 letters \
                          and digits";
            report.push(0, "ifname", Verdict::Refused, reason);
        }
        interface
    }
}

pub(super) const NO_HOST: &str = "write pty \"pptp SERVER --nolaunchpppd\"";

impl OfClient {
    /// Takes the server from a call of pptp-linux.
    pub(super) fn set_pty(&mut self, command: &str) -> Judged {
        match host_of(command) {
            Ok((host, ignores)) => {
                self.host = Some(host);
                honoured(match ignores {
                    true => "other options of pptp have no effect here",
                    false => "",
                })
            }
            Err(fault) => (Verdict::Refused, fault.into()),
        }
    }
}

/// The server in a call of pptp-linux, and whether the call has options without effect here.
fn host_of(command: &str) -> Result<((String, u16), bool), String> {
    // The words are split as a shell does; words that only a shell understands are refused.
    if command.contains(|c: char| "$`;|&<>()".contains(c)) {
        return Err("it is a shell command; write pty \"pptp SERVER --nolaunchpppd\"".to_owned());
    }
    let words = words(command).map_err(|fault| fault.describe().1.to_owned())?;
    let mut words = words.into_iter().map(|word| word.text.to_string());
    let program = words.next().unwrap_or_default();
    if program.rsplit('/').next() != Some("pptp") {
        return Err(NO_HOST.to_owned());
    }
    let (mut host, mut ignores) = (None, false);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--nolaunchpppd" => {}
            // Options with a value.
            "--timeout" | "--localbind" | "--phone" | "--quirks" | "--logstring" | "--loglevel"
            | "--test-type" | "--test-rate" | "--idle-wait" | "--max-echo-wait" | "--rtmark"
            | "--missing-window" => {
                ignores = true;
                words.next();
            }
            option if option.starts_with("--") => ignores = true,
            _ if host.is_none() => host = Some(values::server(&word)?),
            // pptp would pass other options on to pppd.
            _ => return Err("pppd's options must be in the file itself".to_owned()),
        }
    }
    host.map(|host| (host, ignores))
        .ok_or_else(|| NO_HOST.to_owned())
}
