//! Copies that undo each other.

use std::collections::HashMap;

use super::store::{Row, RowKind};
use super::{ExecutionGraph, ExecutionNodeId, TransferDirection};

/// Data that is copied to a device and back unused, or the other way round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingPong {
    /// The name of the copied buffer on the device.
    pub tensor: String,
    /// The direction of the first copy.
    pub direction: TransferDirection,
    /// Bytes of one copy.
    pub bytes: u64,
    /// The number of such pairs of copies in the graph.
    pub times: usize,
    /// Nanoseconds of all these copies that were measured; `None` if none was.
    pub total_ns: Option<u64>,
    /// The brick, or else the scope, that makes the first copy of the first pair.
    pub there: Option<String>,
    /// The brick or scope that makes the second copy.
    pub back: Option<String>,
}

/// Tensor, direction, bytes, and the two bricks.
type Key = (String, TransferDirection, u64, Option<String>, Option<String>);

impl ExecutionGraph {
    /// Pairs of transfers of which the second undoes the first: host to device and back, or the other way
    /// round, of the same number of bytes and with the same name on the device. A transfer is in at most
    /// one pair, with the nearest one before it.
    ///
    /// Linear in the number of transfers.
    #[must_use]
    pub fn detect_ping_pong(&self) -> Vec<(ExecutionNodeId, ExecutionNodeId)> {
        // Copies that may still come back.
        let mut there: HashMap<(&str, u64, TransferDirection), Vec<u32>> = HashMap::new();
        let mut pairs = Vec::new();
        for id in 0..self.num_nodes() as u32 {
            let row = self.store.row(id as usize);
            if row.kind != RowKind::Transfer {
                continue;
            }
            let opposite = match row.direction() {
                TransferDirection::H2D => TransferDirection::D2H,
                TransferDirection::D2H => TransferDirection::H2D,
                TransferDirection::D2D => continue,
            };
            let (tensor, bytes) = (self.on_device(row), row.bytes());
            let first = there.get_mut(&(tensor, bytes, opposite)).and_then(Vec::pop);
            match first {
                Some(first) => pairs.push((ExecutionNodeId(first), ExecutionNodeId(id))),
                None => there.entry((tensor, bytes, row.direction())).or_default().push(id),
            }
        }
        pairs.sort_unstable();
        pairs
    }

    /// The same pairs, summed up by tensor, direction, size, and the two bricks that cause them; those that
    /// move the most bytes first.
    #[must_use]
    pub fn ping_pong_findings(&self) -> Vec<PingPong> {
        let mut findings: Vec<PingPong> = Vec::new();
        let mut known: HashMap<Key, usize> = HashMap::new();
        let bricks = self.bricks_around();
        // The name of the nearest brick around a node, else of the node directly around it.
        let scope_name = |node: ExecutionNodeId| {
            let around = bricks[node.0 as usize].or_else(|| self.parent(node))?;
            self.node(around).map(|node| node.name())
        };
        for (first, second) in self.detect_ping_pong() {
            let row = self.store.row(first.0 as usize);
            let (tensor, direction, bytes) =
                (self.on_device(row).to_owned(), row.direction(), row.bytes());
            let (there, back) = (scope_name(first), scope_name(second));
            let key = (tensor.clone(), direction, bytes, there.clone(), back.clone());
            let &mut at = known.entry(key).or_insert_with(|| {
                findings.push(PingPong {
                    tensor,
                    direction,
                    bytes,
                    times: 0,
                    total_ns: None,
                    there,
                    back,
                });
                findings.len() - 1
            });
            let finding = &mut findings[at];
            finding.times += 1;
            for id in [first, second] {
                if let Some(nanos) = self.store.row(id.0 as usize).duration() {
                    let sum = finding.total_ns.unwrap_or_default().saturating_add(nanos);
                    finding.total_ns = Some(sum);
                }
            }
        }
        let moved = |f: &PingPong| u128::from(f.bytes) * f.times as u128;
        findings.sort_by_key(|finding| std::cmp::Reverse(moved(finding)));
        findings
    }

    fn on_device(&self, row: &Row) -> &str {
        let (from, to) = self.store.places(row);
        if row.direction() == TransferDirection::D2H { from } else { to }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brick::BrickId;
    use crate::graph::ExecutionNode;

    fn copy(graph: &mut ExecutionGraph, to_device: bool, tensor: &str, bytes: u64) {
        let (host, ns) = (format!("host_{tensor}"), Some(1_000));
        if to_device {
            graph.record_transfer(&host, tensor, bytes, TransferDirection::H2D, ns);
        } else {
            graph.record_transfer(tensor, &host, bytes, TransferDirection::D2H, ns);
        }
    }

    #[test]
    fn a_copy_that_comes_back_is_found_with_the_bricks_that_force_it() {
        let mut graph = ExecutionGraph::new();
        for _token in 0..3 {
            let brick = |id| ExecutionNode::Brick { id, timing_ns: 5_000, elements: 1 };
            graph.push_scope(brick(BrickId::AttentionScore));
            copy(&mut graph, false, "scores", 4096);
            graph.pop_scope();
            graph.push_scope(brick(BrickId::AttentionSoftmax));
            copy(&mut graph, true, "scores", 4096);
            graph.pop_scope();
            copy(&mut graph, true, "weights", 1 << 20);
        }
        assert_eq!(graph.detect_ping_pong().len(), 3);
        let findings = graph.ping_pong_findings();
        let expected = PingPong {
            tensor: "scores".to_owned(),
            direction: TransferDirection::D2H,
            bytes: 4096,
            times: 3,
            total_ns: Some(6_000),
            there: Some("AttentionScore".to_owned()),
            back: Some("AttentionSoftmax".to_owned()),
        };
        assert_eq!(findings, [expected]);
    }

    #[test]
    fn other_sizes_other_tensors_and_copies_on_the_device_are_none() {
        let mut graph = ExecutionGraph::new();
        copy(&mut graph, true, "a", 64);
        copy(&mut graph, false, "a", 65);
        copy(&mut graph, false, "b", 64);
        graph.record_transfer("a", "a", 64, TransferDirection::D2D, None);
        assert_eq!(graph.detect_ping_pong(), []);
    }

    #[test]
    fn a_copy_is_in_one_pair_only() {
        let mut graph = ExecutionGraph::new();
        for to_device in [true, false, false, true] {
            copy(&mut graph, to_device, "a", 64);
        }
        let pairs = graph.detect_ping_pong();
        let pairs: Vec<_> = pairs.iter().map(|(a, b)| (a.0, b.0)).collect();
        assert_eq!(pairs, [(0, 1), (2, 3)]);
    }
}
