// Shared by all kernels: the parameters of a pass, and the number of a workgroup.

struct Params {
    // The position of the pass's first token.
    position: u32,
    // Tokens in the pass.
    n: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

// Long grids are folded, as a dimension has at most 65535 workgroups.
fn linear(id: vec3<u32>, groups: vec3<u32>) -> u32 {
    return id.x + groups.x * id.y;
}
