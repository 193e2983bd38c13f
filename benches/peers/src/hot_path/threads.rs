//! brickscope, from two threads at once through one `&self`.
//!
//! The two threads live as long as the rows, each pinned to a core of its own, and sleep while
//! other rows are timed.

use std::cell::{Cell, RefCell};
use std::hint::{black_box, spin_loop};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use brickscope::BrickProfiler;
use core_affinity::CoreId;

use crate::ours::{ROOM, Room, one, start_and_stop};
use crate::row::Row;

/// A batch that a thread is asked for.
struct Batch {
    profiler: Arc<BrickProfiler>,
    spans: usize,
    /// The threads that have come to the start and to the end, where there is another one.
    others: Option<Arc<Meeting>>,
}

#[derive(Default)]
struct Meeting {
    started: AtomicUsize,
    ended: AtomicUsize,
}

struct Worker {
    ask: Sender<Batch>,
    answers: Receiver<f64>,
}

impl Worker {
    fn on(core: CoreId) -> Self {
        let (ask, batches) = channel::<Batch>();
        let (answer, answers) = channel();
        thread::spawn(move || {
            core_affinity::set_for_current(core);
            // Until the rows are dropped.
            for batch in batches {
                if answer.send(batch.run()).is_err() {
                    return;
                }
            }
        });
        Self { ask, answers }
    }

    fn begin(&self, batch: Batch) {
        self.ask.send(batch).expect("the thread waits for batches");
    }

    fn end(&self) -> f64 {
        self.answers.recv().expect("the thread answers each batch")
    }
}

impl Batch {
    fn run(self) -> f64 {
        let profiler = black_box(&*self.profiler);
        let Some(others) = self.others else { return start_and_stop(profiler, self.spans) };
        // Makes this thread's log, so that the threads don't drift apart after the start.
        one(profiler);
        others.started.fetch_add(1, Relaxed);
        while others.started.load(Acquire) < 2 {
            spin_loop();
        }
        let nanos = start_and_stop(profiler, self.spans);
        // Goes on until the other one is timed too: its last spans shall have company.
        others.ended.fetch_add(1, Release);
        while others.ended.load(Relaxed) < 2 {
            one(profiler);
        }
        nanos
    }
}

/// The rows, with the log and without it: a thread of its own on each core, alone and together.
pub(crate) fn rows<'a>(cores: [CoreId; 2]) -> Vec<Row<'a>> {
    let workers = Rc::new(cores.map(Worker::on));
    let mut rows = Vec::new();
    let kinds = [
        (ROOM, "log with room", ["log_a", "log_b"], ["log_a_of_2", "log_b_of_2"]),
        (0, "sums only", ["sums_a", "sums_b"], ["sums_a_of_2", "sums_b_of_2"]),
    ];
    for (room, kind, alone, together) in kinds {
        let profiler = Arc::new(BrickProfiler::enabled().with_log_capacity(room));
        let room = Rc::new(RefCell::new(Room::default()));
        for (which, id) in alone.into_iter().enumerate() {
            let (workers, profiler, room) = (workers.clone(), profiler.clone(), room.clone());
            let name = format!("thread on CPU {}, alone, {kind}", cores[which].id);
            let row = Row::new(id, name, move |spans| {
                room.borrow_mut().make(&profiler, spans + 1);
                workers[which].begin(Batch { profiler: profiler.clone(), spans, others: None });
                workers[which].end()
            });
            rows.push(row.most(ROOM / 4));
        }
        // One batch has the figures of both threads: the first row runs it, the second one reads.
        let second = Rc::new(Cell::new(f64::NAN));
        let (workers, seconds) = (workers.clone(), second.clone());
        let both = move |spans| {
            // Twice, for those that a thread records while it waits for the other one.
            room.borrow_mut().make(&profiler, 2 * spans);
            let others = Some(Arc::new(Meeting::default()));
            for worker in &*workers {
                worker.begin(Batch { profiler: profiler.clone(), spans, others: others.clone() });
            }
            let [first, second] = [&workers[0], &workers[1]].map(Worker::end);
            seconds.set(second);
            first
        };
        let name =
            |which: usize| format!("thread on CPU {}, both at once, {kind}", cores[which].id);
        let base = "alone";
        rows.push(
            Row::new(together[0], name(0), both).most(ROOM / 4).at_most_times(1.25, alone[0], base),
        );
        rows.push(
            Row::new(together[1], name(1), move |_| second.get())
                .at_most_times(1.25, alone[1], base),
        );
    }
    rows
}
