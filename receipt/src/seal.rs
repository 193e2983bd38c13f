//! The hash over a receipt, and signatures of the hash.

use ed25519_dalek::{Signer, VerifyingKey};
use serde_json::Value;

use super::file::ReceiptError;
use super::hash::{hex, sha256_hex, unhex};
use super::key::SecretKey;
use super::v1::{Receipt, Seal, Signature, Test};

/// Above this, JSON readers may read the same whole number differently (RFC 8259, section 6).
const MOST: u64 = 1 << 53;

/// The only signature algorithm.
pub(super) const ED25519: &str = "ed25519";

impl Receipt {
    /// The receipt with its hash. An earlier seal is dropped, with its signatures.
    ///
    /// # Errors
    ///
    /// If JSON can't hold a number, or not every reader would read it alike: NaN, an infinity, a whole
    /// number above 2^53.
    pub fn sealed(mut self) -> Result<Self, ReceiptError> {
        let sha256 = self.canonical_sha256()?;
        self.seal = Some(Seal { sha256, signatures: Vec::new() });
        Ok(self)
    }

    /// SHA-256 of the receipt without its seal in canonical JSON (RFC 8785), in hexadecimal.
    ///
    /// # Errors
    ///
    /// As [`sealed`](Self::sealed).
    pub fn canonical_sha256(&self) -> Result<String, ReceiptError> {
        // Before the JSON value is made, in which NaN would be `null`.
        if let Some(field) = self.not_finite() {
            return Err(ReceiptError::NotFinite { field });
        }
        let fault = |source| ReceiptError::Canonical { source };
        let mut value = serde_json::to_value(self).map_err(fault)?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("seal");
        }
        if let Some((field, number)) = beyond(&value) {
            return Err(ReceiptError::Number { field, number });
        }
        Ok(sha256_hex(&serde_json_canonicalizer::to_vec(&value).map_err(fault)?))
    }

    /// Adds a signature of the seal; it replaces one by the same key.
    ///
    /// # Errors
    ///
    /// If there is no seal, or it doesn't match the receipt: nobody should sign what isn't true.
    pub fn sign(&mut self, key: &SecretKey) -> Result<(), ReceiptError> {
        let sha256 = self.canonical_sha256()?;
        let seal = self.seal.as_mut().ok_or(ReceiptError::Unsealed)?;
        let hash = unhex::<32>(&sha256).filter(|_| seal.sha256 == sha256);
        let hash = hash.ok_or(ReceiptError::BrokenSeal)?;
        let public_key = key.public_key();
        seal.signatures.retain(|signature| signature.public_key != public_key);
        seal.signatures.push(Signature {
            algorithm: ED25519.to_owned(),
            public_key,
            signature: hex(&key.0.sign(&hash).to_bytes()),
        });
        Ok(())
    }

    /// The place of the first number that isn't finite, if any.
    fn not_finite(&self) -> Option<String> {
        let bad = self.floats().into_iter().find(|(_, number)| !number.is_finite());
        let of_tests = || {
            self.tests.iter().enumerate().find_map(|(i, test)| {
                let bad = test.floats().into_iter().find(|(_, number)| !number.is_finite());
                bad.map(|(field, _)| format!("tests[{i}].{field}"))
            })
        };
        bad.map(|(field, _)| field.to_owned()).or_else(of_tests)
    }

    /// All floating-point numbers except those of the tests.
    fn floats(&self) -> Vec<(&'static str, f64)> {
        let ceilings = self.ceilings.iter();
        let bandwidths = ceilings.clone().flat_map(|ceilings| &ceilings.caches);
        let bandwidths =
            bandwidths.map(|cache| ("ceilings.caches", Some(cache.read_bytes_per_second)));
        let ceilings = ceilings.flat_map(|ceilings| {
            [
                ("ceilings.read_bytes_per_second", Some(ceilings.read_bytes_per_second)),
                ("ceilings.flops_per_second", Some(ceilings.flops_per_second)),
                ("ceilings.memory_spread", ceilings.memory_spread.map(|[lowest, _]| lowest)),
                ("ceilings.memory_spread", ceilings.memory_spread.map(|[_, highest]| highest)),
            ]
        });
        [
            ("tokens_per_second", self.tokens_per_second),
            ("machine.cgroup_cpus", self.machine.cgroup_cpus),
            ("device.resolution_ns", self.device.as_ref().and_then(|device| device.resolution_ns)),
            ("clock.resolution_ns", self.clock.resolution_ns),
            ("clock.reading_ns", self.clock.reading_ns),
            ("clock.drift_ppm", self.clock.drift_ppm),
            ("overhead.span_ns", self.overhead.span_ns),
            ("load.before", self.load.before),
            ("load.others_share", self.load.others_share),
            ("load.steal_share", self.load.steal_share),
        ]
        .into_iter()
        .chain(ceilings)
        .chain(bandwidths)
        .filter_map(|(field, number)| Some((field, number?)))
        .collect()
    }
}

impl Test {
    /// All floating-point numbers of the test.
    fn floats(&self) -> Vec<(&'static str, f64)> {
        let of = &self.aggregates;
        [
            ("warm_up.within", Some(self.warm_up.within)),
            ("aggregates.avg_ns", of.avg_ns),
            ("aggregates.stddev_ns", of.stddev_ns),
            ("aggregates.median_ns", of.median_ns),
            ("aggregates.avg_ts", of.avg_ts),
            ("aggregates.stddev_ts", of.stddev_ts),
            ("aggregates.median_ts", of.median_ts),
            ("aggregates.low_ts", of.low_ts),
            ("aggregates.high_ts", of.high_ts),
            ("aggregates.per_token.mean_ns", of.per_token.mean_ns),
            ("aggregates.per_token.stddev_ns", of.per_token.stddev_ns),
            ("aggregates.first_token.mean_ns", of.first_token.mean_ns),
            ("aggregates.first_token.stddev_ns", of.first_token.stddev_ns),
        ]
        .into_iter()
        .filter_map(|(field, number)| Some((field, number?)))
        .collect()
    }
}

impl Signature {
    /// Whether this is a signature of the receipt whose hash is `sha256` (in hexadecimal), by the key that it
    /// names. Keys and signatures that others could forge are rejected (RFC 8032 with the strict checks of
    /// ed25519-dalek).
    #[must_use]
    pub fn is_of(&self, sha256: &str) -> bool {
        let check = || {
            let key = VerifyingKey::from_bytes(&unhex(&self.public_key)?).ok()?;
            let signature = ed25519_dalek::Signature::from_bytes(&unhex(&self.signature)?);
            key.verify_strict(&unhex::<32>(sha256)?, &signature).ok()
        };
        self.algorithm == ED25519 && check().is_some()
    }
}

/// The first whole number above 2^53, and its place.
fn beyond(value: &Value) -> Option<(String, String)> {
    let inside = |place: String, value| {
        let (rest, number) = beyond(value)?;
        let dot = if rest.is_empty() || rest.starts_with('[') { "" } else { "." };
        Some((format!("{place}{dot}{rest}"), number))
    };
    match value {
        Value::Number(number) if number.is_f64() => None,
        Value::Number(number) => {
            let is_exact = number.as_u64().is_some_and(|number| number <= MOST);
            (!is_exact).then(|| (String::new(), number.to_string()))
        }
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(i, item)| inside(format!("[{i}]"), item))
        }
        Value::Object(fields) => {
            fields.iter().find_map(|(name, value)| inside(name.clone(), value))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::v1::Device;

    /// JSON has no NaN, so this can't be seen from outside.
    #[test]
    fn no_number_with_a_fraction_is_forgotten() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/receipt-v1.json");
        let mut receipt = Receipt::load(&fixture).expect("the fixture");
        let ceilings = receipt.ceilings.as_mut().expect("it has some");
        ceilings.caches.truncate(1);
        ceilings.memory_spread = Some([1e9, 2e9]);
        receipt.device = Some(Device { resolution_ns: Some(32.0), ..Device::default() });
        let aggregates = &mut receipt.tests[0].aggregates;
        aggregates.per_token = aggregates.first_token.clone();
        let listed = receipt.floats().len() + receipt.tests[0].floats().len();
        // A test has two spreads, of two such numbers each; memory's spread is two numbers in one place.
        let types = include_str!("v1.rs").matches("f64").count() + 2 + 1;
        assert_eq!(listed, types);
        assert_eq!(receipt.not_finite(), None);
        receipt.tests[0].aggregates.first_token.stddev_ns = Some(f64::INFINITY);
        let field = "tests[0].aggregates.first_token.stddev_ns";
        assert_eq!(receipt.not_finite().as_deref(), Some(field));
    }
}
