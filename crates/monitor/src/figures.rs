//! Figures of the box: load of its cores, clock, temperature, memory, devices. Any of them may be missing.

use std::fs;
use std::path::Path;

/// Maximum number of cores, sensors and devices that are read.
const MOST: usize = 64;

/// A core's time since boot, in ticks of the kernel's clock.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ticks {
    /// Ticks with work.
    pub busy: u64,
    /// Ticks since boot, idle ones included.
    pub all: u64,
}

/// A network device.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Device {
    /// Name of the interface.
    pub name: String,
    /// Bytes received since the device was made.
    pub rx_bytes: u64,
    /// Bytes sent since the device was made.
    pub tx_bytes: u64,
    /// The device's speed in megabits a second, if the driver reports it.
    pub speed: Option<u64>,
}

/// The figures at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The ticks of each core, by its number.
    pub cores: Vec<Ticks>,
    /// The clock of the core that is farthest below its maximum, and that maximum, in kHz.
    pub clock: Option<(u64, u64)>,
    /// Sensors and their temperatures, in degrees Celsius.
    pub temperatures: Vec<(String, f64)>,
    /// Available memory and all memory, in bytes.
    pub memory: Option<(u64, u64)>,
    /// The network devices.
    pub devices: Vec<Device>,
}

impl Figures {
    /// Reads the figures from the kernel's file systems, which are below `root`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let mut devices = devices(&text("proc/net/dev"));
        for device in &mut devices {
            // Some drivers report -1 without a cable.
            let speed = text(&format!("sys/class/net/{}/speed", device.name));
            device.speed = speed.trim().parse().ok().filter(|it| *it > 0);
        }
        Self {
            cores: cores(&text("proc/stat")),
            clock: clock(&root.join("sys/devices/system/cpu")),
            temperatures: temperatures(&root.join("sys/class")),
            memory: memory(&text("proc/meminfo")),
            devices,
        }
    }

    /// The load of each core since `earlier`, in percent; empty if unknown.
    #[must_use]
    pub fn loads(&self, earlier: &Self) -> Vec<u8> {
        if self.cores.len() != earlier.cores.len() {
            return Vec::new();
        }
        let pairs = self.cores.iter().zip(&earlier.cores);
        let loads = pairs.map(|(now, before)| {
            let all = now.all.saturating_sub(before.all).max(1);
            let busy = now.busy.saturating_sub(before.busy).min(all);
            u8::try_from(u128::from(busy) * 100 / u128::from(all)).unwrap_or(100)
        });
        loads.collect()
    }
}

/// `/proc/stat`: `cpu0 user nice system idle iowait irq softirq steal ...`.
fn cores(text: &str) -> Vec<Ticks> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("cpu"));
    let lines = lines.filter(|line| line.starts_with(|it: char| it.is_ascii_digit()));
    let core = |line: &str| {
        let numbers = line.split_ascii_whitespace().skip(1).take(8);
        let numbers: Vec<u64> = numbers.map_while(|it| it.parse().ok()).collect();
        let all = numbers
            .iter()
            .fold(0, |sum: u64, it| sum.saturating_add(*it));
        let idle = numbers.iter().skip(3).take(2);
        let idle = idle.fold(0, |sum: u64, it| sum.saturating_add(*it));
        Ticks {
            busy: all.saturating_sub(idle),
            all,
        }
    };
    lines.map(core).take(MOST).collect()
}

/// `/proc/net/dev`: `name: rx_bytes packets errs drop fifo frame compressed multicast tx_bytes ...`.
fn devices(text: &str) -> Vec<Device> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let device = |(name, rest): (&str, &str)| {
        let mut numbers = rest.split_ascii_whitespace();
        let name = name.trim();
        // The name becomes part of a path.
        let is_name = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
        is_name.then_some(Device {
            name: name.to_owned(),
            rx_bytes: numbers.next()?.parse().ok()?,
            tx_bytes: numbers.nth(7)?.parse().ok()?,
            speed: None,
        })
    };
    lines.filter_map(device).take(MOST).collect()
}

/// `/proc/meminfo`, which counts in kB of 1,024 bytes.
fn memory(text: &str) -> Option<(u64, u64)> {
    let find = |name: &str| -> Option<u64> {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(key, _)| *key == name)?;
        let number: u64 = value.split_ascii_whitespace().next()?.parse().ok()?;
        number.checked_mul(1024)
    };
    Some((find("MemAvailable")?, find("MemTotal")?))
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The clock and maximum of the core that is farthest below its maximum.
fn clock(cpus: &Path) -> Option<(u64, u64)> {
    let clocks = (0..MOST).map_while(|core| {
        let directory = cpus.join(format!("cpu{core}/cpufreq"));
        let most = number(&directory.join("cpuinfo_max_freq"))?;
        let now = number(&directory.join("scaling_cur_freq"))?;
        (most > 0).then_some((now, most))
    });
    clocks.min_by_key(|(now, most)| now.saturating_mul(1000) / most)
}

/// Temperatures of the thermal zones; without zones, of the first sensor of each chip.
fn temperatures(class: &Path) -> Vec<(String, f64)> {
    let sensors = |directory: &str, prefix: &str, name: &str, value: &str| -> Vec<(String, f64)> {
        let sensors = (0..MOST).filter_map(|place| {
            let at = class.join(directory).join(format!("{prefix}{place}"));
            let thousandths: i64 = fs::read_to_string(at.join(value))
                .ok()?
                .trim()
                .parse()
                .ok()?;
            let celsius = thousandths as f64 / 1000.0;
            let name = fs::read_to_string(at.join(name)).ok();
            let name = name.map_or_else(|| format!("{prefix}{place}"), |it| it.trim().to_owned());
            // A zone without a sensor reports a temperature out of this range.
            (-60.0..200.0).contains(&celsius).then_some((name, celsius))
        });
        sensors.collect()
    };
    let zones = sensors("thermal", "thermal_zone", "type", "temp");
    match zones.is_empty() {
        true => sensors("hwmon", "hwmon", "name", "temp1_input"),
        false => zones,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn everything_is_read_where_it_is() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(Figures::read(root), Figures::default());
        write(
            root,
            "proc/stat",
            "cpu  9 9 9 9\ncpu0 10 0 20 60 10 0 0 0 5 5\ncpu1 1 1 1 1 1 1 1 1\nintr 5\n",
        );
        write(
            root,
            "proc/net/dev",
            "Inter-| Receive | Transmit\n face |bytes\n  eth0: 100 1 0 0 0 0 0 0 200 2 0 0 0 0 0 0\n wg0:7 1 0 0 0 0 0 0 8 2\n",
        );
        write(root, "sys/class/net/eth0/speed", "1000\n");
        write(root, "sys/class/net/wg0/speed", "-1\n");
        write(
            root,
            "proc/meminfo",
            "MemTotal: 100 kB\nMemAvailable:  40 kB\n",
        );
        for (core, now) in [(0, 1_400_000), (1, 600_000)] {
            let cpu = format!("sys/devices/system/cpu/cpu{core}/cpufreq");
            write(root, &format!("{cpu}/cpuinfo_max_freq"), "1400000\n");
            write(
                root,
                &format!("{cpu}/scaling_cur_freq"),
                &format!("{now}\n"),
            );
        }
        write(root, "sys/class/hwmon/hwmon1/temp1_input", "41000\n");
        write(root, "sys/class/hwmon/hwmon1/name", "chip\n");
        let figures = Figures::read(root);
        let ticks = |busy, all| Ticks { busy, all };
        assert_eq!(figures.cores, [ticks(30, 100), ticks(6, 8)]);
        assert_eq!(figures.devices[0].speed, Some(1000));
        assert_eq!(
            (figures.devices[1].rx_bytes, figures.devices[1].tx_bytes),
            (7, 8)
        );
        assert_eq!(figures.devices[1].speed, None);
        assert_eq!(figures.memory, Some((40_960, 102_400)));
        assert_eq!(figures.clock, Some((600_000, 1_400_000)));
        assert_eq!(figures.temperatures, [("chip".to_owned(), 41.0)]);
        write(root, "sys/class/thermal/thermal_zone0/temp", "55500\n");
        write(root, "sys/class/thermal/thermal_zone1/temp", "-274000\n");
        let zones = Figures::read(root).temperatures;
        assert_eq!(zones, [("thermal_zone0".to_owned(), 55.5)]);
    }

    #[test]
    fn loads_are_of_the_time_between() {
        let of = |busy, all| Figures {
            cores: vec![Ticks { busy, all }],
            ..Figures::default()
        };
        assert_eq!(of(150, 300).loads(&of(100, 200)), [50]);
        assert_eq!(of(100, 200).loads(&of(100, 200)), [0]);
        // A core went offline and came back.
        assert_eq!(of(5, 10).loads(&of(100, 200)), [0]);
        assert_eq!(of(5, 10).loads(&Figures::default()), [0_u8; 0]);
    }

    #[test]
    fn what_is_no_figure_is_passed_over() {
        assert_eq!(cores("cpu0\ncpux 1 2\ncpu1 a b\n"), [Ticks::default(); 2]);
        assert_eq!(devices("../x: 1 2 3\n: 1 1 1 1 1 1 1 1 1\na: 1 2\n"), []);
        assert_eq!(memory("MemTotal: 99999999999999999999 kB\n"), None);
    }
}
