//! Limits of devices for the runs of other programs' traces: measured on such a device, or stated by the user.

use std::path::Path;

use brickscope_profile::load::{self, Limit};
use brickscope_profile::{Ceilings, DeviceProfile, Profile};

use super::kineto::UNNAMED;

/// A file of limits has some hundred bytes, a run with spans more.
const MOST_BYTES: Limit = Limit {
    bytes: 1 << 30,
    instead: "give what `brickscope machine --backend cuda --json` prints",
};

/// How limits that a device was measured to have say so, in imported runs.
const MEASURED: &str = "measured by `brickscope machine`";

/// Limits as the user states them: `3350 GB/s, 989 TFLOP/s`, perhaps after the name of a device and a colon.
///
/// # Errors
///
/// What is wrong with the text, in a sentence.
pub fn stated(text: &str) -> Result<Ceilings, String> {
    let rates = text.rsplit_once(':').map_or(text, |(_, rates)| rates);
    let (mut bytes, mut flops) = (None, None);
    for part in rates.split([',', ';']).map(str::trim) {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(part.len());
        let (number, unit) = part.split_at(end);
        let lower = unit.trim().to_ascii_lowercase();
        let (scale, is_bytes) = match lower.as_str() {
            "gb/s" => (1e9, true),
            "tb/s" => (1e12, true),
            "gflop/s" | "gflops" => (1e9, false),
            "tflop/s" | "tflops" | "top/s" | "tops" => (1e12, false),
            "pflop/s" | "pflops" | "pop/s" | "pops" => (1e15, false),
            _ => return Err(format!("`{part}` is no rate: write `3350 GB/s, 989 TFLOP/s`")),
        };
        let rate = number.parse::<f64>().ok().map(|number| number * scale);
        let Some(rate) = rate.filter(|rate| Ceilings::is_rate(*rate)) else {
            return Err(format!("`{part}` is no rate: write `3350 GB/s, 989 TFLOP/s`"));
        };
        let of = if is_bytes { &mut bytes } else { &mut flops };
        if of.replace(rate).is_some() {
            return Err("it states one limit twice".to_owned());
        }
    }
    let (Some(read_bytes_per_second), Some(flops_per_second)) = (bytes, flops) else {
        return Err(
            "it needs both memory and arithmetic: write `3350 GB/s, 989 TFLOP/s`".to_owned()
        );
    };
    let basis = format!("{}: {}", Ceilings::STATED, text.trim());
    Ok(Ceilings { read_bytes_per_second, flops_per_second, basis, ..Ceilings::default() })
}

/// Gives all devices of an imported run the limits that the user states, as [`stated`] reads them.
///
/// # Errors
///
/// As there; if the run has no device.
pub fn state_limits(profile: &mut Profile, text: &str) -> Result<(), String> {
    let ceilings = stated(text)?;
    has_devices(profile)?;
    for device in &mut profile.devices {
        give(device, ceilings.clone());
    }
    Ok(())
}

/// Gives devices of an imported run the limits in a file: what `brickscope machine --backend cuda --json` prints, or a run
/// with the limits of its device. Only devices of that name get them, and those whose name isn't stated; the run's doubts
/// tell of these, and of those that get none.
///
/// # Errors
///
/// If the file can't be read or has no limits; if the run has no such device, with both names.
pub fn add_limits(profile: &mut Profile, path: &Path) -> Result<(), String> {
    let file = path.display();
    let measured = measured(path)?;
    has_devices(profile)?;
    let mut notes = Vec::new();
    let mut others: Vec<String> = Vec::new();
    let mut given = 0;
    for device in &mut profile.devices {
        let name = own_name(device);
        let is_unnamed = name.ends_with(UNNAMED);
        let mut fitting = measured.iter();
        let Some((of, ceilings)) = fitting.find(|(of, _)| is_unnamed || of == name) else {
            if !others.iter().any(|other| other == name) {
                others.push(name.to_owned());
            }
            continue;
        };
        if is_unnamed {
            let note = format!("the trace names no device: whether it ran on {of} isn't known");
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        give(device, ceilings.clone());
        given += 1;
    }
    let names: Vec<&str> = measured.iter().map(|(of, _)| of.as_str()).collect();
    let (names, others) = (names.join(", "), others.join(", "));
    if given == 0 {
        return Err(format!("{file} has the limits of {names}, and the trace is of {others}"));
    }
    if !others.is_empty() {
        notes.push(format!("{others} has no limits: {file} has those of {names}"));
    }
    profile.imported.iter_mut().for_each(|imported| imported.doubts.append(&mut notes));
    Ok(())
}

/// The name of a device, without its rank: [`join`](super::join) puts that before it.
fn own_name(device: &DeviceProfile) -> &str {
    let name = device.name.as_str();
    let of_rank = device.rank.and_then(|rank| name.strip_prefix(&format!("rank {rank}: ")));
    of_rank.unwrap_or(name)
}

fn has_devices(profile: &Profile) -> Result<(), String> {
    match profile.devices.is_empty() {
        true => Err("nothing in it ran on a device whose limits these could be".to_owned()),
        false => Ok(()),
    }
}

fn give(device: &mut DeviceProfile, ceilings: Ceilings) {
    device.ceilings = Some(ceilings);
    device.ceilings_absent = None;
}

/// The limits in a file, each with the name of its device.
fn measured(path: &Path) -> Result<Vec<(String, Ceilings)>, String> {
    let shown = path.display();
    let file = if path.is_dir() { path.join("profile.json") } else { path.to_owned() };
    let text = load::text(&file, MOST_BYTES).map_err(|error| format!("{shown}: {error}"))?;
    let found: Vec<(String, Ceilings)> = match serde_json::from_str::<Ceilings>(&text) {
        Ok(ceilings) => name_of(&ceilings).map(|name| (name, ceilings)).into_iter().collect(),
        Err(_) => {
            let devices = Profile::from_json(&text, &file).map(|of| of.devices).unwrap_or_default();
            let limits = |of: &DeviceProfile| Some((own_name(of).to_owned(), of.ceilings.clone()?));
            devices.iter().filter_map(limits).collect()
        }
    };
    let is_usable = |ceilings: &Ceilings| {
        !ceilings.is_stated()
            && [ceilings.read_bytes_per_second, ceilings.flops_per_second]
                .into_iter()
                .all(Ceilings::is_rate)
    };
    let found: Vec<(String, Ceilings)> = found
        .into_iter()
        .filter(|(_, ceilings)| is_usable(ceilings))
        .map(|(name, ceilings)| {
            // Anything may have happened between that run and this one.
            let basis = format!("{MEASURED}: {name}");
            let kept = Ceilings { basis, readings: Vec::new(), spreads: Vec::new(), ..ceilings };
            (name, kept)
        })
        .collect();
    match found.is_empty() {
        true => Err(format!(
            "{shown} has no limits of a device: `brickscope machine --backend cuda --json` prints some"
        )),
        false => Ok(found),
    }
}

/// The device that limits are of: `measured before the run: NVIDIA H200, cuda`.
fn name_of(ceilings: &Ceilings) -> Option<String> {
    let (_, of) = ceilings.basis.split_once(": ")?;
    let (name, _) = of.rsplit_once(", ")?;
    // Of a CPU it is a number of threads.
    let is_of_threads = name.ends_with(" thread") || name.ends_with(" threads");
    (!is_of_threads).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::{Format, Options, join, read};
    use super::*;

    #[test]
    fn stated_limits_have_both_rates() {
        for text in [
            "3350 GB/s, 989 TFLOP/s",
            "H100: 3.35 TB/s; 989 tflops",
            " 0.989 PFLOP/s,3350GB/s ",
            "989000 GFLOP/s, 3350 gb/s",
        ] {
            let of = stated(text).expect(text);
            assert_eq!((of.read_bytes_per_second, of.flops_per_second), (3.35e12, 9.89e14));
            assert!(of.is_stated(), "{text}");
        }
        for (text, why) in [
            ("3350 GB/s", "both"),
            ("989 TFLOP/s", "both"),
            ("3,350 GB/s, 989 TFLOP/s", "`3` is no rate"),
            ("3350, 989", "`3350` is no rate"),
            ("3350 GB/s, 5 TB/s, 989 TFLOP/s", "twice"),
            ("0 GB/s, 989 TFLOP/s", "`0 GB/s` is no rate"),
            ("-5 GB/s, 989 TFLOP/s", "`-5 GB/s` is no rate"),
            ("1.2.3 GB/s, 989 TFLOP/s", "`1.2.3 GB/s` is no rate"),
            ("", "`` is no rate"),
        ] {
            let said = stated(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn limits_are_of_the_devices_of_all_ranks() {
        let rank = |rank: u32| {
            let text = format!(
                "{{\"schemaVersion\":1,\"distributedInfo\":{{\"rank\":{rank},\"world_size\":2}},\
                 \"deviceProperties\":[{{\"id\":0,\"name\":\"NVIDIA H200\"}}],\"traceEvents\":[\n\
                 {{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"pid\":1,\"tid\":1,\"ts\":0,\"dur\":4}},\n\
                 {{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"pid\":0,\"tid\":7,\"ts\":5,\"dur\":50,\
                 \"args\":{{\"device\":0,\"stream\":7,\"correlation\":1}}}}\n]}}"
            );
            let path = PathBuf::from(format!("{rank}.json"));
            let profile = read(&text, &path, Format::Chrome, &Options::default());
            (path, profile.expect("it is a trace"))
        };
        let mut profile = join(vec![rank(0), rank(1)]).expect("two ranks");
        assert_eq!(profile.devices[1].name, "rank 1: NVIDIA H200");
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("limits.json");
        let write = |of: &str| {
            let limits = Ceilings {
                read_bytes_per_second: 4e12,
                flops_per_second: 6e13,
                basis: format!("measured before the run: {of}, cuda"),
                ..Ceilings::default()
            };
            let text = serde_json::to_string(&limits).expect("it is plain");
            std::fs::write(&file, text).expect("it can be written");
        };
        write("NVIDIA H100");
        let said = add_limits(&mut profile, &file).expect_err("another device");
        assert!(
            said.ends_with("has the limits of NVIDIA H100, and the trace is of NVIDIA H200"),
            "{said}"
        );
        write("NVIDIA H200");
        add_limits(&mut profile, &file).expect("these devices");
        assert!(profile.devices.iter().all(|device| device.ceilings.is_some()));
        // As a run with limits, it has them for a device alone, too.
        let run = dir.path().join("run.json");
        std::fs::write(&run, profile.to_json()).expect("it can be written");
        let mut alone = rank(0).1;
        add_limits(&mut alone, &run).expect("this device");
    }

    #[test]
    fn limits_of_a_cpu_are_of_no_device() {
        let of =
            |basis: &str| name_of(&Ceilings { basis: basis.to_owned(), ..Ceilings::default() });
        let cuda = of("measured before the run: NVIDIA H100 80GB HBM3, cuda");
        assert_eq!(cuda.as_deref(), Some("NVIDIA H100 80GB HBM3"));
        assert_eq!(of("measured before the run: 2 threads, avx2"), None);
        assert_eq!(of("somehow"), None);
    }
}
