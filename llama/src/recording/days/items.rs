//! The events of a recording, pass by pass.

use std::collections::HashMap;

use crate::recording::events::{Event, Graph, Load, Pass};

/// The events of one pass, with it at their end, and then a look at the threads, if there is one.
#[derive(Debug, Clone, Default)]
pub(super) struct Item {
    pub(super) events: Vec<Event>,
    /// The last look at the threads before it.
    load: Option<Load>,
}

impl Item {
    fn pass(&self) -> Option<&Pass> {
        self.events.iter().rev().find_map(|event| match event {
            Event::Pass(pass) => Some(pass),
            _ => None,
        })
    }

    /// The numbers of its graphs.
    pub(super) fn graphs(&self) -> impl Iterator<Item = u32> {
        self.events.iter().filter_map(|event| match event {
            Event::Graph(graph) => Some(graph.number),
            _ => None,
        })
    }

    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let of_events = self.events.iter().map(|event| size_of::<Event>() + bytes_of(event));
        of_events.sum::<usize>() + self.load.as_ref().map_or(0, bytes_of_load)
    }
}

/// What an event takes besides itself.
fn bytes_of(event: &Event) -> usize {
    match event {
        Event::Graph(graph) => {
            let Graph { nodes, ends, shares, sequences, experts, chosen, .. } = graph;
            let of_shares = shares.iter().map(|of| size_of_val(of) + size_of_val(&*of.nodes));
            let of_chosen = chosen.iter().map(|of| size_of_val(of) + size_of_val(&*of.experts));
            size_of_val(&**nodes)
                + size_of_val(&**ends)
                + size_of_val(&**sequences)
                + size_of_val(&**experts)
                + of_shares.sum::<usize>()
                + of_chosen.sum::<usize>()
        }
        Event::Pass(pass) => size_of_val(&*pass.sequences) + size_of_val(&*pass.numbers),
        Event::Load(load) => bytes_of_load(load),
        Event::Described(..) | Event::Calls(..) | Event::Inside(..) => 0,
    }
}

fn bytes_of_load(load: &Load) -> usize {
    size_of_val(&*load.threads)
}

/// The passes that have ended, and the events of those that go on. Of the last event it isn't known what comes after it, so a
/// pass that ends with it hasn't ended, unless it is the last one of all.
pub(super) fn split(events: Vec<Event>, is_last: bool) -> (Vec<Item>, Vec<Event>) {
    let mut items: Vec<Item> = Vec::new();
    let mut open: Vec<Event> = Vec::new();
    let mut events = events.into_iter().peekable();
    while let Some(event) = events.next() {
        let is_known = is_last || events.peek().is_some();
        let Event::Pass(Pass { of_thread, .. }) = event else {
            // A look at the threads always comes right after a pass.
            if !matches!(event, Event::Load(_)) {
                open.push(event);
            }
            continue;
        };
        if !is_known {
            open.push(event);
            continue;
        }
        let (mut own, others): (Vec<Event>, Vec<Event>) =
            open.into_iter().partition(|event| thread_of(event) == Some(of_thread));
        open = others;
        own.push(event);
        own.extend(events.next_if(|next| matches!(next, Event::Load(_))));
        own.shrink_to_fit();
        items.push(Item { events: own, load: None });
    }
    (items, open)
}

/// The number of the thread that an event is of.
fn thread_of(event: &Event) -> Option<u16> {
    match event {
        Event::Graph(graph) => Some(graph.of_thread),
        Event::Pass(pass) => Some(pass.of_thread),
        Event::Described(_, thread) | Event::Calls(thread, _) | Event::Inside(thread, ..) => {
            Some(*thread)
        }
        Event::Load(_) => None,
    }
}

/// What came before a pass, as far as it says something of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Before {
    of_context: HashMap<Option<u16>, Pass>,
    of_thread: HashMap<u16, Pass>,
    load: Option<Load>,
}

impl Before {
    /// The events that a pass needs before it: the last passes of its context and its thread, and a look at the threads.
    pub(super) fn lead(&self, item: &Item) -> Vec<Event> {
        let mut lead: Vec<&Pass> = Vec::new();
        if let Some(pass) = item.pass() {
            lead.extend(self.of_context.get(&pass.context));
            lead.extend(self.of_thread.get(&pass.of_thread));
        }
        lead.sort_by_key(|pass| pass.end);
        lead.dedup();
        let passes = lead.into_iter().cloned().map(Event::Pass);
        passes.chain(self.load.clone().map(Event::Load)).collect()
    }

    /// Notes that a pass has ended.
    pub(super) fn went(&mut self, item: &mut Item) {
        item.load.clone_from(&self.load);
        for event in &item.events {
            match event {
                Event::Pass(pass) => {
                    self.of_context.insert(pass.context, pass.clone());
                    self.of_thread.insert(pass.of_thread, pass.clone());
                }
                Event::Load(load) => self.load = Some(load.clone()),
                _ => {}
            }
        }
    }
}

/// The events of passes one after the other. Where one was left out between two, the second has the look at the threads that
/// was the last before it.
pub(super) fn whole(items: Vec<(u64, Item)>) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut next = 0;
    for (serial, Item { events: own, load }) in items {
        let mut own = own.into_iter();
        // Behind its first event, its graph's: right behind the pass before, it would be a look at that one.
        events.extend(own.next());
        if serial != next {
            events.extend(load.map(Event::Load));
        }
        next = serial + 1;
        events.extend(own);
    }
    events
}
