//! Directives about the interface and the outer socket.

use super::Builder;
use super::value::{OK, Outcome, Remark, at, number, one_of};
use crate::openvpn::Topology;
use crate::openvpn::directive::Directive;
use crate::openvpn::lexer::shown;
use crate::types::is_ifname;

/// Applies a directive of this group.
pub(super) fn apply(builder: &mut Builder, directive: &Directive) -> Option<Outcome> {
    let value = at(directive, 0);
    let sockets = &mut builder.sockets;
    Some(match directive.name.as_str() {
        "dev" => {
            if is_ifname(value) {
                builder.dev = Some(value.to_owned());
                OK
            } else {
                Err(format!(
                    "`{}` is no interface name: 1 to 15 of letters, digits and _=+.-",
                    shown(value)
                ))
            }
        }
        "dev-type" => match value {
            "tun" => {
                builder.dev_type = Some(value.to_owned());
                OK
            }
            "tap" => Err(super::TAP.to_owned()),
            other => Err(one_of(other, &["tun", "tap"])),
        },
        "dev-node" => match value {
            "/dev/net/tun" => OK,
            path if path.starts_with('/') => {
                Err("interfaces are made through /dev/net/tun; remove the line".to_owned())
            }
            _ => Ok(Remark::Ignored("for Windows only".to_owned())),
        },
        "txqueuelen" => number(value, 0..=1_000_000).map(|length| {
            builder.device.queue_length = Some(length);
            Remark::Plain
        }),
        "topology" => topology(value).map(|topology| {
            builder.network.topology = Some(topology);
            Remark::Plain
        }),
        "persist-tun" => {
            builder.service.persist_tun = true;
            OK
        }
        "sndbuf" => buffer(value).map(|size| {
            sockets.send_buffer = size;
            Remark::Plain
        }),
        "rcvbuf" => buffer(value).map(|size| {
            sockets.receive_buffer = size;
            Remark::Plain
        }),
        "shaper" => number(value, 100..=100_000_000).map(|rate| {
            sockets.shaper = Some(rate);
            Remark::Plain
        }),
        "mark" => mark(value).map(|mark| {
            sockets.mark = Some(mark);
            Remark::Plain
        }),
        "bind-dev" => {
            if is_ifname(value) {
                sockets.device = Some(value.to_owned());
                OK
            } else {
                Err(format!("`{}` is no interface name", shown(value)))
            }
        }
        "multihome" => Ok(Remark::Note("always done".to_owned())),
        "tcp-nodelay" => {
            sockets.tcp_nodelay = true;
            OK
        }
        "socket-flags" => {
            let unknown = directive.values.iter().find(|flag| *flag != "TCP_NODELAY");
            match unknown {
                Some(flag) => Err(one_of(flag, &["TCP_NODELAY"])),
                None => {
                    sockets.tcp_nodelay = true;
                    OK
                }
            }
        }
        _ => return None,
    })
}

/// `topology`.
pub(super) fn topology(name: &str) -> Result<Topology, String> {
    match name {
        "net30" => Ok(Topology::Net30),
        "p2p" => Ok(Topology::P2p),
        "subnet" => Ok(Topology::Subnet),
        other => Err(one_of(other, &["subnet", "net30", "p2p"])),
    }
}

/// Parses a buffer size; 0 means the kernel's choice, as in stock.
fn buffer(text: &str) -> Result<Option<u32>, String> {
    let size = number(text, 0..=1 << 30)?;
    Ok((size > 0).then_some(size))
}

/// Parses a mark: decimal as in stock, or hexadecimal, which is usual elsewhere.
fn mark(text: &str) -> Result<u32, String> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16)
            .map_err(|_| format!("`{}` is no hexadecimal number of 32 bits", shown(text))),
        None => number(text, 0..=u32::MAX),
    }
}
