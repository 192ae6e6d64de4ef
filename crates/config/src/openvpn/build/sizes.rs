//! Directives about packet sizes.

use super::connection::Draft;
use super::value::{OK, Outcome, Remark, at, number, one_of};
use crate::openvpn::directive::Directive;
use crate::openvpn::{Fragment, MssFix};
use crate::settings::MtuDiscovery;

/// Applies a directive of this group.
pub(super) fn sizes(draft: &mut Draft, directive: &Directive) -> Option<Outcome> {
    let value = at(directive, 0);
    let mtu = &mut draft.mtu;
    Some(match directive.name.as_str() {
        "tun-mtu" => (|| {
            // 100 is stock's TUN_MTU_MIN; the kernel itself takes 68.
            mtu.tun = Some(number(value, 100..=u16::MAX)?);
            mtu.occ = directive
                .get(1)
                .map(|text| number(text, 100..=u16::MAX))
                .transpose()?;
            OK
        })(),
        "tun-mtu-max" => number(value, 68..=u16::MAX).map(|size| {
            mtu.tun_max = Some(size);
            Remark::Plain
        }),
        "link-mtu" | "udp-mtu" => number(value, 150..=u16::MAX).map(|size| {
            draft.link_mtu |= size > 0;
            Remark::Ignored(
                "the tunnel's MTU is not derived from it; write `tun-mtu`, or `mssfix` for TCP"
                    .to_owned(),
            )
        }),
        "mssfix" => mssfix(directive).map(|mssfix| {
            mtu.mssfix = mssfix;
            Remark::Plain
        }),
        "fragment" => (|| {
            let with_headers = match directive.get(1) {
                None => false,
                Some("mtu") => true,
                Some(other) => return Err(one_of(other, &["mtu"])),
            };
            mtu.fragment = match number(value, 0..=u16::MAX)? {
                0 => None,
                size @ 68.. => Some(Fragment { size, with_headers }),
                _ => return Err("needs to be at least 68".to_owned()),
            };
            OK
        })(),
        "mtu-disc" => match MtuDiscovery::from_name(value) {
            Some(discovery) => {
                mtu.discovery = Some(discovery);
                OK
            }
            None => Err(one_of(value, &MtuDiscovery::NAMES)),
        },
        "max-packet-size" => number(value, 0..=u16::MAX).map(|size| {
            let held = size.clamp(154, 2048);
            mtu.control = Some(held);
            mtu.mssfix = MssFix::Mtu(size);
            match held == size {
                true => Remark::Plain,
                false => Remark::Note(format!("{held} is used: the limits are 154 and 2048")),
            }
        }),
        _ => return None,
    })
}

fn mssfix(directive: &Directive) -> Result<MssFix, String> {
    let Some(size) = directive.get(0) else {
        return Ok(MssFix::Default);
    };
    let size = number(size, 0..=u16::MAX)?;
    match (size, directive.get(1)) {
        (0, _) => Ok(MssFix::Off),
        (_, None) => Ok(MssFix::Payload(size)),
        (_, Some("mtu")) => Ok(MssFix::Mtu(size)),
        (_, Some("fixed")) => Ok(MssFix::Fixed(size)),
        (_, Some(other)) => Err(one_of(other, &["mtu", "fixed"])),
    }
}
