//! What several rules need to know of a run.

use std::borrow::Cow;

use brickscope_profile::run::Format;
use brickscope_profile::{Absent, Phase, PhaseTotal, Profile, Total};

use super::Findings;
use super::device::{self, OnDevice};
use crate::passes::{is_of_device, with_bricks};
use crate::ranks::name_of_device;
use crate::requests::is_server;
use crate::roofline::{OURS, Roofline, Verdict};
use crate::typical::{self, Typical};

/// A run, looked at once for all rules.
pub(super) struct Facts<'p> {
    pub(super) profile: &'p Profile,
    pub(super) phases: Vec<PhaseFacts<'p>>,
    /// The phases of devices.
    pub(super) devices: Vec<OnDevice<'p>>,
    /// The same by the devices' clocks, of those whose limits were to be measured.
    pub(super) on_devices: Vec<PhaseFacts<'p>>,
    pub(super) flags: Flags,
}

/// A phase of a run, by the clock of the host or of a device.
pub(super) struct PhaseFacts<'p> {
    pub(super) phase: Phase,
    /// The device, if it is of one.
    pub(super) device: Option<usize>,
    pub(super) total: &'p PhaseTotal,
    pub(super) typical: Typical,
    /// The profile by which the phase is judged.
    pub(super) judged: Cow<'p, Profile>,
    pub(super) roofline: Result<Roofline, Absent>,
    pub(super) verdict: Option<Verdict>,
    /// What a pass takes in the profile by which the phase is judged.
    pub(super) pass_ns: f64,
    /// The same for its part outside of all bricks.
    pub(super) unattributed_ns: f64,
    /// What a pass took on average over all of them.
    pub(super) mean_ns: f64,
    /// The least time that the work of a pass could take; 0 if the machine's limits aren't known.
    pub(super) least_ns: f64,
    /// Passes in the profile by which the phase is judged.
    pub(super) passes: f64,
}

impl<'p> Facts<'p> {
    /// What can't be looked at goes to `unknown`.
    pub(super) fn of(
        profile: &'p Profile,
        devices: &'p [(usize, Profile)],
        findings: &mut Findings,
    ) -> Self {
        // Of a device by itself, the rules look at the run.
        let phases = match profile.devices.is_empty() && !is_of_device(profile) {
            true => Phase::SHOWN
                .into_iter()
                .filter(|&phase| profile.serialised(phase).is_none())
                .filter(|&phase| is_long_enough(profile, phase))
                .filter_map(|phase| PhaseFacts::of(profile, phase, None))
                .collect(),
            false => Vec::new(),
        };
        let on_devices = devices
            .iter()
            .flat_map(|(index, of)| Phase::SHOWN.map(|phase| (*index, of, phase)))
            .filter(|(.., of, phase)| is_long_enough(of, *phase))
            .filter_map(|(index, of, phase)| PhaseFacts::of(of, phase, Some(index)))
            .filter(|of| !of.bricks().is_empty())
            .collect();
        let devices = device::all(profile, findings);
        Self { profile, phases, devices, on_devices, flags: Flags::of(profile) }
    }

    /// Phases that may have a roof: those of the host, or of the devices that it only issued work to.
    pub(super) fn under_a_roof(&self) -> impl Iterator<Item = &PhaseFacts<'p>> {
        self.phases.iter().chain(&self.on_devices)
    }

    /// The phase that the first screen shows.
    pub(super) fn main(&self) -> Option<&PhaseFacts<'p>> {
        self.phases.first()
    }

    /// Threads of the run; 0 if unknown.
    pub(super) fn threads(&self) -> u32 {
        self.profile.run.as_ref().map_or(0, |run| run.threads)
    }

    /// Whether the command of the run has one of these flags.
    pub(super) fn has_flag(&self, flags: &[&str]) -> bool {
        let words = self.profile.run.iter().flat_map(|run| &run.command);
        words.into_iter().any(|word| flags.contains(&word.as_str()))
    }

    /// The value of a flag in the command of the run, as the last word says.
    pub(super) fn value_of(&self, flag: &str) -> Option<&'p str> {
        let command = &self.profile.run.as_ref()?.command;
        let at = command.iter().rposition(|word| {
            word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })?;
        match command[at].split_once('=') {
            Some((_, value)) => Some(value),
            None => command.get(at + 1).map(String::as_str),
        }
    }

    /// Whether it was imported from files of this format.
    pub(super) fn is_from(&self, format: Format) -> bool {
        self.profile.imported.as_ref().is_some_and(|imported| imported.format == format.name())
    }

    pub(super) fn cpus(&self) -> Option<u32> {
        self.profile.machine.as_ref().and_then(|machine| machine.logical_cpus)
    }
}

/// Devices by their own clocks, where their limits were to be measured.
pub(super) fn of_devices(profile: &Profile) -> Vec<(usize, Profile)> {
    let devices = (0..).zip(&profile.devices);
    let asked = devices.filter(|(_, of)| of.ceilings.is_some() || of.ceilings_absent.is_some());
    // Of another program's file the work of a part is known, so the least time of a pass isn't.
    let asked = asked.filter(|_| profile.imported.is_none());
    // Streams that run at once share a memory, and none of them is under its roof alone.
    let alone = asked.filter(|(_, of)| !of.has_streams_at_once());
    alone.filter_map(|(index, _)| Some((index, profile.whole_device(index)?))).collect()
}

/// Whether what a prompt takes is part of the run to speak of: a twentieth. The phase that the first screen shows always is.
fn is_long_enough(profile: &Profile, phase: Phase) -> bool {
    const LEAST_PART: u64 = 20;
    let wall_ns = |phase: Phase| profile.phase(phase).map_or(0, |total| total.wall_ns);
    let decode_ns = wall_ns(Phase::Decode);
    phase == Phase::Decode || wall_ns(phase) > decode_ns / (LEAST_PART - 1)
}

impl<'p> PhaseFacts<'p> {
    fn of(profile: &'p Profile, phase: Phase, device: Option<usize>) -> Option<Self> {
        let total = profile.phases.iter().find(|total| total.phase == phase)?;
        let typical = Typical::of(profile, phase)?;
        let judged = typical::judged(profile, phase);
        let of_judged = with_bricks(&judged, judged.phase(phase)?);
        if total.passes == 0 || of_judged.passes == 0 || of_judged.wall_ns == 0 {
            return None;
        }
        let passes = of_judged.passes as f64;
        let roofline = Roofline::of_sums(&judged, phase);
        let stated =
            |of: fn(&Total) -> u64| judged.bricks(Some(phase)).into_iter().any(|b| of(b) > 0);
        let has_work = stated(|of| of.stats.total_bytes) && stated(|of| of.stats.total_flops);
        let verdict = roofline.as_ref().ok().filter(|_| has_work).and_then(Roofline::verdict);
        let least_ns = roofline.as_ref().map_or(0.0, |roofline| roofline.least_ns / passes);
        Some(Self {
            phase,
            device,
            total,
            typical,
            roofline,
            verdict,
            pass_ns: of_judged.wall_ns as f64 / passes,
            unattributed_ns: of_judged.unattributed_ns as f64 / passes,
            mean_ns: total.wall_ns as f64 / total.passes as f64,
            least_ns: if least_ns.is_finite() { least_ns } else { 0.0 },
            passes,
            judged,
        })
    }

    /// The bricks of the profile by which the phase is judged, the longest first.
    pub(super) fn bricks(&self) -> Vec<&Total> {
        self.judged.bricks(Some(self.phase))
    }

    /// The own time of bricks in a pass, in nanoseconds.
    pub(super) fn own_ns(&self, is_meant: impl Fn(&str) -> bool) -> f64 {
        let meant = self.bricks().into_iter().filter(|brick| is_meant(&brick.stats.name));
        meant.map(|brick| brick.stats.exclusive_ns as f64).sum::<f64>() / self.passes
    }

    pub(super) fn place(&self) -> String {
        format!("/phases, {}", self.phase)
    }

    /// Its name, and that it is of a device if it is: `decode on the device`.
    pub(super) fn name(&self, profile: &Profile) -> String {
        match self.device {
            None => self.phase.to_string(),
            Some(index) => format!("{} on {}", self.phase, name_of_device(profile, index)),
        }
    }

    /// Where `profile.json` has these sums of its bricks.
    pub(super) fn totals(&self, what: &str) -> String {
        match self.device {
            None => format!("/totals, {what}"),
            Some(index) => format!("/devices/{index}/streams, totals, {what}"),
        }
    }

    /// Where `profile.json` has the limits of what ran it.
    pub(super) fn ceilings(&self) -> String {
        self.device.map_or("/ceilings".to_owned(), |index| format!("/devices/{index}/ceilings"))
    }
}

/// What the program that ran calls what is advised.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flags {
    pub(super) threads: &'static str,
    pub(super) pin: &'static str,
    pub(super) shares: &'static str,
    /// Whether `brickscope profile` made the run.
    pub(super) is_ours: bool,
    /// Whether `brickscope try` can make it again with a change.
    pub(super) can_try: bool,
}

impl Flags {
    fn of(profile: &Profile) -> Self {
        let flags = Self::of_program(profile);
        Self { can_try: flags.can_try && !is_server(profile), ..flags }
    }

    fn of_program(profile: &Profile) -> Self {
        let backend = profile.run.as_ref().map_or("", |run| run.backend.as_str());
        if backend.starts_with("llama.cpp in this program") {
            let pin = "a thread pool with a CPU mask";
            return Self { threads: "n_threads", pin, shares: "", is_ours: false, can_try: false };
        }
        let imported = profile.imported.as_ref();
        if imported.is_some_and(|imported| imported.format == Format::LlamaBench.name()) {
            let pin = "`--cpu-mask`, `--cpu-strict 1`";
            return Self { threads: "-t", pin, shares: "", is_ours: false, can_try: false };
        }
        if backend.starts_with("llama.cpp") {
            return Self {
                threads: "-t",
                pin: "`--cpu-mask`, `--cpu-strict 1`",
                shares: ", and `brickscope run --shares` shows who waits",
                is_ours: false,
                can_try: true,
            };
        }
        // Another program on ggml, whose own flags nobody knows here.
        if backend.starts_with("ggml") {
            return Self {
                threads: "n_threads",
                pin: "a thread pool with a CPU mask",
                shares: ", and `brickscope run --shares` shows who waits",
                is_ours: false,
                can_try: false,
            };
        }
        let is_ours = profile.imported.is_none() && OURS.contains(&backend);
        Self {
            threads: "--threads",
            pin: "`--pin`",
            shares: ", and `--shares` shows who waits",
            is_ours,
            can_try: is_ours,
        }
    }
}
