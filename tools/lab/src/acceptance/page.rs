//! The page of `millrace monitor` in a browser, as its readers use it.
//!
//! With `MILLRACE_PICTURES=DIRECTORY`, writes screenshots there: the pictures of docs/monitor.md.

use std::path::PathBuf;

use crate::acceptance::browser::{Browser, DESKTOP, PHONE};
use crate::acceptance::web::PASSWORD;

/// The page's address in the host that serves it.
pub const PAGE: &str = "http://127.0.0.1:8470/";

/// Writes a screenshot if pictures are wanted.
fn picture(browser: &Browser<'_>, name: &str) {
    if let Some(directory) = std::env::var_os("MILLRACE_PICTURES").map(PathBuf::from) {
        browser.screenshot(directory.join(format!("{name}.webp")));
    }
}

/// Script that finds faults of visible elements: a page wider than the window, links of the menu outside the window,
/// elements without an accessible name, or with too little contrast.
const FAULTS: &str = "
    const faults = [];
    const seen = (it) => it.checkVisibility();
    if (document.documentElement.scrollWidth > innerWidth) faults.push('wider than the window');
    for (const it of document.querySelectorAll('.scroll')) {
      if (seen(it) && innerWidth <= 600 && it.scrollWidth > it.clientWidth) faults.push('a table wider than the window');
    }
    for (const it of document.querySelectorAll('#nav a')) {
      const {left, right} = it.getBoundingClientRect();
      if (seen(it) && (left < 0 || right > innerWidth)) faults.push('outside the window: ' + it.hash);
    }
    for (const it of document.querySelectorAll('input, select')) {
      if (seen(it) && !it.labels.length) faults.push('no label: ' + it.id);
    }
    for (const it of document.querySelectorAll('button, a, svg[role=img]')) {
      if (seen(it) && !(it.textContent.trim() || it.ariaLabel)) faults.push('no name: ' + it.outerHTML);
    }
    const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => {
      const [r, g, b] = parts(colour).map((it) => it / 255).map((it) => it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (it) => {
      for (; it; it = it.parentElement) {
        const colour = getComputedStyle(it).backgroundColor;
        if (parts(colour)[3] !== 0) return colour;
      }
      return 'rgb(255, 255, 255)';
    };
    for (const it of document.querySelectorAll('body *')) {
      const own = [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
      if (!own || !seen(it) || it.closest('svg') || it.disabled) continue;
      const [a, b] = [light(getComputedStyle(it).color), light(behind(it))];
      const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (contrast < 4.5) faults.push('contrast ' + contrast.toFixed(2) + ': ' + it.outerHTML.slice(0, 80));
    }
    return faults";

/// Checks the page at both sizes, dark and light.
pub fn look(browser: &Browser<'_>, name: &str) {
    fits(browser, name, true);
}

/// Checks the page's layout, with or without pictures.
pub fn fits(browser: &Browser<'_>, name: &str, pictures: bool) {
    for (size, size_name) in [(DESKTOP, "desk"), (PHONE, "phone")] {
        browser.size(size);
        for dark in [false, true] {
            browser.dark(dark);
            let faults = browser.script(FAULTS);
            assert_eq!(
                faults,
                serde_json::json!([]),
                "{name}, {size_name}, dark: {dark}"
            );
        }
        let is_phone = size == PHONE;
        browser.dark(is_phone);
        if pictures {
            picture(browser, &format!("{name}-{size_name}"));
        }
    }
    browser.size(DESKTOP);
    browser.dark(false);
}

/// Opens another view of the page.
pub fn goes_to(browser: &Browser<'_>, view: &str) {
    browser.click(&format!("#nav a[href='#{view}']"));
    browser.wait_for(&format!("#{view}"));
}

/// Logs in and waits for the first view.
pub fn logs_in(browser: &Browser<'_>) {
    browser.wait_for("#login");
    browser.fill("#password", PASSWORD);
    browser.click("#login button");
    browser.wait_for("#overview");
}
