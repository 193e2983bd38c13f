//! The tables of a lake: their columns, with types and meanings, and rows of them.

use serde::Serialize;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnKind {
    /// UTF-8 text.
    Text,
    /// A whole number of 64 bits, signed, as all SQL engines have it.
    Int,
    /// A number of double precision.
    Real,
    /// True or false.
    Flag,
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: ColumnKind,
    /// Whether it may be `NULL`: unknown, or not applicable.
    pub is_optional: bool,
    /// What it holds, with its unit.
    pub meaning: &'static str,
}

/// A table of a lake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Its name, which is that of its folder, too.
    pub name: &'static str,
    /// What a row is.
    pub meaning: &'static str,
    /// Its columns, in their order.
    pub columns: &'static [Column],
}

impl Table {
    /// The place of a column; `None` if there is none of this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

/// A cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Unknown, or not applicable.
    Null,
    /// Text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// A number.
    Real(f64),
    /// True or false.
    Flag(bool),
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    /// No measurement reaches 2^63: nanoseconds would be 292 years.
    fn from(number: u64) -> Self {
        Self::Int(number.try_into().unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    /// Numbers that aren't finite are unknown.
    fn from(number: f64) -> Self {
        if number.is_finite() { Self::Real(number) } else { Self::Null }
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The types of fields of rows, as columns.
pub(super) trait Field {
    const KIND: ColumnKind;
    const IS_OPTIONAL: bool = false;
}

impl Field for String {
    const KIND: ColumnKind = ColumnKind::Text;
}

impl Field for u64 {
    const KIND: ColumnKind = ColumnKind::Int;
}

impl Field for bool {
    const KIND: ColumnKind = ColumnKind::Flag;
}

impl Field for Option<f64> {
    const KIND: ColumnKind = ColumnKind::Real;
    const IS_OPTIONAL: bool = true;
}

macro_rules! optional {
    ($($of:ty),*) => {
        $(impl Field for Option<$of> {
            const KIND: ColumnKind = <$of as Field>::KIND;
            const IS_OPTIONAL: bool = true;
        })*
    };
}
optional!(String, u64, bool);

/// What all rows of a run have in common.
pub(super) struct Of {
    pub(super) run_id: String,
    pub(super) part: String,
    pub(super) machine: String,
}

/// Makes a row's type, its table, and the row's cells. Each table begins with the columns of [`Of`].
macro_rules! table {
    (
        #[doc = $row_meaning:literal]
        $table:ident = $row:ident as $name:literal {
            $(#[doc = $meaning:literal] $field:ident: $of:ty,)*
        }
    ) => {
        #[doc = $row_meaning]
        #[derive(Debug, Clone, PartialEq, Default)]
        pub(super) struct $row {
            $(#[doc = $meaning] pub(super) $field: $of,)*
        }

        #[doc = concat!("The table `", $name, "`:", $row_meaning)]
        pub const $table: Table = Table {
            name: $name,
            meaning: $row_meaning,
            columns: &[
                Column {
                    name: "run_id",
                    kind: ColumnKind::Text,
                    is_optional: false,
                    meaning: " The run: 32 hexadecimal digits that two runs never share.",
                },
                Column {
                    name: "part",
                    kind: ColumnKind::Text,
                    is_optional: false,
                    meaning: " The part of the lake that the row is in: `0`, the machine and the run; or `1` and the name of a \
                        file with many runs. Of a run's parts, the last one as a text counts.",
                },
                Column {
                    name: "machine_name",
                    kind: ColumnKind::Text,
                    is_optional: false,
                    meaning: " The machine's name in the lake.",
                },
                $(Column {
                    name: stringify!($field),
                    kind: <$of as Field>::KIND,
                    is_optional: <$of as Field>::IS_OPTIONAL,
                    meaning: $meaning,
                },)*
            ],
        };

        impl $row {
            pub(super) fn cells(self, of: &Of) -> Vec<Value> {
                vec![
                    Value::Text(of.run_id.clone()),
                    Value::Text(of.part.clone()),
                    Value::Text(of.machine.clone()),
                    $(self.$field.into(),)*
                ]
            }
        }
    };
}

table! {
    /// A run.
    RUNS = RunRow as "runs" {
        /// When it was made, RFC 3339 in UTC; of a file of another program that doesn't state it, when it was imported.
        created: String,
        /// The same in seconds since 1970.
        created_s: u64,
        /// Where it was when it came into the lake: the path of its folder or file.
        source: String,
        /// The version of brickscope that wrote it.
        brickscope_version: String,
        /// The engine: `brickscope`, `llama.cpp`, … as the run names it.
        engine: String,
        /// The engine's version, if the run states it.
        engine_version: Option<String>,
        /// The engine's commit: that of the build, or the one given to `collect --commit`.
        commit: Option<String>,
        /// The model's name or, if it has none, its file's.
        model: Option<String>,
        /// SHA-256 of the model's file; only receipts have it.
        model_sha256: Option<String>,
        /// The architecture, such as `llama`.
        architecture: Option<String>,
        /// The quantisation in one word, such as `q4_k`.
        quant: Option<String>,
        /// Weights.
        parameters: Option<u64>,
        /// Size of the model's file in bytes.
        model_bytes: Option<u64>,
        /// Whether the weights are random: the timings are real, the text is noise.
        is_synthetic: Option<bool>,
        /// What executed the kernels, as the run names it: `avx2`, `cuda`, …
        backend: Option<String>,
        /// The device, as its driver names it; `NULL` on CPUs.
        device: Option<String>,
        /// CPU threads that shared the work.
        threads: Option<u64>,
        /// The most tokens of one pass; only receipts have it.
        batch: Option<u64>,
        /// Whether the profiler was on while it was measured, which costs a little; only receipts have it.
        is_profiled: Option<bool>,
        /// What runs of one machine near each other in time have in common: the first digits of the boot id's hash and the day, or what `collect --session` says.
        session: Option<String>,
        /// The operating system: `linux`, …
        os: Option<String>,
        /// The architecture of the CPU: `x86_64`, …
        arch: Option<String>,
        /// The processor, as it names itself.
        cpu: Option<String>,
        /// Logical processors that the process could use.
        logical_cpus: Option<u64>,
        /// Memory in bytes.
        memory_bytes: Option<u64>,
        /// The hypervisor; only receipts have it.
        hypervisor: Option<String>,
        /// The kernel's release; only receipts have it.
        kernel_release: Option<String>,
        /// The frequency governor; only receipts have it.
        governor: Option<String>,
        /// Bytes read from memory per second at most, as measured, never as stated: a roof.
        read_bytes_per_second: Option<f64>,
        /// Multiplications and additions per second at most, as measured, never as stated: the other roof.
        flops_per_second: Option<f64>,
        /// The device that both are of; `NULL` for the host.
        roof_device: Option<String>,
        /// The part of the machine's CPU time that other programs used, 0 to 1.
        others_share: Option<f64>,
        /// The clock behind every time.
        clock: Option<String>,
        /// SHA-256 of the receipt, as its seal states it; `NULL` without a receipt.
        receipt_sha256: Option<String>,
        /// Whether the receipt verified when it was collected; `NULL` without one.
        receipt_verifies: Option<bool>,
        /// Why it doesn't: the codes of `verify-receipt`.
        receipt_refused: Option<String>,
        /// The public keys of its valid signatures, in hexadecimal, separated by commas.
        signed_by: Option<String>,
        /// What the recorder lost, one item a line; empty if nothing.
        dropped: String,
        /// Rows of `speeds`. A reader who finds fewer sees half a run.
        speed_rows: u64,
        /// Rows of `bricks`.
        brick_rows: u64,
        /// Rows of `durations`.
        duration_rows: u64,
        /// Rows of `passes`.
        pass_rows: u64,
        /// Rows of `spans`.
        span_rows: u64,
        /// Rows of `requests`; `NULL` if the run came into the lake before there was this table.
        request_rows: Option<u64>,
    }
}

table! {
    /// A test of a run and its speed: of a receipt or llama-bench each test, of other profiles each phase.
    SPEEDS = SpeedRow as "speeds" {
        /// The test, as llama-bench names it: `pp512`, `tg128`; of other profiles the phase.
        test: String,
        /// `prefill` or `decode`; `NULL` for a test of both.
        phase: Option<String>,
        /// What was measured, as JSON: all that `compare` demands to be equal, but for the machine. Runs of other work are another series.
        work: String,
        /// Tokens of the prompt that a repetition runs; only tests have it.
        n_prompt: Option<u64>,
        /// Tokens that a repetition generates; only tests have it.
        n_gen: Option<u64>,
        /// Tokens in the KV cache before it; only tests have it.
        n_depth: Option<u64>,
        /// Repetitions, without those of the warm-up; of a profile passes.
        repetitions: u64,
        /// How many of them were disturbed by other work on the machine; `NULL` if nobody looked.
        disturbed: Option<u64>,
        /// Tokens of all repetitions; `NULL` if unknown.
        tokens: Option<u64>,
        /// Their wall time in nanoseconds.
        wall_ns: u64,
        /// Tokens per second: the median of a test's repetitions; of a profile its tokens by its wall time, unless a device did nothing for more than half of that.
        tokens_per_second: Option<f64>,
        /// The lowest of the repetitions; `NULL` for a profile.
        low: Option<f64>,
        /// The highest of the repetitions; `NULL` for a profile.
        high: Option<f64>,
    }
}

table! {
    /// A brick in one phase of a run, or a kernel in one brick. Choose by `kind`: their times overlap.
    BRICKS = BrickRow as "bricks" {
        /// The test of the receipt, if the run is a receipt without a profile.
        test: Option<String>,
        /// `prefill`, `decode`, `encode` or `training`; `NULL` outside of passes.
        phase: Option<String>,
        /// The device; `NULL` for what the host's clock timed.
        device: Option<String>,
        /// `brick`, `kernel`, or `unattributed`: the time of passes in no brick.
        kind: String,
        /// The brick; of a kernel the one that it ran in. `NULL` if that is unknown, and for unattributed time.
        brick: Option<String>,
        /// The kernel; `NULL` for a brick.
        kernel: Option<String>,
        /// The category: `Norm`, `Attention`, `FFN`, `Other`.
        category: Option<String>,
        /// How its time was obtained: `host`, `host order` or `device`.
        source: Option<String>,
        /// Spans; `NULL` for receipts, which don't count them.
        calls: Option<u64>,
        /// From begin to end, summed, in nanoseconds.
        total_ns: Option<u64>,
        /// The part of it in no nested brick: over the bricks of a phase these and the unattributed time add up to its wall time, and to more where streams of a device overlap. 0 for kernels.
        exclusive_ns: u64,
        /// The part of `exclusive_ns` that lies in layers; `NULL` if spans were dropped.
        in_layers_ns: Option<u64>,
        /// The shortest span in nanoseconds.
        min_ns: Option<u64>,
        /// The longest span in nanoseconds.
        max_ns: Option<u64>,
        /// The sum of squared deviations of spans from their mean, in ns²: sums of several runs give a variance.
        squared_deviations: Option<f64>,
        /// Elements processed, if stated.
        elements: Option<u64>,
        /// Floating-point operations, if stated.
        flops: Option<u64>,
        /// Bytes moved, if stated.
        bytes: Option<u64>,
    }
}

table! {
    /// A bucket of the histogram of a brick's or kernel's spans: how many lasted so long. Buckets of all runs have the same bounds, so that histograms add up by `SUM(spans)`.
    DURATIONS = DurationRow as "durations" {
        /// `prefill`, `decode`, `encode` or `training`; `NULL` outside of passes.
        phase: Option<String>,
        /// The device; `NULL` for what the host's clock timed.
        device: Option<String>,
        /// `brick` or `kernel`; `request` for times of requests, which are outside of passes.
        kind: String,
        /// The brick or kernel; of requests `between tokens`.
        name: String,
        /// The least duration in the bucket, in nanoseconds.
        from_ns: u64,
        /// The least duration above the bucket.
        to_ns: u64,
        /// Spans in it.
        spans: u64,
    }
}

table! {
    /// A pass of a run.
    PASSES = PassRow as "passes" {
        /// The test of the receipt, if the run is a receipt without a profile.
        test: Option<String>,
        /// The device; `NULL` for passes timed by the host's clock.
        device: Option<String>,
        /// Its number in the run.
        pass: u64,
        /// `prefill`, `decode`, `encode` or `training`.
        phase: String,
        /// Tokens processed; `NULL` if unknown.
        tokens: Option<u64>,
        /// Tokens in the KV cache when it began; `NULL` if unknown, as for receipts.
        kv_position: Option<u64>,
        /// When it began, in nanoseconds of the run's clock; `NULL` if unknown, as for receipts.
        start_ns: Option<u64>,
        /// From begin to end; on a device from its first mark on any stream to its last.
        wall_ns: u64,
        /// The part of it in no brick; `NULL` for receipts, and for runs without bricks.
        unattributed_ns: Option<u64>,
        /// Whether other work disturbed it; `NULL` if nobody looked.
        is_disturbed: Option<bool>,
        /// Whether the report leaves it out for that.
        is_left_out: bool,
    }
}

table! {
    /// A span of a slow pass, or of one of a sample of the others. Sums over all passes are sums of `weight` times the value.
    SPANS = SpanRow as "spans" {
        /// The device; `NULL` for the host.
        device: Option<String>,
        /// The stream, by number.
        stream: Option<u64>,
        /// The row in the run's table of spans.
        row: u64,
        /// The row of the span around it.
        parent: Option<u64>,
        /// The thread, by number.
        lane: u64,
        /// The pass, by number; `NULL` outside of passes.
        pass: Option<u64>,
        /// `prefill`, `decode`, `encode` or `training`.
        phase: Option<String>,
        /// The transformer layer.
        layer: Option<u64>,
        /// `layer`, `brick` or `kernel`.
        kind: String,
        /// The brick or kernel; `NULL` for a layer.
        name: Option<String>,
        /// How its time was obtained: `host`, `host order` or `device`.
        source: String,
        /// When it began, in nanoseconds of the run's clock.
        start_ns: u64,
        /// From begin to end.
        duration_ns: u64,
        /// The part of it in no nested brick.
        exclusive_ns: u64,
        /// Elements processed, if stated.
        elements: Option<u64>,
        /// Floating-point operations, if stated.
        flops: Option<u64>,
        /// Bytes, if stated.
        bytes: Option<u64>,
        /// What the kernel worked on.
        shape: Option<String>,
        /// `slow` or `sample`.
        chosen: String,
        /// How many passes of the phase this one stands for: 1 if it is slow.
        weight: Option<f64>,
    }
}

table! {
    /// A request of a server. Where nobody could know a time it is `NULL`, and the others add up to its intervals.
    REQUESTS = RequestRow as "requests" {
        /// The engine's commit, as in `runs`.
        commit: Option<String>,
        /// Whether its client saw it so, from when it was due (`brickscope load`); else the server itself.
        is_of_client: bool,
        /// Its number in the run.
        request: u64,
        /// What the server calls it.
        id: String,
        /// When it came, in nanoseconds of the run's clock.
        arrived_ns: u64,
        /// How it ended: `stop`, `length`, `cancelled` or `error`; `NULL` if it hadn't, or nobody said.
        ending: Option<String>,
        /// Tokens of its prompt, if somebody said.
        prompt_tokens: Option<u64>,
        /// Those of them that a cache had, if somebody said.
        cached_tokens: Option<u64>,
        /// Tokens of its answer, if somebody said.
        output_tokens: Option<u64>,
        /// Tokens, or pieces of its answer, whose time is known.
        timed_tokens: u64,
        /// From its arrival to its first token (TTFT), in nanoseconds; `NULL` if it had none.
        to_first_token_ns: Option<u64>,
        /// A further token on average (TPOT), in nanoseconds; `NULL` if it had none.
        mean_token_ns: Option<u64>,
        /// From its arrival to its end, in nanoseconds; `NULL` if it hadn't ended.
        whole_ns: Option<u64>,
        /// In which it was read, and its text made tokens.
        receiving_ns: Option<u64>,
        /// In which it had no place in the batch yet.
        queue_ns: Option<u64>,
        /// In which a pass ran for it alone.
        own_alone_ns: Option<u64>,
        /// In which a pass ran for it and for prompts of others.
        own_beside_prompts_ns: Option<u64>,
        /// In which a pass ran for it and for next tokens of others.
        own_beside_decode_ns: Option<u64>,
        /// In which a pass ran for it, and for prompts and next tokens of others.
        own_beside_both_ns: Option<u64>,
        /// In which a pass ran without it, for prompts of others.
        other_prompts_ns: Option<u64>,
        /// In which a pass ran without it, for next tokens of others.
        other_decode_ns: Option<u64>,
        /// In which a pass ran without it, for prompts and next tokens of others.
        other_both_ns: Option<u64>,
        /// In which no pass ran.
        between_ns: Option<u64>,
        /// In which nobody said what ran.
        unattributed_ns: Option<u64>,
    }
}

/// All tables, `runs` last: a run whose row in `runs` is written is complete. Lakes from before there were requests have no
/// files of `requests`.
pub const TABLES: [Table; 7] = [SPEEDS, BRICKS, DURATIONS, PASSES, SPANS, REQUESTS, RUNS];
