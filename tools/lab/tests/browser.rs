//! Tests the headless browser that page tests use: its commands work, and it can reach only the loopback.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};

use lab::Host;
use lab::acceptance::browser::{self, Browser, PHONE};
use lab::acceptance::{Directory, until};

const PAGE: &str = "<!doctype html><title>t</title><meta name=viewport content='width=device-width'>\
    <link rel=icon href='data:,'><style>@media (prefers-color-scheme: dark) { body { background: #000 } }</style>\
    <h1>Hello</h1><input id=a><input id=f type=file><button onclick=\"document.querySelector('h1').textContent = \
    'You said ' + document.querySelector('#a').value\">Say</button><p hidden>no</p>";

/// Serves a page on a host for as long as the test process lives.
fn serve(host: &Host) -> SocketAddr {
    let listener = host.run(|| TcpListener::bind("127.0.0.1:0")).unwrap();
    let listener = listener.unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let _ = lines.find(String::is_empty);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length:";
            let _ = write!(&stream, "{head} {}\r\n\r\n{PAGE}", PAGE.len());
        }
    });
    address
}

#[test]
fn a_page_is_seen_typed_into_and_clicked() {
    if !browser::ready() {
        return;
    }
    let host = Host::private("page").unwrap();
    let address = serve(&host);
    let browser = Browser::start(&host);
    browser.open(&format!("http://{address}/"));
    assert_eq!(browser.text("h1"), "Hello");
    assert!(browser.shows("button") && !browser.shows("p") && !browser.shows("#none"));
    browser.fill("#a", "first");
    browser.fill("#a", "this");
    browser.click("button");
    browser.wait_for_text("h1", "You said this");
    let directory = Directory::new();
    let file = directory.file("tunnel.conf", "[Interface]\n");
    browser.fill("#f", &file.display().to_string());
    let name = browser.script("return document.querySelector('#f').files[0].name");
    assert_eq!(name, "tunnel.conf");
    let back = "return getComputedStyle(document.body).backgroundColor";
    browser.dark(true);
    assert_eq!(browser.script(back), "rgb(0, 0, 0)");
    browser.dark(false);
    assert_eq!(browser.script(back), "rgba(0, 0, 0, 0)");
    browser.size(PHONE);
    until("the size of a phone", || {
        browser.script("return innerWidth") == PHONE.0
    });
    assert!(browser.transferred() > PAGE.len() as u64);
    let picture = directory.path().join("page.png");
    browser.screenshot(&picture);
    assert!(std::fs::read(picture).unwrap().starts_with(b"\x89PNG"));
    assert_eq!(browser.script_async("return await Promise.resolve(7)"), 7);
    assert_eq!(browser.errors(), Vec::<String>::new());
    browser.script("setTimeout(() => missing(), 0)");
    until("an error", || {
        browser.errors().iter().any(|it| it.contains("missing"))
    });
    let far = browser.script_async(
        "try { await fetch('http://example.com/'); return 'reached' } catch { return 'not' }",
    );
    assert_eq!(far, "not");
}
