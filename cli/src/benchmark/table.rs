//! A receipt as text for people: llama-bench's table, and what there is to say about it.

use std::fmt::Write;

use brickscope::receipt::v1::Receipt;

/// The table.
pub(crate) fn markdown(receipts: &[Receipt]) -> String {
    let mut text = String::new();
    for receipt in receipts {
        for test in &receipt.tests {
            let ts = test.aggregates.avg_ts.unwrap_or_default();
            let sd = test.aggregates.stddev_ts.unwrap_or_default();
            let _ = writeln!(text, "| {} | {ts:.2} ± {sd:.2} |", test.name);
        }
    }
    text
}
