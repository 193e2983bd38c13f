//! Pushing runs to an OpenTelemetry collector. A run that can't be pushed is told, and never lost: its file is written before.

pub(crate) use self::built::{Pushing, Target};

#[cfg(feature = "otlp")]
mod built {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use anyhow::{Context, Result};
    use brickscope::Profile;
    use brickscope_analysis::stacks::{By, Stacks, Unit};
    use brickscope_formats::export::otlp::NO_TIME;
    use brickscope_live::otlp::{Collector, Pushed, PushedSignal, Pusher, Settings};

    use crate::flags::OtlpArgs;
    use crate::text::{count, printable_text};
    use crate::{device, interrupt, output, progress};

    /// A collector, and how often to push to it while a model runs.
    pub(crate) struct Target {
        collector: Arc<Collector>,
        every: Option<Duration>,
    }

    impl Target {
        /// For a run that goes on.
        pub(crate) fn of(args: &OtlpArgs) -> Result<Option<Self>> {
            let Some(url) = &args.otlp else { return Ok(None) };
            Self::new(url, args.otlp_every.map(Duration::from_secs)).map(Some)
        }

        /// For a run that was written before.
        pub(crate) fn of_run(url: &str) -> Result<Self> {
            Self::new(url, None)
        }

        fn new(url: &str, every: Option<Duration>) -> Result<Self> {
            let collector = Collector::new(url, Settings::from_env()?).context("--otlp")?;
            Ok(Self { collector: Arc::new(collector), every })
        }

        /// Pushes metrics while a model runs, if that is asked for.
        pub(crate) fn push_live(
            &self,
            snapshot: impl Fn() -> Profile + Send + 'static,
        ) -> Result<Option<Pushing>> {
            let Some(every) = self.every else { return Ok(None) };
            let pusher = Pusher::start(Arc::clone(&self.collector), every, snapshot);
            let pusher = pusher.context("--otlp-every: can't start a thread")?;
            Ok(Some(Pushing { pusher: Some(pusher), url: self.collector.url().to_owned() }))
        }

        /// Pushes the run in a folder. If that fails, it says how to push it later.
        pub(crate) fn push_written(&self, run: &Path) {
            let pushed = brickscope_runs::load(run).and_then(|profile| self.push(profile));
            if let Err(error) = pushed {
                let (url, why) = (self.collector.url(), printable_text(&format!("{error:#}")));
                let run = output::shown(run);
                tell!(
                    "warning: the run was not pushed to {url}: {why}. `brickscope export {run} --otlp {url}` pushes it later"
                );
            }
        }

        pub(crate) fn push(&self, profile: Profile) -> Result<()> {
            let note = progress::note("pushing the run");
            // A signal from now on ends the pauses between tries.
            let was_asked = interrupt::was_asked();
            let go_on = || was_asked || !interrupt::was_asked();
            let (on_device, of) = device::of_stacks(profile.clone(), "stacks");
            let stacks = device::stacks(&on_device, of, By::Layer, 0).unwrap_or_else(|why| {
                // The metrics are worth pushing by themselves.
                tell!("note: {why:#}");
                Stacks::new(Unit::Nanoseconds, 0)
            });
            let pushed = self.collector.push(&profile, &stacks, &go_on);
            note.finish_and_clear();
            self.tell(&pushed?);
            Ok(())
        }

        fn tell(&self, pushed: &Pushed) {
            let url = self.collector.url();
            let points = count(pushed.points, "point");
            match &pushed.stacks {
                PushedSignal::None | PushedSignal::NoTime => {
                    tell!("pushed to {url}: {points} of metrics");
                }
                PushedSignal::Sent { items, .. } => {
                    let profiles = count(*items, "profile");
                    tell!("pushed to {url}: {points} of metrics, and stacks as {profiles}");
                }
                PushedSignal::NotTaken => {
                    tell!(
                        "pushed to {url}: {points} of metrics; it takes no profiles, so no stacks"
                    );
                }
                PushedSignal::Failed(error) => {
                    let why = printable_text(&error.to_string());
                    tell!("pushed to {url}: {points} of metrics");
                    tell!("warning: stacks were not pushed to {url}: {why}");
                }
            }
            tell_spans(url, pushed);
            let mut rejected = Vec::new();
            if pushed.rejected > 0 {
                rejected.push(count(pushed.rejected, "point"));
            }
            if let PushedSignal::Sent { rejected: profiles @ 1.., .. } = pushed.stacks {
                rejected.push(count(profiles, "profile"));
            }
            if let PushedSignal::Sent { rejected: spans @ 1.., .. } = pushed.spans {
                rejected.push(count(spans, "span"));
            }
            let said = pushed.messages.first().map(|said| printable_text(said));
            match (rejected.is_empty(), said) {
                (true, None) => {}
                (true, Some(said)) => tell!("note: {url} says: {said}"),
                (false, said) => {
                    let said = said.unwrap_or_else(|| "it gave no reason".to_owned());
                    tell!("warning: {url} rejected {}: {said}", rejected.join(" and "));
                }
            }
        }
    }

    /// What became of the requests of a server, if it had any.
    fn tell_spans(url: &str, pushed: &Pushed) {
        match &pushed.spans {
            PushedSignal::None => {}
            PushedSignal::Sent { items, .. } => {
                tell!("pushed to {url}: {} of requests", count(*items, "span"));
            }
            PushedSignal::NotTaken => tell!("note: {url} takes no traces, so no requests"),
            PushedSignal::NoTime => {
                tell!("note: requests were not pushed: {NO_TIME}");
            }
            PushedSignal::Failed(error) => {
                let why = printable_text(&error.to_string());
                tell!("warning: requests were not pushed to {url}: {why}");
            }
        }
        // If none had ended, nothing was sent.
        let is_taken = matches!(pushed.spans, PushedSignal::Sent { .. } | PushedSignal::None);
        if is_taken && pushed.without_spans > 0 {
            let requests = count(pushed.without_spans, "request");
            tell!("note: {requests} had not ended, and so have no spans");
        }
    }

    /// Metrics that are pushed while a model runs, until this is dropped; then it says what became of them.
    pub(crate) struct Pushing {
        pusher: Option<Pusher>,
        url: String,
    }

    impl Pushing {
        /// Begins no further push. Only dropping it waits for one that has no answer yet.
        pub(crate) fn stop(&self) {
            if let Some(pusher) = &self.pusher {
                pusher.stop();
            }
        }

        /// Waits for a push that has no answer yet, and says what became of all.
        pub(crate) fn finish(self) {}
    }

    impl Drop for Pushing {
        fn drop(&mut self) {
            let Some(tally) = self.pusher.take().map(Pusher::finish) else { return };
            let (url, all) = (&self.url, tally.pushed + tally.dropped);
            let why = tally.trouble.map(|why| format!(": {}", printable_text(&why)));
            let why = why.unwrap_or_default();
            if tally.dropped > 0 {
                let all = count(all, "snapshot");
                tell!(
                    "warning: {} of {all} were dropped on the way to {url} while the model ran{why}",
                    tally.dropped
                );
            }
            if tally.rejected > 0 {
                let points = count(tally.rejected, "point");
                tell!("warning: {url} rejected {points} while the model ran{why}");
            }
        }
    }
}

#[cfg(not(feature = "otlp"))]
mod built {
    use std::path::Path;

    use anyhow::{Result, bail};
    use brickscope::Profile;

    use crate::flags::OtlpArgs;

    /// There is none.
    pub(crate) enum Target {}

    impl Target {
        pub(crate) fn of(args: &OtlpArgs) -> Result<Option<Self>> {
            if args.otlp.is_some() { missing() } else { Ok(None) }
        }

        pub(crate) fn of_run(_: &str) -> Result<Self> {
            missing()
        }

        pub(crate) fn push_live(&self, _: impl Fn() -> Profile) -> Result<Option<Pushing>> {
            match *self {}
        }

        pub(crate) fn push_written(&self, _: &Path) {
            match *self {}
        }

        pub(crate) fn push(&self, _: Profile) -> Result<()> {
            match *self {}
        }
    }

    fn missing<T>() -> Result<T> {
        bail!(
            "--otlp: this brickscope was built without it; `cargo install --path cli --profile dist --features full` has it"
        )
    }

    /// There is none.
    pub(crate) enum Pushing {}

    impl Pushing {
        pub(crate) fn stop(&self) {
            match *self {}
        }

        pub(crate) fn finish(self) {
            match self {}
        }
    }
}
