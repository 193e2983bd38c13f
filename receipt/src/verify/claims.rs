//! Receipts of BitNet.rs: claims without raw times and without a hash. Of these nothing can be verified, but they can
//! break the rules that BitNet.rs itself has for them.

use std::fmt;

use brickscope_profile::text::printable_in;
use serde::{Deserialize, Serialize};

use super::{Code, Findings, Options, kernels, said};
use crate::file::{MAX_BYTES, NO_TIMES, has_no_times, without_mark};

/// Kernels that are named; further ones are counted.
const MOST_NAMED: usize = 5;

/// What a receipt states that nothing in it bears out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    /// The version of its schema, which isn't ours even where it is called the same.
    pub schema_version: String,
    /// How it says that the kernels ran.
    pub compute_path: String,
    /// What it says that they ran on.
    #[serde(default)]
    pub backend: Option<String>,
    /// The kernels that it names.
    pub kernels: Vec<String>,
    /// How many tokens it says were generated.
    #[serde(default)]
    pub tokens_generated: Option<u64>,
    /// How fast it says that was.
    #[serde(default)]
    pub tokens_per_second: Option<f64>,
}

impl Claims {
    /// Those of a receipt without raw times and without a hash; `None` of any other file.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.len() as u64 > MAX_BYTES {
            return None;
        }
        let text = without_mark(std::str::from_utf8(bytes).ok()?);
        if !has_no_times(text) {
            return None;
        }
        serde_json::from_str(text).ok()
    }

    /// Judges what can be: whether they break a rule, or lack what was asked for.
    pub(super) fn judge(self, options: &Options, found: &mut Findings) {
        if self.compute_path != "real" {
            let path = said(&self.compute_path);
            let why = format!("compute_path is {path}, but only `real` says that the kernels ran");
            found.refuse(Code::NotReal, why);
        }
        if self.kernels.iter().all(|id| id.trim().is_empty()) {
            found.refuse(Code::KernelIds, "it names no kernel, so nothing shows what ran");
        }
        for id in self.kernels.iter().filter(|id| id.to_lowercase().contains("mock")) {
            let id = said(id);
            let why = format!("the kernel {id} is a mock by its id, and mocks don't compute");
            found.refuse(Code::MockKernel, why);
        }
        let is_on_gpu = matches!(self.backend.as_deref(), Some("cuda" | "gpu" | "wgpu"));
        if (is_on_gpu || options.require_gpu_kernels)
            && !self.kernels.iter().any(|id| kernels::is_gpu(id))
        {
            let why = match (is_on_gpu, &self.backend) {
                (true, Some(backend)) => format!("the backend is {}", said(backend)),
                _ => "GPU kernels are required".to_owned(),
            };
            found.refuse(Code::NoGpuKernels, format!("{why}, but no kernel names a GPU"));
        }
        if options.signed_by.is_some() {
            found.refuse(Code::NotSignedBy, "it has no signature");
        }
        if options.model.is_some() {
            found.not_checked("the model's hash and size", "it states neither");
        }
        found.not_checked("that anything was measured", NO_TIMES);
        found.verdict.not_verifiable = Some(self);
    }
}

impl fmt::Display for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        // A number may have three hundred digits.
        let number = |number: String| printable_in(&number, 24);
        if let Some(rate) = self.tokens_per_second {
            parts.push(format!("{} tokens per second", number(rate.to_string())));
        }
        if let Some(tokens) = self.tokens_generated {
            parts.push(format!("{tokens} tokens generated"));
        }
        if let Some(backend) = &self.backend {
            parts.push(format!("backend {}", said(backend)));
        }
        let named = self.kernels.iter().take(MOST_NAMED).map(|id| said(id));
        let mut named: Vec<String> = named.collect();
        if let Some(more @ 1..) = self.kernels.len().checked_sub(MOST_NAMED) {
            named.push(format!("{more} more"));
        }
        if !named.is_empty() {
            parts.push(format!("kernels {}", named.join(", ")));
        }
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::verify;
    use super::*;

    const THEIRS: &str = r#"{"schema_version": "1.0.0", "compute_path": "real", "backend": "cpu",
        "tokens_generated": 128, "tokens_per_second": 0.5, "kernels": ["i2s_matmul"],
        "model": {"path": "m"}}"#;

    fn codes(text: &str, options: &Options) -> Vec<&'static str> {
        let verdict = verify(text.as_bytes(), options);
        assert!(!verdict.is_accepted() && verdict.not_verified().is_some(), "{verdict:?}");
        verdict.refusals.iter().map(|refusal| refusal.code.name()).collect()
    }

    #[test]
    fn claims_are_neither_accepted_nor_refused() {
        let verdict = verify(THEIRS.as_bytes(), &Options::default());
        let claims = verdict.not_verifiable.clone().expect("claims");
        assert_eq!(
            claims.to_string(),
            "0.5 tokens per second; 128 tokens generated; backend `cpu`; kernels `i2s_matmul`"
        );
        assert_eq!(verdict.not_verified().as_deref(), Some("not verifiable"));
        assert_eq!(codes(THEIRS, &Options::default()), [""; 0]);
        let many = Claims { kernels: vec!["k".to_owned(); 7], ..claims };
        assert!(many.to_string().ends_with("`k`, 2 more"), "{many}");
    }

    #[test]
    fn claims_that_break_the_rules_of_their_own_program_are_refused() {
        let none = Options::default();
        let with = |from: &str, to: &str| THEIRS.replace(from, to);
        assert_eq!(codes(&with("\"real\"", "\"mock\""), &none), ["not-real"]);
        assert_eq!(codes(&with("\"i2s_matmul\"", ""), &none), ["kernel-ids"]);
        assert_eq!(codes(&with("i2s_matmul", "mock_matmul"), &none), ["mock-kernel"]);
        assert_eq!(codes(&with("\"cpu\"", "\"cuda\""), &none), ["no-gpu-kernels"]);
        let gpu = Options { require_gpu_kernels: true, ..Options::default() };
        assert_eq!(codes(THEIRS, &gpu), ["no-gpu-kernels"]);
        assert_eq!(codes(&with("i2s_matmul", "gemm_cuda"), &gpu), [""; 0]);
        let signed = Options { signed_by: Some("ab".repeat(32)), ..Options::default() };
        assert_eq!(codes(THEIRS, &signed), ["not-signed-by"]);
    }

    #[test]
    fn what_is_not_of_their_schema_is_refused_as_before() {
        let text = THEIRS.replace("[\"i2s_matmul\"]", "7");
        assert_eq!(codes(&text, &Options::default()), ["schema"]);
    }
}
