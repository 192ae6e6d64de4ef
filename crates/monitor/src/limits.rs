//! Finds, from figures, what limits the speed now, in words.

use std::time::Duration;

use service::status::Status;

use crate::figures::Figures;

/// Load in percent from which a core counts as fully busy: the kernel's ticks are coarse.
const FULL: u8 = 96;

/// Percent of a device's speed that counts as its limit: the counters miss some headers.
const NEARLY: u64 = 92;

/// Two samples to compare.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The tunnels, with rates.
    pub tunnels: &'a [Status],
    /// The tunnels in the earlier sample.
    pub before: &'a [Status],
    /// Figures of this host.
    pub figures: &'a Figures,
    /// The box's figures in the earlier sample.
    pub earlier: &'a Figures,
    /// The time between the samples.
    pub elapsed: Duration,
}

/// Causes that limit the speed, the strongest first; a sentence about the traffic if nothing limits it.
#[must_use]
pub fn limits(moment: Moment<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let loads = moment.figures.loads(moment.earlier);
    let full: Vec<String> = (0..)
        .zip(&loads)
        .filter(|(_, load)| **load >= FULL)
        .map(|(core, _): (usize, _)| core.to_string())
        .collect();
    match (&full[..], loads.len()) {
        ([], _) => {}
        (_, count) if full.len() == count => {
            found.push("the processor: every core is busy all the time".to_owned());
        }
        ([one], _) => found.push(format!("the processor: core {one} is busy all the time")),
        (several, _) => found.push(format!(
            "the processor: cores {} are busy all the time",
            several.join(", ")
        )),
    }
    if !full.is_empty()
        && let Some((now, most)) = moment.figures.clock
        && now * 10 < most * 8
    {
        let hot = moment
            .figures
            .temperatures
            .iter()
            .map(|it| it.1)
            .fold(f64::MIN, f64::max);
        let why = if hot >= 85.0 { ", and it is hot" } else { "" };
        found.push(format!(
            "the clock: {} of {} MHz{why}",
            now / 1000,
            most / 1000
        ));
    }
    found.extend(devices(moment));
    found.extend(
        moment
            .tunnels
            .iter()
            .filter_map(|now| queue(now, moment.before)),
    );
    for tunnel in moment.tunnels {
        if !tunnel.dataplane.limits.is_empty() && !full.is_empty() {
            found.push(format!("{}: {}", tunnel.interface, tunnel.dataplane.limits));
        }
    }
    if found.is_empty() {
        found.push(nothing(moment.tunnels));
    }
    found
}

/// Devices that carry nearly their full speed.
fn devices(moment: Moment<'_>) -> impl Iterator<Item = String> {
    let millis = moment.elapsed.as_millis().max(1);
    let rate = move |now: u64, before: u64| {
        // Bits per millisecond are kilobits per second.
        u64::try_from(u128::from(now.saturating_sub(before)) * 8 / millis / 1000)
            .unwrap_or(u64::MAX)
    };
    moment.figures.devices.iter().filter_map(move |now| {
        let before = moment
            .earlier
            .devices
            .iter()
            .find(|it| it.name == now.name)?;
        let speed = now.speed?;
        let most = rate(now.rx_bytes, before.rx_bytes).max(rate(now.tx_bytes, before.tx_bytes));
        (most * 100 >= speed * NEARLY).then(|| {
            format!(
                "the device {}: {most} of its {speed} Mbit/s are used",
                now.name
            )
        })
    })
}

/// The queue in front of a line, which drops packets beyond the line's configured rate.
fn queue(now: &Status, before: &[Status]) -> Option<String> {
    let before = before.iter().find(|it| it.interface == now.interface)?;
    let of = |it: &Status| it.dataplane.drops.get("queue").copied().unwrap_or(0);
    let dropped = of(now).saturating_sub(of(before));
    (dropped > 0).then(|| {
        format!(
            "{}: the configured rate of its uplink (its queue dropped {dropped} packets)",
            now.interface
        )
    })
}

fn nothing(tunnels: &[Status]) -> String {
    let rates = tunnels.iter().map(|it| {
        let plane = &it.dataplane;
        plane.outbound.bit_rate.unwrap_or(0) + plane.inbound.bit_rate.unwrap_or(0)
    });
    match rates.sum::<u64>() {
        0..100_000 => "Nothing: there is hardly any traffic".to_owned(),
        bits => format!(
            "Nothing on this router: {}.{} Mbit/s pass, which is all that devices request or the other end can handle",
            bits / 1_000_000,
            bits / 100_000 % 10
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Device, Ticks};

    fn figures(busy: &[u64], all: u64, bytes: u64) -> Figures {
        Figures {
            cores: busy.iter().map(|busy| Ticks { busy: *busy, all }).collect(),
            devices: vec![Device {
                name: "eth0".to_owned(),
                rx_bytes: bytes,
                tx_bytes: 0,
                speed: Some(100),
            }],
            clock: Some((600_000, 1_400_000)),
            ..Figures::default()
        }
    }

    fn of(figures: &Figures, tunnels: &[Status], before: &[Status]) -> Vec<String> {
        limits(Moment {
            tunnels,
            before,
            figures,
            earlier: &self::figures(&[0, 0], 0, 0),
            elapsed: Duration::from_secs(1),
        })
    }

    #[test]
    fn a_busy_core_is_named_and_its_clock() {
        let said = of(&figures(&[100, 10], 100, 0), &[], &[]);
        assert_eq!(
            said,
            [
                "the processor: core 0 is busy all the time",
                "the clock: 600 of 1400 MHz"
            ]
        );
        let said = of(&figures(&[100, 98], 100, 0), &[], &[]);
        assert_eq!(said[0], "the processor: every core is busy all the time");
    }

    #[test]
    fn a_device_that_is_full_is_named() {
        let said = of(&figures(&[1, 1], 100, 12_000_000), &[], &[]);
        assert_eq!(said, ["the device eth0: 96 of its 100 Mbit/s are used"]);
    }

    #[test]
    fn a_queue_that_drops_is_the_lines_rate() {
        let tunnel = |dropped| {
            let mut status = Status {
                interface: "wg0".to_owned(),
                ..Status::default()
            };
            status.dataplane.drops.insert("queue".to_owned(), dropped);
            [status]
        };
        let said = of(&figures(&[1, 1], 100, 0), &tunnel(7), &tunnel(5));
        assert!(said[0].starts_with("wg0: the configured rate"), "{said:?}");
        let said = of(&figures(&[1, 1], 100, 0), &tunnel(5), &tunnel(5));
        assert_eq!(said, ["Nothing: there is hardly any traffic"]);
    }
}
