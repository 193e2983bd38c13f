//! `brickscope synth`: a model file of a real shape with random weights.

use anyhow::Result;
use brickscope_engine::synth;

use crate::args::SynthArgs;
use crate::progress;

pub(crate) fn run(args: &SynthArgs) -> Result<()> {
    let bar = progress::bytes("making", 0);
    let made = synth::write(args.shape, args.quant, args.seed, &args.output, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    Ok(made?)
}
