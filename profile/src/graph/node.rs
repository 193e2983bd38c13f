//! The nodes and edges of a graph, as callers write and read them.

use serde::{Deserialize, Serialize};

use crate::brick::BrickId;

/// A node's index in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExecutionNodeId(pub u32);

/// A thing that ran, or a group of such things.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "NodeInFile", into = "NodeInFile")]
pub enum ExecutionNode {
    /// A well-known brick.
    Brick {
        /// The brick.
        id: BrickId,
        /// How long it took, in nanoseconds.
        timing_ns: u64,
        /// Elements processed.
        elements: u64,
    },
    /// A brick with a name of its own.
    NamedBrick {
        /// Its name.
        name: String,
        /// How long it took, in nanoseconds.
        timing_ns: u64,
        /// Elements processed.
        elements: u64,
    },
    /// One launch of a kernel on a device.
    Kernel {
        /// Its name.
        name: String,
        /// [`PtxRegistry::hash_ptx`](crate::PtxRegistry::hash_ptx) of its source; 0 if that is not known.
        ptx_hash: u64,
        /// Blocks in the grid.
        grid: (u32, u32, u32),
        /// Threads in a block.
        block: (u32, u32, u32),
        /// Bytes of shared memory.
        shared_mem: u32,
        /// How long it took, in nanoseconds, if that was measured.
        timing_ns: Option<u64>,
        /// FLOPs per byte moved, if known.
        arithmetic_intensity: Option<f32>,
        /// TFLOP/s, if known.
        achieved_tflops: Option<f32>,
    },
    /// One run of a kernel on the CPU, where a grid has no meaning.
    Routine {
        /// Its name.
        name: String,
        /// How it ran.
        launch: HostLaunch,
        /// How long it took, in nanoseconds, if that was measured.
        timing_ns: Option<u64>,
        /// FLOPs per byte moved, if known.
        arithmetic_intensity: Option<f32>,
        /// TFLOP/s, if known.
        achieved_tflops: Option<f32>,
    },
    /// A copy of data between memories.
    Transfer {
        /// The source.
        src: String,
        /// The destination.
        dst: String,
        /// Bytes copied.
        bytes: u64,
        /// The memories involved.
        direction: TransferDirection,
        /// How long it took, in nanoseconds, if that was measured.
        timing_ns: Option<u64>,
    },
    /// A function of the program.
    Function {
        /// Its name.
        name: String,
        /// The file that defines it.
        file: Option<String>,
        /// The line in that file.
        line: Option<u32>,
    },
    /// A transformer layer.
    Layer {
        /// Its index, from 0.
        index: u32,
    },
    /// An asynchronous task.
    AsyncTask {
        /// Its name.
        name: String,
        /// How often it was polled.
        poll_count: u64,
        /// How often that returned `Pending`.
        yield_count: u64,
        /// Nanoseconds spent in polls.
        total_poll_ns: u64,
    },
}

/// A node as files have it: a routine of the CPU is a kernel with a `host`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum NodeInFile {
    Brick {
        id: BrickId,
        timing_ns: u64,
        elements: u64,
    },
    NamedBrick {
        name: String,
        timing_ns: u64,
        elements: u64,
    },
    Kernel {
        name: String,
        ptx_hash: u64,
        grid: (u32, u32, u32),
        block: (u32, u32, u32),
        shared_mem: u32,
        timing_ns: Option<u64>,
        arithmetic_intensity: Option<f32>,
        achieved_tflops: Option<f32>,
        host: Option<HostLaunch>,
    },
    Transfer {
        src: String,
        dst: String,
        bytes: u64,
        direction: TransferDirection,
        timing_ns: Option<u64>,
    },
    Function {
        name: String,
        file: Option<String>,
        line: Option<u32>,
    },
    Layer {
        index: u32,
    },
    AsyncTask {
        name: String,
        poll_count: u64,
        yield_count: u64,
        total_poll_ns: u64,
    },
}

/// The same variant of the other type, with the same fields.
macro_rules! same {
    ($of:ident, $node:expr, { $($variant:ident { $($field:ident),* })* }, $($more:tt)*) => {
        match $node {
            $($of::$variant { $($field),* } => Self::$variant { $($field),* },)*
            $($more)*
        }
    };
}

impl From<NodeInFile> for ExecutionNode {
    fn from(node: NodeInFile) -> Self {
        same!(NodeInFile, node, {
            Brick { id, timing_ns, elements }
            NamedBrick { name, timing_ns, elements }
            Transfer { src, dst, bytes, direction, timing_ns }
            Function { name, file, line }
            Layer { index }
            AsyncTask { name, poll_count, yield_count, total_poll_ns }
        },
            NodeInFile::Kernel {
                name, timing_ns, arithmetic_intensity, achieved_tflops, host: Some(launch), ..
            } => Self::Routine { name, launch, timing_ns, arithmetic_intensity, achieved_tflops },
            NodeInFile::Kernel {
                name,
                ptx_hash,
                grid,
                block,
                shared_mem,
                timing_ns,
                arithmetic_intensity,
                achieved_tflops,
                host: None,
            } => Self::Kernel {
                name,
                ptx_hash,
                grid,
                block,
                shared_mem,
                timing_ns,
                arithmetic_intensity,
                achieved_tflops,
            },
        )
    }
}

impl From<ExecutionNode> for NodeInFile {
    fn from(node: ExecutionNode) -> Self {
        same!(ExecutionNode, node, {
            Brick { id, timing_ns, elements }
            NamedBrick { name, timing_ns, elements }
            Transfer { src, dst, bytes, direction, timing_ns }
            Function { name, file, line }
            Layer { index }
            AsyncTask { name, poll_count, yield_count, total_poll_ns }
        },
            ExecutionNode::Routine {
                name,
                launch,
                timing_ns,
                arithmetic_intensity,
                achieved_tflops,
            } => Self::Kernel {
                name,
                ptx_hash: 0,
                grid: (1, 1, 1),
                block: (1, 1, 1),
                shared_mem: 0,
                timing_ns,
                arithmetic_intensity,
                achieved_tflops,
                host: Some(launch),
            },
            ExecutionNode::Kernel {
                name,
                ptx_hash,
                grid,
                block,
                shared_mem,
                timing_ns,
                arithmetic_intensity,
                achieved_tflops,
            } => Self::Kernel {
                name,
                ptx_hash,
                grid,
                block,
                shared_mem,
                timing_ns,
                arithmetic_intensity,
                achieved_tflops,
                host: None,
            },
        )
    }
}

/// How a routine ran on the CPU.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostLaunch {
    /// What it worked on, such as `768×2048 q8_0`; may be empty.
    pub shape: String,
    /// The number of threads; 0 if it ran on a device that the host timed.
    pub threads: u32,
}

/// How a kernel runs on a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct DeviceLaunch {
    /// What it works on, such as `768×2048 q8_0`; may be empty.
    pub shape: String,
    /// Blocks in the grid.
    pub grid: (u32, u32, u32),
    /// Threads in a block.
    pub block: (u32, u32, u32),
    /// Bytes of shared memory.
    pub shared_mem: u32,
    /// [`PtxRegistry::hash_ptx`](crate::PtxRegistry::hash_ptx) of its source; 0 if it has no PTX.
    pub ptx_hash: u64,
    /// Registers per thread, if the assembler or the driver reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Bytes that a thread spills to memory for lack of registers, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill_bytes: Option<u32>,
}

impl ExecutionNode {
    /// The name to show.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Brick { id, .. } => id.name().to_owned(),
            Self::NamedBrick { name, .. }
            | Self::Kernel { name, .. }
            | Self::Routine { name, .. }
            | Self::Function { name, .. }
            | Self::AsyncTask { name, .. } => name.clone(),
            Self::Layer { index } => format!("Layer {index}"),
            Self::Transfer { src, dst, direction, .. } => {
                format!("{}: {src} → {dst}", direction.name())
            }
        }
    }

    /// Whether this is a kernel, on a device or on the CPU.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        matches!(self, Self::Kernel { .. } | Self::Routine { .. })
    }

    /// Whether this is a brick, well known or not.
    #[must_use]
    pub fn is_brick(&self) -> bool {
        matches!(self, Self::Brick { .. } | Self::NamedBrick { .. })
    }

    /// Whether this is a transfer.
    #[must_use]
    pub fn is_transfer(&self) -> bool {
        matches!(self, Self::Transfer { .. })
    }

    /// How long it took, in nanoseconds, if that is known.
    #[must_use]
    pub fn timing_ns(&self) -> Option<u64> {
        match self {
            Self::Brick { timing_ns, .. } | Self::NamedBrick { timing_ns, .. } => Some(*timing_ns),
            Self::Kernel { timing_ns, .. }
            | Self::Routine { timing_ns, .. }
            | Self::Transfer { timing_ns, .. } => *timing_ns,
            // The time spent in polls.
            Self::AsyncTask { total_poll_ns, .. } => Some(*total_poll_ns),
            Self::Function { .. } | Self::Layer { .. } => None,
        }
    }

    /// The hash of a kernel's PTX source.
    #[must_use]
    pub fn ptx_hash(&self) -> Option<u64> {
        match self {
            Self::Kernel { ptx_hash, .. } => Some(*ptx_hash),
            _ => None,
        }
    }

    /// FLOPs per byte that a kernel moves, if that is known.
    #[must_use]
    pub fn arithmetic_intensity(&self) -> Option<f32> {
        match self {
            Self::Kernel { arithmetic_intensity, .. }
            | Self::Routine { arithmetic_intensity, .. } => *arithmetic_intensity,
            _ => None,
        }
    }

    /// TFLOP/s of a kernel, if they are known.
    #[must_use]
    pub fn achieved_tflops(&self) -> Option<f32> {
        match self {
            Self::Kernel { achieved_tflops, .. } | Self::Routine { achieved_tflops, .. } => {
                *achieved_tflops
            }
            _ => None,
        }
    }

    /// The bytes that a transfer copied.
    #[must_use]
    pub fn transfer_bytes(&self) -> Option<u64> {
        match self {
            Self::Transfer { bytes, .. } => Some(*bytes),
            _ => None,
        }
    }

    /// One over the polls that a task needed, from 0 to 1: 1.0 if it was ready at once. `None` for other nodes, and for a
    /// task that was never polled.
    #[must_use]
    pub fn poll_efficiency(&self) -> Option<f64> {
        match self {
            Self::AsyncTask { poll_count, .. } if *poll_count > 0 => Some(1.0 / *poll_count as f64),
            _ => None,
        }
    }
}

/// The relation between the two ends of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EdgeType {
    /// A function calls a function.
    Calls,
    /// A layer contains bricks.
    Contains,
    /// A brick launches a kernel.
    Launches,
    /// One comes after the other.
    Sequence,
    /// One waits for the other.
    DependsOn,
    /// Data moves from one to the other.
    Transfer {
        /// Bytes moved.
        bytes: u64,
        /// The memories involved.
        direction: TransferDirection,
    },
}

/// The memories between which data is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TransferDirection {
    /// Host to device.
    H2D,
    /// Device to host.
    D2H,
    /// Device to device.
    D2D,
}

impl TransferDirection {
    /// The name in reports and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::H2D => "H2D",
            Self::D2H => "D2H",
            Self::D2D => "D2D",
        }
    }
}

/// An edge of the graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutionEdge {
    /// Where it begins.
    pub src: ExecutionNodeId,
    /// Where it ends.
    pub dst: ExecutionNodeId,
    /// The relation.
    pub edge_type: EdgeType,
    /// Its weight; 1.0 by default.
    pub weight: f32,
}

/// A kernel on a device without any measurements yet.
#[doc(hidden)]
pub fn gpu_kernel(
    name: &str,
    ptx_hash: u64,
    grid: (u32, u32, u32),
    block: (u32, u32, u32),
    shared_mem: u32,
) -> ExecutionNode {
    ExecutionNode::Kernel {
        name: name.to_owned(),
        ptx_hash,
        grid,
        block,
        shared_mem,
        timing_ns: None,
        arithmetic_intensity: None,
        achieved_tflops: None,
    }
}
