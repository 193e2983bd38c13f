use std::path::{Path, PathBuf};

use super::*;

#[test]
fn logits_agree_with_the_cpu() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models");
    for name in ["tiny-Q4_K_M"] {
        let model = Model::open(&folder.join(format!("{name}.gguf"))).unwrap();
        let mut wgpu = Wgpu::new(&model, 64).unwrap();
        println!("{}", wgpu.name());
        let tokens: Vec<u32> = (0..40).map(|i| i * 7 % 512).collect();
        let plan = Plan::new(&model.config, &model.weights, 40, Outputs::All);
        wgpu.run(&plan, &tokens, 0).unwrap();
        let ours = wgpu.logits().unwrap().to_vec();
        let cpu = crate::executor::Cpu::new(
            brickscope_kernels::Kernels::best(),
            std::num::NonZeroUsize::MIN,
        )
        .unwrap();
        let mut session = crate::Session::new(&model, cpu, 64).unwrap();
        let theirs = session.all_logits(&tokens).unwrap();
        let d = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{name} {d}");
    }
}
