//! Tests of pages in a real browser: headless Chromium without a framework.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::patience::tries_at_least;

/// The first of the usual names that is on `PATH` and starts. On some systems the first is a script that
/// only says which package to install.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let programs = names.iter().flat_map(|name| folders.iter().map(move |f| f.join(name)));
    let starts = |program: &PathBuf| {
        let version = Command::new(program).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    programs.into_iter().filter(|program| program.is_file()).find(starts)
}

/// Chromium has no narrower window. A narrower page is in a frame of its width.
const LEAST_WIDTH: u32 = 500;

/// Opens a page, as a file called `name`, in a window of the given size. `None` without a browser.
fn open(
    dir: &Path,
    page: &str,
    name: &str,
    [width, height]: [u32; 2],
    arguments: &[String],
) -> Option<Output> {
    let Some(chromium) = chromium() else {
        eprintln!("skipped: no Chromium on PATH, so nothing was opened in a browser");
        return None;
    };
    let mut file = dir.join(name);
    std::fs::write(&file, page).expect("it is written");
    if width < LEAST_WIDTH {
        let frame = format!(
            "<!DOCTYPE html><html><script>window.onmessage = function (e) {{ \
             document.documentElement.setAttribute('seen', e.data); }};</script>\
             <body style='margin: 0'><iframe src='{name}' width={width} height={height} \
             style='border: 0; display: block'></iframe></body></html>"
        );
        file = dir.join("frame.html");
        std::fs::write(&file, frame).expect("it is written");
    }
    let output = Command::new(chromium)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--hide-scrollbars", "--virtual-time-budget=5000"])
        .arg(format!("--window-size={width},{height}"))
        .args(arguments)
        .arg(format!("--user-data-dir={}", dir.join("user").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("Chromium starts");
    Some(output)
}

/// How often a page of which nothing came is opened at least: a browser that gets no CPU for long ends it, which is not the
/// page's fault.
const LEAST_TRIES: u32 = 5;

/// How the attribute begins that a page's script sets.
const SEEN: &str = " seen=\"";

/// The JSON that a script of the page left in the attribute `seen` of the root, encoded by
/// `encodeURIComponent`. In a window that is narrower than a browser opens the script posts that to its parent, too. `None`
/// without a browser.
pub fn seen<T: DeserializeOwned>(page: &str, name: &str, window: [u32; 2]) -> Option<T> {
    let mut dom = String::new();
    for _ in tries_at_least(LEAST_TRIES) {
        let dir = TempDir::new().expect("a temporary folder");
        let output = open(dir.path(), page, name, window, &["--dump-dom".to_owned()])?;
        dom = String::from_utf8(output.stdout).expect("UTF-8");
        if dom.contains(SEEN) {
            break;
        }
        eprintln!("nothing was seen: {}", String::from_utf8_lossy(&output.stderr));
    }
    let Some((_, seen)) = dom.split_once(SEEN) else { panic!("nothing was seen: {dom:.2000}") };
    let (seen, _) = seen.split_once('"').expect("an end");
    Some(serde_json::from_str(&decoded(seen)).expect("what was seen"))
}

/// A screenshot of the page as PNG. `None` without a browser.
pub fn screenshot(page: &str, name: &str, window: [u32; 2]) -> Option<Vec<u8>> {
    let mut said = String::new();
    for _ in tries_at_least(LEAST_TRIES) {
        let dir = TempDir::new().expect("a temporary folder");
        let screenshot = dir.path().join("screenshot.png");
        let to = format!("--screenshot={}", screenshot.display());
        let output = open(dir.path(), page, name, window, &[to])?;
        if let Ok(screenshot) = std::fs::read(screenshot) {
            return Some(screenshot);
        }
        said = String::from_utf8_lossy(&output.stderr).into_owned();
        eprintln!("no screenshot: {said}");
    }
    panic!("no screenshot: {said}")
}

/// The inverse of `encodeURIComponent`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16)).expect("a digit");
        bytes.push(if byte == b'%' { (digit() << 4 | digit()) as u8 } else { byte });
    }
    String::from_utf8(bytes).expect("UTF-8")
}
