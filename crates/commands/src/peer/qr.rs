//! QR codes as text: each character shows two modules, one above the other.

use super::PeerError;
use qrcodegen::{QrCode, QrCodeEcc};
use zeroize::Zeroizing;

/// Width of the light margin, in modules.
const MARGIN: i32 = 4;

/// Maximum number of bytes that cameras read from a screen; a WireGuard file has a third of that.
const CAMERA_MAX: usize = 1200;

/// White on black, in palette colours that terminal themes leave alone: cameras need dark modules on light ones,
/// whatever the terminal's own colours are.
const COLOURS: [&str; 2] = ["\x1b[38;5;231;48;5;16m", "\x1b[0m"];

/// The code of a text, or the numbered codes of a link of the app AmneziaVPN, which one code does not hold.
///
/// # Errors
/// As with [`code`].
pub(super) fn codes(text: &str, colours: bool) -> Result<Zeroizing<String>, PeerError> {
    #[cfg(feature = "amnezia")]
    if let Some(texts) = config::amnezia::link::series(text) {
        let codes = texts.iter().map(|it| code(it, colours));
        let codes: Vec<_> = codes.collect::<Result<_, _>>()?;
        let size = codes.iter().map(|it| it.len() + 32).sum();
        let mut out = Zeroizing::new(String::with_capacity(size));
        for (number, code) in (1..).zip(&codes) {
            out.push_str(&format!("Code {number} of {}:\n", codes.len()));
            out.push_str(code);
        }
        return Ok(out);
    }
    code(text, colours)
}

/// The code of a text, one line for two rows of modules. Without `colours`, light modules have the colour of text.
///
/// # Errors
/// [`PeerError::TooLong`] if a camera would not read the code.
pub(super) fn code(text: &str, colours: bool) -> Result<Zeroizing<String>, PeerError> {
    let code = encode(text).ok_or(PeerError::TooLong(text.len()))?;
    let range = || -MARGIN..code.size() + MARGIN;
    let light = |x, y| y < code.size() + MARGIN && !code.get_module(x, y);
    let [begin, end] = if colours { COLOURS } else { [""; 2] };
    let rows = range().count();
    // Each character takes three bytes.
    let mut out =
        String::with_capacity((rows * 3 + begin.len() + end.len() + 1) * rows.div_ceil(2));
    for y in range().step_by(2) {
        out.push_str(begin);
        out.extend(range().map(|x| match (light(x, y), light(x, y + 1)) {
            (true, true) => '\u{2588}',
            (true, false) => '\u{2580}',
            (false, true) => '\u{2584}',
            (false, false) => ' ',
        }));
        out.push_str(end);
        out.push('\n');
    }
    Ok(Zeroizing::new(out))
}

/// The code of a text; `None` if the text is too long for a camera.
fn encode(text: &str) -> Option<QrCode> {
    let text = Some(text).filter(|it| it.len() <= CAMERA_MAX)?;
    QrCode::encode_text(text, QrCodeEcc::Low).ok()
}

/// The code of a text for programs that draw it: `1` is dark. `None` if the text is too long for a camera.
pub(crate) fn rows(text: &str) -> Option<Zeroizing<Vec<String>>> {
    let code = encode(text)?;
    let row = |y| {
        let module = |x| match code.get_module(x, y) {
            true => '1',
            false => '0',
        };
        (0..code.size()).map(module).collect()
    };
    Some(Zeroizing::new((0..code.size()).map(row).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the characters as a camera would.
    fn read(code: &str) -> String {
        let rows: Vec<Vec<char>> = code.lines().map(|line| line.chars().collect()).collect();
        const SCALE: usize = 4;
        let (width, height) = (rows[0].len(), rows.len() * 2);
        let light = |x: usize, y: usize| match rows[y / 2][x] {
            '\u{2588}' => true,
            '\u{2580}' => y.is_multiple_of(2),
            '\u{2584}' => !y.is_multiple_of(2),
            _ => false,
        };
        let mut image =
            rqrr::PreparedImage::prepare_from_greyscale(width * SCALE, height * SCALE, |x, y| {
                if light(x / SCALE, y / SCALE) { 255 } else { 0 }
            });
        image.detect_grids()[0].decode().unwrap().1
    }

    #[test]
    fn what_is_read_is_the_text() {
        for length in [1, 100, 351, 700] {
            let text: String = ('\n'..'~').cycle().take(length).collect();
            assert_eq!(read(&code(&text, false).unwrap()), text);
        }
    }

    #[cfg(feature = "amnezia")]
    #[test]
    fn a_link_is_shown_as_a_series() {
        use config::amnezia::link;
        let key: String = (1..400)
            .map(|it| (it * 7919 % 100_003).to_string())
            .collect();
        let file = format!("[Interface]\nPrivateKey = {key}\n[Peer]\nEndpoint = a.example:7\n");
        let shown = codes(&link::write(&file, "phone").unwrap(), false).unwrap();
        let (mut shown, mut texts) = (shown.split("Code "), Vec::new());
        assert_eq!(shown.next(), Some(""));
        for code in shown {
            let (_, code) = code.split_once('\n').unwrap();
            assert!(code.lines().all(|it| it.chars().count() <= 100));
            texts.push(read(code));
        }
        assert!(texts.len() > 1);
        assert_eq!(*link::read(&texts.join("\n")).unwrap(), file);
        assert_eq!(read(&codes(&file[..60], false).unwrap()), file[..60]);
    }

    #[test]
    fn programs_get_the_same_code() {
        let text = "k".repeat(350);
        let rows = rows(&text).unwrap();
        const SCALE: usize = 4;
        let width = (rows.len() + 8) * SCALE;
        let dark = |x: usize, y: usize| {
            let at = |i: usize| (i / SCALE).checked_sub(4);
            let row = at(y).and_then(|y| rows.get(y)).map(String::as_bytes);
            row.zip(at(x)).and_then(|(row, x)| row.get(x).copied()) == Some(b'1')
        };
        let mut image = rqrr::PreparedImage::prepare_from_greyscale(width, width, |x, y| {
            if dark(x, y) { 0 } else { 255 }
        });
        assert_eq!(image.detect_grids()[0].decode().unwrap().1, text);
        assert!(super::rows(&"k".repeat(CAMERA_MAX + 1)).is_none());
    }

    #[test]
    fn a_file_of_usual_size_fits_into_80_columns() {
        let code = code(&"k".repeat(400), false).unwrap();
        assert!(code.lines().all(|line| line.chars().count() <= 80));
        assert!(super::code(&"k".repeat(CAMERA_MAX), false).is_ok());
        let error = super::code(&"k".repeat(CAMERA_MAX + 1), false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("1201 bytes"), "{error}");
    }

    #[test]
    fn colours_are_set_and_left_in_each_line() {
        let code = code("text", true).unwrap();
        assert!(
            code.lines()
                .all(|line| line.starts_with(COLOURS[0]) && line.ends_with(COLOURS[1]))
        );
    }
}
