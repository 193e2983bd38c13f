//! Serving the metrics of a run while it runs.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use brickscope::{BrickProfiler, Profile};
use brickscope_live::metrics::{MetricsOptions, MetricsServer};

use crate::flags::MetricsArgs;
use crate::output::tell;

/// The profiler that is recording: a benchmark has several, one after the other.
pub(crate) type Current = Arc<Mutex<Arc<BrickProfiler>>>;

/// Serves metrics until the returned server is dropped, if --metrics is given, and prints the address.
/// `describe` adds what a profiler doesn't know.
pub(crate) fn serve(
    args: &MetricsArgs,
    current: Current,
    describe: impl Fn(&mut Profile) + Send + Sync + 'static,
) -> Result<Option<MetricsServer>> {
    let Some(addr) = args.metrics else { return Ok(None) };
    let machine = brickscope::machine::detect();
    let snapshot = move || {
        // Don't hold the lock during the snapshot: the next measurement would have to wait for it.
        let profiler = Arc::clone(&*current.lock().unwrap_or_else(PoisonError::into_inner));
        let mut profile = profiler.snapshot();
        profile.machine = Some(machine.clone());
        describe(&mut profile);
        profile
    };
    let names = args.metrics_names.into();
    let options = MetricsOptions { names, is_public: args.metrics_public };
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
    Ok(Some(server))
}
