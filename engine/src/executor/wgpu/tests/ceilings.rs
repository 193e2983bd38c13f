use super::*;

#[test]
fn a_device_reads_and_multiplies_at_rates_that_it_can_have() {
    let ceilings = match measure_ceilings() {
        Ok(ceilings) => ceilings,
        Err(why) => return skipped(why).unwrap_or_default(),
    };
    // Between those of an old computer and more than any device's.
    assert!((1e8..1e14).contains(&ceilings.read_bytes_per_second), "{ceilings:?}");
    assert!((1e8..1e16).contains(&ceilings.flops_per_second), "{ceilings:?}");
    let again = measure_memory().expect("as a moment ago");
    assert!((1e8..1e14).contains(&again), "{again}");
}
