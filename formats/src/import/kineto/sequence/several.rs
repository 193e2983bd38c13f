//! Layers that are several ones: what mixes tokens in all but one of them isn't in the table.

use super::Token;

/// What is between two norms of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// What mixes tokens. Whether the projection of what it computed is here, and not behind a norm of its own.
    Mixer {
        is_whole: bool,
    },
    /// A network around its activation, or that of experts. Whether its last product is here.
    Network {
        is_whole: bool,
    },
    /// Products that could be of anything, how many, and whether a router is behind them.
    Products {
        count: usize,
        is_router: bool,
    },
    Nothing,
}

impl Part {
    fn of(part: &[Token]) -> Self {
        let has_product = |part: &[Token]| part.iter().any(|token| token.is_product());
        if let Some(mixer) = part.iter().rposition(|token| *token == Token::Mixer) {
            return Self::Mixer { is_whole: has_product(&part[mixer..]) };
        }
        if part.contains(&Token::Experts) {
            return Self::Network { is_whole: true };
        }
        match part.iter().position(|token| *token == Token::Activation) {
            Some(at) if has_product(&part[..at]) => {
                Self::Network { is_whole: has_product(&part[at..]) }
            }
            _ if has_product(part) => Self::Products {
                count: part.iter().filter(|token| token.is_product()).count(),
                is_router: part.contains(&Token::Router),
            },
            _ => Self::Nothing,
        }
    }
}

/// Whether what looks like one layer has a network behind products that no mixer is among: those of another layer, whose
/// mixer the table doesn't know. A layer may have two networks, such as a dense one beside experts, but nothing of this kind
/// before the second.
pub(super) fn is_several(layer: &[Token]) -> bool {
    let (mut networks, mut is_of_another) = (0_usize, false);
    // Whether there were products since the last mixer or network that are of neither.
    let mut has_others = false;
    // Whether these are one product, that of a router behind which the experts have a norm of their own, perhaps.
    let mut is_one = false;
    // Whether the part before lacks its last product, and whether it is a network.
    let mut unended = None;
    for part in layer.split(|token| *token == Token::Norm) {
        let mut is_network = false;
        match (Part::of(part), unended.take()) {
            (Part::Nothing, before) => unended = before,
            (Part::Mixer { is_whole }, _) => {
                has_others = false;
                unended = (!is_whole).then_some(false);
            }
            (Part::Network { is_whole }, _) => {
                is_network = is_whole;
                unended = (!is_whole).then_some(true);
            }
            (Part::Products { count: 1, is_router: true }, before) => unended = before,
            (Part::Products { .. }, Some(of_network)) => is_network = of_network,
            (Part::Products { count, .. }, None) => {
                is_one = count == 1 && !has_others;
                has_others = true;
            }
        }
        let first = part.iter().find(|token| token.is_product() || **token == Token::Router);
        let begins_with_experts = matches!(first, Some(Token::Router | Token::Experts));
        if is_network && is_one && part.contains(&Token::Experts) && begins_with_experts {
            has_others = false;
        }
        if is_network {
            networks += 1;
            is_of_another |= has_others;
            has_others = false;
        }
    }
    networks > 1 && is_of_another
}

/// Whether what looks like a layer has a norm and a product behind its network, which is whole: the head of a model. What mixes
/// tokens there is of the layer.
pub(super) fn has_head(layer: &[Token]) -> bool {
    let is_of_network = |token: &Token| matches!(token, Token::Activation | Token::Experts);
    let Some(network) = layer.iter().rposition(is_of_network) else { return false };
    let behind = &layer[network..];
    let Some(norm) = behind.iter().position(|token| *token == Token::Norm) else { return false };
    let (end, rest) = behind.split_at(norm);
    let has_product = |part: &[Token]| part.iter().any(|token| token.is_product());
    has_product(end) && has_product(rest) && !rest.contains(&Token::Mixer)
}

#[cfg(test)]
mod tests {
    use super::super::tests::tokens;
    use super::*;

    #[test]
    fn layers_of_known_models_are_one() {
        for layer in [
            // Dense, of separate projections, by GPT, in parallel, with split-K, in fp8, over several devices.
            "NPrkAPNPSP",
            "NPPPrkAPNPPSP",
            "NPkAPPSP",
            "NqPqrkAqPlNqPSqPl",
            "NPmrkAAPmNPmSPm",
            // Norms of queries and keys, behind attention and the network, and before their last products.
            "NPNNrkAPNPSP",
            "NPcNcNrkAaPNNPSPN",
            "NPrkANPNPSNP",
            // Experts, shared ones, those of one kernel, and latent attention.
            "NPrkAPNPREEz",
            "NPrkAPNPSPPRdESEc",
            "NPNPNPrkAPPNPRdESEcPSP",
            "NPrkAPNRE",
            // State spaces and linear attention, with norms of their own.
            "NPSANPNPSP",
            "NPSPNNNPAPNPSP",
            "NPSANPPNPRdESEc",
            // A dense network beside experts, with norms of queries and keys, and a gate behind the network.
            "NPrkAPNPSPNPRdESEc",
            "NPNNrkAPNNPSPNNPRdESEcNN",
            "NPrkANPNPSNPNPRdESEc",
            "NPPNPNNNrkAPNNPSPNNPPPSPN",
            // The same, whose router has a norm of its own.
            "NPNNNrkAPNNPSPNNPRNESENN",
            "NPNNrkAPNNPSPNNPNRdESEcNN",
            "NPrkAPNPSPNPRNESEc",
            // A network before attention and one behind it.
            "NPSPNPAPNPSP",
        ] {
            assert!(!is_several(&tokens(layer)), "{layer}");
            assert!(!has_head(&tokens(layer)), "{layer}");
        }
    }

    #[test]
    fn a_head_is_a_product_behind_the_norm_behind_a_whole_network() {
        for layer in ["NPrkAPNPSPNPx", "NPrkAPNPREEzNP", "NPrkANPNPSNPNP"] {
            let is_sure = layer != "NPrkANPNPSNPNP";
            // Where the network ends behind a norm of its own, its last product is as a head.
            assert_eq!(has_head(&tokens(layer)), is_sure, "{layer}");
        }
        // A network before attention.
        assert!(!has_head(&tokens("NPSPNPrkAP")));
    }

    #[test]
    fn layers_without_a_known_mixer_are_of_no_other() {
        for layers in [
            // Before the one with attention, and behind it.
            "NPxPNPSPNPrkAPNPSP",
            "NPrkAPNPSPNPxPNPSP",
            "NPxNPPNPSPNPxNPPNPSPNPrkAPNPSP",
            "NPNNrkAPNPRdESEcNPxPNPRdESEc",
            "NPrkANPNPSNPNPxNPNPSNP",
        ] {
            assert!(is_several(&tokens(layers)), "{layers}");
        }
    }
}
