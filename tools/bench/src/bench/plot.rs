//! Plots the results: bars of throughput and of processor time, one row for each implementation.

use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::contender::Contender;
use super::openvpn::{Ends, Suite};
use super::records::Records;
use super::report::Run;
use super::test::{Metric, Test};
use crate::bench::table::{Spread, number};

/// Width of a picture, in pixels.
const WIDTH: u32 = 860;
/// Height of a bar with the space around it, in pixels.
const ROW: i32 = 30;
/// Height of a bar, in pixels.
const BAR: i32 = 18;
/// Height of the titles above the first bar, in pixels.
const TOP: i32 = 46;
/// Margin below the last bar, in pixels.
const BOTTOM: i32 = 14;
/// Width of the column of names, in pixels.
const NAMES: i32 = 170;
/// Width of the number after the longest bar, in pixels.
const FIGURE: i32 = 64;
/// Gap between the panels, in pixels.
const GAP: i32 = 24;
const FONT: &str = "sans-serif";

/// The colours for a light or a dark page.
struct Theme {
    name: &'static str,
    paper: RGBColor,
    ink: RGBColor,
    faint: RGBColor,
    ours: RGBColor,
    theirs: RGBColor,
}

const THEMES: [Theme; 2] = [
    Theme {
        name: "light",
        paper: RGBColor(255, 255, 255),
        ink: RGBColor(31, 35, 40),
        faint: RGBColor(89, 99, 110),
        ours: RGBColor(9, 105, 218),
        theirs: RGBColor(175, 184, 193),
    },
    Theme {
        name: "dark",
        paper: RGBColor(13, 17, 23),
        ink: RGBColor(230, 237, 243),
        faint: RGBColor(145, 152, 161),
        ours: RGBColor(56, 139, 253),
        theirs: RGBColor(72, 79, 88),
    },
];

/// Bars of one implementation.
struct Bar {
    name: String,
    ours: bool,
    rate: Option<Spread>,
    cpu: Option<Spread>,
}

/// Plots of a run for a light and a dark page, with their paths `PREFIX-light.svg` and `PREFIX-dark.svg`. Empty if no
/// implementation was measured with one TCP stream.
pub(super) fn files(prefix: &Path, run: &Run, records: &Records) -> Vec<(PathBuf, String)> {
    let bars = bars(run, records);
    if bars.is_empty() {
        return Vec::new();
    }
    let file = |theme: &Theme| {
        let mut name = prefix.as_os_str().to_owned();
        name.push(format!("-{}.svg", theme.name));
        let svg = draw(theme, &bars).unwrap_or_default();
        (PathBuf::from(name), svg)
    };
    THEMES.iter().map(file).collect()
}

/// The programs that a user chooses between. Left out are Millrace's variants, and OpenVPN pairs with mixed programs
/// or unusual ciphers.
fn bars(run: &Run, records: &Records) -> Vec<Bar> {
    let chosen = |one: &&Contender| match one {
        Contender::Millrace
        | Contender::WireguardGo
        | Contender::BoringTun
        | Contender::GotaTun => true,
        Contender::OpenVpn(ends, suite) => {
            matches!(ends, Ends::Millrace | Ends::Stock)
                && matches!(suite, Suite::Gcm | Suite::ChaCha | Suite::Cbc)
        }
        _ => false,
    };
    let bar = |contender: &Contender| Bar {
        name: match contender {
            Contender::OpenVpn(Ends::Millrace, suite) => format!("millrace, {}", suite.label()),
            Contender::OpenVpn(_, suite) => format!("openvpn, {}", suite.label()),
            other => other.name().to_owned(),
        },
        ours: matches!(
            contender,
            Contender::Millrace | Contender::OpenVpn(Ends::Millrace, _)
        ),
        rate: records.spread(*contender, Test::Tcp1, Metric::Rate),
        cpu: both_ends(records, *contender),
    };
    let all = run.contenders.iter().filter(chosen).map(bar);
    all.filter(|bar| bar.rate.is_some()).collect()
}

/// Processor time of both ends together.
fn both_ends(records: &Records, contender: Contender) -> Option<Spread> {
    let of = |metric| records.spread(contender, Test::Tcp1, metric);
    let (send, receive) = (of(Metric::CpuSend)?, of(Metric::CpuReceive)?);
    Some(Spread {
        min: send.min + receive.min,
        median: send.median + receive.median,
        max: send.max + receive.max,
    })
}

type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(theme: &Theme, bars: &[Bar]) -> Result<String, Box<dyn std::error::Error>> {
    let rows = i32::try_from(bars.len())?;
    let height = u32::try_from(TOP + ROW * rows + BOTTOM)?;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&theme.paper)?;
        let panel = (i32::try_from(WIDTH)? - NAMES - GAP) / 2;
        for (row, bar) in (0..).zip(bars) {
            let ink = if bar.ours { theme.ink } else { theme.faint };
            let place = (NAMES - 10, TOP + ROW * row + ROW / 2);
            label(&area, &bar.name, place, HPos::Right, 14, ink)?;
        }
        type Figure = fn(&Bar) -> Option<Spread>;
        let panels: [(&str, Figure); 2] = [
            ("one TCP stream, Mbit/s: more is better", |bar| bar.rate),
            ("CPU seconds per GB, both ends: less is better", |bar| {
                bar.cpu
            }),
        ];
        for (number, (title, figure)) in (0..).zip(panels) {
            let left = NAMES + number * (panel + GAP);
            label(&area, title, (left, TOP / 2), HPos::Left, 14, theme.ink)?;
            values(&area, theme, bars, figure, (left, panel - FIGURE))?;
        }
        area.present()?;
    }
    Ok(svg)
}

/// Draws the bars of one panel, which begins at `left`; the longest bar has `width` pixels.
fn values(
    area: &Drawing<'_>,
    theme: &Theme,
    bars: &[Bar],
    figure: fn(&Bar) -> Option<Spread>,
    (left, width): (i32, i32),
) -> Drawn {
    let most = bars.iter().filter_map(figure).map(|spread| spread.max);
    let most = most.fold(f64::MIN_POSITIVE, f64::max);
    for (row, bar) in (0..).zip(bars) {
        let Some(spread) = figure(bar) else { continue };
        // The result is at most `width`, a few hundred.
        let x = |value: f64| left + (value / most * f64::from(width)).round() as i32;
        let (top, middle) = (TOP + ROW * row + (ROW - BAR) / 2, TOP + ROW * row + ROW / 2);
        let colour = if bar.ours { theme.ours } else { theme.theirs };
        area.draw(&Rectangle::new(
            [(left, top), (x(spread.median), top + BAR)],
            colour.filled(),
        ))?;
        area.draw(&PathElement::new(
            vec![(x(spread.min), middle), (x(spread.max), middle)],
            theme.faint,
        ))?;
        let place = (x(spread.max.max(spread.median)) + 6, middle);
        label(
            area,
            &number(spread.median),
            place,
            HPos::Left,
            13,
            theme.ink,
        )?;
    }
    Ok(())
}

fn label(
    area: &Drawing<'_>,
    text: &str,
    place: (i32, i32),
    side: HPos,
    size: i32,
    colour: RGBColor,
) -> Drawn {
    let style = (FONT, size)
        .into_font()
        .color(&colour)
        .pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_owned(), place, style))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::records::tests::noisy;
    use crate::bench::report::tests::run;

    #[test]
    fn a_run_has_a_picture_for_light_and_dark_pages() {
        let files = files(Path::new("out/wireguard"), &run(), &noisy());
        let names: Vec<_> = files
            .iter()
            .map(|(path, _)| path.display().to_string())
            .collect();
        assert_eq!(names, ["out/wireguard-light.svg", "out/wireguard-dark.svg"]);
        for (_, svg) in &files {
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            for shown in ["millrace", "wireguard-go", "3000", "1500"] {
                assert!(svg.contains(shown), "{shown} in {svg}");
            }
        }
        assert_ne!(files[0].1, files[1].1);
    }

    #[test]
    fn without_a_tcp_stream_there_is_nothing_to_draw() {
        assert!(files_of(&Records::default()).is_empty());
    }

    fn files_of(records: &Records) -> Vec<(PathBuf, String)> {
        files(Path::new("x"), &run(), records)
    }
}
