//! Whether other numbers of threads would be faster, which only a sweep tells.

use super::Findings;
use super::facts::Facts;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let threads = facts.threads();
    if facts.main().is_none() || threads == 0 || facts.profile.imported.is_some() {
        return;
    }
    let cpus = facts.cpus().map_or(String::new(), |cpus| format!(" of this machine's {cpus} CPUs"));
    findings.unknown(
        "number-of-threads",
        format!(
            "whether {threads} threads{cpus} are the best number is not known: only runs with others (`{}`) tell",
            facts.flags.threads
        ),
    );
}
