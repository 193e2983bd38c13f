//! The tokenizer against llama.cpp's ids, against slow ones that are right by inspection, and
//! against vocabularies and texts that mean harm.
//!
//! `data/tokenizer/*.json` are the vocabularies of two small models, with the keys of their GGUF
//! files, and under `references` what llama.cpp makes of some texts: bos and eos as the
//! vocabulary says, special tokens in the text not parsed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use brickscope_engine::tokenizer::{Error, Model, Special, TokenType, Tokenizer, Vocabulary};
use brickscope_testing::patience::{HANG, cpu_time};
use proptest::prelude::*;
use serde_json::Value;

const SPM: &str = include_str!("../data/tokenizer/spm.json");
const BPE: &str = include_str!("../data/tokenizer/bpe-qwen2.json");

const BARE: Special = Special { add: false, parse: false };
const PARSED: Special = Special { add: false, parse: true };

fn vocabulary(json: &str) -> Vocabulary {
    let json: Value = serde_json::from_str(json).unwrap();
    let strings = |key: &str| -> Vec<String> {
        json[key].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let numbers = |key: &str| -> Vec<f64> {
        json[key].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
    };
    let id = |key: &str| json[key].as_u64().map(|id| id as u32);
    Vocabulary {
        model: json["model"].as_str().unwrap().parse().unwrap(),
        pre: json["pre"].as_str().unwrap().to_owned(),
        tokens: strings("tokens"),
        scores: numbers("scores").into_iter().map(|score| score as f32).collect(),
        types: numbers("token_type")
            .into_iter()
            .map(|kind| TokenType::from_gguf(kind as i32))
            .collect(),
        merges: strings("merges"),
        bos: id("bos_token_id"),
        eos: id("eos_token_id"),
        unk: id("unknown_token_id"),
        add_bos: json["add_bos_token"].as_bool().unwrap(),
        add_eos: json["add_eos_token"].as_bool().unwrap(),
        add_space_prefix: json["add_space_prefix"].as_bool().unwrap(),
    }
}

fn tokenizer(json: &str) -> Tokenizer {
    Tokenizer::new(vocabulary(json)).unwrap()
}

/// The vocabulary, changed by `change`, with which `Tokenizer::new` fails.
fn error(json: &str, change: impl FnOnce(&mut Vocabulary)) -> Error {
    let mut vocabulary = vocabulary(json);
    change(&mut vocabulary);
    Tokenizer::new(vocabulary).unwrap_err()
}

/// What a token decoder prints, push by push.
fn stream(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    let mut decoder = tokenizer.decoder();
    let mut texts: Vec<_> = ids.iter().map(|&id| decoder.push(id).unwrap().to_owned()).collect();
    texts.push(decoder.finish());
    texts
}

// ---- llama.cpp's ids ----------------------------------------------------------------------

#[test]
fn each_reference_text_has_llama_cpp_s_ids_and_comes_back() {
    for json in [SPM, BPE] {
        let tokenizer = tokenizer(json);
        let json: Value = serde_json::from_str(json).unwrap();
        let references = json["references"].as_array().unwrap();
        assert_eq!(references.len(), 12);
        for reference in references {
            let text = reference["text"].as_str().unwrap();
            let expected: Vec<u32> = reference["ids"]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| id.as_u64().unwrap() as u32)
                .collect();
            assert_eq!(tokenizer.encode(text, Special::default()).unwrap(), expected, "{text:?}");
            assert_eq!(tokenizer.decode(&expected).unwrap(), text);
        }
    }
}

// ---- Slow ones, right by inspection --------------------------------------------------------

/// SPM without a queue: looks at all neighbours for each merge.
fn slow_spm(vocabulary: &Vocabulary, text: &str) -> Vec<u32> {
    let ids: HashMap<&str, u32> = vocabulary.tokens.iter().map(String::as_str).zip(0..).collect();
    let text = format!(" {text}").replace(' ', "▁");
    let mut symbols: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let mut best: Option<(f32, usize)> = None;
        for left in 0..symbols.len().saturating_sub(1) {
            let pair = format!("{}{}", symbols[left], symbols[left + 1]);
            let Some(&id) = ids.get(pair.as_str()) else { continue };
            let score = vocabulary.scores[id as usize];
            if best.is_none_or(|(best, _)| score > best) {
                best = Some((score, left));
            }
        }
        let Some((_, left)) = best else { break };
        let right = symbols.remove(left + 1);
        symbols[left].push_str(&right);
    }
    let spell = |symbol: &String| match ids.get(symbol.as_str()) {
        Some(&id) => vec![id],
        None => symbol.bytes().map(|byte| ids[format!("<0x{byte:02X}>").as_str()]).collect(),
    };
    symbols.iter().flat_map(spell).collect()
}

/// BPE without a queue, for a text that is one piece of letters.
fn slow_bpe(vocabulary: &Vocabulary, text: &str) -> Vec<u32> {
    let ids: HashMap<&str, u32> = vocabulary.tokens.iter().map(String::as_str).zip(0..).collect();
    let ranks: HashMap<&str, usize> =
        vocabulary.merges.iter().map(String::as_str).zip(0..).collect();
    let mut symbols: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let best = (1..symbols.len())
            .filter_map(|at| {
                ranks.get(format!("{} {}", symbols[at - 1], symbols[at]).as_str()).zip(Some(at))
            })
            .min();
        let Some((_, at)) = best else { break };
        let right = symbols.remove(at);
        symbols[at - 1].push_str(&right);
    }
    symbols.iter().map(|symbol| ids[symbol.as_str()]).collect()
}

#[test]
fn spm_merges_as_the_slow_one_does() {
    let (vocabulary, tokenizer) = (vocabulary(SPM), tokenizer(SPM));
    let text = prop_oneof!["[selfinrtuox_ .=(\"#]{1,60}", "\\PC{1,20}"];
    proptest!(|(text in text)| {
        prop_assert_eq!(tokenizer.encode(&text, BARE).unwrap(), slow_spm(&vocabulary, &text));
    });
}

#[test]
fn spm_takes_the_leftmost_of_equals() {
    let mut vocabulary = vocabulary(SPM);
    vocabulary.scores = vec![];
    let tokenizer = Tokenizer::new(vocabulary.clone()).unwrap();
    vocabulary.scores = vec![0.0; vocabulary.tokens.len()];
    proptest!(|(text in "[selfinrtuox_ ]{1,40}")| {
        prop_assert_eq!(tokenizer.encode(&text, BARE).unwrap(), slow_spm(&vocabulary, &text));
    });
}

#[test]
fn bpe_merges_as_the_slow_one_does() {
    let (vocabulary, tokenizer) = (vocabulary(BPE), tokenizer(BPE));
    proptest!(|(text in "[selfinrtuoxcmpadhw]{1,60}")| {
        prop_assert_eq!(tokenizer.encode(&text, BARE).unwrap(), slow_bpe(&vocabulary, &text));
    });
}

// ---- There and back -------------------------------------------------------------------------

#[test]
fn any_text_comes_back_from_bpe() {
    let tokenizer = tokenizer(BPE);
    proptest!(|(text in any::<String>())| {
        for special in [Special::default(), BARE] {
            let ids = tokenizer.encode(&text, special).unwrap();
            prop_assert_eq!(&tokenizer.decode(&ids).unwrap(), &text);
        }
    });
}

#[test]
fn any_text_comes_back_from_spm_but_its_stand_in_for_spaces() {
    let mut unprefixed = vocabulary(SPM);
    unprefixed.add_space_prefix = false;
    let tokenizers = [tokenizer(SPM), Tokenizer::new(unprefixed).unwrap()];
    proptest!(|(text in any::<String>())| {
        let text = format!("{text} \u{2581}");
        for tokenizer in &tokenizers {
            for special in [Special::default(), BARE] {
                let ids = tokenizer.encode(&text, special).unwrap();
                prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text.replace('\u{2581}', " "));
            }
        }
    });
}

#[test]
fn a_stream_of_tokens_is_the_text_that_they_are_at_once() {
    let tokenizers = [SPM, BPE].map(tokenizer);
    proptest!(|(ids in prop::collection::vec(0u32..512, 0..60))| {
        for tokenizer in &tokenizers {
            prop_assert_eq!(stream(tokenizer, &ids).concat(), tokenizer.decode(&ids).unwrap());
        }
    });
}

#[test]
fn bytes_that_are_no_characters_decode_like_anyone_decodes_them() {
    let tokenizer = tokenizer(SPM);
    proptest!(|(bytes in prop::collection::vec(any::<u8>(), 0..20))| {
        // 422 is `▁`: the first is the prefix, which is dropped. 3 is <0x00>.
        let ids: Vec<u32> = [422, 422].into_iter().chain(bytes.iter().map(|&byte| 3 + u32::from(byte))).collect();
        let expected = format!(" {}", String::from_utf8_lossy(&bytes));
        prop_assert_eq!(tokenizer.decode(&ids).unwrap(), expected);
    });
}

#[test]
fn a_stream_holds_back_half_a_character() {
    let tokenizer = tokenizer(SPM);
    let ids = tokenizer.encode("a 😀b", BARE).unwrap();
    assert_eq!(stream(&tokenizer, &ids), ["a", " ", "", "", "", "😀", "b", ""]);
    assert_eq!(stream(&tokenizer, &ids[..4]), ["a", " ", "", "", "\u{FFFD}"]);
    // The character that never comes is shown as soon as that is certain.
    assert_eq!(stream(&tokenizer, &[ids[2], ids[3], ids[6]]), ["", "", "\u{FFFD}b", ""]);
}

#[test]
fn an_id_past_the_end_is_an_error_and_the_stream_goes_on() {
    let tokenizer = tokenizer(BPE);
    let past = Error::IdPastEnd { id: 512, n_tokens: 512 };
    assert_eq!(tokenizer.decode(&[64, 512]), Err(past.clone()));
    assert_eq!(tokenizer.token_bytes(512), Err(past.clone()));
    assert_eq!(tokenizer.token_type(512), Err(past.clone()));
    assert!(tokenizer.decode(&[u32::MAX]).is_err());
    let mut decoder = tokenizer.decoder();
    assert_eq!(decoder.push(512), Err(past));
    assert_eq!(decoder.push(64), Ok("a"));
}

#[test]
fn a_token_has_bytes_even_if_they_are_no_text() {
    let (spm, bpe) = (tokenizer(SPM), tokenizer(BPE));
    assert_eq!(spm.token_bytes(2).unwrap(), b"</s>");
    assert_eq!(spm.token_bytes(3 + 0xE2).unwrap(), [0xE2]);
    assert_eq!(spm.token_bytes(spm.token_id("▁self").unwrap()).unwrap(), b" self");
    assert_eq!(bpe.token_bytes(198).unwrap(), b"\n");
    assert_eq!(bpe.token_bytes(511).unwrap(), b"<|im_end|>");
    assert_eq!(bpe.decode(&[64, 511, 65]).unwrap(), "ab");
}

// ---- Special tokens ---------------------------------------------------------------------------

#[test]
fn control_tokens_in_the_text_are_text_unless_asked_for() {
    let (spm, bpe) = (tokenizer(SPM), tokenizer(BPE));
    assert!(!spm.encode("a</s>b", Special::default()).unwrap().contains(&2));
    assert!(!bpe.encode("<|im_end|>", Special::default()).unwrap().contains(&511));

    // The text after a special token gets the space prefix too, and loses it again.
    let ids = spm.encode("a</s>a<unk>", PARSED).unwrap();
    assert_eq!(ids, [268, 2, 268, 0]);
    assert_eq!(spm.decode(&ids).unwrap(), "aa");
    assert_eq!(bpe.encode("a<|im_end|>\n", PARSED).unwrap(), [64, 511, 198]);
    assert_eq!(bpe.encode("<|im_end|><|endoftext|>", PARSED).unwrap(), [511, 510]);
}

#[test]
fn user_defined_tokens_are_always_one_token() {
    for json in [SPM, BPE] {
        let mut vocabulary = vocabulary(json);
        vocabulary.tokens.push("self x".to_owned());
        vocabulary.types.push(TokenType::UserDefined);
        if !vocabulary.scores.is_empty() {
            vocabulary.scores.push(-9999.0);
        }
        let tokenizer = Tokenizer::new(vocabulary).unwrap();
        let ids = tokenizer.encode("a self x = b", BARE).unwrap();
        assert_eq!(ids.iter().filter(|&&id| id == 512).count(), 1);
        assert_eq!(tokenizer.decode(&ids).unwrap(), "a self x = b");
    }
}

#[test]
fn bos_and_eos_are_added_as_the_vocabulary_says() {
    let mut vocabulary = vocabulary(SPM);
    vocabulary.add_eos = true;
    let tokenizer = Tokenizer::new(vocabulary).unwrap();
    assert_eq!(tokenizer.encode("", Special::default()).unwrap(), [1, 2]);
    assert!(tokenizer.encode("", BARE).unwrap().is_empty());
    assert_eq!(tokenizer.encode("a", Special::default()).unwrap(), [1, 268, 2]);
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.n_tokens()), (Some(1), Some(2), 512));
    assert_eq!(
        [("", Model::Spm), ("llama-bpe", Model::Bpe), ("qwen2", Model::Bpe)]
            .map(|(pre, model)| model.adds_bos(pre)),
        [true, true, false]
    );
}

#[test]
fn a_whole_piece_in_the_vocabulary_needs_no_merges_in_llama_3() {
    let mut vocabulary = vocabulary(BPE);
    vocabulary.tokens.push("Ġxyzzy".to_owned());
    vocabulary.types.push(TokenType::Normal);
    let mut encode = |pre: &str| {
        vocabulary.pre = pre.to_owned();
        Tokenizer::new(vocabulary.clone()).unwrap().encode("a xyzzy", BARE).unwrap()
    };
    assert_eq!(encode("llama-bpe"), [64, 512]);
    assert!(!encode("qwen2").contains(&512));
}

// ---- Texts that can't be spelled ----------------------------------------------------------

#[test]
fn what_has_no_token_is_the_unknown_one_or_an_error() {
    let spm = |unk| {
        let mut vocabulary = vocabulary(SPM);
        for (index, token) in
            vocabulary.tokens.iter_mut().enumerate().filter(|(_, token)| token.starts_with("<0x"))
        {
            *token = format!("gone {index}");
        }
        vocabulary.types.fill(TokenType::Normal);
        vocabulary.unk = unk;
        Tokenizer::new(vocabulary).unwrap().encode("a😀", BARE)
    };
    // One per character, not per byte.
    assert_eq!(spm(Some(0)), Ok(vec![268, 0]));
    assert_eq!(spm(None), Err(Error::NoTokenForByte { byte: 0xF0 }));

    let bpe = |unk| {
        let mut vocabulary = vocabulary(BPE);
        let newline = vocabulary.tokens.iter().position(|token| token == "Ċ").unwrap();
        vocabulary.tokens[newline] = String::new();
        vocabulary.merges.retain(|merge| !merge.contains('Ċ'));
        vocabulary.unk = unk;
        Tokenizer::new(vocabulary).unwrap().encode("a\n", BARE)
    };
    assert_eq!(bpe(Some(7)), Ok(vec![64, 7]));
    assert_eq!(bpe(None), Err(Error::NoTokenForByte { byte: b'\n' }));
}

// ---- Vocabularies that mean harm -------------------------------------------------------------

#[test]
fn a_vocabulary_that_contradicts_itself_is_an_error_that_says_where() {
    let check = |error: Error, says: &str| assert_eq!(error.to_string(), says);
    check(
        error(SPM, |v| v.tokens.clear()),
        "tokenizer.ggml.tokens is empty: a vocabulary needs at least one token",
    );
    check(
        error(SPM, |v| v.scores.truncate(511)),
        "tokenizer.ggml.scores has 511 entries, but tokenizer.ggml.tokens has 512",
    );
    check(
        error(BPE, |v| v.types.push(TokenType::Normal)),
        "tokenizer.ggml.token_type has 513 entries, but tokenizer.ggml.tokens has 512",
    );
    check(error(SPM, |v| v.scores[7] = f32::NAN), "tokenizer.ggml.scores[7] is not a number");
    check(
        error(SPM, |v| v.tokens[5] = "<0x+1>".into()),
        "tokenizer.ggml.tokens[5] is \"<0x+1>\" and of type byte, but a byte is spelled like \"<0x0A>\"",
    );
    check(
        error(SPM, |v| v.bos = Some(512)),
        "tokenizer.ggml.bos_token_id is 512, but the vocabulary has 512 tokens",
    );
    check(
        error(BPE, |v| v.eos = Some(u32::MAX)),
        "tokenizer.ggml.eos_token_id is 4294967295, but the vocabulary has 512 tokens",
    );
    check(
        error(SPM, |v| v.unk = Some(600)),
        "tokenizer.ggml.unknown_token_id is 600, but the vocabulary has 512 tokens",
    );
    check(
        error(SPM, |v| v.bos = None),
        "tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing",
    );
    check(
        error(BPE, |v| {
            v.add_eos = true;
            v.eos = None;
        }),
        "tokenizer.ggml.add_eos_token is true, but tokenizer.ggml.eos_token_id is missing",
    );
    for bad in ["", " ", "ab", "é", "ab "] {
        check(
            error(BPE, |v| v.merges[3] = bad.into()),
            &format!(
                "tokenizer.ggml.merges[3] is {bad:?}, but a merge is two tokens with a space between"
            ),
        );
    }
    for (bad, token) in [("a qqq", "qqq"), ("qqq a", "qqq"), ("q q", "qq")] {
        check(
            error(BPE, |v| v.merges[3] = bad.into()),
            &format!("tokenizer.ggml.merges[3] is {bad:?}, but {token:?} is not in the vocabulary"),
        );
    }
    check(
        error(BPE, |v| v.merges[0] = "x".repeat(1 << 20)),
        &format!(
            "tokenizer.ggml.merges[0] is \"{}…\", but a merge is two tokens with a space between",
            "x".repeat(48)
        ),
    );
    check(
        "bert".parse::<Model>().unwrap_err(),
        "tokenizer.ggml.model is \"bert\", but only \"llama\" (SPM) and \"gpt2\" (byte-level BPE) are known",
    );
    let unknown = error(BPE, |v| v.pre = "gpt-5".into()).to_string();
    assert!(
        unknown.starts_with(
            "tokenizer.ggml.pre is \"gpt-5\", but only these are known: default, gpt-2,"
        ),
        "{unknown}"
    );
    assert!(
        unknown.contains("llama-bpe") && unknown.contains("qwen2") && unknown.contains("tekken"),
        "{unknown}"
    );
}

#[test]
fn an_odd_vocabulary_works_as_far_as_it_goes() {
    // The last of two equal tokens and the first of two equal merges count.
    let mut doubled = vocabulary(BPE);
    doubled.tokens.push("a".to_owned());
    doubled.types.push(TokenType::Normal);
    let first = doubled.merges[0].clone();
    doubled.merges.push(first);
    let tokenizer = Tokenizer::new(doubled).unwrap();
    assert_eq!(tokenizer.encode("a  ", BARE).unwrap(), [512, 256]);

    // Empty control tokens are nowhere in the text, rather than everywhere.
    let mut empty = vocabulary(SPM);
    empty.tokens[0].clear();
    empty.tokens[400].clear();
    empty.types[400] = TokenType::UserDefined;
    let tokenizer = Tokenizer::new(empty).unwrap();
    assert_eq!(tokenizer.encode("a", PARSED).unwrap(), [268]);
    assert_eq!(tokenizer.decode(&[0, 400, 268]).unwrap(), "a");
}

proptest! {
    #[test]
    fn no_vocabulary_makes_it_panic(
        is_spm in any::<bool>(),
        tokens in prop::collection::vec(prop_oneof!["[ab▁Ġ ]{0,3}", "<0x[0-9A-G]{2}>", any::<String>()], 0..12),
        scores in prop::collection::vec(any::<f32>(), 0..12),
        types in prop::collection::vec(0i32..8, 0..12),
        merges in prop::collection::vec(prop_oneof!["[abĠ]{0,2} ?[abĠ]{0,2}", any::<String>()], 0..4),
        special in prop::array::uniform3(prop::option::of(0u32..14)),
        add in prop::array::uniform3(any::<bool>()),
        text in prop_oneof!["[ab▁Ġ <0x>]{0,12}", any::<String>()],
        ids in prop::collection::vec(0u32..14, 0..12),
    ) {
        let n_tokens = tokens.len();
        let fit = |len: usize| if len.is_multiple_of(3) { 0 } else { n_tokens };
        let (mut scores, mut types) = (scores, types);
        scores.resize(fit(scores.len()), 0.0);
        types.resize(fit(types.len()), 1);
        let vocabulary = Vocabulary {
            model: if is_spm { Model::Spm } else { Model::Bpe },
            pre: "llama-bpe".to_owned(),
            tokens,
            scores,
            types: types.into_iter().map(TokenType::from_gguf).collect(),
            merges,
            bos: special[0],
            eos: special[1],
            unk: special[2],
            add_bos: add[0],
            add_eos: add[1],
            add_space_prefix: add[2],
        };
        if let Ok(tokenizer) = Tokenizer::new(vocabulary) {
            for special in [Special::default(), PARSED] {
                if let Ok(ids) = tokenizer.encode(&text, special) {
                    prop_assert!(ids.iter().all(|&id| (id as usize) < n_tokens));
                    tokenizer.decode(&ids).unwrap();
                }
            }
            let _ = tokenizer.decode(&ids);
        }
    }
}

// ---- Texts that mean harm ---------------------------------------------------------------------

#[test]
fn a_long_text_takes_no_longer_than_many_short_ones() {
    // Far more CPU time than a slow machine needs in a debug build, far less than a quadratic algorithm. Where nobody counts
    // that, it is a limit for hangs.
    const PATIENCE: Duration = Duration::from_secs(20);
    let unit_and_repeats = [
        ("a", 200_000),
        ("A", 200_000),
        (" ", 200_000),
        ("\n", 200_000),
        (" \n", 100_000),
        ("1", 200_000),
        ("'", 200_000),
        ("<", 200_000),
        ("😀", 50_000),
        ("e\u{301}", 50_000),
        ("<|im_end|>", 20_000),
    ];
    // `default` has the regexes of the other names among its passes.
    let mut tokenizers = vec![tokenizer(SPM)];
    for pre in ["qwen2", "default", "tekken"] {
        let mut vocabulary = vocabulary(BPE);
        vocabulary.pre = pre.to_owned();
        tokenizers.push(Tokenizer::new(vocabulary).unwrap());
    }
    for tokenizer in &tokenizers {
        for (unit, n_repeats) in unit_and_repeats {
            let text = unit.repeat(n_repeats) + "z";
            let (start, before) = (Instant::now(), cpu_time());
            let ids = tokenizer.encode(&text, PARSED).unwrap();
            let decoded = tokenizer.decode(&ids).unwrap();
            let cpu = cpu_time().zip(before).map(|(after, before)| after - before);
            let (took, patience) = cpu.map_or((start.elapsed(), HANG), |cpu| (cpu, PATIENCE));
            if !unit.starts_with("<|") {
                assert_eq!(decoded, text);
            }
            assert!(took < patience, "{unit:?} × {n_repeats} took {took:?}");
        }
    }
}
