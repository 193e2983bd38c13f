//! Results that aren't numbers: logits with NaN or infinity in them, and where these began.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::text::{count, grouped, printable};

/// Logits with NaN or infinity in them. The times of such a run are real, its text is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotFinite {
    /// Passes whose logits had NaN or infinity in them.
    pub passes: u64,
    /// Passes that computed logits.
    pub of: u64,
    /// Where that began; absent if no weight is bad, and running the tokens again gave only numbers.
    pub began: Option<Began>,
}

/// Where NaN or infinity began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Began {
    /// In the weights.
    Weights {
        /// The first tensor with such values, in the order of the file.
        tensor: String,
        /// Whether the first of them is NaN, and not an infinity.
        is_nan: bool,
        /// Its values that are NaN or infinite. Those of a block whose scale is so all count.
        bad: u64,
        /// Its values.
        of: u64,
        /// Further tensors with such values.
        more_tensors: u64,
    },
    /// In what a brick computed, from weights that are all numbers.
    Output {
        /// The brick.
        brick: String,
        /// Its layer; absent outside of layers.
        layer: Option<u32>,
        /// What it put out.
        value: String,
        /// Whether the first of the bad values is NaN, and not an infinity.
        is_nan: bool,
        /// Values that are NaN or infinite.
        bad: u64,
        /// Values that it put out.
        of: u64,
        /// The position of the first token of the pass.
        position: u64,
    },
}

impl NotFinite {
    /// Two parts of one run.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            passes: self.passes.saturating_add(other.passes),
            of: self.of.saturating_add(other.of),
            began: self.began.or(other.began),
        }
    }

    /// Where it began, as the end of a sentence.
    #[must_use]
    pub fn origin(&self) -> String {
        match &self.began {
            None => "no weight is bad, and running it again gave only numbers".to_owned(),
            Some(began) => began.to_string(),
        }
    }
}

/// A sentence without its full stop.
impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passes, of, .. } = self;
        let what = if *of == 1 { "pass" } else { "passes" };
        write!(f, "Not a number: the logits of {passes} of {of} {what}; {}", self.origin())
    }
}

impl fmt::Display for Began {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = |is_nan: bool| if is_nan { "NaN" } else { "infinity" };
        match self {
            Self::Weights { tensor, is_nan, bad, of, more_tensors } => {
                let (tensor, bad, of) = (printable(tensor), grouped(*bad), grouped(*of));
                let what = what(*is_nan);
                write!(f, "the first bad weights are {what} in {tensor} ({bad} of {of} values)")?;
                match more_tensors {
                    0 => Ok(()),
                    more => {
                        write!(f, ", and {} have such values, too", count(*more, "more tensor"))
                    }
                }
            }
            Self::Output { brick, layer, value, is_nan, bad, of, position } => {
                let (brick, value) = (printable(brick), printable(value));
                let (bad, of, what) = (grouped(*bad), grouped(*of), what(*is_nan));
                write!(f, "no weight is bad; the first {what} is in {brick}")?;
                if let Some(layer) = layer {
                    write!(f, " of layer {layer}")?;
                }
                write!(f, ", at position {position} ({value}: {bad} of {of} values)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(more_tensors: u64) -> Began {
        let tensor = "blk.3.ffn_gate.weight".to_owned();
        Began::Weights { tensor, is_nan: true, bad: 1, of: 589_824, more_tensors }
    }

    #[test]
    fn what_is_no_number_is_a_sentence_with_its_origin() {
        let said = |began| NotFinite { passes: 64, of: 65, began }.to_string();
        let begin = "Not a number: the logits of 64 of 65 passes; ";
        let first = "the first bad weights are NaN in blk.3.ffn_gate.weight (1 of 589,824 values)";
        assert_eq!(said(Some(weights(0))), format!("{begin}{first}"));
        let more = format!("{begin}{first}, and 2 more tensors have such values, too");
        assert_eq!(said(Some(weights(2))), more);
        let output = |layer| Began::Output {
            brick: "RmsNorm".to_owned(),
            layer,
            value: "FFN norm".to_owned(),
            is_nan: false,
            bad: 1200,
            of: 4096,
            position: 7,
        };
        let first = "no weight is bad; the first infinity is in RmsNorm";
        let place = "at position 7 (FFN norm: 1,200 of 4,096 values)";
        assert_eq!(said(Some(output(Some(2)))), format!("{begin}{first} of layer 2, {place}"));
        assert_eq!(said(Some(output(None))), format!("{begin}{first}, {place}"));
        let unknown = format!("{begin}no weight is bad, and running it again gave only numbers");
        assert_eq!(said(None), unknown);
        let one = NotFinite { passes: 1, of: 1, began: None }.to_string();
        assert!(one.starts_with("Not a number: the logits of 1 of 1 pass;"), "{one}");
    }

    #[test]
    fn a_tensor_of_a_strange_name_cannot_break_the_line() {
        let tensor = "a\nb\u{1b}[2J".to_owned();
        let began = Began::Weights { tensor, is_nan: false, bad: 1, of: 2, more_tensors: 0 };
        let said = began.to_string();
        assert!(said.contains("infinity in a\\nb\\u{1b}[2J (1 of 2 values)"), "{said}");
    }

    #[test]
    fn parts_of_a_run_add_up_and_the_first_origin_stays() {
        let part = |passes, of, began| NotFinite { passes, of, began };
        let both = part(1, 3, None).and(part(2, 4, Some(weights(0))));
        assert_eq!(both, part(3, 7, Some(weights(0))));
        assert_eq!(both.clone().and(part(0, 1, Some(weights(5)))), part(3, 8, Some(weights(0))));
    }
}
