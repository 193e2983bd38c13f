//! What the nodes of a graph are, as a line of JSON.

use std::fmt::Write;

use crate::ggml::{Layout, Tensor};

/// The nodes of a graph, in the order in which they ran: what each computes, and from what.
///
/// A node is `{"op", "name", "type", "ne", "bytes", "src": [{"name", "type", "ne", "bytes"}]}`; two that ran as one have
/// the second one's name and its sources in `"then": {"op", "name", "src"}`. A weight without a name has `numbers`. `on` is the backend that computed them, if
/// that isn't the CPU's; `library` is the number of the copy of ggml, where the CPU did.
pub(crate) fn describe(
    number: u32,
    library: Option<usize>,
    on: Option<&str>,
    nodes: &[[*const Tensor; 2]],
    layout: &Layout,
) -> String {
    let mut text = format!("{{\"graph\":{number}");
    if let Some(library) = library {
        let _ = write!(text, ",\"library\":{library}");
    }
    if let Some(on) = on {
        text.push_str(",\"on\":");
        quoted(&mut text, on);
    }
    text.push_str(",\"nodes\":[");
    for (n, [node, fused]) in nodes.iter().enumerate() {
        // SAFETY: they are nodes of the graph that has just been computed, which is still there.
        let (Some(node), fused) = (unsafe { node.as_ref() }, unsafe { fused.as_ref() }) else {
            continue;
        };
        if n > 0 {
            text.push(',');
        }
        text.push('{');
        operation(&mut text, node, layout);
        text.push(',');
        tensor(&mut text, node, layout, None);
        if let Some(fused) = fused {
            text.push_str(",\"then\":{");
            operation(&mut text, fused, layout);
            text.push(',');
            tensor(&mut text, fused, layout, Some(on.is_none()));
            text.push('}');
        } else {
            sources(&mut text, node, layout, on.is_none());
        }
        text.push('}');
    }
    text.push_str("]}");
    text
}

fn operation(text: &mut String, node: &Tensor, layout: &Layout) {
    text.push_str("\"op\":");
    quoted(text, &layout.op(node));
}

/// With its sources, if it is said whether the CPU computed it.
fn tensor(text: &mut String, tensor: &Tensor, layout: &Layout, with_sources: Option<bool>) {
    text.push_str("\"name\":");
    quoted(text, &tensor.name());
    text.push_str(",\"type\":");
    quoted(text, &layout.type_name(tensor));
    let [a, b, c, d] = tensor.ne;
    let _ = write!(text, ",\"ne\":[{a},{b},{c},{d}],\"bytes\":{}", layout.nbytes(tensor));
    if let Some(on_cpu) = with_sources {
        sources(text, tensor, layout, on_cpu);
    }
}

fn sources(text: &mut String, node: &Tensor, layout: &Layout, on_cpu: bool) {
    // Other operations may read a part only, such as some rows of a table.
    let is_read = on_cpu && matches!(&*layout.op(node), "MUL_MAT" | "MUL" | "ADD");
    text.push_str(",\"src\":[");
    let mut is_first = true;
    for src in node.src {
        // SAFETY: the sources of a node live as long as it does.
        let Some(src) = (unsafe { src.as_ref() }) else { break };
        if !is_first {
            text.push(',');
        }
        is_first = false;
        text.push('{');
        tensor(text, src, layout, None);
        // SAFETY: the CPU has just read all of it, so it is in memory of this process.
        if let Some(numbers) = is_read.then(|| unsafe { src.numbers(layout) }).flatten() {
            let _ = write!(text, ",\"numbers\":{numbers}");
        }
        text.push('}');
    }
    text.push(']');
}

/// Adds a string as JSON has it.
pub(crate) fn quoted(text: &mut String, string: &str) {
    text.push('"');
    for c in string.chars() {
        match c {
            '"' | '\\' => {
                text.push('\\');
                text.push(c);
            }
            c if u32::from(c) < 0x20 => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}
