//! Reading `flamegraph.json`.

use std::path::{Path, PathBuf};

use brickscope::load::{self, Limit};
use serde::Deserialize;

use super::summary::{SCHEMA_VERSION, Summary};
use crate::runs::FLAMEGRAPH;

/// Room for ninety thousand functions, which take about 700 bytes each with forty blocks.
const LIMIT: Limit = Limit { bytes: 64 << 20, instead: "is it a flamegraph.json?" };

impl Summary {
    /// Reads `flamegraph.json`, given the file or its folder.
    ///
    /// # Errors
    ///
    /// A sentence without the file's name, if the file is unreadable, too long, truncated, inconsistent or
    /// of another schema.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let file: PathBuf = if path.is_dir() { path.join(FLAMEGRAPH) } else { path.to_owned() };
        let bytes = load::bytes(&file, LIMIT).map_err(|error| error.to_string())?;
        Self::from_json(&bytes)
    }

    /// The same from the bytes of the file.
    pub(crate) fn from_json(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            schema_version: u32,
        }
        let fault = |error: serde_json::Error| match error.is_eof() {
            true => format!("a truncated flamegraph.json: it ends at byte {}", bytes.len()),
            false => format!("not a flamegraph.json: {error}"),
        };
        let Version { schema_version: found } = serde_json::from_slice(bytes).map_err(fault)?;
        if found != SCHEMA_VERSION {
            return Err(format!(
                "its schema_version is {found}, and this brickscope reads {SCHEMA_VERSION}"
            ));
        }
        let summary: Self = serde_json::from_slice(bytes).map_err(fault)?;
        summary.check()?;
        Ok(summary)
    }

    /// Checks that a part is at most the whole, and its blocks sum up to at most the part: spans that a run
    /// didn't keep are in no block.
    fn check(&self) -> Result<(), String> {
        let classes = self.classes.iter().map(|share| {
            (format!("class {:?}", share.name), share.weight, share.self_weight, &share.by_block)
        });
        let others = self.bricks.iter().chain(&self.functions);
        let others = others
            .map(|share| (share.name.clone(), share.weight, share.self_weight, &share.by_block));
        for (name, weight, self_weight, by_block) in classes.chain(others) {
            let name = crate::text::printable(&name);
            if weight > self.total || self_weight > weight {
                return Err(format!(
                    "`{name}` weighs {weight} and {self_weight} by itself, of {} in all",
                    self.total
                ));
            }
            let sum = by_block.iter().fold(0, |sum: u64, block| sum.saturating_add(*block));
            if !by_block.is_empty() && sum > weight {
                return Err(format!("`{name}` weighs {weight}, and {sum} in its blocks"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flame::diff::tests::Made;

    #[test]
    fn what_was_written_is_read() {
        let made = Made::default().summary();
        let bytes = serde_json::to_vec(&made).unwrap();
        assert_eq!(Summary::from_json(&bytes), Ok(made));
    }

    #[test]
    fn what_lies_in_no_block_is_read() {
        let mut made = Made::default().summary();
        let class = &mut made.classes[2];
        (class.weight, class.self_weight) = (class.weight + 70, class.self_weight + 70);
        made.total += 70;
        let bytes = serde_json::to_vec(&made).unwrap();
        assert_eq!(Summary::from_json(&bytes), Ok(made));
    }

    #[test]
    fn a_file_of_many_functions_is_read_and_one_without_end_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let made = Made::default().summary();
        let mut bytes = serde_json::to_vec(&made).unwrap();
        bytes.resize(40 << 20, b' ');
        std::fs::write(file.path(), &bytes).unwrap();
        assert_eq!(Summary::load(file.path()), Ok(made));
        file.as_file().set_len(LIMIT.bytes + 1).unwrap();
        let said = Summary::load(file.path()).unwrap_err();
        assert!(said.starts_with("it has more than 64 MiB, "), "{said}");
    }

    #[test]
    fn what_can_not_be_is_refused_with_a_sentence() {
        let made = Made::default().summary();
        let text = serde_json::to_string(&made).unwrap();
        let said = |text: &str| Summary::from_json(text.as_bytes()).unwrap_err();
        let cut = said(&text[..text.len() / 2]);
        assert!(cut.starts_with("a truncated flamegraph.json: it ends at byte "), "{cut}");
        assert!(said("[]").starts_with("not a flamegraph.json: "));
        let newer = text.replacen("\"schema_version\":1", "\"schema_version\":2", 1);
        assert_eq!(said(&newer), "its schema_version is 2, and this brickscope reads 1");
        let more = text.replacen("\"total\":4000", "\"total\":400", 1);
        assert!(said(&more).ends_with("by itself, of 400 in all"), "{}", said(&more));
        let mut off = made;
        off.functions[0].by_block[0] += 1;
        let off = said(&serde_json::to_string(&off).unwrap());
        assert!(off.starts_with("`forward` weighs 3650, and 3651 in its"), "{off}");
    }
}
