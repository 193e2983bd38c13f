//! Simulated processes, for tests: what makes one slower than another.

use brickscope_profile::stats::SplitMix64;

pub(super) struct Random(pub(super) SplitMix64);

impl Random {
    /// Above 0 and below 1.
    pub(super) fn uniform(&mut self) -> f64 {
        ((self.0.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.bits()) * n as u128) >> 64) as usize
    }

    /// Box and Muller, "A note on the generation of random normal deviates", 1958.
    pub(super) fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

/// What makes one process slower than another: shares of its time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Noise {
    /// 1 %.
    Normal,
    /// Student's t with 2 degrees of freedom: no variance.
    HeavyTails,
    /// A process in seven takes 3 % longer and more, with a Pareto tail of 1.5.
    Spikes,
    /// Some processes in a row take 5 to 20 % longer.
    Bursts,
}

impl Noise {
    pub(super) const EACH: [Self; 4] = [Self::Normal, Self::HeavyTails, Self::Spikes, Self::Bursts];

    /// The logarithms of the samples of a process.
    fn process(self, is_burst: &mut bool, random: &mut Random) -> Vec<f64> {
        let own = 0.002 * random.normal();
        let level = own
            + match self {
                Self::Normal => 0.01 * random.normal(),
                Self::HeavyTails => {
                    let chi = (random.normal().powi(2) + random.normal().powi(2)) / 2.0;
                    0.007 * random.normal() / chi.sqrt()
                }
                Self::Spikes if random.uniform() < 0.15 => {
                    (0.03 * random.uniform().powf(-1.0 / 1.5)).ln_1p()
                }
                Self::Spikes => 0.0,
                Self::Bursts => {
                    *is_burst = random.uniform() < if *is_burst { 0.75 } else { 0.05 };
                    if *is_burst { 0.05 + 0.15 * random.uniform() } else { 0.0 }
                }
            };
        let sample = |_| {
            let spike = if random.uniform() < 0.1 { 0.05 * random.uniform() } else { 0.0 };
            level + 0.005 * random.normal() + spike
        };
        (0..5).map(sample).collect()
    }

    /// `n` processes of either side that ran in turns.
    pub(super) fn sides(self, n: usize, random: &mut Random) -> [Vec<Vec<f64>>; 2] {
        let mut is_burst = false;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for turn in 0..n {
            let one = self.process(&mut is_burst, random);
            let other = self.process(&mut is_burst, random);
            let (of_a, of_b) = if turn % 2 == 0 { (one, other) } else { (other, one) };
            a.push(of_a);
            b.push(of_b);
        }
        [a, b]
    }
}

/// For each pair, whether A goes first: each second time.
pub(super) fn by_turns(pairs: usize) -> Vec<bool> {
    (0..pairs).map(|pair| pair % 2 == 0).collect()
}
