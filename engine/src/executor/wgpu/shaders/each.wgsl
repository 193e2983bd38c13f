// An invocation for each of `args.len` elements: the kernel defines `element`.

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = 64u * linear(id, groups) + lane;
    if i < args.len {
        element(i);
    }
}
