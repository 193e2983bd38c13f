//! The predecessor's spellings, as thin calls.

use std::io;
use std::path::Path;
use std::sync::Arc;

use brickscope_profile::stats::ratio;
use brickscope_profile::{
    BrickId, BrickStats, DivergenceInfo, ExecutionGraph, ExecutionNode, ExecutionNodeId,
    KernelChecksum, SyncMode, TileLevel, TileStats, save,
};

use super::{BrickProfiler, TileTimer, short_forms};
use crate::sync::lock_unmodelled as lock;

/// # Spellings of the predecessor
///
/// Code that was written for trueno's `BrickProfiler` calls these methods, so they are kept; `porting.md` says
/// what differs. New code reaches the same through [`tiles`](Self::tiles), [`graph`](Self::graph), [`checksums`](Self::checksums) and
/// [`device`](Self::device), or through a [`profile`](Self::profile).
impl BrickProfiler {
    /// [`brick_stats`](Self::brick_stats).
    #[must_use]
    pub fn stats_for(&self, brick: BrickId) -> BrickStats {
        self.brick_stats(brick)
    }

    /// The names of all bricks that were recorded.
    #[must_use]
    pub fn brick_names(&self) -> Vec<String> {
        self.all_brick_stats().filter(|stats| stats.count > 0).map(|stats| stats.name).collect()
    }

    /// The sum of the elements that bricks of the host were stopped with, or, if it has none, those of devices: tokens,
    /// where elements are tokens.
    #[must_use]
    pub fn total_tokens(&self) -> u64 {
        self.brick_sums().total().total_elements
    }

    /// [`total_tokens`](Self::total_tokens) per second of [`total_ns`](Self::total_ns); 0.0 if nothing was
    /// recorded.
    #[must_use]
    pub fn total_throughput(&self) -> f64 {
        let total = self.brick_sums().total();
        ratio(total.total_elements as f64 * 1e9, total.exclusive_ns as f64)
    }

    /// Writes [`to_json`](Self::to_json) to a file: the whole of it, or nothing.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn write_json(&self, path: &Path) -> io::Result<()> {
        save::write_text(path, &self.to_json())
    }

    /// Prints the [categories](Self::category_stats) to standard output.
    pub fn print_category_stats(&self) {
        print!("{}", short_forms::category_box(self.brick_sums()));
    }

    /// [`device().set_sync_mode`](crate::DeviceRecorder::set_sync_mode).
    pub fn set_sync_mode(&self, mode: SyncMode) {
        self.device().set_sync_mode(mode);
    }

    /// [`device().sync_mode`](crate::DeviceRecorder::sync_mode).
    #[must_use]
    pub fn sync_mode(&self) -> SyncMode {
        self.device().sync_mode()
    }

    /// [`device().reset_epoch`](crate::DeviceRecorder::reset_epoch).
    pub fn reset_epoch(&self) {
        self.device().reset_epoch();
    }

    /// [`device().elapsed_ns`](crate::DeviceRecorder::elapsed_ns).
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.device().elapsed_ns()
    }

    /// [`device().record`](crate::DeviceRecorder::record).
    pub fn record_deferred(&self, brick: BrickId, start_ns: u64, elements: u64) {
        self.device().record(brick, start_ns, elements);
    }

    /// [`device().record_named`](crate::DeviceRecorder::record_named).
    pub fn record_deferred_dynamic(&self, name: &str, start_ns: u64, elements: u64) {
        self.device().record_named(name, start_ns, elements);
    }

    /// [`device().finalize`](crate::DeviceRecorder::finalize).
    pub fn finalize(&self, end_ns: u64) {
        self.device().finalize(end_ns);
    }

    /// Whether [`device().pending`](crate::DeviceRecorder::pending) is more than 0.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.device().pending() > 0
    }

    /// [`device().pending`](crate::DeviceRecorder::pending).
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.device().pending()
    }

    /// [`graph().enable`](crate::GraphRecorder::enable).
    pub fn enable_graph(&self) {
        self.graph().enable();
    }

    /// [`graph().disable`](crate::GraphRecorder::disable).
    pub fn disable_graph(&self) {
        self.graph().disable();
    }

    /// [`graph().is_enabled`](crate::GraphRecorder::is_enabled).
    #[must_use]
    pub fn is_graph_enabled(&self) -> bool {
        self.graph().is_enabled()
    }

    /// [`graph().current`](crate::GraphRecorder::current).
    #[must_use]
    pub fn execution_graph(&self) -> Arc<ExecutionGraph> {
        self.graph().current()
    }

    /// [`graph().push_scope`](crate::GraphRecorder::push_scope).
    pub fn graph_push_scope(&self, node: ExecutionNode) -> Option<ExecutionNodeId> {
        self.graph().push_scope(node)
    }

    /// [`graph().pop_scope`](crate::GraphRecorder::pop_scope).
    pub fn graph_pop_scope(&self) -> Option<ExecutionNodeId> {
        self.graph().pop_scope()
    }

    /// [`graph().record_brick`](crate::GraphRecorder::record_brick).
    pub fn graph_record_brick(
        &self,
        brick: BrickId,
        timing_ns: u64,
        elements: u64,
    ) -> Option<ExecutionNodeId> {
        self.graph().record_brick(brick, timing_ns, elements)
    }

    /// [`graph().record_kernel`](crate::GraphRecorder::record_kernel).
    pub fn graph_record_kernel(
        &self,
        name: &str,
        ptx_hash: u64,
        grid: (u32, u32, u32),
        block: (u32, u32, u32),
        shared_mem: u32,
    ) -> Option<ExecutionNodeId> {
        self.graph().record_kernel(name, ptx_hash, grid, block, shared_mem)
    }

    /// The graph in Graphviz's format: [`ExecutionGraph::to_dot`].
    #[must_use]
    pub fn graph_to_dot(&self) -> String {
        self.graph().current().to_dot()
    }

    /// [`graph().clear`](crate::GraphRecorder::clear).
    pub fn graph_clear(&self) {
        self.graph().clear();
    }

    /// Whether every scope that was opened has been closed: [`ExecutionGraph::is_scope_balanced`].
    #[must_use]
    pub fn graph_is_scope_balanced(&self) -> bool {
        self.graph().by_hand().is_scope_balanced()
    }

    /// [`checksums().record`](crate::ChecksumRecorder::record).
    pub fn record_checksum(&self, name: &str, layer_idx: usize, position: u32, output: &[f32]) {
        self.checksums().record(name, layer_idx, position, output);
    }

    /// [`checksums().all`](crate::ChecksumRecorder::all).
    #[must_use]
    pub fn get_checksums(&self) -> Vec<KernelChecksum> {
        self.checksums().all()
    }

    /// [`checksums().find_divergence`](crate::ChecksumRecorder::find_divergence).
    #[must_use]
    pub fn find_divergence(&self, reference: &Self) -> Option<DivergenceInfo> {
        self.checksums().find_divergence(reference)
    }

    /// [`checksums().reset`](crate::ChecksumRecorder::reset).
    pub fn reset_checksums(&self) {
        self.checksums().reset();
    }

    /// [`tiles().enable`](crate::TileRecorder::enable).
    pub fn enable_tile_profiling(&self) {
        self.tiles().enable();
    }

    /// [`tiles().disable`](crate::TileRecorder::disable).
    pub fn disable_tile_profiling(&self) {
        self.tiles().disable();
    }

    /// [`tiles().is_enabled`](crate::TileRecorder::is_enabled).
    #[must_use]
    pub fn is_tile_profiling_enabled(&self) -> bool {
        self.tiles().is_enabled()
    }

    /// [`tiles().start`](crate::TileRecorder::start).
    #[inline]
    pub fn start_tile(&self, level: TileLevel, row: u32, col: u32) -> TileTimer {
        self.tiles().start(level, row, col)
    }

    /// [`tiles().stop`](crate::TileRecorder::stop).
    #[inline]
    pub fn stop_tile(&self, timer: TileTimer, elements: u64, flops: u64) {
        self.tiles().stop(timer, elements, flops);
    }

    /// [`tiles().stats`](crate::TileRecorder::stats).
    #[must_use]
    pub fn tile_stats(&self, level: TileLevel) -> TileStats {
        self.tiles().stats(level)
    }

    /// [`tiles().all_stats`](crate::TileRecorder::all_stats).
    #[must_use]
    pub fn all_tile_stats(&self) -> [TileStats; 3] {
        self.tiles().all_stats()
    }

    /// [`tiles().reset`](crate::TileRecorder::reset).
    pub fn reset_tile_stats(&self) {
        self.tiles().reset();
    }

    /// [`tiles().summary`](crate::TileRecorder::summary).
    #[must_use]
    pub fn tile_summary(&self) -> String {
        self.tiles().summary()
    }

    /// [`tiles().to_json`](crate::TileRecorder::to_json).
    #[must_use]
    pub fn tile_stats_to_json(&self) -> String {
        self.tiles().to_json()
    }

    /// Notes the share of L2 accesses that hit, as hardware counters told it, clamped to 0–1. NaN means that it was
    /// not observed.
    pub fn set_l2_cache_hit_rate(&self, rate: f32) {
        lock(&self.observed).l2_cache_hit_rate = (!rate.is_nan()).then(|| rate.clamp(0.0, 1.0));
    }

    /// The share of L2 accesses that hit, if it was observed.
    #[must_use]
    pub fn l2_cache_hit_rate(&self) -> Option<f32> {
        lock(&self.observed).l2_cache_hit_rate
    }

    /// Notes whether transfers are zero-copy.
    pub fn set_zero_copy(&self, zero_copy: bool) {
        lock(&self.observed).zero_copy = Some(zero_copy);
    }

    /// Whether transfers were noted to be zero-copy. In the [profile](crate::Profile), what nobody noted is absent.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        lock(&self.observed).zero_copy == Some(true)
    }
}
