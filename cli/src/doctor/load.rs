//! Load by other processes on this machine.

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::Duration;

use brickscope::LoadWatch;

use super::Finding;

/// How long to watch: much longer than ticks of 10 ms.
const WATCH: Duration = Duration::from_millis(300);
/// Others disturb if they use more than this share of the machine: less is within the error of ticks.
const BUSY_SHARE: f64 = 0.05;
/// The most processes to name.
const NAMED: usize = 3;

/// The share of the machine that others use, and the busiest processes.
pub(super) fn others() -> Finding {
    const NAME: &str = "other load";
    let watch = LoadWatch::start();
    let before = processes();
    let load = watch.and_then(|watch| {
        thread::sleep(WATCH);
        watch.so_far()
    });
    let load = match load {
        Ok(load) => load,
        Err(absent) => {
            return Finding::bad(NAME, absent.reason, "run on Linux with /proc mounted");
        }
    };
    let (others, steal) = (load.others_share(), load.steal_share());
    let stolen = match steal {
        Some(share) => format!("{:.0} % stolen by the hypervisor", 100.0 * share),
        None => "time stolen by the hypervisor unknown".to_owned(),
    };
    let mut found = format!("{:.0} % of all CPU time, {stolen}", 100.0 * others);
    let busiest = busiest(&before, &processes());
    if others > BUSY_SHARE && !busiest.is_empty() {
        found += &format!("; busiest: {}", busiest.join(", "));
    }
    if others > BUSY_SHARE {
        Finding::bad(NAME, found, "stop or pause other programs while profiling")
    } else if steal.is_some_and(|share| share > BUSY_SHARE) {
        Finding::bad(NAME, found, "use a VM with dedicated CPUs")
    } else {
        Finding::good(NAME, found)
    }
}

/// Each process's name and ticks of CPU time. Empty if they can't be read.
fn processes() -> HashMap<u32, (String, u64)> {
    let mut processes = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have ended since, or belong to another user.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if id != std::process::id()
            && let Some(process) = process(&stat)
        {
            processes.insert(id, process);
        }
    }
    processes
}

/// Name and CPU ticks from `/proc/<pid>/stat`. A name may contain spaces and parentheses.
fn process(stat: &str) -> Option<(String, u64)> {
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1;
    // After the name: state, ppid, …; user and system time are the 12th and 13th.
    let mut ticks = after.split_whitespace().skip(11).map(|word| word.parse::<u64>().ok());
    let ticks = ticks.next()??.checked_add(ticks.next()??)?;
    Some((name.escape_debug().to_string(), ticks))
}

/// The processes that used most between two readings, the busiest first.
fn busiest(
    before: &HashMap<u32, (String, u64)>,
    after: &HashMap<u32, (String, u64)>,
) -> Vec<String> {
    let mut used: Vec<_> = after
        .iter()
        .map(|(id, (name, ticks))| {
            // A process that began meanwhile has used all its ticks since.
            let then = before.get(id).map_or(0, |(_, ticks)| *ticks);
            (ticks.saturating_sub(then), name, id)
        })
        .filter(|(ticks, ..)| *ticks > 0)
        .collect();
    used.sort_by(|a, b| b.cmp(a));
    used.into_iter().take(NAMED).map(|(_, name, id)| format!("{name} ({id})")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_name_has_blanks_and_parentheses() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 100 0 0 0 77 5 0 0 20 0 1 0 9 1 1";
        assert_eq!(process(stat), Some(("a (b) c".to_owned(), 82)));
        let escape = "42 (\u{1b}[31m) S 1 42 42 0 -1 4194560 100 0 0 0 77 5 0";
        assert_eq!(process(escape).expect("a process").0, "\\u{1b}[31m");
        for garbage in ["", "42", "42 (x) S 1 2", "42 (x) S 1 1 1 1 1 1 1 1 1 1 x 5"] {
            assert_eq!(process(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn the_busiest_come_first_and_the_idle_not_at_all() {
        let look = |ticks: [u64; 4]| -> HashMap<u32, (String, u64)> {
            let named = ["a", "b", "c", "d"].into_iter().zip(ticks);
            (1..).zip(named.map(|(name, ticks)| (name.to_owned(), ticks))).collect()
        };
        let (before, after) = (look([5, 5, 5, 5]), look([6, 5, 9, 7]));
        assert_eq!(busiest(&before, &after), ["c (3)", "d (4)", "a (1)"]);
        assert!(busiest(&after, &after).is_empty());
    }
}
