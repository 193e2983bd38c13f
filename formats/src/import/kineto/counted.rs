//! Layers of a model whose modules no trace names, as of compiled ones, counted by what each layer has: one
//! attention, or what stands for it, and the norms around it.

/// What mixes tokens: once in a layer.
const MIXERS: [&str; 3] = ["FlashAttention", "LinearAttention", "SSM"];

const NORMS: [&str; 2] = ["RmsNorm", "LayerNorm"];

/// The most norms from one attention to the next. Models have up to six.
const MOST_NORMS: usize = 16;

/// What the first layer may have more or less of than the others, since compilers fuse it with what is
/// around.
const LOOSE: [&str; 7] =
    ["Elementwise", "Copy", "CopyCall", "View", "Allocate", "Softmax", "Quantize"];

/// The layer of each of the `bricks`, which are in order: the k-th attention is of layer k, which begins as
/// many norms before it as in all other layers, and goes on until the next one begins.
///
/// # Errors
///
/// Why it can't be told: if layers aren't alike.
pub(super) fn layers(bricks: &[Option<&str>]) -> Result<Vec<Option<u16>>, String> {
    // Begin and end of each: of several kernels, one behind the other.
    let mut mixers: Vec<(usize, usize)> = Vec::new();
    let mut norms: Vec<usize> = Vec::new();
    for (at, brick) in bricks.iter().enumerate() {
        let Some(brick) = brick else { continue };
        if MIXERS.contains(brick) {
            match mixers.last_mut().filter(|(_, end)| *end == at) {
                Some((_, end)) => *end = at + 1,
                None => mixers.push((at, at + 1)),
            }
        } else if NORMS.contains(brick) {
            norms.push(at);
        }
    }
    let (Some(&(first, _)), Some(&(_, last))) = (mixers.first(), mixers.last()) else {
        return Err("it has no attention that is known as such".to_owned());
    };
    if mixers.len() < 2 || mixers.len() >= usize::from(u16::MAX) {
        return Err(format!("it has {} attentions to count layers by", mixers.len()));
    }
    let between = |from: usize, to: usize| -> &[usize] {
        let begin = norms.partition_point(|&norm| norm < from);
        let end = norms.partition_point(|&norm| norm < to);
        norms.get(begin..end).unwrap_or_default()
    };
    let gaps: Vec<&[usize]> =
        mixers.iter().zip(mixers.iter().skip(1)).map(|(a, b)| between(a.1, b.0)).collect();
    let all = gaps.first().map_or(0, |gap| gap.len());
    if gaps.iter().any(|gap| gap.len() != all) {
        return Err("its layers have different numbers of norms".to_owned());
    }
    if all > MOST_NORMS {
        return Err(format!(
            "it has {all} norms from one attention to the next, too many for a layer"
        ));
    }
    let before = between(0, first);
    // Of the norms before an attention, those that are of its layer.
    let begins = |own: usize| -> Option<Vec<usize>> {
        let begin = |norms: &[usize]| norms.get(norms.len().checked_sub(own)?).copied();
        std::iter::once(&before).chain(&gaps).map(|&norms| begin(norms)).collect()
    };
    let way = |from: usize, to: usize| -> Vec<&str> {
        let way = bricks.get(from..to).unwrap_or_default();
        way.iter().copied().flatten().filter(|brick| !LOOSE.contains(brick)).collect()
    };
    let are_alike = |begins: &[usize]| {
        let mut ways = begins.iter().zip(&mixers).map(|(&begin, &(mixer, _))| way(begin, mixer));
        let first = ways.next();
        ways.all(|way| Some(way) == first)
    };
    let found = (1..=before.len().min(all))
        .rev()
        .find_map(|own| begins(own).filter(|begins| are_alike(begins)).map(|begins| (own, begins)));
    let Some((own, mut begins)) = found else {
        return Err("what comes before the attention differs from layer to layer".to_owned());
    };
    // The norm behind the last layer is that of the model.
    let end = between(last, bricks.len()).get(all - own).copied().unwrap_or(bricks.len());
    begins.push(end);
    let mut layers = vec![None; bricks.len()];
    for (layer, (begin, end)) in (0_u16..).zip(begins.iter().zip(begins.iter().skip(1))) {
        if let Some(of_it) = layers.get_mut(*begin..*end) {
            of_it.fill(Some(layer));
        }
    }
    Ok(layers)
}

#[cfg(test)]
mod tests {
    use super::layers;

    fn of(bricks: &str) -> Result<String, String> {
        let bricks: Vec<Option<&str>> = bricks
            .split(' ')
            .map(|brick| match brick {
                "n" => Some("RmsNorm"),
                "a" => Some("FlashAttention"),
                "m" => Some("MatMul"),
                "r" => Some("RopeEmbedding"),
                "e" => Some("Elementwise"),
                _ => None,
            })
            .collect();
        let layers = layers(&bricks)?;
        let text = |layer: Option<u16>| layer.map_or("-".to_owned(), |layer| layer.to_string());
        Ok(layers.into_iter().map(text).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn layers_begin_at_their_first_norm() {
        // The second kernel of an attention, an elementwise one that the first layer lacks, and the model's
        // own norm.
        let found = of("? n m r a m n m n m e r a a m n m n m e r a m n m n m");
        assert_eq!(found.as_deref(), Ok("- 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 1 2 2 2 2 2 2 2 2 - -"));
        // Norms of queries and keys are between the layer's first norm and its attention.
        let found = of("? n m n n a m n m n m n n a m n m n m");
        assert_eq!(found.as_deref(), Ok("- 0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 - -"));
        // A norm of embeddings is of no layer.
        let found = of("n n m a m n m n m a m n m");
        assert_eq!(found.as_deref(), Ok("- 0 0 0 0 0 0 1 1 1 1 1 1"));
    }

    #[test]
    fn layers_that_differ_are_not_counted() {
        assert!(of("n m m n m").is_err_and(|why| why.contains("no attention")));
        assert!(of("n m a m n m").is_err_and(|why| why.contains("1 attentions")));
        assert!(
            of("n m a m n n m a m n n n m a").is_err_and(|why| why.contains("numbers of norms"))
        );
        assert!(of("n m a n r m m a m").is_err_and(|why| why.contains("differs")));
        let most = "n m ".repeat(16);
        assert!(of(&format!("{most}a {most}a m")).is_ok());
        let more = "n m ".repeat(17);
        assert!(of(&format!("{more}a {more}a m")).is_err_and(|why| why.contains("17 norms")));
    }
}
