//! Compresses the page and its help, and writes the policy that lets a browser run its own script and style and nothing else.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::{env, fs};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

const PAGE: &str = "page/page.html";

/// Pages of `docs` that the page links to: 10 KB in all.
const HELP: [&str; 3] = ["this-device-only", "uplinks", "server-at-home"];

/// The first line of each, as the other pages are not there.
const HEAD: &str =
    "(A page of the manual. The program does not contain the other pages that it links to.)\n\n";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PAGE}");
    let page = fs::read_to_string(PAGE)?;
    let out = env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    let out = Path::new(&out);
    fs::write(out.join("page.html.gz"), compressed(page.as_bytes())?)?;
    let mut help = "&[".to_owned();
    for name in HELP {
        let source = format!("../../docs/{name}.md");
        println!("cargo::rerun-if-changed={source}");
        let target = out.join(name).with_extension("gz");
        let text = [HEAD.as_bytes(), &fs::read(&source)?].concat();
        fs::write(&target, compressed(&text)?)?;
        help += &format!("({name:?}, include_bytes!({target:?})),");
    }
    fs::write(out.join("help.rs"), help + "]")?;
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash(&page, "script")?,
        hash(&page, "style")?
    );
    fs::write(out.join("policy.txt"), policy)?;
    Ok(())
}

fn compressed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::best());
    gz.write_all(bytes)?;
    gz.finish()
}

/// How a policy names what is in an element of the page (Content Security Policy 3, section 2.3.1).
fn hash(page: &str, element: &str) -> Result<String, Box<dyn Error>> {
    let [begin, end] = [format!("<{element}>"), format!("</{element}>")];
    let (_, rest) = page.split_once(&begin).ok_or("no such element")?;
    let (text, _) = rest.split_once(&end).ok_or("no end of it")?;
    Ok(format!("sha256-{}", STANDARD.encode(Sha256::digest(text))))
}
