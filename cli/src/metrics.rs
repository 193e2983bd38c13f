//! Serving the metrics of a run while it runs, and pushing them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use brickscope::{BrickProfiler, Profile};
use brickscope_live::metrics::{MetricsOptions, MetricsServer};

use crate::flags::MetricsArgs;
use crate::machine_name;
use crate::runs::otlp::{Pushing, Target};

/// The profiler that is recording: a benchmark has several, one after the other.
pub(crate) type Current = Arc<Mutex<Arc<BrickProfiler>>>;

/// Metrics that are served and pushed until this is dropped.
pub(crate) struct Served {
    _server: Option<MetricsServer>,
    pushing: Option<Pushing>,
}

impl Served {
    /// Begins no further push. What is returned waits, when it is dropped, for one that has no answer yet.
    pub(crate) fn stop_pushing(&mut self) -> Option<Pushing> {
        let pushing = self.pushing.take()?;
        pushing.stop();
        Some(pushing)
    }
}

/// Serves metrics if --metrics is given, and prints the address; pushes them if --otlp-every is given. `describe` adds what
/// a profiler doesn't know.
pub(crate) fn serve(
    args: &MetricsArgs,
    target: Option<&Target>,
    current: Current,
    describe: impl Fn(&mut Profile) + Send + Sync + 'static,
) -> Result<Served> {
    let machine = brickscope::machine::detect();
    let named = machine_name::named();
    let snapshot = Arc::new(move || {
        // Don't hold the lock during the snapshot: the next measurement would have to wait for it.
        let profiler = Arc::clone(&*current.lock().unwrap_or_else(PoisonError::into_inner));
        let mut profile = profiler.snapshot();
        profile.machine = Some(machine.clone());
        profile.named.clone_from(&named);
        describe(&mut profile);
        profile
    });
    let server = {
        let snapshot = Arc::clone(&snapshot);
        args.metrics.map(|addr| listen(args, addr, move || snapshot())).transpose()?
    };
    let pushing = target.map(|target| target.push_live(move || snapshot())).transpose()?;
    Ok(Served { _server: server, pushing: pushing.flatten() })
}

fn listen(
    args: &MetricsArgs,
    addr: SocketAddr,
    snapshot: impl Fn() -> Profile + Send + Sync + 'static,
) -> Result<MetricsServer> {
    let names = args.metrics_names.into();
    let options =
        MetricsOptions { names, is_public: args.metrics_public, ..MetricsOptions::default() };
    let server = MetricsServer::start_with(snapshot, addr, options).map_err(|error| {
        let hint = matches!(error, brickscope_live::metrics::MetricsError::Public { .. });
        let error = anyhow::Error::from(error);
        if hint { error.context("--metrics without --metrics-public") } else { error }
    })?;
    let addr = server.addr();
    if !addr.ip().is_loopback() {
        tell!(
            "warning: anyone who can reach {addr} can read these metrics, unencrypted; they name the \
            model and its file"
        );
    }
    tell!("metrics: http://{addr}/metrics");
    Ok(server)
}
