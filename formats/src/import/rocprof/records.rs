//! What of the file's objects matters.

use serde::Deserialize;

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) pid: u64,
    pub(super) command: Vec<String>,
    pub(super) node: Node,
    pub(super) config: Config,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Node {
    pub(super) machine_id: String,
    pub(super) hostname: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Config {
    pub(super) group_by_queue: bool,
}

#[derive(Deserialize)]
pub(super) struct Agent {
    pub(super) id: Handle,
    #[serde(rename = "type")]
    pub(super) kind: u64,
    #[serde(default)]
    pub(super) node_id: u64,
    /// Its number among those of its type; -1 in some files.
    #[serde(default)]
    pub(super) logical_node_type_id: Option<i64>,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) product_name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Kind {
    pub(super) kind: String,
    pub(super) operations: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Message {
    pub(super) key: u64,
    pub(super) value: String,
}

#[derive(Deserialize)]
pub(super) struct Symbol {
    pub(super) kernel_id: u64,
    #[serde(default)]
    pub(super) formatted_kernel_name: String,
    #[serde(default)]
    pub(super) demangled_kernel_name: String,
    #[serde(default)]
    pub(super) kernel_name: String,
}

#[derive(Deserialize, Clone, Copy)]
pub(super) struct Handle {
    pub(super) handle: u64,
}

#[derive(Deserialize)]
pub(super) struct Correlation {
    pub(super) internal: u64,
}

#[derive(Deserialize)]
pub(super) struct Size {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) z: u32,
}

#[derive(Deserialize)]
pub(super) struct Dispatch {
    pub(super) correlation_id: Correlation,
    pub(super) start_timestamp: i64,
    pub(super) end_timestamp: i64,
    pub(super) dispatch_info: Dispatched,
    #[serde(default)]
    pub(super) stream_id: Option<Handle>,
}

#[derive(Deserialize)]
pub(super) struct Dispatched {
    pub(super) agent_id: Handle,
    pub(super) queue_id: Handle,
    pub(super) kernel_id: u64,
    #[serde(default)]
    pub(super) group_segment_size: u64,
    #[serde(default)]
    pub(super) workgroup_size: Option<Size>,
    #[serde(default)]
    pub(super) grid_size: Option<Size>,
}

#[derive(Deserialize)]
pub(super) struct Copied {
    pub(super) kind: u64,
    pub(super) operation: u64,
    pub(super) correlation_id: Correlation,
    pub(super) start_timestamp: i64,
    pub(super) end_timestamp: i64,
    pub(super) dst_agent_id: Handle,
    pub(super) src_agent_id: Handle,
    #[serde(default)]
    pub(super) stream_id: Option<Handle>,
}

#[derive(Deserialize)]
pub(super) struct Call {
    pub(super) kind: u64,
    pub(super) operation: u64,
    pub(super) correlation_id: Correlation,
    pub(super) start_timestamp: i64,
    pub(super) end_timestamp: i64,
    pub(super) thread_id: u64,
}

impl Size {
    /// The blocks of a grid whose size is in threads.
    pub(super) fn in_blocks(&self, block: &Self) -> Option<(u32, u32, u32)> {
        let blocks = |grid: u32, block: u32| (block > 0).then(|| grid.div_ceil(block));
        Some((blocks(self.x, block.x)?, blocks(self.y, block.y)?, blocks(self.z, block.z)?))
    }
}
