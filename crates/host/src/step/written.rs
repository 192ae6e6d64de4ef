//! A step as read from the journal: its kind, and one table with the values of all kinds.
//!
//! serde's derived reader of the enum has a part for each kind of step: 18 KB of an ARMv7 program. This one takes half.

use std::fmt;
use std::net::IpAddr;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{SavedRoute, Step};
use crate::dns::{NameServers, Resolver};

/// The values; those that the kind does not have are absent.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Values {
    addr: Option<IpAddr>,
    before: Option<String>,
    dev: Option<u32>,
    dst: Option<IpAddr>,
    except: Option<Vec<(IpAddr, u8)>>,
    first: bool,
    interface: Option<String>,
    key: Option<String>,
    mark: Option<u32>,
    metric: Option<u32>,
    mtu: Option<u32>,
    onlink: Option<bool>,
    only: Vec<String>,
    optional: Option<bool>,
    passes: Option<u8>,
    peer: Option<IpAddr>,
    prefix: Option<u8>,
    priority: Option<u32>,
    protocol: Option<u8>,
    resolver: Option<Resolver>,
    scope: Option<u8>,
    search: Option<Vec<String>>,
    servers: Option<Vec<IpAddr>>,
    sources: Option<Vec<(IpAddr, u8)>>,
    src: Option<IpAddr>,
    table: Option<u32>,
    towards: Option<IpAddr>,
    v6: Option<bool>,
    value: Option<String>,
    via: Option<IpAddr>,
}

/// `{KIND: {NAME: VALUE, ...}}`, or only `KIND` for a step without values.
impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Step;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a step")
    }

    fn visit_str<E: Error>(self, kind: &str) -> Result<Step, E> {
        Values::default().read(kind)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Step, A::Error> {
        let none = || A::Error::custom("a step has no kind");
        let (kind, values): (String, Values) = map.next_entry()?.ok_or_else(none)?;
        values.read(&kind)
    }
}

impl Values {
    fn read<E: Error>(self, kind: &str) -> Result<Step, E> {
        let fault = || E::custom(format!("not a complete step: {kind}"));
        self.step(kind).ok_or_else(fault)
    }

    /// The step of that kind; `None` for an unknown kind or a missing value.
    fn step(self, kind: &str) -> Option<Step> {
        Some(match kind {
            "Address" => Step::Address {
                addr: self.addr?,
                prefix: self.prefix?,
                peer: self.peer,
            },
            "Mtu" => Step::Mtu { mtu: self.mtu? },
            "Up" => Step::Up,
            "Route" => Step::Route {
                dst: self.dst?,
                prefix: self.prefix?,
                via: self.via,
                metric: self.metric,
                table: self.table?,
                optional: self.optional?,
                first: self.first,
            },
            "Dns" => Step::Dns {
                resolver: self.resolver?,
                wanted: NameServers {
                    servers: self.servers?,
                    search: self.search?,
                    only: self.only,
                },
            },
            "UnmarkedRule" => Step::UnmarkedRule {
                v6: self.v6?,
                mark: self.mark?,
                table: self.table?,
                priority: self.priority?,
                passes: self.passes,
            },
            "MainRule" => Step::MainRule {
                v6: self.v6?,
                priority: self.priority?,
                passes: self.passes.unwrap_or(0),
            },
            "Sysctl" => Step::Sysctl {
                key: self.key?,
                value: self.value?,
                before: self.before?,
            },
            "Masquerade" => Step::Masquerade {
                interface: self.interface?,
                sources: self.sources?,
                except: self.except?,
            },
            "OuterRoute" => Step::OuterRoute {
                dst: self.dst?,
                prefix: self.prefix?,
                via: self.via,
                dev: self.dev?,
                metric: self.metric?,
                towards: self.towards,
            },
            "Unreachable" => Step::Unreachable {
                dst: self.dst?,
                prefix: self.prefix?,
                metric: self.metric?,
            },
            "Displace" => Step::Displace(SavedRoute {
                dst: self.dst?,
                prefix: self.prefix?,
                via: self.via,
                dev: self.dev,
                metric: self.metric,
                src: self.src,
                mtu: self.mtu,
                scope: self.scope,
                protocol: self.protocol,
                onlink: self.onlink?,
            }),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
    const THERE: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9));

    fn name_servers(only: &[&str]) -> NameServers {
        NameServers {
            servers: vec![HERE, THERE],
            search: vec!["example.org".to_owned()],
            only: only.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// Steps of each kind, with every optional value once present and once absent.
    fn all() -> Vec<Step> {
        let mut all = vec![Step::Up, Step::Mtu { mtu: 1420 }];
        let resolvers = [
            Resolver::Resolvectl,
            Resolver::Resolvconf {
                prefix: "tun.".to_owned(),
            },
            Resolver::Dnsmasq {
                directory: PathBuf::from("/tmp/dnsmasq.d"),
            },
        ];
        for resolver in resolvers {
            for only in [&[][..], &["example.net"]] {
                all.push(Step::Dns {
                    resolver: resolver.clone(),
                    wanted: name_servers(only),
                });
            }
        }
        for (via, number) in [(None, None), (Some(THERE), Some(7))] {
            let byte = number.map(|_| 254);
            all.extend([
                Step::Address {
                    addr: HERE,
                    prefix: 24,
                    peer: via,
                },
                Step::Route {
                    dst: HERE,
                    prefix: 32,
                    via,
                    metric: number,
                    table: 51820,
                    optional: via.is_some(),
                    first: via.is_none(),
                },
                Step::OuterRoute {
                    dst: HERE,
                    prefix: 0,
                    via,
                    dev: 4,
                    metric: 5,
                    towards: via,
                },
                Step::Displace(SavedRoute {
                    dst: HERE,
                    prefix: 1,
                    via,
                    dev: number,
                    metric: number,
                    src: via,
                    mtu: number,
                    scope: byte,
                    protocol: byte,
                    onlink: via.is_some(),
                }),
                Step::UnmarkedRule {
                    v6: via.is_some(),
                    mark: 0xca6c,
                    table: 51820,
                    priority: 10,
                    passes: byte,
                },
                Step::MainRule {
                    v6: via.is_some(),
                    priority: 9,
                    passes: u8::from(via.is_some()),
                },
            ]);
        }
        all.extend([
            Step::Sysctl {
                key: "net/ipv4/ip_forward".to_owned(),
                value: "1".to_owned(),
                before: "0".to_owned(),
            },
            Step::Masquerade {
                interface: "tun0".to_owned(),
                sources: vec![(HERE, 24), (THERE, 64)],
                except: Vec::new(),
            },
            Step::Unreachable {
                dst: THERE,
                prefix: 1,
                metric: 6,
            },
        ]);
        all
    }

    #[test]
    fn every_step_is_read_as_it_was_written() {
        for step in all() {
            let text = serde_json::to_string(&step).unwrap();
            let read: Step =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(read, step, "{text}");
        }
    }

    /// An earlier version wrote no `only`, and another name for a value; a later version may write more.
    #[test]
    fn what_other_versions_wrote_is_read() {
        let text = r#"{"Dns":{"resolver":{"OpenWrt":{"directory":"/tmp/d"}},"servers":[],"search":[],"later":[1]}}"#;
        let Step::Dns { resolver, wanted } = serde_json::from_str(text).unwrap() else {
            panic!("another step");
        };
        let directory = PathBuf::from("/tmp/d");
        assert_eq!(resolver, Resolver::Dnsmasq { directory });
        assert_eq!(wanted, NameServers::default());
    }

    #[test]
    fn what_is_no_whole_step_is_refused() {
        for text in [
            "{}",
            "7",
            r#""Down""#,
            r#""Mtu""#,
            r#"{"Later":{}}"#,
            r#"{"Mtu":{}}"#,
            r#"{"Mtu":{"mtu":null}}"#,
            r#"{"Mtu":{"mtu":-1}}"#,
            r#"{"MainRule":{"v6":true}}"#,
            r#"{"MainRule":{"v6":true,"priority":1},"Up":{}}"#,
            r#"{"Unreachable":{"dst":"nowhere","prefix":1,"metric":1}}"#,
        ] {
            assert!(serde_json::from_str::<Step>(text).is_err(), "{text}");
        }
    }
}
