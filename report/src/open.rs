//! Opening a page in the browser of whoever sits here.

use std::env::var_os;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// So often it is looked whether the program that opens pages has failed, and after that it is left to itself.
const LOOKS: u32 = 50;
const BETWEEN: Duration = Duration::from_millis(20);

/// Opens a file by the system's program for that, as a process of its own.
///
/// # Errors
///
/// Why not, in words: there is no display, or the program isn't there or fails at once.
pub fn open(file: &Path) -> Result<(), String> {
    // Elsewhere a display is always there.
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| {
        let value = var_os(name);
        value.is_some_and(|value| !value.is_empty())
    });
    let is_x11 = !cfg!(any(target_os = "macos", target_os = "windows"));
    if is_x11 && !has_display {
        return Err("there is no display".to_owned());
    }
    // A name that begins like a flag is a path.
    let file = file.canonicalize().map_err(|error| error.to_string())?;
    let (program, arguments): (&str, &[&str]) = if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(target_os = "windows") {
        ("cmd", &["/C", "start", ""])
    } else {
        ("xdg-open", &[])
    };
    let mut command = Command::new(program);
    command.args(arguments).arg(file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
    for _ in 0..LOOKS {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{program}: {status}")),
            Ok(None) => sleep(BETWEEN),
            Err(error) => return Err(format!("{program}: {error}")),
        }
    }
    Ok(())
}
