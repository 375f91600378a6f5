//! A model for Dynamo's engine simulator: a tokenizer and settings in the layout of the model hub's cache, because no hub can be
//! reached. There are no weights. The simulator answers with tokens of [`RANDOM_TOKENS`], which are words here.

use serde_json::{Map, Value, json};
use steersman_testkit::real_node::scenario::MODEL;

use crate::image::Entry;

/// `HF_HOME` of the image.
pub const HUB_HOME: &str = "/opt/models";

/// Name of the only version of the model.
const REVISION: &str = "0000000000000000000000000000000000000000";

/// Ids of the tokens that the simulator answers with.
const RANDOM_TOKENS: std::ops::Range<usize> = 1000..2000;

const SYLLABLES: [&str; 10] = ["ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "ru"];

/// Tokens with a meaning, after all others.
const END: &str = "<|end|>";
const ASSISTANT: &str = "<|assistant|>";

const MAX_TOKENS: u32 = 8192;

/// The files of the model.
pub fn entries() -> Vec<Entry> {
    let folder = format!("{HUB_HOME}/hub/models--{}", MODEL.replace('/', "--"));
    let end = RANDOM_TOKENS.end;
    let config = json!({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": end + 2, "torch_dtype": "bfloat16",
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 2, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": MAX_TOKENS,
        "bos_token_id": end, "eos_token_id": end,
    });
    let template = format!(
        "{{% for message in messages %}}{{{{ message['role'] }}}}: {{{{ message['content'] }}}}{END}{{% endfor %}}\
         {{% if add_generation_prompt %}}{ASSISTANT}{{% endif %}}"
    );
    let tokenizer_config = json!({ "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END,
        "model_max_length": MAX_TOKENS, "chat_template": template });
    let files = [
        ("config", config),
        ("tokenizer", tokenizer()),
        ("tokenizer_config", tokenizer_config),
        ("generation_config", json!({ "eos_token_id": end })),
    ];
    let json_file = |(name, content): (&str, Value)| {
        Entry::bytes(format!("{folder}/snapshots/{REVISION}/{name}.json"), 0o644, content.to_string())
    };
    let mut entries = vec![Entry::bytes(format!("{folder}/refs/main"), 0o644, REVISION)];
    entries.extend(files.map(json_file));
    entries
}

/// Every byte is a token, so that it reads any text.
fn tokenizer() -> Value {
    let special = [(RANDOM_TOKENS.end, END), (RANDOM_TOKENS.end + 1, ASSISTANT)].map(|(id, content)| {
        json!({ "id": id, "content": content, "special": true, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false })
    });
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": special,
        "pre_tokenizer": bytes,
        "decoder": bytes,
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary(), "merges": [] },
    })
}

fn vocabulary() -> Map<String, Value> {
    let bytes = (0..=u8::MAX).map(byte_character).map(String::from);
    let unused = (256..RANDOM_TOKENS.start).map(|id| format!("unused-{id}"));
    let words = (0..RANDOM_TOKENS.len()).map(|number| {
        let syllable = |digit: usize| SYLLABLES[digit % 10];
        format!("{}{}{}{}", byte_character(b' '), syllable(number / 100), syllable(number / 10), syllable(number))
    });
    bytes.chain(unused).chain(words).enumerate().map(|(id, token)| (token, id.into())).collect()
}

/// The character that stands for a byte in the tokens of a byte-level tokenizer: itself if it can be printed, else one of those
/// from U+0100.
fn byte_character(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|other| !printable(*other)).count();
    u32::try_from(before).ok().and_then(|count| char::from_u32(0x100 + count)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vocabulary_has_every_id_once() {
        let vocabulary = vocabulary();
        let mut ids: Vec<u64> = vocabulary.values().map(|id| id.as_u64().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..2000).collect::<Vec<_>>());
        assert_eq!(vocabulary["A"], 65);
        // The usual character for a space.
        assert_eq!(vocabulary["\u{120}"], 32);
        assert_eq!(vocabulary["\u{120}bacedi"], 1012);
    }
}
