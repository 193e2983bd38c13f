// What every kernel has: what is new in a pass, and its workgroup's number.

struct Params {
    // Of the pass's first token.
    position: u32,
    // Tokens of the pass.
    n: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

// A dimension of a grid has 65535 workgroups at most, so long grids are folded.
fn linear(id: vec3<u32>, groups: vec3<u32>) -> u32 {
    return id.x + groups.x * id.y;
}
