//! The tiles of a real prefill: their FLOPs add up to the kernels', and their times lie within them.

use std::num::NonZeroUsize;
use std::path::Path;

use brickscope::{BrickProfiler, NameKind, Profile, TileLevel, TileStats};
use brickscope_analysis::view;
use brickscope_engine::executor::Cpu;
use brickscope_engine::{Model, Session};
use brickscope_kernels::{Backend, Kernels};

/// The FLOPs and nanoseconds of all products of several tokens.
fn of_gemms(profile: &Profile) -> (u64, u64) {
    let kernels = profile.totals.iter().filter(|total| {
        let name = profile.names.iter().find(|name| name.name == total.stats.name);
        name.is_some_and(|name| name.kind == NameKind::Kernel)
            && total.stats.name.starts_with("gemm_")
    });
    kernels.fold((0, 0), |(flops, ns), total| {
        (flops + total.stats.total_flops, ns + total.stats.total_ns)
    })
}

fn level(tiles: &[TileStats], level: TileLevel) -> Option<&TileStats> {
    tiles.iter().find(|tile| tile.level == level)
}

#[test]
fn tiles_add_up_to_the_kernels_that_they_are_of_and_lie_within_them() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/models");
    // Integer kernels, those with minimums and a mixture of types, and floats.
    for name in ["tiny-Q8_0", "tiny-Q4_K_M", "tiny-F16"] {
        let model = Model::open(&models.join(name).with_extension("gguf")).expect("a fixture");
        for backend in [Backend::Scalar, Backend::Avx2, Backend::Avx512, Backend::Neon] {
            let Ok(kernels) = Kernels::new(backend) else { continue };
            for n_threads in [1, 2] {
                let what = format!("{name} on {backend:?}, {n_threads} threads");
                let cpu = Cpu::new(kernels, NonZeroUsize::new(n_threads).expect("not 0"));
                let mut session = Session::new(&model, cpu.expect("threads"), 48).expect("room");
                let profiler = BrickProfiler::enabled();
                session.profile_tiles(&profiler);
                // Several register tiles to a run, of 32 tokens too, and the last not a whole one.
                let tokens: Vec<u32> = (1..=43).collect();
                let told = session.forward_profiled(&profiler, &tokens).expect("it runs").to_vec();
                session.forward_profiled(&profiler, &[44]).expect("decoding has no tiles");
                let profile = profiler.profile();
                assert_eq!(profile.check(), Ok(()), "{what}");

                let (flops, ns) = of_gemms(&profile);
                let shares = level(&profile.tiles, TileLevel::Macro).expect("shares");
                assert_eq!(shares.total_flops, flops, "{what}");
                let blocks = level(&profile.tiles, TileLevel::Midi);
                let registers = level(&profile.tiles, TileLevel::Micro);
                assert_eq!(blocks.is_some(), backend != Backend::Scalar, "{what}");
                if let (Some(blocks), Some(registers)) = (blocks, registers) {
                    assert_eq!(
                        (blocks.total_flops, registers.total_flops),
                        (flops, flops),
                        "{what}"
                    );
                    assert!(registers.tiles_in_runs > Some(registers.count), "{what}");
                    assert_eq!(blocks.tiles_in_runs, None, "{what}");
                }

                // Each thread's tiles lie in each other, and its shares in the kernels.
                assert!((1..=n_threads).contains(&profile.tile_threads.len()), "{what}");
                for thread in &profile.tile_threads {
                    let of = |at| level(&thread.tiles, at).map_or(0, |tile| tile.total_ns);
                    assert!(of(TileLevel::Micro) <= of(TileLevel::Midi), "{what}");
                    assert!(
                        of(TileLevel::Macro) <= ns,
                        "{what}: a share is longer than its kernel"
                    );
                    if blocks.is_some() {
                        assert!(of(TileLevel::Midi) <= of(TileLevel::Macro), "{what}");
                    }
                }
                let of_threads: u64 =
                    profile.tile_threads.iter().flat_map(|t| &t.tiles).map(|t| t.total_ns).sum();
                assert_eq!(of_threads, profile.tiles.iter().map(|t| t.total_ns).sum::<u64>());

                let balance = profile.tile_balance.expect("products were noted");
                // Seven in each layer; the head is asked for the last token alone.
                assert_eq!(balance.products, 7 * model.config.n_layers as u64, "{what}");
                assert_eq!(balance.worked_ns, shares.total_ns, "{what}");
                assert_eq!(balance.offered_ns, n_threads as u64 * balance.slowest_ns, "{what}");
                assert!(balance.slowest_ns <= ns, "{what}");
                assert!(balance.worked_ns <= balance.offered_ns, "{what}");

                let report = view::report(&profile);
                assert!(report.contains("\nTiles"), "{report}");

                // Off again, nothing is timed, and nothing else is computed.
                profiler.disable_tile_profiling();
                profiler.reset();
                session.clear();
                let unlabelled = session.forward_profiled(&profiler, &tokens).expect("it runs");
                assert_eq!(told, unlabelled, "{what}");
                let profile = profiler.profile();
                assert!(profile.tiles.is_empty() && profile.tile_threads.is_empty(), "{what}");
                assert_eq!(profile.tile_balance, None, "{what}");
            }
        }
    }
}
