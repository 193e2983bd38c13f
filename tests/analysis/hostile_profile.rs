//! Whatever a profile's numbers are, every view of it is text and not a panic.

use brickscope::{
    Alignment, BrickStats, CacheCeiling, Ceilings, Change, Dependency, DeviceProfile, DeviceStream,
    Disturbance, DotOptions, Dropped, ExpertRuns, ExpertTime, Grain, GrainChoice, GrainTotal,
    HostLaunch, Imported, Lane, Latency, Launch, LaunchKind, LayerExperts, LayerTotal, Model, Name,
    NameKind, Numbers, OtherThreads, PairedRatio, Pass, PassTime, Phase, PhaseTotal, Point,
    Profile, Route, Run, Share, Source, Span, StampCost, ThreadShare, Ticks, Total,
    TransferDirection, TreeOptions, Trial, TrialVerdict, WeightGroup, Work,
};
use brickscope_analysis::explain;
use brickscope_analysis::findings::Findings;
use brickscope_analysis::stacks::{By, Level, Stacks};
use brickscope_analysis::view;
use brickscope_formats::export::otlp;
use brickscope_formats::export::prometheus::{self, Dialect, Names};
use brickscope_formats::export::{folded, speedscope};
use proptest::prelude::*;

/// Small numbers, so that things fit each other often, and the largest ones.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0_u64..20, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 1), 1 => any::<u64>()]
}

fn index() -> impl Strategy<Value = u32> {
    prop_oneof![5 => 0_u32..8, 1 => any::<u32>()]
}

fn span() -> impl Strategy<Value = Span> {
    let place = (
        prop::option::of(prop_oneof![4 => 0_u16..5, 1 => any::<u16>()]),
        0_u32..4,
        prop::option::of(1_u32..3),
        prop::option::of(0_u16..3),
        prop::option::of(index()),
    );
    (place, [number(), number(), number(), number(), number(), number()]).prop_map(
        |((name, lane, pass, layer, parent), [start_ns, duration_ns, exclusive_ns, e, f, b])| {
            Span {
                name,
                source: Source::Host,
                lane,
                pass,
                layer,
                parent,
                start_ns,
                duration_ns,
                exclusive_ns,
                work: Work { elements: e, flops: f, bytes: b, ..Work::default() },
            }
        },
    )
}

fn point() -> impl Strategy<Value = Point> {
    (index(), number(), 0_u32..3, prop::option::of(index()))
        .prop_map(|(lane, at_ns, nth, inside)| Point { lane, at_ns, nth, inside })
}

fn pass() -> impl Strategy<Value = Pass> {
    (1_u32..3, any::<bool>(), index(), [number(), number(), number(), number(), number()]).prop_map(
        |(serial, decodes, lane, [tokens, position, start_ns, wall_ns, attributed_ns])| Pass {
            serial,
            phase: if decodes { Phase::Decode } else { Phase::Prefill },
            lane,
            tokens,
            position,
            start_ns,
            wall_ns,
            attributed_ns,
            unattributed_ns: wall_ns.wrapping_sub(attributed_ns),
            disturbance: (position % 2 == 0).then_some(Disturbance {
                passes: tokens,
                wall_ns,
                longest_wait_ns: Some(attributed_ns),
                own_wait_ns: Some(start_ns),
                page_faults: Some(start_ns),
                disk_faults: Some(tokens),
                ..Disturbance::default()
            }),
            is_left_out: false,
        },
    )
}

fn trial() -> impl Strategy<Value = Trial> {
    let change = prop_oneof![
        (0_u32..4).prop_map(Change::Threads),
        Just(Change::Command("a\u{7}\nb".to_owned())),
        Just(Change::LargePages),
    ];
    let rules = ["number-of-threads", "far-from-the-roof", "page-faults", "\u{7}"];
    let rule = prop::option::of(prop::sample::select(rules.map(str::to_owned).to_vec()));
    let times = [float(), float(), float(), float(), float(), float()];
    (change, rule, phase(), times).prop_map(|(change, rule, phase, [a, b, low, high, c, d])| {
        Trial {
            measured: String::new(),
            rule,
            change,
            phase,
            time: PassTime::Typical,
            before_ns: a,
            after_ns: b,
            ratio: PairedRatio { pairs: 8, estimate: c, low, high, of_totals: d },
            predicted: Some([low, c, high]),
            verdict: TrialVerdict::Refuted,
            others_share: Some(c),
        }
    })
}

fn phase() -> impl Strategy<Value = Phase> {
    prop_oneof![Just(Phase::Prefill), Just(Phase::Decode)]
}

fn phase_total() -> impl Strategy<Value = PhaseTotal> {
    (phase(), [number(), number(), number(), number(), number(), number()]).prop_map(
        |(phase, [passes, disturbed, tokens, wall_ns, attributed_ns, unattributed_ns])| {
            PhaseTotal {
                phase,
                passes,
                disturbed,
                unwatched: Some(disturbed),
                tokens,
                wall_ns,
                attributed_ns,
                unattributed_ns,
            }
        },
    )
}

/// What JSON can hold: any finite number, and often one that could be a rate.
fn float() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => 1e-3_f64..1e15,
        1 => prop::sample::select(vec![0.0, -0.0, -1.0, 5e-324, 1.0, 9e29, f64::MIN, f64::MAX]),
        1 => any::<f64>().prop_map(|float| if float.is_finite() { float } else { 0.0 }),
    ]
}

fn total() -> impl Strategy<Value = Total> {
    let name = prop::sample::select(vec![("LmHead", true), ("moe", true), ("k\"\u{7}", false)]);
    let sums = prop::array::uniform8(number());
    (name, prop::option::of(phase()), sums, float(), prop::option::of(float())).prop_map(
        |((name, is_brick), phase, sums, squared_deviations, std_dev_ns)| {
            let [count, total_ns, exclusive_ns, min_ns, max_ns, elements, flops, bytes] = sums;
            Total {
                phase,
                kind: if is_brick { NameKind::Brick } else { NameKind::Kernel },
                category: None,
                source: Source::Host,
                host: None,
                device: None,
                stats: BrickStats {
                    count,
                    total_ns,
                    exclusive_ns,
                    min_ns,
                    max_ns,
                    squared_deviations,
                    total_elements: elements,
                    total_flops: flops,
                    total_bytes: bytes,
                    ..BrickStats::new(name)
                },
                std_dev_ns,
                percentiles: Default::default(),
                counters: None,
            }
        },
    )
}

fn ceilings() -> impl Strategy<Value = Ceilings> {
    let cache = (number(), float()).prop_map(|(bytes, read_bytes_per_second)| CacheCeiling {
        level: "L<".to_owned(),
        bytes,
        read_bytes_per_second,
    });
    let int8 = prop::option::of(float());
    let numbers = prop::option::of(prop::sample::select(vec![Numbers::F32, Numbers::Int8]));
    (float(), float(), int8, numbers, prop::collection::vec(cache, 0..3)).prop_map(
        |(read_bytes_per_second, flops_per_second, int8_ops_per_second, numbers, caches)| {
            Ceilings {
                read_bytes_per_second,
                flops_per_second,
                int8_ops_per_second,
                numbers,
                caches,
                ..Ceilings::default()
            }
        },
    )
}

fn grain() -> impl Strategy<Value = Grain> {
    prop::sample::select(Grain::ALL.to_vec())
}

fn stream() -> impl Strategy<Value = DeviceStream> {
    let grains = (phase(), grain(), [number(), number(), number(), number(), number()]).prop_map(
        |(phase, grain, [passes, marks, wall_ns, timed_ns, gaps_ns])| GrainTotal {
            phase,
            grain,
            passes,
            marks,
            wall_ns,
            timed_ns,
            gaps_ns,
        },
    );
    let layers = (phase(), prop::option::of(0_u16..3), [number(), number(), number(), number()])
        .prop_map(|(phase, layer, [count, total_ns, min_ns, max_ns])| LayerTotal {
            phase,
            layer,
            count,
            total_ns,
            min_ns,
            max_ns,
        });
    (
        prop::collection::vec(phase_total(), 0..3),
        prop::collection::vec(total(), 0..4),
        prop::collection::vec(grains, 0..3),
        prop::collection::vec(layers, 0..3),
        prop::collection::vec(pass(), 0..3),
        prop::collection::vec(span(), 0..8),
        prop::collection::btree_map(index(), (number(), 0..3_usize), 0..4),
    )
        .prop_map(|(phases, totals, grains, layers, passes, spans, launches)| DeviceStream {
            name: "s\n".to_owned(),
            dropped: Dropped::default(),
            phases,
            totals,
            latency: Latency::default(),
            grains,
            layers,
            passes,
            spans,
            launches: launches
                .into_iter()
                .map(|(span, (issued_ns, kind))| Launch {
                    span,
                    issued_ns,
                    kind: [LaunchKind::Issued, LaunchKind::Recorded, LaunchKind::Replayed][kind],
                })
                .collect(),
        })
}

fn device() -> impl Strategy<Value = DeviceProfile> {
    let alignment = || {
        let numbers = [number(), number(), number()];
        prop::option::of(numbers.prop_map(|[host_ns, device_ticks, error_ns]| Alignment {
            host_ns,
            device_ticks,
            error_ns,
        }))
    };
    let stamp = (float(), float(), index(), prop::option::of(float()));
    let stamp = stamp.prop_map(|(host_ns, device_ns, marks, pass_ns)| StampCost {
        host_ns,
        device_ns,
        marks,
        pass_ns,
    });
    let ticks = (float(), prop::option::of(float()), index()).prop_map(
        |(ns_per_tick, resolution_ns, valid_bits)| Ticks { ns_per_tick, resolution_ns, valid_bits },
    );
    let choice = (phase(), grain(), number()).prop_map(|(phase, grain, changes)| GrainChoice {
        phase,
        grain,
        reason: "\u{7}".to_owned(),
        changes,
    });
    let dependency = (point(), point()).prop_map(|(from, to)| Dependency { from, to });
    (
        (ticks, alignment(), alignment(), prop::option::of(stamp), prop::option::of(float())),
        prop::collection::vec(choice, 0..3),
        prop::array::uniform7(number()),
        prop::collection::vec(stream(), 0..4),
        prop::collection::vec(dependency, 0..5),
        prop::option::of(ceilings()),
    )
        .prop_map(
            |(
                (ticks, first, last, stamp, budget),
                grains,
                numbers,
                streams,
                dependencies,
                ceilings,
            )| {
                let [a, b, c, d, e, f, g] = numbers;
                DeviceProfile {
                    name: "d\n".to_owned(),
                    rank: None,
                    api: String::new(),
                    driver: String::new(),
                    ticks,
                    alignment: first,
                    last_alignment: last,
                    alignments: a,
                    ceilings,
                    ceilings_absent: None,
                    stamp,
                    stamp_absent: None,
                    budget,
                    grains,
                    unsettled_passes: b,
                    lost_passes: c,
                    disordered_passes: d,
                    abandoned_passes: e,
                    overfull_passes: f,
                    unmarked_passes: f,
                    includes_waits: a % 2 == 1,
                    lost: None,
                    failure: Some("\n".to_owned()),
                    streams,
                    dependencies,
                    dropped_dependencies: g,
                }
            },
        )
}

/// A model whose weights are known, perhaps of a file of llama-bench.
fn model() -> impl Strategy<Value = Model> {
    let name = prop::sample::select(vec!["ffn_gate", "ffn_up", "token_embd", "output", "k\"\u{7}"]);
    let format = prop::sample::select(vec!["q8_0", "f32", "\n"]);
    let group = (name, format, any::<bool>(), [number(), number(), number()]).prop_map(
        |(name, format, is_matrix, [tensors, parameters, bytes])| WeightGroup {
            name: name.to_owned(),
            format: format.to_owned(),
            is_matrix,
            tensors,
            parameters,
            bytes,
        },
    );
    (prop::collection::vec(group, 0..5), number(), number()).prop_map(
        |(weights, file_bytes, parameters)| Model {
            weights,
            file_bytes,
            parameters,
            ..Model::default()
        },
    )
}

fn shares() -> impl Strategy<Value = Vec<ThreadShare>> {
    let brick = prop::sample::select(vec!["LmHead", "k\"\u{7}"]);
    let share = (0_u32..3, phase(), brick, [number(), number(), number()]).prop_map(
        |(thread, phase, brick, [count, worked_ns, waited_ns])| ThreadShare {
            thread,
            phase,
            brick: brick.to_owned(),
            share: Share { count, worked_ns, waited_ns },
        },
    );
    prop::collection::vec(share, 0..6)
}

fn experts() -> impl Strategy<Value = Vec<LayerExperts>> {
    let runs = (index(), [number(), number(), number(), number()]).prop_map(
        |(expert, [tokens, passes, reads, bytes])| ExpertRuns {
            expert,
            tokens,
            passes,
            reads,
            bytes,
        },
    );
    let times = (index(), [number(), number(), number()])
        .prop_map(|(expert, [ns, kernels, passes])| ExpertTime { expert, ns, kernels, passes });
    let counts = [number(), number(), number(), number(), number()];
    let layer = (
        (phase(), prop::option::of(any::<u16>())),
        [prop::option::of(index()), prop::option::of(index())],
        counts,
        prop::collection::vec(runs, 0..4),
        (prop::collection::vec(times, 0..4), number()),
    );
    let layer = layer.prop_map(
        |((phase, layer), [n_expert, n_used], counts, experts, (times, timed_passes))| {
            let [passes, reads, tokens, odd, unread] = counts;
            let reason = "a\n\u{7}".to_owned();
            let unread_absent = (unread > 3).then_some(brickscope::Absent { reason });
            LayerExperts {
                phase,
                layer,
                n_expert,
                n_used,
                passes,
                reads,
                tokens,
                experts,
                times,
                timed_passes,
                odd,
                unread,
                unread_absent,
            }
        },
    );
    prop::collection::vec(layer, 0..4)
}

fn imported() -> impl Strategy<Value = Imported> {
    let other = (phase(), index(), number(), prop::collection::vec(number(), 0..4));
    let other = other.prop_map(|(phase, threads, tokens, samples_ns)| OtherThreads {
        phase,
        threads,
        tokens,
        samples_ns,
    });
    let format = prop::sample::select(vec!["llama-bench", "chrome", "brickscope.py"]);
    (format, prop::collection::vec(other, 0..4)).prop_map(|(format, other_threads)| Imported {
        format: format.to_owned(),
        other_threads,
        ..Imported::default()
    })
}

fn profile() -> impl Strategy<Value = Profile> {
    let dependency = (point(), point()).prop_map(|(from, to)| Dependency { from, to });
    (
        prop::collection::vec(span(), 0..20),
        prop::collection::vec(pass(), 0..3),
        prop::collection::vec(dependency, 0..8),
        prop::collection::vec(phase_total(), 0..3),
        prop::collection::vec(total(), 0..6),
        prop::option::of(ceilings()),
        prop::collection::vec(device(), 0..2),
        (
            prop::option::of(model()),
            shares(),
            prop::option::of(imported()),
            prop::collection::vec(trial(), 0..4),
            experts(),
        ),
    )
        .prop_map(
            |(spans, passes, dependencies, phases, totals, ceilings, devices, others)| {
                let mut profile = Profile::empty(Default::default());
                let launch = HostLaunch { shape: "1\n2".to_owned(), threads: 2 };
                profile.names =
                    [("LmHead", NameKind::Brick, None), ("k\"\u{7}", NameKind::Kernel, None)]
                        .into_iter()
                        .chain([
                            ("moe", NameKind::Brick, None),
                            ("", NameKind::Kernel, Some(launch)),
                        ])
                        .map(|(name, kind, host)| Name {
                            name: name.to_owned(),
                            kind,
                            category: None,
                            host,
                            device: None,
                            transfer: (name == "moe").then(|| Route {
                                src: "\n".to_owned(),
                                dst: String::new(),
                                direction: TransferDirection::H2D,
                            }),
                        })
                        .collect();
                profile.lanes = vec![Lane { name: None, tid: None }; 4];
                profile.spans = spans;
                profile.passes = passes;
                profile.dependencies = dependencies;
                profile.phases = phases;
                profile.totals = totals;
                profile.ceilings = ceilings;
                profile.devices = devices;
                (
                    profile.model,
                    profile.shares,
                    profile.imported,
                    profile.trials,
                    profile.experts,
                ) = others;
                profile.run = Some(Run { backend: "CPU".to_owned(), threads: 2, ..Run::default() });
                profile.ptx.register("k\"\u{7}", "// PTX", Some("\n".as_ref()));
                // A graph as it would be recorded by hand, of nodes with these numbers.
                profile.graph = profile.execution_graph(1);
                profile
            },
        )
}

proptest! {
    #[test]
    fn no_numbers_make_a_view_panic(profile in profile()) {
        // As it would come from a file.
        let profile = Profile::from_json(&profile.to_json(), "x".as_ref()).expect("it was written");
        let _ = profile.check();
        let _ = profile.without_disturbed();
        for (index, device) in profile.devices.iter().enumerate() {
            let _ = (device.drift(), device.clock_error_ns(), device.untimed_passes());
            let _ = (device.busy(None), device.busy_by_pass(Some(Phase::Decode)));
            let streams = (0..device.streams.len()).map(|stream| profile.on_device(index, stream));
            for of_device in streams.chain([profile.whole_device(index)]).flatten() {
                prop_assert!(!view::report(&of_device).is_empty());
                let _ = (of_device.check(), view::statistics(&of_device), view::json(&of_device));
                for serial in [1, 2] {
                    let Some(graph) = of_device.execution_graph(serial) else { continue };
                    let _ = (graph.to_ascii_tree(), graph.to_dot(), graph.ping_pong_findings());
                    let _ = view::critical_path(&graph, &[]);
                }
            }
        }
        prop_assert!(!view::report(&profile).is_empty());
        for columns in [0, 66, 80, 120, 200] {
            let size = view::Size { columns, rows: 24 };
            let text = view::summary(&profile, size, Some("RUN")).to_string();
            prop_assert!(text.contains("Next: "));
        }
        let findings = Findings::of(&profile);
        for finding in &findings.found {
            prop_assert!(!finding.what.is_empty() && !finding.advice.is_empty(), "{:?}", finding);
            prop_assert!(!finding.refuted_if.is_empty(), "{:?}", finding);
            prop_assert!(finding.gain.is_some() != finding.gain_absent.is_some(), "{:?}", finding);
            if let Some(gain) = finding.gain {
                let most = gain.now_ns - gain.least_ns;
                prop_assert!(most >= 0.0 && gain.highest_ns <= most, "{:?}", gain);
                prop_assert!(0.0 <= gain.lowest_ns && gain.lowest_ns <= gain.highest_ns, "{:?}", gain);
                let likely = gain.likely_ns.unwrap_or(gain.lowest_ns);
                prop_assert!((gain.lowest_ns..=gain.highest_ns).contains(&likely), "{:?}", gain);
            }
        }
        let _ = view::findings(&profile, Some("RUN"));
        let _ = view::trials(&profile.trials);
        let _ = view::trials(&profile.trials[..profile.trials.len().min(1)]);
        for word in ["RmsNorm", "far-from-the-roof", "stalls", "pass", "roof", "disturbed", "overhead"] {
            for page in explain::find(word) {
                let said = [page.in_run(&profile)];
                let text = view::explain(&[page], Some(("RUN", &said)));
                assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
            }
        }
        let _ = view::statistics(&profile);
        let _ = view::kernels(&profile);
        prop_assert!(!view::json(&profile).is_empty());
        prop_assert!(!view::roofline(&profile).is_empty());
        let svg = view::roofline_svg(&profile);
        prop_assert!(!svg.contains("inf\"") && !svg.contains("NaN"), "{}", svg);
        let options = [Dialect::Prometheus, Dialect::OpenMetrics]
            .map(|dialect| prometheus::Options { names: Names::Both, dialect });
        for options in options {
            let mut out = Vec::new();
            prop_assert!(prometheus::write_with(&profile, options, &mut out).is_ok());
            let out = String::from_utf8(out).expect("text");
            let mut series: Vec<&str> =
                out.lines().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
            let n_series = series.len();
            series.sort_unstable();
            series.dedup();
            prop_assert_eq!(series.len(), n_series, "a series is there twice");
        }
        {
            let mut out = Vec::new();
            prop_assert!(otlp::write(&profile, &mut out).is_ok());
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok());
            let origin = otlp::Origin::of(&profile);
            let stacks = Stacks::of_spans(&profile, By::Layer, 0);
            let sent = otlp::metrics(&profile, &origin);
            prop_assert!(!sent.is_empty());
            for request in sent.iter().chain(&otlp::profiles(&profile, &stacks, &origin)) {
                prop_assert!(request.items > 0 && !request.body.is_empty());
            }
        }
        for by in [By::Layer, By::Brick, By::Thread] {
            let stacks = Stacks::of_spans(&profile, by, 3);
            let _ = (stacks.by_class(), stacks.inclusive(Level::Brick), stacks.block_totals());
            let mut out = Vec::new();
            prop_assert_eq!(folded::write(&stacks, &mut out).is_err(), stacks.is_empty());
            prop_assert!(speedscope::write(&stacks, "x", &mut out).is_ok());
        }
        for serial in [1, 2] {
            let Some(graph) = profile.execution_graph(serial) else { continue };
            prop_assert!(graph.num_nodes() > 0);
            let _ = graph.to_ascii_tree();
            for (depth, layer, fold) in [(None, None, true), (Some(1), Some(1), false)] {
                let _ = graph.to_tree(&TreeOptions { depth, layer, min_share: Some(0.5), fold });
            }
            let _ = graph.to_dot();
            for (layer, fold) in [(None, true), (Some(1), false)] {
                let _ = graph.to_dot_with(&DotOptions { fold, layer });
            }
            let _ = graph.critical_path_summary();
            let _ = graph.roofline_distance(1.0, 1.0);
            let _ = graph.ping_pong_findings();
            let _ = view::critical_path(&graph, &[("LmHead".to_owned(), 1e30)]);
        }
    }
}
