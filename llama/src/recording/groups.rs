//! Which passes belong together: those of one model in one context, or in contexts that followed each other and were set up
//! alike. Each group has figures of its own.

use std::collections::{BTreeMap, HashMap};

use super::events::{Context, Model as Told, Recorded};
use crate::Node;
use brickscope::{Engine, Model};

use super::part::Id;
use super::passes::{Found, Passes};

/// What tells a pass from those of others.
pub(crate) fn id_of(recorded: &Recorded, found: &Found<'_>) -> Id {
    match found.pass.context {
        Some(context) => Id::Context(context),
        None if found.pass.is_graph => Id::Graphs(library_of(recorded, found)),
        None => Id::Calls(library_of(recorded, found)),
    }
}

/// Passes that belong together.
#[derive(Debug, Default)]
pub struct Group {
    ids: Vec<Id>,
    /// The context, as it was at its first pass; of several that followed each other, the largest one.
    pub context: Option<Context>,
    /// How the engine was set up.
    pub engine: Engine,
    /// The most tokens of a call and of a pass.
    batches: [Limit; 2],
    /// The most tokens that were in its cache.
    filled: u32,
    passes: u64,
    /// The tokens that were computed.
    tokens: u64,
    /// How long its passes took, in counts.
    took: u64,
    from: u64,
    to: u64,
}

/// The groups of a recording, those first that computed most: the times of one run put them in another order than those of
/// the next. Where nothing tells that of each, those whose passes took longest.
#[must_use]
pub fn groups(recorded: &Recorded) -> Vec<Group> {
    let mut all: BTreeMap<Id, Group> = BTreeMap::new();
    let mut caches: HashMap<u32, Cache> = HashMap::new();
    for found in Passes::of(recorded) {
        let id = id_of(recorded, &found);
        let begin = found.pass.begin;
        let group = all.entry(id).or_insert_with(|| Group {
            ids: vec![id],
            from: begin,
            ..Group::default()
        });
        group.passes += 1;
        group.tokens = group.tokens.saturating_add(found.pass.tokens.unwrap_or(0));
        group.took = group.took.saturating_add(found.pass.end.saturating_sub(begin));
        let filled =
            found.pass.sequences.iter().map(|[_, after]| *after).fold(0, u32::saturating_add);
        group.filled = group.filled.max(filled);
        (group.from, group.to) = (group.from.min(begin), group.to.max(found.pass.end));
        if let Some(library) = library_of(recorded, &found).and_then(|n| recorded.libraries.get(&n))
        {
            group.engine.library = base_name(&library.file);
            group.engine.version = library.version.clone();
            group.engine.commit = library.commit.clone();
        }
        for graph in &found.graphs {
            let nodes = recorded.graphs.get(&graph.number).map_or(&[][..], Vec::as_slice);
            let cache = caches.entry(graph.number).or_insert_with(|| Cache::of(nodes));
            cache.add_to(&mut group.engine);
        }
    }
    // Where only some passes are there, the sums are of all.
    for (id, of) in recorded.part.iter().flat_map(|part| &part.of) {
        if let Some(group) = all.get_mut(id) {
            (group.passes, group.tokens) = (0, 0);
            for phase in &of.sums.phases {
                group.passes = group.passes.saturating_add(phase.passes);
                group.tokens = group.tokens.saturating_add(phase.tokens);
            }
        }
    }
    for (id, group) in &mut all {
        let context = match id {
            Id::Context(number) => recorded.contexts.get(number),
            Id::Calls(_) | Id::Graphs(_) => None,
        };
        if let Some(context) = context {
            group.engine.context_tokens = context.n_ctx.map(u64::from);
            group.engine.batch_tokens = context.n_batch.map(u64::from);
            group.engine.micro_batch_tokens = context.n_ubatch.map(u64::from);
            group.engine.sequences = context.n_seq_max.map(u64::from);
            group.engine.threads = context.threads;
            group.engine.threads_batch = context.threads_batch;
            group.batches = batches_of(context, group.filled);
            group.context = Some(context.clone());
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut by_begin: Vec<Group> = all.into_values().collect();
    by_begin.sort_by_key(|group| group.from);
    for group in by_begin {
        let alike = groups.iter_mut().filter(|before| before.goes_on_as(&group));
        match alike.max_by_key(|before| before.to) {
            Some(before) => before.merge(group),
            None => groups.push(group),
        }
    }
    let is_known = groups.iter().all(|group| group.work() > 0);
    groups.sort_by_key(|group| {
        std::cmp::Reverse((if is_known { group.work() } else { 0 }, group.took))
    });
    // Passes of which nothing is known, and of old recordings: nothing tells them from the others.
    if let Some(at) = groups.iter().position(|group| group.ids == [Id::Calls(None)])
        && groups.len() > 1
    {
        let unknown = groups.remove(at);
        groups[0].merge(unknown);
    }
    groups
}

impl Group {
    /// The products of weights and tokens, if llama.cpp told how many weights there are.
    fn work(&self) -> u128 {
        let model = self.context.as_ref().and_then(|of| of.model.as_ref());
        let weights = model.and_then(|model| model.parameters).unwrap_or(0);
        u128::from(weights) * u128::from(self.tokens)
    }

    /// Whether a pass is of it.
    pub(crate) fn has(&self, recorded: &Recorded, found: &Found<'_>) -> bool {
        self.ids.contains(&id_of(recorded, found))
    }

    /// What its passes are told apart by.
    pub(crate) fn ids(&self) -> &[Id] {
        &self.ids
    }

    /// The numbers of the graphs of its passes, in the order in which they were computed.
    pub fn graphs(&self, recorded: &Recorded) -> impl Iterator<Item = u32> {
        let of_group = Passes::of(recorded).filter(|found| self.has(recorded, found));
        of_group.flat_map(|found| found.graphs).map(|graph| graph.number)
    }

    /// Whether another one is of the same kind, and began when this one had ended: a program that makes a context for each
    /// of its tests.
    fn goes_on_as(&self, next: &Self) -> bool {
        let (Some(this), Some(other)) = (&self.context, &next.context) else { return false };
        let of_kind = |engine: &Engine| Engine {
            context_tokens: None,
            batch_tokens: None,
            micro_batch_tokens: None,
            ..engine.clone()
        };
        // It may have been loaded anew, to another place.
        let model = |of: &Context| of.model.clone().map(|model| Told { at: 0, ..model });
        self.to <= next.from
            && model(this) == model(other)
            && this.pooling == other.pooling
            && of_kind(&self.engine) == of_kind(&next.engine)
            && self.batches.iter().zip(&next.batches).all(|(this, next)| this.suits(*next))
    }

    fn merge(&mut self, other: Self) {
        self.ids.extend(&other.ids);
        self.passes += other.passes;
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.filled = self.filled.max(other.filled);
        self.took = self.took.saturating_add(other.took);
        (self.from, self.to) = (self.from.min(other.from), self.to.max(other.to));
        let (these, others) = (&mut self.engine, &other.engine);
        for (this, other) in [
            (&mut these.context_tokens, others.context_tokens),
            (&mut these.batch_tokens, others.batch_tokens),
            (&mut these.micro_batch_tokens, others.micro_batch_tokens),
        ] {
            *this = (*this).max(other);
        }
        for (this, other) in self.batches.iter_mut().zip(other.batches) {
            *this = this.narrowed(other);
        }
    }

    /// The model, as far as llama.cpp told, where its file isn't known.
    #[must_use]
    pub fn model(&self) -> Option<Model> {
        let of = self.context.as_ref()?.model.as_ref()?;
        Some(Model {
            name: of.name.clone().or_else(|| of.kind.clone()),
            architecture: of.architecture.clone().unwrap_or_default(),
            parameters: of.parameters.unwrap_or(0),
            ..Model::default()
        })
    }

    /// What it is called among the others: the model, and what else tells it apart.
    #[must_use]
    pub fn name(&self, others: &[Self], file: Option<&str>) -> String {
        let model = self.context.as_ref().and_then(|of| of.model.as_ref());
        let mut name = match (file, model) {
            (Some(file), _) => file.to_owned(),
            (None, Some(model)) => {
                let text = model.name.clone().or_else(|| model.kind.clone());
                text.unwrap_or_else(|| "a model".to_owned())
            }
            (None, None) => self.engine.library.clone().unwrap_or_else(|| "graphs".to_owned()),
        };
        for (text, differs) in self.engine.settings().into_iter().map(|(what, value)| {
            let is_other = |of: &Self| {
                of.context.as_ref().and_then(|of| of.model.as_ref()) == model
                    && of.engine.settings().iter().any(|(w, v)| *w == what && *v != value)
            };
            (format!("{what} {value}"), others.iter().any(is_other))
        }) {
            // It may be called that already.
            if differs && !name.ends_with(text.trim_start_matches("library ")) {
                name += &format!(", {text}");
            }
        }
        name
    }
}

/// The most tokens of something: as many as were asked for, or, where the context has no room for more, so many at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Exact(u32),
    AtLeast(u32),
}

impl Default for Limit {
    fn default() -> Self {
        Self::AtLeast(0)
    }
}

impl Limit {
    /// Whether both may have been asked for as the same.
    fn suits(self, other: Self) -> bool {
        match (self, other) {
            (Self::Exact(this), Self::Exact(other)) => this == other,
            (Self::Exact(exact), Self::AtLeast(least))
            | (Self::AtLeast(least), Self::Exact(exact)) => exact >= least,
            (Self::AtLeast(_), Self::AtLeast(_)) => true,
        }
    }

    /// What both say, if they suit each other.
    fn narrowed(self, other: Self) -> Self {
        match (self, other) {
            (Self::Exact(exact), _) | (_, Self::Exact(exact)) => Self::Exact(exact),
            (Self::AtLeast(this), Self::AtLeast(other)) => Self::AtLeast(this.max(other)),
        }
    }
}

/// llama.cpp makes a batch no larger than the context, which it then rounds up to a multiple of 256, and a micro-batch no
/// larger than the batch: such a limit says what fits, and not what was asked for.
fn batches_of(context: &Context, filled: u32) -> [Limit; 2] {
    const MULTIPLE: u32 = 256;
    let Context { n_ctx: Some(n_ctx), n_batch: Some(n_batch), n_ubatch, .. } = *context else {
        let exact = |of: Option<u32>| of.map_or(Limit::default(), Limit::Exact);
        return [exact(context.n_batch), exact(context.n_ubatch)];
    };
    // With more tokens in its cache than that, it isn't the context that made it smaller.
    let is_whole = n_batch.next_multiple_of(MULTIPLE) >= n_ctx && filled <= n_batch;
    let batch = if is_whole { Limit::AtLeast(n_batch) } else { Limit::Exact(n_batch) };
    let micro = match n_ubatch {
        Some(n_ubatch) if n_ubatch < n_batch => Limit::Exact(n_ubatch),
        Some(n_ubatch) => Limit::AtLeast(n_ubatch),
        None => Limit::default(),
    };
    [batch, micro]
}

/// What the nodes of a graph tell of the cache.
#[derive(Debug, Default)]
struct Cache {
    keys: Option<String>,
    values: Option<String>,
    is_flash: bool,
}

impl Cache {
    fn of(nodes: &[Node]) -> Self {
        let mut cache = Self::default();
        for node in nodes {
            let is_flash = node.op == "FLASH_ATTN_EXT";
            cache.is_flash |= is_flash;
            if !is_flash && !node.op.starts_with("MUL_MAT") {
                continue;
            }
            for src in &node.src {
                if src.name.starts_with("cache_k_l") {
                    cache.keys = Some(src.kind.clone());
                } else if src.name.starts_with("cache_v_l") {
                    cache.values = Some(src.kind.clone());
                }
            }
        }
        cache
    }

    fn add_to(&self, engine: &mut Engine) {
        if let Some(keys) = &self.keys {
            engine.cache_keys = Some(keys.clone());
            engine.flash_attention = Some(self.is_flash);
        }
        if let Some(values) = &self.values {
            engine.cache_values = Some(values.clone());
        }
    }
}

fn base_name(file: &str) -> Option<String> {
    file.rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// The copy of ggml that computed a pass, where it is known.
fn library_of(recorded: &Recorded, found: &Found<'_>) -> Option<u32> {
    found.graphs.iter().find_map(|graph| recorded.copies.get(&graph.number)).copied()
}

#[cfg(test)]
mod tests {
    use super::super::events::{Event, Graph, Library, Pass};
    use crate::Tensor;

    use super::*;

    fn context(model: u64, [n_ctx, n_batch, n_ubatch]: [u32; 3]) -> Context {
        let of = Told {
            at: model,
            parameters: Some(model),
            name: Some(format!("model {model}")),
            architecture: Some("llama".to_owned()),
            ..Told::default()
        };
        Context {
            n_ctx: Some(n_ctx),
            n_batch: Some(n_batch),
            n_ubatch: Some(n_ubatch),
            threads: Some(2),
            model: Some(of),
            ..Context::default()
        }
    }

    /// Passes of contexts, one after another, each as long as its number.
    fn recorded(contexts: &[Context], passes: &[u16]) -> Recorded {
        let mut recorded = Recorded {
            contexts: (1..).zip(contexts.iter().cloned()).collect(),
            ..Recorded::default()
        };
        for (nth, &context) in (1_u64..).zip(passes) {
            let begin = 1000 * nth;
            recorded.events.push(Event::Pass(Pass {
                begin,
                end: begin + u64::from(context),
                context: Some(context).filter(|&context| context > 0),
                is_decode: true,
                ..Pass::default()
            }));
        }
        recorded
    }

    fn passes_of(recorded: &Recorded) -> Vec<(u64, Vec<Id>)> {
        groups(recorded).into_iter().map(|group| (group.passes, group.ids)).collect()
    }

    #[test]
    fn a_draft_model_and_its_target_are_groups_with_the_models_names() {
        let all = [context(70, [4096, 2048, 512]), context(1, [4096, 2048, 512])];
        let recorded = recorded(&all, &[1, 2, 2, 1, 2, 1]);
        let groups = groups(&recorded);
        let names: Vec<String> = groups.iter().map(|of| of.name(&groups, None)).collect();
        assert_eq!(names, ["model 1", "model 70"], "that which took longer is the first one");
        assert_eq!(groups[0].name(&groups, Some("draft.gguf")), "draft.gguf");
        assert_eq!(groups[1].model().and_then(|of| of.name).as_deref(), Some("model 70"));
        let found: Vec<Found<'_>> = Passes::of(&recorded).collect();
        let of_first = found.iter().filter(|found| groups[0].has(&recorded, found)).count();
        assert_eq!((of_first, groups[0].passes, groups[1].passes), (3, 3, 3));
    }

    /// The draft took longer in this run.
    #[test]
    fn that_which_computed_most_is_the_first_one_whatever_it_took() {
        let all = [context(70, [4096, 2048, 512]), context(1, [4096, 2048, 512])];
        let mut recorded = recorded(&all, &[1, 2, 2, 1, 2, 1]);
        for event in &mut recorded.events {
            if let Event::Pass(pass) = event {
                pass.tokens = Some(if pass.context == Some(1) { 2 } else { 9 });
            }
        }
        let names = |recorded: &Recorded| -> Vec<String> {
            let groups = groups(recorded);
            groups.iter().map(|of| of.name(&groups, None)).collect()
        };
        assert_eq!(names(&recorded), ["model 70", "model 1"]);
        // Of which the work of one isn't known go by time, all of them.
        if let Event::Pass(pass) = &mut recorded.events[0] {
            pass.context = None;
            pass.is_graph = true;
            (pass.begin, pass.end) = (10, 900);
        }
        assert_eq!(names(&recorded)[1..], ["model 1", "model 70"]);
    }

    /// `llama-bench` makes one for each test, whose batch is no larger than it.
    #[test]
    fn contexts_that_follow_each_other_are_one_group_where_they_are_set_up_alike() {
        let all = [
            context(7, [256, 128, 128]),
            context(7, [256, 32, 32]),
            context(7, [1024, 1024, 512]),
            context(7, [4096, 2048, 64]),
        ];
        let sizes = |passes: &[u16]| -> Vec<(u64, Vec<Id>)> { passes_of(&recorded(&all, passes)) };
        let ids = |of: &[u16]| of.iter().map(|&n| Id::Context(n)).collect::<Vec<_>>();
        assert_eq!(sizes(&[1, 1, 2, 3]), [(4, ids(&[1, 2, 3]))]);
        // A smaller micro-batch is another test.
        assert_eq!(sizes(&[3, 4]), [(1, ids(&[4])), (1, ids(&[3]))]);
        // As `llama-bench -p 256 -n 32 -ub 16,256` and `-p 128 -b 32,128` make them: what fits is no more than was asked for.
        let of_tests = |all: [[u32; 3]; 4]| -> Vec<Vec<Id>> {
            let all = all.map(|of| context(7, of));
            passes_of(&recorded(&all, &[1, 2, 3, 4])).into_iter().map(|(_, ids)| ids).collect()
        };
        let tests = of_tests([[256, 256, 16], [256, 32, 16], [256, 256, 256], [256, 32, 32]]);
        assert_eq!(tests, [ids(&[3, 4]), ids(&[1, 2])]);
        // The first is filled with more tokens than a call of it has, so that many were asked for.
        let mut small = recorded(
            &[[256, 32, 32], [256, 32, 32], [256, 128, 128]].map(|of| context(7, of)),
            &[1, 2, 3, 3],
        );
        if let Event::Pass(first) = &mut small.events[0] {
            first.sequences = vec![[96, 128]];
        }
        let found: Vec<Vec<Id>> = passes_of(&small).into_iter().map(|(_, ids)| ids).collect();
        assert_eq!(found, [ids(&[3]), ids(&[1, 2])]);
        // Two that are there at once are two.
        assert_eq!(sizes(&[1, 2, 1, 2]), [(2, ids(&[2])), (2, ids(&[1]))]);
        let mut others = all.clone();
        others[1].threads = Some(1);
        assert_eq!(passes_of(&recorded(&others, &[1, 2])).len(), 2);
        let groups = groups(&recorded(&others, &[1, 2]));
        assert_eq!(groups[0].name(&groups, None), "model 7, -b 32, -ub 32, -t 1");
    }

    #[test]
    fn passes_of_which_nothing_is_known_are_of_the_longest_group() {
        let all = [context(7, [256, 128, 128])];
        assert_eq!(
            passes_of(&recorded(&all, &[1, 0, 1])),
            [(3, vec![Id::Context(1), Id::Calls(None)])]
        );
        assert_eq!(passes_of(&recorded(&[], &[0, 0])), [(2, vec![Id::Calls(None)])]);
    }

    #[test]
    fn what_the_cache_keeps_and_how_attention_is_computed_is_seen_in_the_graphs() {
        let tensor = |name: &str, kind: &str| Tensor {
            name: name.to_owned(),
            kind: kind.to_owned(),
            ..Tensor::default()
        };
        let node = |op: &str, src: Vec<Tensor>| Node {
            op: op.to_owned(),
            out: tensor("node_1", "f32"),
            src,
            then: None,
        };
        let [keys, values] =
            [tensor("cache_k_l0 (view)", "q8_0"), tensor("cache_v_l0 (view)", "f16")];
        let apart = vec![
            node("MUL_MAT", vec![keys.clone(), tensor("q", "f32")]),
            node("MUL_MAT", vec![values.clone(), tensor("kq", "f32")]),
        ];
        let flash = vec![node("FLASH_ATTN_EXT", vec![tensor("q", "f32"), keys, values])];
        for (nodes, is_flash) in [(apart, false), (flash, true)] {
            let mut recorded = recorded(&[context(7, [256, 128, 128])], &[1]);
            recorded.graphs.insert(3, nodes);
            recorded.copies.insert(3, 0);
            let file = "/usr/lib/libggml-cpu-zen4.so".to_owned();
            recorded.libraries.insert(0, Library { file, ..Library::default() });
            recorded.events.insert(
                0,
                Event::Graph(Graph {
                    number: 3,
                    threads: 2,
                    of_thread: 0,
                    begin: 1000,
                    end: 1001,
                    nodes: Vec::new(),
                    ends: Vec::new(),
                    shares: Vec::new(),
                    sequences: Vec::new(),
                    experts: Vec::new(),
                    chosen: Vec::new(),
                }),
            );
            let engine = groups(&recorded).remove(0).engine;
            let settings: Vec<String> =
                engine.settings().iter().map(|(name, value)| format!("{name} {value}")).collect();
            let fa = if is_flash { "-fa on" } else { "-fa off" };
            assert_eq!(
                settings,
                [
                    "library libggml-cpu-zen4.so",
                    "context 256",
                    "-b 128",
                    "-ub 128",
                    "-t 2",
                    "-ctk q8_0",
                    "-ctv f16",
                    fa
                ]
            );
        }
    }
}
